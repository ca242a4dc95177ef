"""A tar archive, read once from front to back. Pure."""

from __future__ import annotations

import tarfile
from typing import Any

from .archive_streams import CHUNK, Read, Refused, Walk
from .inspection import Rule

BLOCK = 512


class _Source:
    """``tail``: the last block that was read."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.tail = b""

    def read(self, size: int) -> bytes:
        """``size`` bytes, fewer only at the end: what tarfile expects of a file."""
        found = self._read(size)
        while len(found) < size and (more := self._read(size - len(found))):
            found += more
        self.tail = (self.tail + found[-BLOCK:])[-BLOCK:]
        return found


def walk(read: Read, over: Walk, level: int) -> None:
    """Raises Refused, and what tarfile raises on bytes that make no sense."""
    source = _Source(read)
    file: Any = source
    with tarfile.open(fileobj=file, mode="r|", bufsize=CHUNK, encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            over.entry(member.name)
            if member.issym() or member.islnk():
                raise Refused(Rule.LINK)
            if member.issparse():
                raise Refused(Rule.UNSUPPORTED)  # its size is whatever it says
            if not member.isreg() and not member.isdir():
                raise Refused(Rule.SPECIAL)
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                over.content(content.read, level)
            setattr(tar, "members", [])  # tarfile keeps them all, and they are not needed again
        # What tarfile takes for the end another program may read on behind: only zeros may be there.
        rest: Any = tar.fileobj
        while tail := rest.read(CHUNK):
            if tail.strip(b"\0"):
                raise Refused(Rule.BROKEN)
    if source.tail.strip(b"\0"):
        raise Refused(Rule.BROKEN)  # cut off behind an entry: every tar ends in zeros
