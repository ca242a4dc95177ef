"""A traceback as a program wants it: without colours, and with the frames of libraries folded to their names. Pure.

Whoever wants all of it finds it in what the kernel said itself: the session's event stream and Jupyter clients have it whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_CHARS = 64 * 1024
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_FRAME = re.compile(r"^\s*File ([^\n]{1,1000}?):(\d{1,9}), in ")
_PACKAGE = re.compile(r"/(?:site|dist)-packages/([A-Za-z0-9_]{1,100})")
_STANDARD = re.compile(r"/lib/python3\.\d+/|^<frozen ")


def fold(frames: Iterable[object]) -> list[str]:
    """The frames of the user's own code as they are; of a library's, one line however many stand together."""
    folded: list[str] = []
    package, count, size = "", 0, 0
    for frame in frames:
        text = _ANSI.sub("", str(frame))
        name = _library(text)
        if count and name != package:
            folded.append(_line(package, count))
            count = 0
        if name:
            package, count = name, count + 1
            continue
        size += len(text)
        if size > MAX_CHARS:
            folded.append("[the rest of the traceback is left out]")
            break
        folded.append(text)
    if count:
        folded.append(_line(package, count))
    return folded


def _library(frame: str) -> str:
    """Whose frame it is; empty for the user's own code, and for what is no frame."""
    match = _FRAME.match(frame)
    if match is None:
        return ""
    path = match[1]
    if found := _PACKAGE.search(path):
        return found[1]
    return "python" if _STANDARD.search(path) else ""


def _line(package: str, count: int) -> str:
    return f"[{package}: {count} frame{'s' if count > 1 else ''}]"
