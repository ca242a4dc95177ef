"""A ZIP archive, by its directory and by every entry's own header, which must agree: programs differ in which they believe. Pure."""

from __future__ import annotations

import bz2
import io
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from .archive_streams import CHUNK, Decompressor, Read, Refused, Walk, raw_deflate, unpacking_entry
from .inspection import Rule

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_COMMENT = 0xFFFF
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
_SIZES_BEHIND = 0x0008
_UTF8 = 0x0800
_STORED = 0
_METHODS: dict[int, Callable[[], Decompressor]] = {8: raw_deflate, 12: bz2.BZ2Decompressor}
_UNIX = 3


@dataclass(slots=True)
class _Entry:
    raw: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    mode: int
    other_name: str
    """The name in an extra field of Info-ZIP's, which some programs prefer; empty where there is none."""

    @property
    def name(self) -> str:
        return self.raw.decode("utf-8" if self.flags & _UTF8 else "cp437")


def walk(file: BinaryIO, over: Walk, level: int) -> None:
    """Raises Refused, and what ``struct`` and the decompressors raise on bytes that make no sense."""
    begin, end, count = _directory(file)
    if count > over.meter.most_entries:
        raise Refused(Rule.ENTRIES)
    entries: list[_Entry] = []
    for entry in _entries(file, begin, end):
        if entry.other_name:
            over.entry(entry.other_name)
        over.entry(entry.name)
        _judge(entry)
        entries.append(entry)
    if len(entries) != count:
        raise Refused(Rule.LIES)
    entries.sort(key=lambda entry: entry.offset)
    behind = 0
    for entry in entries:
        if entry.offset < behind:
            raise Refused(Rule.OVERLAP)
        over.where = entry.name
        data = _local(file, entry)
        behind = data + entry.packed
        if behind > begin:
            raise Refused(Rule.OVERLAP)
        _content(file, entry, data, over, level)


def _directory(file: BinaryIO) -> tuple[int, int, int]:
    """``(where it begins, where it ends, how many entries it should have)``."""
    size = file.seek(0, io.SEEK_END)
    tail_at = max(0, size - _MAX_COMMENT - _END.size)
    file.seek(tail_at)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0:
        raise Refused(Rule.BROKEN)
    _, disk, first_disk, here, count, length, begin, comment = _END.unpack_from(tail, at)
    end = tail_at + at
    if end + _END.size + comment != size:
        raise Refused(Rule.BROKEN)
    if _FULL16 in (here, count) or _FULL32 in (length, begin):
        file.seek(max(0, end - _LOCATOR64.size))
        mark, disk, where, _ = _LOCATOR64.unpack(file.read(_LOCATOR64.size))
        file.seek(where)
        mark64, _, _, _, disk64, first_disk, here, count, length, begin = _END64.unpack(file.read(_END64.size))
        if mark != b"PK\x06\x07" or mark64 != b"PK\x06\x06" or where + _END64.size > end or disk64:
            raise Refused(Rule.BROKEN)
        end = where
    if disk or first_disk or here != count or begin + length != end:
        raise Refused(Rule.BROKEN)
    return begin, end, count


def _entries(file: BinaryIO, begin: int, end: int) -> Iterator[_Entry]:
    at = begin
    while at < end:
        file.seek(at)
        fixed = _CENTRAL.unpack(file.read(_CENTRAL.size))
        mark, made_by, _, flags, method, _, _, crc, packed, size, name, extra, comment, disk, _, mode, offset = fixed
        if mark != b"PK\x01\x02":
            raise Refused(Rule.BROKEN)
        raw, extras = file.read(name), file.read(extra)
        at += _CENTRAL.size + name + extra + comment
        if len(raw) != name or len(extras) != extra or at > end:
            raise Refused(Rule.BROKEN)
        fields = dict(_extras(extras))
        wide = _wide(fields.get(1, b""), [size, packed, offset])
        yield _Entry(
            raw, flags, method, crc, packed=wide[1], size=wide[0], offset=wide[2], mode=mode >> 16 if made_by >> 8 == _UNIX else 0,
            other_name=fields.get(0x7075, b"")[5:].decode("utf-8"),
        )  # fmt: skip
        if disk not in (0, _FULL16):
            raise Refused(Rule.BROKEN)


def _extras(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):  # some programs pad with a few zeros
        kind, length = struct.unpack_from("<2H", data, at)
        yield kind, data[at + 4 : at + 4 + length]
        at += 4 + length


def _wide(data: bytes, values: list[int]) -> list[int]:
    """The values, those that do not fit taken from the ZIP64 field."""
    at = 0
    for number, value in enumerate(values):
        if value == _FULL32:
            (values[number],) = struct.unpack_from("<Q", data, at)
            at += 8
    return values


def _judge(entry: _Entry) -> None:
    if entry.flags & _ENCRYPTED:
        raise Refused(Rule.ENCRYPTED)
    if entry.method != _STORED and entry.method not in _METHODS:
        raise Refused(Rule.UNSUPPORTED)
    kind = stat.S_IFMT(entry.mode)
    if kind == stat.S_IFLNK:
        raise Refused(Rule.LINK)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Refused(Rule.SPECIAL)
    if entry.method == _STORED and entry.packed != entry.size:
        raise Refused(Rule.LIES)


def _local(file: BinaryIO, entry: _Entry) -> int:
    """Where the entry's packed bytes begin, by its own header. Raises Refused where that says something else."""
    file.seek(entry.offset)
    mark, _, flags, method, _, _, crc, packed, size, name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
    raw = file.read(name)
    if mark != b"PK\x03\x04":
        raise Refused(Rule.BROKEN)
    if raw != entry.raw or method != entry.method or (flags ^ entry.flags) & _ENCRYPTED:
        raise Refused(Rule.LIES)
    wide = _wide(dict(_extras(file.read(extra))).get(1, b""), [size, packed])
    stated = (crc, wide[1], wide[0])
    # With its sizes behind it a header may hold them all the same, or none.
    if stated != (entry.crc, entry.packed, entry.size) and not (flags & _SIZES_BEHIND and not any(stated)):
        raise Refused(Rule.LIES)
    return entry.offset + _LOCAL.size + len(raw) + int(extra)


def _content(file: BinaryIO, entry: _Entry, at: int, over: Walk, level: int) -> None:
    packed = _slice(file, at, entry.packed)
    read = _counted(packed, over) if entry.method == _STORED else unpacking_entry(_METHODS[entry.method], packed, over.meter)
    crc = size = 0

    def checked(most: int) -> bytes:
        nonlocal crc, size
        chunk = read(most)
        crc, size = zlib.crc32(chunk, crc), size + len(chunk)
        if size > entry.size:
            raise Refused(Rule.LIES)
        return chunk

    over.content(checked, level)
    if (size, crc) != (entry.size, entry.crc):
        raise Refused(Rule.LIES)


def _slice(file: BinaryIO, at: int, length: int) -> Read:
    end = at + length

    def read(most: int) -> bytes:
        nonlocal at
        file.seek(at)
        chunk = file.read(min(most, end - at, CHUNK))
        at += len(chunk)
        return chunk

    return read


def _counted(read: Read, over: Walk) -> Read:
    def counted(most: int) -> bytes:
        chunk = read(most)
        over.meter.unpacked(len(chunk))
        return chunk

    return counted
