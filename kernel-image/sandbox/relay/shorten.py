"""What takes the place of a message that is too large to be carried: never nothing, never a frozen client.

- a stream keeps its head and gets a marker line
- a reply is replaced by one that ends the request all the same, with the status that the kernel gave as far as it can be seen
- anything else becomes a line on stderr that names its type and size
"""

from __future__ import annotations

import json
import re
from typing import Any

from .incoming import Incoming, made

KEPT_REPLY = 1024 * 1024
"""The most of a reply or prompt that is kept while nobody acknowledges."""
_LOOK = 4096
_STREAM = re.compile(rb'\s*\{\s*"name"\s*:\s*"(stdout|stderr)"\s*,\s*"text"\s*:\s*"')
# whole characters and escapes, up to the closing quote or to where it breaks off; linear, nothing is tried twice
_WHOLE = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt])*+')
_STATUS = re.compile(rb'"status"\s*:\s*"(ok|error|aborted)"')
_COUNT = re.compile(rb'"execution_count"\s*:\s*(\d{1,9})\b')
_MIME = re.compile(rb'"data"\s*:\s*\{\s*"([A-Za-z0-9.+/-]{1,100})"')


def amount(size: int) -> str:
    """``1.5 MB``"""
    value, unit = float(size), "bytes"
    for bigger in ("kB", "MB", "GB"):
        if value < 1000:
            break
        value, unit = value / 1000, bigger
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"


def text_head(content: bytes | bytearray, room: int) -> tuple[str, str] | None:
    """``name`` and the first characters of a stream's text, from JSON that may break off anywhere; None if it is no such thing.

    At most ``room`` bytes of it are looked at; an escape or a character that breaks off at the end is left out.
    """
    start = _STREAM.match(content)
    if start is None:
        return None
    whole = _WHOLE.match(content, start.end(), start.end() + room)
    assert whole is not None  # it matches the empty text
    # from text: from bytes, json would guess at UTF-16 where the first characters are NUL
    text: str = json.loads('"' + whole.group().decode("utf-8", "ignore") + '"', strict=False)
    if text and "\ud800" <= text[-1] <= "\udbff":
        text = text[:-1]  # the first half of a pair
    return start.group(1).decode(), text


def stream(m: Incoming, room: int) -> Incoming | None:
    """A stream's first ``room`` bytes and a marker; None when its text cannot be read."""
    found = text_head(m.parts[3], room)
    if found is None:
        return None
    name, text = found
    text += f"\n[Sandglass: this output of {amount(m.size)} was cut here]\n"
    return made(m.channel, "stream", m.parts[1], {"name": name, "text": text}, m.parent_id)


def reply(m: Incoming) -> Incoming:
    """A reply that ends the request. What it loses is named in it."""
    ends = bytes(m.parts[3][:_LOOK]) + b" " + bytes(m.parts[3][-_LOOK:])
    status, count = _STATUS.search(ends), _COUNT.search(ends)
    said = status.group(1).decode() if status else "error"
    content: dict[str, Any] = {"status": said}
    if said == "error":
        what = f"The kernel's reply of {amount(m.size)} was too large to be carried."
        content |= {"ename": "SandglassTruncated", "evalue": what, "traceback": [what]}
    if m.msg_type == "execute_reply":
        content |= {"execution_count": int(count.group(1)) if count else 0, "user_expressions": {}, "payload": []}
    return made(m.channel, m.msg_type, m.parts[1], content, m.parent_id)


def notice(m: Incoming) -> Incoming:
    """A line on stderr that names what is missing."""
    mime = _MIME.search(bytes(m.parts[3][:_LOOK])) if len(m.parts) > 3 else None
    what = f"{m.msg_type} ({mime.group(1).decode()})" if mime else m.msg_type
    text = f"[Sandglass: {what} of {amount(m.size)} was too large to be carried]\n"
    return made("iopub", "stream", m.parts[1], {"name": "stderr", "text": text}, m.parent_id)


def shorten(m: Incoming, room: int) -> Incoming:
    """What is carried instead of ``m``; a stream keeps ``room`` bytes."""
    if m.channel == "iopub" and m.msg_type == "stream":
        return stream(m, room) or notice(m)
    if m.channel in ("shell", "control"):
        return reply(m)
    if m.msg_type == "input_request":
        return made("stdin", "input_request", m.parts[1], {"prompt": "[prompt too large] ", "password": False}, m.parent_id)
    return notice(m)
