"""ZMTP 3.0 with the NULL mechanism, the connecting side, sans-I/O: what libzmq speaks on an ipc socket.

Why not libzmq itself: it keeps what it has read in queues of its own, without a bound in bytes, and hands a message over only
when it is whole. Here a message over the limit is cut while it streams in, so that a kernel that sends 1 GB in one piece, or
faster than the gateway takes it, costs the relay no more than the limit; and one thread less stands between kernel and stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING_BYTES = 64
GREETING = (b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0")).ljust(_GREETING_BYTES, b"\0")
MAX_FRAMES = 1100
"""Of one message: identities, the delimiter, signature, four parts and as many buffers as v1 messages may have."""
MAX_COMMAND = 4096
SUBSCRIBE_ALL = b"\x01"


class ZmtpError(ValueError):
    """The peer does not speak ZMTP, or not this one."""


def encode(parts: Iterable[bytes | memoryview]) -> bytes:
    """A message of one or more frames."""
    out: list[bytes | memoryview] = []
    parts = list(parts)
    for i, part in enumerate(parts):
        more = _MORE if i < len(parts) - 1 else 0
        size = len(part)
        out.append(bytes((more, size)) if size < 256 else struct.pack(">BQ", more | _LONG, size))
        out.append(part)
    return b"".join(out)


def opening(socket_type: bytes, identity: bytes = b"") -> bytes:
    """What a connecting side says first. Messages have to wait for the peer's READY: libzmq hangs up on one that comes earlier."""
    ready = b"\x05READY"
    for name, value in ((b"Socket-Type", socket_type), (b"Identity", identity)):
        ready += bytes((len(name),)) + name + struct.pack(">I", len(value)) + value
    return GREETING + bytes((_COMMAND, len(ready))) + ready


@dataclass(slots=True)
class Raw:
    """A message as it came. ``size``: bytes of all its frames; ``cut``: some of them were too many to keep."""

    frames: list[bytes | bytearray]
    size: int
    cut: bool = False


class Decoder:
    """Bytes in, messages out. At most ``limit`` bytes of a message are kept, and ``head`` of the frame that passes the limit."""

    def __init__(self, limit: int, head: int) -> None:
        self.limit = limit
        self._head = head
        self._rest = b""
        self._greeted = False
        self.ready = False
        """The peer's READY was seen."""
        # the frame that is being received in pieces, if any
        self._big = bytearray()
        self._left = 0
        self._keep = 0
        self._flags = 0
        self._begin()

    def _begin(self) -> None:
        self._frames: list[bytes | bytearray] = []
        self._size = 0
        self._cut = False

    @property
    def held(self) -> int:
        """Bytes kept of an unfinished message."""
        return len(self._rest) + len(self._big) + sum(map(len, self._frames))

    def feed(self, data: bytes | memoryview) -> list[Raw]:
        """Raises ``ZmtpError`` when the peer breaks the protocol."""
        out: list[Raw] = []
        if self._rest:
            data = self._rest + data
            self._rest = b""
        view = memoryview(data)
        pos, end = 0, len(view)
        if not self._greeted:
            if end < _GREETING_BYTES:
                self._rest = bytes(view)
                return out
            if view[0] != 0xFF or not view[9] & 1 or view[10] < 3 or bytes(view[12:17]) != b"NULL\0":
                raise ZmtpError("not ZMTP 3 with the NULL mechanism")
            self._greeted = True
            pos = _GREETING_BYTES
        while True:
            if self._left:
                take = min(self._left, end - pos)
                if self._keep:
                    kept = min(take, self._keep)
                    self._big += view[pos : pos + kept]
                    self._keep -= kept
                pos += take
                self._left -= take
                if self._left:
                    return out
                frame, self._big = self._big, bytearray()
                self._frame(self._flags, frame, out)
                continue
            if end - pos < 2:
                break
            flags = view[pos]
            if flags & ~7:
                raise ZmtpError("unknown flags")
            if flags & _LONG:
                if end - pos < 9:
                    break
                size = int.from_bytes(view[pos + 1 : pos + 9])
                body = pos + 9
            else:
                size = view[pos + 1]
                body = pos + 2
            if flags & _COMMAND:
                if size > MAX_COMMAND or flags & _MORE:
                    raise ZmtpError("a command that is too long")
                if end - body < size:
                    break
                self._command(bytes(view[body : body + size]))
                pos = body + size
                continue
            if not self.ready:
                raise ZmtpError("a message before READY")
            keep = self._allow(size)
            if keep == size and end - body >= size:
                self._frame(flags, bytes(view[body : body + size]), out)
                pos = body + size
            else:
                self._flags, self._left, self._keep = flags, size, keep
                pos = body
        self._rest = bytes(view[pos:])
        return out

    def _allow(self, size: int) -> int:
        """How many bytes of a frame of ``size`` are kept."""
        before, self._size = self._size, self._size + size
        if len(self._frames) >= MAX_FRAMES:
            self._cut = True
            return 0
        if self._cut:
            return 0
        if self._size > self.limit:
            self._cut = True
            return min(size, self._head, max(0, self.limit - before))
        return size

    def _frame(self, flags: int, frame: bytes | bytearray, out: list[Raw]) -> None:
        if len(self._frames) < MAX_FRAMES:
            self._frames.append(frame)
        if not flags & _MORE:
            out.append(Raw(self._frames, self._size, self._cut))
            self._begin()

    def _command(self, body: bytes) -> None:
        name = body[1 : 1 + body[0]] if body else b""
        if not self.ready:
            if name != b"READY":
                raise ZmtpError("the peer refuses the connection")
            self.ready = True
        # others (SUBSCRIBE, PING) mean nothing to a side that only connects
