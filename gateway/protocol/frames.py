"""The stream protocol's frames, sans-I/O; the same file runs in the gateway and in the sandbox's relay.

See ``docs/stream-protocol.md``. Standard library only: it is copied into the kernel image. A *message* is a kind, a lane,
a number and up to ``MAX_MESSAGE`` bytes; it travels in *frames* of at most ``MAX_FRAME`` bytes, and frames of different
lanes interleave. Every length is checked against its bound before anything is allocated.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

PROTOCOL_VERSION = 1
MAX_FRAME = 32 * 1024
MAX_MESSAGE = 64 * 1024 * 1024
MAX_JSON = 4 * 1024 * 1024
"""The most that a HELLO, ATTACH, CALL, RESULT or EVENT may hold."""
MARKER_BYTES = 32

_HEADER = struct.Struct("<2sBBBxHIQIII")
_MAGIC = b"SG"
HEADER_BYTES = _HEADER.size
MAX_PAYLOAD = MAX_FRAME - HEADER_BYTES
_ACK = struct.Struct("<3Q")


class Kind(IntEnum):
    HELLO = 1
    ATTACH = 2
    ACK = 3
    KERNEL = 4
    CALL = 5
    RESULT = 6
    EVENT = 7
    FILE = 8
    PING = 9
    PONG = 10


class Lane(IntEnum):
    """Messages of one lane arrive in order; a lower lane's frames go first."""

    CONTROL = 0
    KERNEL = 1
    FILES = 2


LANES = len(Lane)
RELIABLE = (Lane.CONTROL, Lane.KERNEL)
"""Lanes whose numbered messages are kept until acknowledged and sent again after a re-attach."""

_KINDS = frozenset(int(k) for k in Kind)
_LIMIT = {int(k): MAX_JSON for k in Kind} | {Kind.KERNEL: MAX_MESSAGE, Kind.FILE: 1024 * 1024, Kind.ACK: 64, Kind.PING: 64}
_LIMIT[Kind.PONG] = 64


class FrameError(ValueError):
    """The other side broke the protocol; the stream cannot be trusted until the next marker."""


@dataclass(frozen=True, slots=True)
class Message:
    """One whole message. ``number`` is 0 for unnumbered ones (HELLO, ATTACH, ACK, PING, PONG)."""

    kind: Kind
    lane: Lane
    number: int
    epoch: int
    body: bytes


def encode(kind: int, lane: int, number: int, epoch: int, body: bytes | memoryview) -> Iterator[bytes]:
    """Cut a message into frames, each ready for the wire.

    Raises ``FrameError`` when ``body`` is longer than its kind may be.
    """
    total = len(body)
    if total > _LIMIT[kind]:
        raise FrameError(f"a message of kind {kind} may not have {total} bytes")
    view = memoryview(body)
    offset = 0
    while True:
        piece = view[offset : offset + MAX_PAYLOAD]
        head = _HEADER.pack(_MAGIC, PROTOCOL_VERSION, kind, lane, len(piece), epoch, number, offset, total, 0)
        crc = zlib.crc32(piece, zlib.crc32(head[:-4]))
        yield b"".join((head[:-4], crc.to_bytes(4, "little"), piece))
        offset += len(piece)
        if offset >= total:
            return


def encode_ack(received: tuple[int, ...], epoch: int) -> bytes:
    """A cumulative acknowledgement: the last number received whole, per lane."""
    return next(encode(Kind.ACK, Lane.CONTROL, 0, epoch, _ACK.pack(*received)))


def decode_ack(body: bytes) -> tuple[int, int, int]:
    if len(body) != _ACK.size:
        raise FrameError("an acknowledgement has 24 bytes")
    a, b, c = _ACK.unpack(body)
    return a, b, c


class _Open:
    __slots__ = ("body", "kind", "number", "total")

    def __init__(self, kind: int, number: int, total: int) -> None:
        self.kind, self.number, self.total = kind, number, total
        self.body = bytearray()


