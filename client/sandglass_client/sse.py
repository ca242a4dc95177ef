"""Server-sent events: bytes in, events out. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """``id``: its number; None for one without."""

    type: str
    data: str
    id: int | None = None


class Parser:
    """Takes a stream in pieces of any size. ``retry_s``: how long the server wants a client to wait before it comes back."""

    def __init__(self) -> None:
        self.retry_s: float | None = None
        self._parts: list[bytes] = []
        self._begun = False
        self._after_cr = False
        self._type = ""
        self._id: int | None = None
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that this piece completes."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk, self._after_cr = chunk[1:], False  # the second half of a line's end
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in chunk:
            self._parts.append(chunk)  # a long line comes in many pieces: joined once
            return []
        *lines, rest = b"".join((*self._parts, chunk)).split(b"\n")
        if not self._begun:
            lines[0], self._begun = lines[0].removeprefix(b"\xef\xbb\xbf"), True
        self._parts = [rest] if rest else []
        found = []
        for line in lines:
            if line:
                self._field(line)
            elif (event := self._finished()) is not None:
                found.append(event)
        return found

    def _field(self, line: bytes) -> None:
        name, _, raw = line.partition(b":")
        if not name:
            return  # a comment: the server is still there
        value = raw.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value
        elif name == b"id" and value.isascii() and value.isdigit() and len(value) < 19:
            self._id = int(value)
        elif name == b"retry" and value.isascii() and value.isdigit() and len(value) < 9:
            self.retry_s = int(value) / 1000

    def _finished(self) -> ServerEvent | None:
        event = ServerEvent(self._type or "message", "\n".join(self._data), self._id) if self._data else None
        self._type, self._id, self._data = "", None, []
        return event
