"""Compressed bytes, unpacked a chunk at a time and counted before anything is done with them. Pure."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

from .filetypes import BZIP2, GZIP, XZ
from .inspection import Rule

CHUNK = 64 * 1024
XZ_MEMORY = 128 * 1024**2
"""Enough for ``xz -9``; a stream may ask for gigabytes."""
RATIO_FROM = 16 * 1024**2
"""Below so many bytes any ratio is fine: nothing is saved by refusing a small file of zeros."""
Read = Callable[[int], bytes]
"""At most so many bytes; empty at the end only."""


class Refused(Exception):
    """The archive breaks a rule."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(str(rule))
        self.rule = rule


class Meter:
    """What an archive has unpacked to so far, in all its depths. ``packed``: its size as it came, bytes."""

    def __init__(self, most_bytes: int, ratio: int, most_entries: int, packed: int) -> None:
        self._most_bytes, self.most_entries = most_bytes, most_entries
        self._most_by_ratio = max(RATIO_FROM, ratio * packed)
        self.unpacked_bytes = 0
        self.entries = 0

    def unpacked(self, size: int) -> None:
        """Raises Refused."""
        self.unpacked_bytes += size
        if self.unpacked_bytes > self._most_by_ratio:
            raise Refused(Rule.RATIO)
        if self.unpacked_bytes > self._most_bytes:
            raise Refused(Rule.SIZE)

    def entry(self) -> None:
        """Raises Refused."""
        self.entries += 1
        if self.entries > self.most_entries:
            raise Refused(Rule.ENTRIES)


class Walk(Protocol):
    """What the parsers are given: who counts, and who looks at names and contents."""

    meter: Meter
    where: str

    def entry(self, name: str) -> None:
        """Count an entry and judge its name. Raises Refused."""
        ...

    def content(self, read: Read, level: int) -> None:
        """Take in all of an entry's content. Raises Refused."""
        ...


class Decompressor(Protocol):
    """As in ``bz2`` and ``lzma``."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class Inflate:
    """``zlib`` with that interface."""

    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # A full chunk may have more behind it that is already inside.
        self.needs_input = not self.eof and not self._inner.unconsumed_tail and len(out) < max_length
        return out


def raw_deflate() -> Decompressor:
    return Inflate(-15)


_MAKERS: dict[str, Callable[[], Decompressor]] = {
    GZIP: lambda: Inflate(31),
    BZIP2: bz2.BZ2Decompressor,
    XZ: lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY),
}


def unpacking(kind: str, read: Read, meter: Meter) -> Read:
    """The content of a compressed file, which may be several one after another, with zeros behind. Raises Refused."""
    return _Unpacking(_MAKERS[kind], read, meter, single=False).read


def unpacking_entry(make: Callable[[], Decompressor], read: Read, meter: Meter) -> Read:
    """The content of an entry whose packed bytes are exactly what ``read`` gives. Raises Refused."""
    return _Unpacking(make, read, meter, single=True).read


class _Unpacking:
    def __init__(self, make: Callable[[], Decompressor], read: Read, meter: Meter, *, single: bool) -> None:
        self._make, self._read, self._meter, self._single = make, read, meter, single
        self._at: Decompressor = make()
        self._front = b""
        """Packed bytes that belong to the next member."""
        self._members = 1

    def read(self, size: int) -> bytes:
        while not self._at.eof:
            data = b""
            if self._at.needs_input:
                data, self._front = self._front or self._read(CHUNK), b""
                if not data:
                    raise Refused(Rule.BROKEN)
            out = self._at.decompress(data, min(size, CHUNK))
            if out:
                self._meter.unpacked(len(out))
                return out
            if self._at.eof and not self._next():
                return b""
        return self.read(size) if self._next() else b""

    def _next(self) -> bool:
        """Begin the next member; False when there is none. Raises Refused."""
        rest = self._at.unused_data or self._read(CHUNK)
        if self._single and rest:
            raise Refused(Rule.LIES)
        while rest and not rest.strip(b"\0"):
            rest = self._read(CHUNK)
        if not rest:
            return False
        self._members += 1
        if self._members > self._meter.most_entries:
            raise Refused(Rule.ENTRIES)
        self._at, self._front = self._make(), rest
        return True