class Parser:
    """Bytes in, messages out. One per direction of a stream.

    ``marker``: when set, the parser first looks for these bytes (``resync`` starts that anew) and forgets what comes
    before; with ``watch=True`` it looks for the marker in everything, whatever state it is in, as the relay must.
    ``min_epoch``: frames of an older epoch are dropped.

    At most one message per lane is open, so what is held is bounded by the bytes received for those.
    """

    def __init__(self, marker: bytes | None = None, *, watch: bool = False, max_message: int = MAX_MESSAGE) -> None:
        self._buffer = bytearray()
        self._open: list[_Open | None] = [None] * LANES
        self._marker = marker
        self._watch = watch
        self._seeking = marker is not None and not watch
        self._max = max_message
        self._broken = False
        self.min_epoch = 0
        self.markers_seen = 0

    @property
    def buffered(self) -> int:
        """Bytes held now, for bounds and tests."""
        return len(self._buffer) + sum(len(o.body) for o in self._open if o)

    def set_marker(self, marker: bytes) -> None:
        """Learn the marker after the stream has begun (the gateway's side, from HELLO)."""
        if len(marker) != MARKER_BYTES:
            raise FrameError("a marker has 32 bytes")
        self._marker = marker

    def resync(self) -> None:
        """Forget everything half received and wait for the marker."""
        self._reset()
        self._seeking = self._marker is not None

    def _reset(self) -> None:
        self._buffer.clear()
        self._open = [None] * LANES
        self._broken = False

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes as they come, cut anywhere; return the messages that became whole.

        Raises ``FrameError`` at the first broken frame; with ``watch`` the parser then stays deaf until the marker.
        """
        self._buffer += data
        out: list[Message] = []
        if (self._watch or self._seeking) and self._marker is not None:
            self._find_marker(len(data), out)
        if self._seeking or self._broken:
            # only a marker helps; keep no more than could be its beginning
            if len(self._buffer) > MARKER_BYTES:
                del self._buffer[: len(self._buffer) - MARKER_BYTES + 1]
            return out
        self._parse(out)
        return out

    def _find_marker(self, new: int, out: list[Message]) -> None:
        assert self._marker is not None
        start = max(0, len(self._buffer) - new - MARKER_BYTES + 1)
        at = self._buffer.find(self._marker, start)
        while at >= 0:
            if not self._seeking and not self._broken:
                # whole messages that came before the marker still count
                tail = self._buffer[at:]
                del self._buffer[at:]
                try:
                    self._parse(out)
                except FrameError:
                    out.clear()
                self._buffer = tail
                at = 0
            del self._buffer[: at + MARKER_BYTES]
            rest = bytes(self._buffer)
            self._reset()
            self._buffer += rest
            self._seeking = False
            self.markers_seen += 1
            at = self._buffer.find(self._marker)

    def _parse(self, out: list[Message]) -> None:
        buf, pos = self._buffer, 0
        try:
            while len(buf) - pos >= HEADER_BYTES:
                magic, version, kind, lane, length, epoch, number, offset, total, crc = _HEADER.unpack_from(buf, pos)
                if magic != _MAGIC or version != PROTOCOL_VERSION:
                    raise FrameError("not a frame of this protocol")
                if kind not in _KINDS or lane >= LANES:
                    raise FrameError("unknown kind or lane")
                if length > MAX_PAYLOAD or total > min(_LIMIT[kind], self._max) or offset + length > total:
                    raise FrameError("a length is out of bounds")
                if length == 0 and total:
                    raise FrameError("an empty frame of a message that is not empty")
                end = pos + HEADER_BYTES + length
                if len(buf) < end:
                    return
                with memoryview(buf) as view:
                    piece = view[pos + HEADER_BYTES : end]
                    good = zlib.crc32(piece, zlib.crc32(view[pos : pos + HEADER_BYTES - 4])) == crc
                    data = bytes(piece)
                    piece.release()
                if not good:
                    raise FrameError("checksum")
                pos = end
                if epoch >= self.min_epoch:
                    message = self._join(kind, lane, number, epoch, offset, total, data)
                    if message is not None:
                        out.append(message)
        except FrameError:
            self._broken = True
            raise
        finally:
            del buf[:pos]

    def _join(self, kind: int, lane: int, number: int, epoch: int, offset: int, total: int, data: bytes) -> Message | None:
        current = self._open[lane]
        if current is None:
            if offset:
                raise FrameError("a message without its beginning")
            if len(data) == total:
                return Message(Kind(kind), Lane(lane), number, epoch, data)
            current = self._open[lane] = _Open(kind, number, total)
        elif number == 0 and offset == 0 and len(data) == total:
            # small unnumbered messages (ACK, PING) may come between the frames of a long one
            return Message(Kind(kind), Lane(lane), number, epoch, data)
        elif (current.kind, current.number, current.total) != (kind, number, total) or offset != len(current.body):
            raise FrameError("frames of one lane out of order")
        current.body += data
        if len(current.body) < total:
            return None
        self._open[lane] = None
        return Message(Kind(kind), Lane(lane), number, epoch, bytes(current.body))


class Outbox:
    """What one side still has to send, and has sent but not seen acknowledged.

    Numbers go up by one per lane. Messages of reliable lanes are kept until ``acknowledge``; after a re-attach ``rewind``
    puts back all that the other side has not. ``next_frames`` interleaves: every lane above waits for the ones below it,
    frame by frame, so that a control message never waits behind a large one.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self._last = [0] * LANES
        self._kept: list[deque[tuple[int, int, bytes]]] = [deque() for _ in range(LANES)]
        self._queue: list[deque[tuple[int, int, bytes]]] = [deque() for _ in range(LANES)]
        self._frames: list[Iterator[bytes] | None] = [None] * LANES
        self._urgent: deque[bytes] = deque()
        self.kept_bytes = 0
        """Bytes of reliable messages not yet acknowledged."""
        self.queued_bytes = 0
        """Bytes of messages whose first frame has not been taken yet."""

    @property
    def last(self) -> tuple[int, ...]:
        """The last number given out, per lane."""
        return tuple(self._last)

    def resume_numbers(self, received: tuple[int, ...] | list[int]) -> None:
        """Go on counting where an earlier owner of this side stopped."""
        if any(self._kept) or any(self._queue):
            raise FrameError("numbers can only be resumed on an empty outbox")
        self._last = list(received)

    def put(self, kind: int, lane: int, body: bytes) -> int:
        """Queue a message; return its number. Raises ``FrameError`` when it is too long for its kind."""
        if len(body) > _LIMIT[kind]:
            raise FrameError(f"a message of kind {kind} may not have {len(body)} bytes")
        self._last[lane] += 1
        item = (self._last[lane], kind, body)
        self._queue[lane].append(item)
        self.queued_bytes += len(body)
        if lane in RELIABLE:
            self._kept[lane].append(item)
            self.kept_bytes += len(body)
        return item[0]

    def put_unnumbered(self, kind: int, body: bytes) -> None:
        """Queue a small message of one frame that goes before everything else."""
        self._urgent.extend(encode(kind, Lane.CONTROL, 0, self.epoch, body))

    def acknowledge(self, received: tuple[int, ...] | list[int]) -> None:
        """Forget what the other side has up to and including ``received`` (per lane)."""
        for lane in RELIABLE:
            kept = self._kept[lane]
            while kept and kept[0][0] <= received[lane]:
                self.kept_bytes -= len(kept.popleft()[2])

    def rewind(self, received: tuple[int, ...] | list[int], epoch: int) -> None:
        """After a re-attach: all kept messages after ``received`` go again; half-sent and FILES messages are dropped."""
        self.epoch = epoch
        self.acknowledge(received)
        self._urgent.clear()
        self._frames = [None] * LANES
        self.queued_bytes = 0
        for lane in range(LANES):
            self._queue[lane] = deque(self._kept[lane]) if lane in RELIABLE else deque()
            self.queued_bytes += sum(len(item[2]) for item in self._queue[lane])

    @property
    def pending(self) -> bool:
        """True while there is a frame to send."""
        return bool(self._urgent) or any(self._frames) or any(self._queue)

    def next_frames(self, budget: int = 256 * 1024) -> bytes:
        """The next frames for the wire, about ``budget`` bytes at the most; empty when there are none."""
        out: list[bytes] = []
        size = 0
        while size < budget:
            frame = self._next_frame()
            if frame is None:
                break
            out.append(frame)
            size += len(frame)
        return b"".join(out)

    def _next_frame(self) -> bytes | None:
        if self._urgent:
            return self._urgent.popleft()
        for lane in range(LANES):
            frames = self._frames[lane]
            if frames is None and self._queue[lane]:
                number, kind, body = self._queue[lane].popleft()
                self.queued_bytes -= len(body)
                frames = self._frames[lane] = encode(kind, lane, number, self.epoch, body)
            if frames is not None:
                frame = next(frames, None)
                if frame is not None:
                    if int.from_bytes(frame[24:28], "little") <= int.from_bytes(frame[20:24], "little") + len(frame) - HEADER_BYTES:
                        self._frames[lane] = None
                    return frame
                self._frames[lane] = None
                return self._next_frame()
        return None


class Inbox:
    """Which numbered messages of the other side have been taken, per lane: tells new ones from repeats and gaps."""

    def __init__(self, received: tuple[int, ...] | list[int] = (0, 0, 0)) -> None:
        self.received = list(received)

    def accept(self, message: Message) -> bool:
        """True for the next new message of its lane, False for a repeat. Raises ``FrameError`` on a gap."""
        if message.number == 0:
            return True
        last = self.received[message.lane]
        if message.number <= last:
            return False
        if message.number != last + 1 and message.lane in RELIABLE:
            raise FrameError("a message is missing")
        self.received[message.lane] = message.number
        return True
