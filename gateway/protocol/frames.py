"""The stream protocol's frames, sans-I/O; the same file runs in the gateway and in the sandbox's relay.

See ``docs/stream-protocol.md``. Standard library only: it is copied into the kernel image. A *message* is a kind, a lane,
a number and up to ``MAX_MESSAGE`` bytes; it travels in *frames* of at most ``MAX_FRAME`` bytes, and frames of different
lanes interleave. Every length is checked against its bound before anything is allocated.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn

PROTOCOL_VERSION = 1
MAX_FRAME = 32 * 1024
MAX_MESSAGE = 64 * 1024 * 1024
MAX_JSON = 4 * 1024 * 1024
"""The most that a HELLO, ATTACH, CALL, RESULT or EVENT may hold."""
MAX_NESTING = 32
MARKER_BYTES = 32

_HEADER = struct.Struct("<2sBBBBHIQIII")
_MAGIC = b"SG"
HEADER_BYTES = _HEADER.size
_CRC_AT = HEADER_BYTES - 4
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

_LIMIT = {int(k): MAX_JSON for k in Kind} | {
    int(Kind.KERNEL): MAX_MESSAGE,
    int(Kind.FILE): 1024 * 1024,
    int(Kind.ACK): 64,
    int(Kind.PING): 64,
    int(Kind.PONG): 64,
}
_UNNUMBERED = frozenset(map(int, (Kind.HELLO, Kind.ATTACH, Kind.ACK, Kind.PING, Kind.PONG)))
# (kind, lane) -> Kind, Lane: what may travel where, and the enum members without a constructor call a frame
_ALLOWED = {(int(k), 0): (k, Lane.CONTROL) for k in (*map(Kind, _UNNUMBERED), Kind.KERNEL, Kind.CALL, Kind.RESULT)} | {
    (int(Kind.KERNEL), 1): (Kind.KERNEL, Lane.KERNEL),
    (int(Kind.EVENT), 1): (Kind.EVENT, Lane.KERNEL),
    (int(Kind.FILE), 2): (Kind.FILE, Lane.FILES),
}


class FrameError(ValueError):
    """The other side broke the protocol; the stream cannot be trusted until the next marker.

    ``messages``: those that became whole, from the same bytes, before the break.
    """

    messages: list[Message]

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.messages = []


@dataclass(frozen=True, slots=True)
class Message:
    """One whole message. ``number`` is 0 for unnumbered ones (HELLO, ATTACH, ACK, PING, PONG)."""

    kind: Kind
    lane: Lane
    number: int
    epoch: int
    body: bytes


def _frame(kind: int, lane: int, number: int, epoch: int, body: bytes | memoryview, offset: int) -> bytes:
    piece = body[offset : offset + MAX_PAYLOAD]
    head = _HEADER.pack(_MAGIC, PROTOCOL_VERSION, kind, lane, 0, len(piece), epoch, number, offset, len(body), 0)[:_CRC_AT]
    return b"".join((head, zlib.crc32(piece, zlib.crc32(head)).to_bytes(4, "little"), piece))


def _check_size(kind: int, size: int) -> None:
    if size > _LIMIT[kind]:
        raise FrameError(f"a message of kind {kind} may not have {size} bytes")


def encode(kind: int, lane: int, number: int, epoch: int, body: bytes | memoryview) -> Iterator[bytes]:
    """Cut a message into frames, each ready for the wire.

    Raises ``FrameError`` when ``body`` is longer than its kind may be.
    """
    _check_size(kind, len(body))
    view = memoryview(body)
    yield _frame(kind, lane, number, epoch, view, 0)
    for offset in range(MAX_PAYLOAD, len(body), MAX_PAYLOAD):
        yield _frame(kind, lane, number, epoch, view, offset)


def encode_ack(received: Sequence[int], epoch: int) -> bytes:
    """A cumulative acknowledgement: the last number received whole, per lane."""
    return next(encode(Kind.ACK, Lane.CONTROL, 0, epoch, pack_ack(received)))


def pack_ack(received: Sequence[int]) -> bytes:
    """The body of an ACK."""
    return _ACK.pack(*received)


def decode_ack(body: bytes) -> tuple[int, int, int]:
    if len(body) != _ACK.size:
        raise FrameError("an acknowledgement has 24 bytes")
    a, b, c = _ACK.unpack(body)
    return a, b, c


def encode_json(value: dict[str, Any]) -> bytes:
    """Half a surrogate pair, which UTF-8 cannot say, is escaped."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# made once: json.loads with an argument makes a decoder a call, which takes longer than a header does
