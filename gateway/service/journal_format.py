"""How a journal lies on disk: segments of records, and the table at the head of each segment. Bytes and values only.

A segment is a file ``<first index, 20 digits>.seg``::

    0      64 bytes   head: what had been received from the relay when the segment was begun
    4096   16 KiB     delivery positions: 256 slots of 64 bytes
    20480  records    one after another, their indexes consecutive

The table stands in the segment itself, copied when the next one is begun, so that a journal needs one open file and not
two. A slot never crosses a page: the kernel copies page by page, so a kill leaves an old slot or a new one.

A record is a CRC of all that follows, a head of fixed size, the target (an attachment's key, empty for all), the parent
msg_id and the body. Nothing is synced: what a write has handed to the page cache survives any end of the process. After
the end of the whole machine the CRC tells where good records stop.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum, IntFlag
from typing import NamedTuple

from ..protocol.frames import LANES, MAX_MESSAGE

Data = bytes | bytearray | memoryview
_RECORD = struct.Struct("<I2sBBBxIQQdHH")
_MAGIC = b"Sj"
HEAD_BYTES = _RECORD.size
MAX_TEXT = 1024
"""Bytes of a target or a parent."""
MAX_BODY = MAX_MESSAGE
"""Whatever the relay may send can be kept."""

_SEGMENT = struct.Struct(f"<4sB3xQ{LANES}Q")
_SEGMENT_MAGIC = b"SGJ1"
CRC = struct.Struct("<I")
_CRC_BYTES = CRC.size
SLOTS = 256
SLOT_BYTES = 64
SLOTS_AT = 4096
DATA_AT = SLOTS_AT + SLOTS * SLOT_BYTES


class EntryKind(IntEnum):
    """``MESSAGE``: a v1 kernel message. ``NOTICE``, ``STATE``: JSON. ``REQUEST``: a v1 request forwarded, or to be.

    ``MARK``: JSON ``{"sandbox_id", "epoch"}``; relay numbers after it belong to this sandbox.
    """

    MESSAGE = 1
    NOTICE = 2
    STATE = 3
    REQUEST = 4
    MARK = 5


class Flag(IntFlag):
    REPLY = 1
    BUSY = 2
    IDLE = 4
    OUTPUT = 8
    INPUT = 16


_KINDS = {int(kind): kind for kind in EntryKind}
_ALL_FLAGS = sum(Flag)
_FLAGS = [Flag(value) for value in range(_ALL_FLAGS + 1)]


# Named tuples, because they are made by the hundred at each read: a frozen data class takes four times as long. Their
# field ``index`` hides tuple's method of that name, which nobody wants here.
class Head(NamedTuple):
    """An entry without its body, whose ``length`` is in bytes. ``number``: the relay's message number, 0 for none."""

    index: int  # type: ignore[assignment]
    kind: EntryKind
    flags: Flag
    lane: int
    number: int
    at: float
    target: str
    parent: str
    length: int


class Entry(NamedTuple):
    """``target``: the one attachment that gets it, empty for all. ``at``: seconds since the epoch."""

    index: int  # type: ignore[assignment]
    kind: EntryKind
    flags: Flag
    lane: int
    number: int
    at: float
    target: str
    parent: str
    body: bytes


class Raw(NamedTuple):
    """A record's head as found; made only when its bounds make sense. ``target``, ``parent``, ``length``: in bytes."""

    crc: int
    magic: bytes
    kind: int
    flags: int
    lane: int
    length: int
    entry: int
    number: int
    at: float
    target: int
    parent: int

    @property
    def size(self) -> int:
        """The whole record's."""
        return HEAD_BYTES + self[9] + self[10] + self[5]


def raw_at(data: Data, offset: int, index: int) -> Raw | None:
    """The head at ``offset`` when it can be that of entry ``index``, else None. Needs ``HEAD_BYTES`` there."""
    raw = Raw._make(_RECORD.unpack_from(data, offset))
    _, magic, kind, flags, lane, length, found, _, _, target, parent = raw
    if magic != _MAGIC or found != index or kind not in _KINDS or flags > _ALL_FLAGS or lane >= LANES:
        return None
    if length > MAX_BODY or target > MAX_TEXT or parent > MAX_TEXT:
        return None
    return raw


def whole(raw: Raw, view: memoryview, offset: int) -> bool:
    """Whether the CRC of the record at ``offset``, all of it in ``view``, holds."""
    return zlib.crc32(view[offset + _CRC_BYTES : offset + raw.size]) == raw.crc


def _texts(data: bytes, begin: int, target: int, parent: int) -> tuple[str, str]:
    middle = begin + target
    return (
        data[begin:middle].decode("utf-8", "replace") if target else "",
        data[middle : middle + parent].decode("utf-8", "replace") if parent else "",
    )


def entry(raw: Raw, data: bytes, offset: int) -> Entry:
    """The whole record must be in ``data``."""
    _, _, kind, flags, lane, length, index, number, at, target_size, parent_size = raw
    target, parent = _texts(data, offset + HEAD_BYTES, target_size, parent_size)
    begin = offset + HEAD_BYTES + target_size + parent_size
    body = data[begin : begin + length]
    return Entry(index, _KINDS[kind], _FLAGS[flags], lane, number, at, target, parent, body)


def head(raw: Raw, data: bytes, offset: int) -> Head:
    """The record's head and two texts must be in ``data``; its body need not."""
    _, _, kind, flags, lane, length, index, number, at, target_size, parent_size = raw
    target, parent = _texts(data, offset + HEAD_BYTES, target_size, parent_size)
    return Head(index, _KINDS[kind], _FLAGS[flags], lane, number, at, target, parent, length)


def pack(index: int, kind: int, flags: int, lane: int, number: int, at: float, target: bytes, parent: bytes, body: Data) -> tuple[bytes, int]:
    """``(what stands before the body, size of the whole record)``."""
    start = _RECORD.pack(0, _MAGIC, kind, flags, lane, len(body), index, number, at, len(target), len(parent))[_CRC_BYTES:] + target + parent
    return CRC.pack(zlib.crc32(body, zlib.crc32(start))) + start, _CRC_BYTES + len(start) + len(body)


def pack_segment(first: int, received: Mapping[int, int], positions: Mapping[int, bytes]) -> bytes:
    """Everything before the records of a new segment. ``positions``: offset -> packed slot."""
    start = _SEGMENT.pack(_SEGMENT_MAGIC, 1, first, *(received.get(lane, 0) for lane in range(LANES)))
    out = bytearray(DATA_AT)
    out[: len(start) + 4] = start + CRC.pack(zlib.crc32(start))
    for begin, slot in positions.items():
        out[begin : begin + len(slot)] = slot
    return bytes(out)


def unpack_segment(data: Data | mmap.mmap, first: int) -> dict[int, int] | None:
    """``received`` when the segment was begun, or None when this is not the head of segment ``first``."""
    if len(data) < DATA_AT:
        return None
    start = bytes(data[: _SEGMENT.size])
    magic, version, found, *received = _SEGMENT.unpack(start)
    (crc,) = CRC.unpack_from(data, _SEGMENT.size)
    if magic != _SEGMENT_MAGIC or version != 1 or found != first or crc != zlib.crc32(start):
        return None
    return {lane: number for lane, number in enumerate(received) if number}
