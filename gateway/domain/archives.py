"""Whether an archive may be let in: its structure, read as a stream. Pure: nothing is written but to ``scratch`` files.

Everything in it is unpacked and counted, and thrown away; no size or count that the archive states is believed. What is
held at once is a chunk, the directory of one ZIP (bounded by the entries allowed) and, for an archive within it, a scratch
file. Time is not bounded here but by whoever runs this (``service.archive_worker``).
"""

from __future__ import annotations

import errno
import io
import lzma
import re
import struct
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from . import archive_tar, archive_zip
from .archive_streams import CHUNK, Meter, Read, Refused, unpacking
from .filetypes import ARCHIVES, BZIP2, CHECKABLE, GZIP, SNIFF_BYTES, TAR, XZ, ZIP, is_kind
from .inspection import Rule
from .paths import printable

MAX_NAME_BYTES = 1024
_DRIVE = re.compile("[A-Za-z]:")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_HOSTILE = (zlib.error, lzma.LZMAError, tarfile.TarError, struct.error, EOFError, OSError, ValueError, ArithmeticError, LookupError, RecursionError)
"""What the parsers raise on bytes that make no sense."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """``unpacked_bytes``, ``entries``: of everything together, archives within included. ``ratio``: unpacked to packed, counted past 16 MiB.

    ``depth``: folders above an entry. ``nesting``: how many archives may be around an archive. ``cpu_s``: processor time, seconds.
    """

    unpacked_bytes: int = 1024**3
    ratio: int = 250
    entries: int = 20_000
    depth: int = 32
    nesting: int = 2
    cpu_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Report:
    """``rule``: the one that it breaks, or None; ``where``: the entry, safe to show. Then what was counted until there."""

    rule: Rule | None = None
    where: str = ""
    entries: int = 0
    unpacked_bytes: int = 0


def check(file: BinaryIO, limits: ArchiveLimits, scratch: Callable[[], BinaryIO] = io.BytesIO) -> Report:
    """Look into a ZIP, a tar, or something compressed. ``scratch`` makes an empty file that may be written and read.

    Raises OSError when a disk fails, and nothing else.
    """
    walk = _Walk(limits, Meter(limits.unpacked_bytes, limits.ratio, limits.entries, file.seek(0, io.SEEK_END)), scratch)
    rule: Rule | None = None
    try:
        walk.archive(file, 0)
    except Refused as refused:
        rule = refused.rule
    except MemoryError:
        rule = Rule.SIZE
    except _HOSTILE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL, errno.EFBIG):
            raise  # the scratch file's disk, not the archive
        rule = Rule.BROKEN
    return Report(rule, printable(walk.where) if rule else "", walk.meter.entries, walk.meter.unpacked_bytes)


class _Walk:
    """Through an archive and those within it. ``where``: the entry being looked at."""

    def __init__(self, limits: ArchiveLimits, meter: Meter, scratch: Callable[[], BinaryIO]) -> None:
        self._limits, self._scratch = limits, scratch
        self.meter = meter
        self.where = ""

    def archive(self, file: BinaryIO, level: int) -> None:
        file.seek(0)
        kind = is_kind(file.read(SNIFF_BYTES))
        file.seek(0)
        if kind == ZIP:
            archive_zip.walk(file, self, level)
        elif kind == TAR:
            archive_tar.walk(file.read, self, level)
        elif kind in (GZIP, BZIP2, XZ):
            read = unpacking(kind, file.read, self.meter)
            head = _full(read, SNIFF_BYTES)
            rest = _after(head, read)
            if is_kind(head) == TAR:
                archive_tar.walk(rest, self, level)
            else:
                self.content(rest, level)
        else:
            raise Refused(Rule.UNSUPPORTED if kind in ARCHIVES else Rule.BROKEN)

    def entry(self, name: str) -> None:
        """Count an entry and judge its name, which stays ``where`` until the next. Raises Refused."""
        self.where = name
        self.meter.entry()
        path = name.replace("\\", "/")  # some programs write it so, and some take it so
        parts = [part for part in path.split("/") if part not in ("", ".")]
        raw = name.encode("utf-8", "surrogateescape")
        if path.startswith("/") or ".." in parts or len(raw) > MAX_NAME_BYTES or _DRIVE.match(path) or _CONTROL.search(path) or not path:
            raise Refused(Rule.PATH)
        if len(parts) > self._limits.depth + 1:
            raise Refused(Rule.DEPTH)

    def content(self, read: Read, level: int) -> None:
        """Take in all of an entry's content; when it is an archive, look into that, too. Raises Refused."""
        head = _full(read, SNIFF_BYTES)
        kind = is_kind(head)
        if kind not in ARCHIVES:
            while read(CHUNK):
                pass
            return
        if level >= self._limits.nesting:
            raise Refused(Rule.NESTING)
        if kind not in CHECKABLE:
            raise Refused(Rule.UNSUPPORTED)
        where = self.where
        with self._scratch() as inner:
            inner.write(head)
            while chunk := read(CHUNK):
                inner.write(chunk)
            self.archive(inner, level + 1)
        self.where = where


def _full(read: Read, size: int) -> bytes:
    """The first ``size`` bytes, or all of them where there are fewer."""
    data = b""
    while len(data) < size and (more := read(size - len(data))):
        data += more
    return data


def _after(head: bytes, read: Read) -> Read:
    """``read`` with ``head`` put back in front."""
    front = io.BytesIO(head)
    return lambda size: front.read(size) or read(size)