_decoder = json.JSONDecoder(parse_constant=_no_constant)


def parse_json(body: bytes | bytearray) -> Any:
    """JSON as the standard has it, without NaN and infinities. Raises ValueError, RecursionError."""
    return _decoder.decode(body.decode())


# a string that is never closed runs to the end, so that this takes linear time on anything
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


NESTING_WORK = 8 * 1024 * 1024
MAX_BRACKETS = 2_000_000
"""Arrays and objects in one message: a million points in pairs are half of this; taking more apart would hold up everybody."""


def nesting(body: bytes | bytearray, limit: int) -> int:
    """How deep arrays and objects nest in JSON text; ``limit + 1`` stands for deeper, and for brackets that do
    not match, or are too many to be counted in passing.

    Works on whole strings in C, without recursion: text made of brackets alone would take Python seconds a megabyte. Each pass
    takes away the innermost level, so ordinary text shrinks at once; text that does not, within a few times its length, is refused
    like what is too deep: hundreds of passes over megabytes would stall everybody.
    """
    opening = body.count(b"[") + body.count(b"{")
    if opening <= limit:
        return 0
    if opening > MAX_BRACKETS:
        return limit + 1
    rest = _STRING.sub(b"", body).translate(_AS_SQUARE, _NO_BRACKETS)
    depth, budget = 0, 4 * len(rest) + NESTING_WORK
    while depth <= limit and b"[]" in rest:
        budget -= len(rest)
        if budget < 0:
            return limit + 1
        rest = rest.replace(b"[]", b"")  # the innermost level
        depth += 1
    return limit + 1 if rest else depth


def decode_json(body: bytes) -> dict[str, Any]:
    """A JSON object from the other side: at most ``MAX_JSON`` bytes and ``MAX_NESTING`` levels. Raises ``FrameError``."""
    if len(body) > MAX_JSON:
        raise FrameError("too much JSON")
    if nesting(body, MAX_NESTING) > MAX_NESTING:
        raise FrameError("JSON nests too deep")
    try:
        value = parse_json(body)
    except (ValueError, RecursionError) as error:
        raise FrameError("not JSON") from error
    if type(value) is not dict:
        raise FrameError("not a JSON object")
    return value


class _Open:
    __slots__ = ("body", "identity")

    def __init__(self, identity: tuple[int, int, int, int]) -> None:
        self.identity = identity
        self.body = bytearray()


