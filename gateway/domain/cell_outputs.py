"""The outputs of one cell in nbformat's shape, within a bound, built message by message. Pure.

Kernels are not trusted: whatever a message holds, what stands here is valid by nbformat's schema (4.5).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
ERROR_BYTES = 64 * 1024
"""An error has so much of its own: why a cell failed is kept whatever it printed before."""
STREAM_BYTES = len('{"output_type":"stream","name":"stdout","text":""},')
"""Besides its text: what alternates between the two streams makes many of them."""
_JSON_MIME = re.compile(r"application/(.*\+)?json")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def encoded_bytes(value: Any) -> int:
    """Of its JSON."""
    return len(_encode(value))


@dataclass(slots=True)
class _Stream:
    """``lines`` are done with; ``line`` may still be overwritten by a carriage return."""

    name: str
    lines: list[str] = field(default_factory=list)
    line: list[str] = field(default_factory=list)

    def finished(self) -> Json:
        return {"output_type": "stream", "name": self.name, "text": "".join((*self.lines, *self.line))}


class CellOutputs:
    """``most``: bytes of JSON that are kept; ``left_out``: bytes that were not."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._list: list[_Stream | Json] = []
        self._displays: dict[str, Json] = {}
        self._clear_first = False
        self._cut = False
        self.left_out = 0

    @property
    def full(self) -> bool:
        """More text would only be counted."""
        return self._cut or self._used >= self._most

    def finished(self) -> list[Json]:
        return [out.finished() if isinstance(out, _Stream) else out for out in self._list]

    def take(self, msg_type: str, content: Mapping[str, Any]) -> None:
        """An iopub message of the cell. Others than outputs and ``clear_output`` are ignored."""
        if msg_type == "stream":
            self._stream("stderr" if content.get("name") == "stderr" else "stdout", _text(content.get("text")))
        elif msg_type in ("display_data", "execute_result"):
            self._rich(msg_type, content)
        elif msg_type == "update_display_data":
            self._update(content)
        elif msg_type == "error":
            self._error(content)
        elif msg_type == "clear_output":
            self._clear_first = True
            if content.get("wait") is not True:
                self._clear()

    def leave(self, size: int) -> None:
        """So many bytes of output are not kept."""
        self.left_out += size

    def _clear(self) -> None:
        if self._clear_first:
            self._clear_first = False
            self._list.clear()
            self._displays.clear()
            self._used = self.left_out = 0
            self._cut = False

    def _stream(self, name: str, text: str) -> None:
        self._clear()
        if self._cut:
            self.left_out += len(text.encode("utf-8", "surrogatepass"))
            return
        last = self._list[-1] if self._list else None
        stream = last if isinstance(last, _Stream) and last.name == name else None
        if stream is not None and "\r" in text:
            open_line = "".join(stream.line)
            self._used -= encoded_bytes(open_line) - 2
            stream.line.clear()
            text = open_line + text
        shown = _settled(text)
        kept = _fitting(shown, self._most - self._used - (STREAM_BYTES if stream is None else 0))
        self._used += encoded_bytes(kept) - 2
        if len(kept) < len(shown):
            self._cut = True
            self.left_out += len(shown[len(kept) :].encode("utf-8", "surrogatepass"))
        if stream is None:
            if not kept:
                return
            self._used += STREAM_BYTES
            stream = _Stream(name)
            self._list.append(stream)
        done, newline, rest = kept.rpartition("\n")
        if newline:
            stream.lines += (*stream.line, done, newline)
            stream.line.clear()
        if rest:
            stream.line.append(rest)

    def _rich(self, msg_type: str, content: Mapping[str, Any]) -> None:
        self._clear()
        out: Json = {"output_type": msg_type, "data": _bundle(content.get("data")), "metadata": _object(content.get("metadata"))}
        if msg_type == "execute_result":
            out["execution_count"] = count(content.get("execution_count"))
        display_id = _object(content.get("transient")).get("display_id")
        size = encoded_bytes(out)
        if self._used + size > self._most:
            # a picture too large still has words that stand in for it
            words = {"text/plain": out["data"]["text/plain"]} if "text/plain" in out["data"] else {}
            smaller = out | {"data": words, "metadata": {}}
            self.left_out += size
            if not words or self._used + encoded_bytes(smaller) > self._most:
                return
            out, size = smaller, encoded_bytes(smaller)
            self.left_out -= size
        self._used += size
        self._list.append(out)
        if isinstance(display_id, str):
            self._displays[display_id] = out

    def _update(self, content: Mapping[str, Any]) -> None:
        """Of a display of this cell; one of an earlier cell stays as it was when that cell ended."""
        out = self._displays.get(str(_object(content.get("transient")).get("display_id")))
        if out is None:
            return
        data, metadata = _bundle(content.get("data")), _object(content.get("metadata"))
        more = encoded_bytes([data, metadata]) - encoded_bytes([out["data"], out["metadata"]])
        if self._used + more > self._most:
            self.left_out += max(0, more)
            return
        self._used += more
        out["data"], out["metadata"] = data, metadata

    def _error(self, content: Mapping[str, Any]) -> None:
        self._clear()
        traceback = content.get("traceback")
        out: Json = {
            "output_type": "error", "ename": _text(content.get("ename"))[:1000], "evalue": _fitting(_text(content.get("evalue")), ERROR_BYTES // 4),
            "traceback": [line for line in traceback if isinstance(line, str)] if isinstance(traceback, list) else [],
        }  # fmt: skip
        if encoded_bytes(out["traceback"]) > ERROR_BYTES // 2:
            self.left_out += encoded_bytes(out["traceback"])
            out["traceback"] = []
        self._list.append(out)


def count(value: object) -> int | None:
    """A number of cells or names, where it is one: what a database, a browser and every other language can hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _settled(text: str) -> str:
    """A terminal shows of each line only what follows its last carriage return: one line of a progress bar, not thousands."""
    if "\r" not in text:
        return text
    settled = []
    for line in text.split("\n"):
        shown = line.rstrip("\r")
        settled.append(shown[shown.rfind("\r") + 1 :] + line[len(shown) :])
    return "\n".join(settled)


def _fitting(text: str, room: int) -> str:
    """As much of the beginning as takes ``room`` bytes of JSON."""
    while (size := encoded_bytes(text) - 2) > max(0, room):
        text = text[: len(text) * max(0, room) // size]
    return text


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:1000]


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _bundle(value: object) -> Json:
    """A MIME bundle in which only JSON types hold anything but text."""
    bundle: Json = {}
    for mime, data in _object(value).items():
        text = isinstance(data, str) or (isinstance(data, list) and all(isinstance(line, str) for line in data))
        bundle[mime] = data if text or _JSON_MIME.fullmatch(mime) else _encode(data)
    return bundle