class Parser:
    """Bytes in, messages out. One per direction of a stream.

    ``marker``: when set, the parser first looks for these bytes (``resync`` starts that anew) and forgets what comes
    before; with ``watch=True`` it looks for the marker in everything, whatever state it is in, as the relay must.
    ``min_epoch``: frames of an older epoch are dropped.

    At most one message per lane is open, so what is held is bounded by the bytes received for those.
    """

    def __init__(self, marker: bytes | None = None, *, watch: bool = False, max_message: int = MAX_MESSAGE) -> None:
        self._rest = b""
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
        return len(self._rest) + sum(len(o.body) for o in self._open if o)

    @property
    def deaf(self) -> bool:
        """True while only a marker helps: after a broken frame, or before the first marker."""
        return self._seeking or self._broken

    def set_marker(self, marker: bytes) -> None:
        """Learn the marker after the stream has begun (the gateway's side, from HELLO)."""
        if len(marker) != MARKER_BYTES:
            raise FrameError("a marker has 32 bytes")
        self._marker = marker

    def resync(self) -> None:
        """Forget everything half received and wait for the marker."""
        self._rest = b""
        self._forget()
        self._seeking = self._marker is not None

    def _forget(self) -> None:
        self._open = [None] * LANES
        self._broken = False

    def feed(self, data: bytes | memoryview) -> list[Message]:
        """Take bytes as they come, cut anywhere; return the messages that became whole.

        Raises ``FrameError`` at the first broken frame, with the whole messages before it in ``messages``; the parser
        then stays deaf until the marker. A marker in the same bytes heals the break: then nothing is raised.
        """
        data = b"".join((self._rest, data))
        start = max(0, len(self._rest) - MARKER_BYTES + 1)  # a marker may have begun in what was left over
        self._rest = b""
        out: list[Message] = []
        if self._marker is not None:
            while (self._watch or self._seeking) and (at := data.find(self._marker, start)) >= 0:
                if not self.deaf:
                    # whole messages that came before the marker still count; what is broken there does not matter any more
                    with contextlib.suppress(FrameError):
                        self._parse(data[:at], out)
                self._forget()
                self._seeking = False
                self.markers_seen += 1
                data, start = data[at + MARKER_BYTES :], 0
        if not self.deaf:
            try:
                self._rest = data[self._parse(data, out) :]
                return out
            except FrameError as error:
                error.messages = out
                self._rest = data[max(0, len(data) - MARKER_BYTES + 1) :]
                raise
        # keep no more than could be the beginning of a marker
        self._rest = data[max(0, len(data) - MARKER_BYTES + 1) :]
        return out

    def _parse(self, data: bytes, out: list[Message]) -> int:
        """Take the whole frames at the beginning of ``data``; returns how many bytes they have."""
        view, pos, size = memoryview(data), 0, len(data)
        try:
            while size - pos >= HEADER_BYTES:
                magic, version, kind, lane, zero, length, epoch, number, offset, total, crc = _HEADER.unpack_from(view, pos)
                if magic != _MAGIC or version != PROTOCOL_VERSION or zero:
                    raise FrameError("not a frame of this protocol")
                if (kind, lane) not in _ALLOWED:
                    raise FrameError("unknown kind or lane")
                if (number == 0) != (kind in _UNNUMBERED):
                    raise FrameError("a number where none belongs, or none where one does")
                if length > MAX_PAYLOAD or total > min(_LIMIT[kind], self._max) or offset + length > total:
                    raise FrameError("a length is out of bounds")
                if length == 0 and total:
                    raise FrameError("an empty frame of a message that is not empty")
                end = pos + HEADER_BYTES + length
                if size < end:
                    break
                if zlib.crc32(view[pos + HEADER_BYTES : end], zlib.crc32(view[pos : pos + _CRC_AT])) != crc:
                    raise FrameError("checksum")
                if epoch >= self.min_epoch:
                    self._join(kind, lane, number, epoch, offset, total, view[pos + HEADER_BYTES : end], out)
                pos = end
        except FrameError:
            self._broken = True
            raise
        return pos

    def _join(self, kind: int, lane: int, number: int, epoch: int, offset: int, total: int, data: memoryview, out: list[Message]) -> None:
        current = self._open[lane]
        # a small unnumbered message (ACK, PING) may come between the frames of a long one
        if offset == 0 and len(data) == total and (current is None or number == 0):
            out.append(Message(*_ALLOWED[kind, lane], number, epoch, bytes(data)))
            return
        identity = (kind, number, epoch, total)
        if current is None:
            if offset:
                raise FrameError("a message without its beginning")
            current = self._open[lane] = _Open(identity)
        elif current.identity != identity or offset != len(current.body):
            raise FrameError("frames of one lane out of order")
        current.body += data
        if len(current.body) == total:
            self._open[lane] = None
            out.append(Message(*_ALLOWED[kind, lane], number, epoch, bytes(current.body)))


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
        # the message of each lane that is half sent, and how much of it has gone
        self._current: list[tuple[int, int, memoryview] | None] = [None] * LANES
        self._offset = [0] * LANES
        self._urgent: deque[bytes] = deque()
        self.kept_bytes = 0
        """Bytes of reliable messages not yet acknowledged."""
        self.queued_bytes = 0
        """Bytes of messages whose first frame has not been taken yet."""

    @property
    def last(self) -> tuple[int, ...]:
        """The last number given out, per lane."""
        return tuple(self._last)

    def kept(self, lane: int) -> list[tuple[int, int, bytes]]:
        """(number, kind, body) of the lane's messages that are not acknowledged."""
        return list(self._kept[lane])

    def resume_numbers(self, received: Sequence[int]) -> None:
        """Go on counting where an earlier owner of this side stopped."""
        if any(self._kept) or any(self._queue):
            raise FrameError("numbers can only be resumed on an empty outbox")
        if len(received) != LANES:
            raise FrameError("one number a lane")
        self._last = list(received)

    def put(self, kind: int, lane: int, body: bytes) -> int:
        """Queue a message; return its number. Raises ``FrameError`` when it is too long for its kind, or in the wrong lane."""
        if kind in _UNNUMBERED or (kind, lane) not in _ALLOWED:
            raise FrameError(f"a message of kind {kind} does not go in lane {lane}")
        _check_size(kind, len(body))
        self._last[lane] += 1
        item = (self._last[lane], kind, body)
        self._queue[lane].append(item)
        self.queued_bytes += len(body)
        if lane in RELIABLE:
            self._kept[lane].append(item)
            self.kept_bytes += len(body)
        return item[0]

    def put_unnumbered(self, kind: int, body: bytes) -> None:
        """Queue a HELLO, ATTACH, ACK, PING or PONG, which goes before everything else."""
        if kind not in _UNNUMBERED:
            raise FrameError(f"a message of kind {kind} has a number")
        self._urgent.extend(encode(kind, Lane.CONTROL, 0, self.epoch, body))

    def acknowledge(self, received: Sequence[int]) -> None:
        """Forget what the other side has up to and including ``received`` (per lane).

        Raises ``FrameError`` when that was never sent.
        """
        if len(received) != LANES or any(received[lane] > self._last[lane] for lane in RELIABLE):
            raise FrameError("an acknowledgement of something that was never sent")
        for lane in RELIABLE:
            kept = self._kept[lane]
            while kept and kept[0][0] <= received[lane]:
                self.kept_bytes -= len(kept.popleft()[2])

    def rewind(self, received: Sequence[int], epoch: int) -> None:
        """After a re-attach: all kept messages after ``received`` go again; half-sent and FILES messages are dropped."""
        self.acknowledge(received)
        self.epoch = epoch
        self._urgent.clear()
        self._current = [None] * LANES
        self._offset = [0] * LANES
        self.queued_bytes = 0
        for lane in range(LANES):
            self._queue[lane] = deque(self._kept[lane]) if lane in RELIABLE else deque()
            self.queued_bytes += sum(len(item[2]) for item in self._queue[lane])

    def queued(self, lane: int) -> int:
        """Bytes of a lane that have not been taken by ``next_frames``."""
        current = self._current[lane]
        if current is None and not self._queue[lane]:
            return 0
        return sum(len(item[2]) for item in self._queue[lane]) + (len(current[2]) - self._offset[lane] if current else 0)

    @property
    def pending(self) -> bool:
        """True while there is a frame to send."""
        return bool(self._urgent) or any(self._queue) or any(c is not None for c in self._current)

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
        return out[0] if len(out) == 1 else b"".join(out)

    def _next_frame(self) -> bytes | None:
        if self._urgent:
            return self._urgent.popleft()
        for lane in range(LANES):
            current = self._current[lane]
            if current is None:
                if not self._queue[lane]:
                    continue
                number, kind, body = self._queue[lane].popleft()
                self.queued_bytes -= len(body)
                if len(body) <= MAX_PAYLOAD:
                    return _frame(kind, lane, number, self.epoch, body, 0)
                current = self._current[lane] = (number, kind, memoryview(body))
                self._offset[lane] = 0
            number, kind, view = current
            frame = _frame(kind, lane, number, self.epoch, view, self._offset[lane])
            self._offset[lane] += MAX_PAYLOAD
            if self._offset[lane] >= len(view):
                self._current[lane] = None
            return frame
        return None


class Inbox:
    """Which numbered messages of the other side have been taken, per lane: tells new ones from repeats and gaps."""

    def __init__(self, received: Sequence[int] = (0, 0, 0)) -> None:
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
