"""One segment file of a journal: finding and reading entries in it, with a sparse index in memory.

The index costs eight bytes for each 64 entries, grows as records are written or walked over, and needs no place on
disk: what is not remembered is found again by walking the heads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from . import journal_format as fmt

_SPACING = 64
"""Entries between two remembered offsets."""
WINDOW = 64 * 1024
"""How much is read at once when only heads are wanted."""


class Segment:
    """``end``: where its records end. ``marks[i]``: offset of entry ``first + i * 64``, as far as known."""

    __slots__ = ("end", "first", "marks", "path")

    def __init__(self, path: Path, first: int, end: int) -> None:
        self.path, self.first, self.end = path, first, end
        self.marks = [fmt.DATA_AT]

    @property
    def size(self) -> int:
        """Bytes of records."""
        return self.end - fmt.DATA_AT

    def note(self, index: int, offset: int) -> None:
        if index - self.first == len(self.marks) * _SPACING:
            self.marks.append(offset)

    def locate(self, fd: int, index: int) -> int | None:
        """The offset of this entry, or None when the segment does not hold it."""
        mark = min((index - self.first) // _SPACING, len(self.marks) - 1)
        first = self.first + mark * _SPACING
        for raw, _, _, offset in self.heads(fd, self.marks[mark], first, WINDOW):
            if raw.entry == index:
                return offset
        return None

    def heads(self, fd: int, offset: int, index: int, window: int) -> Iterator[tuple[fmt.Raw, bytes, int, int]]:
        """Walk records from ``offset`` on: ``(head, data, its place in data, its offset)``. Stops at a broken one."""
        data, begin = b"", offset
        while offset + fmt.HEAD_BYTES <= self.end:
            at = offset - begin
            if at + fmt.HEAD_BYTES + 2 * fmt.MAX_TEXT > len(data) and begin + len(data) < self.end:
                data, begin, at = os.pread(fd, min(window, self.end - offset), offset), offset, 0
                if len(data) < fmt.HEAD_BYTES:
                    return
            raw = fmt.raw_at(data, at, index)
            if raw is None or offset + raw.size > self.end:
                return
            self.note(index, offset)
            yield raw, data, at, offset
            offset += raw.size
            index += 1

    def read(self, fd: int, offset: int, index: int, left: int, most: int, *, first: bool) -> tuple[list[fmt.Entry], int]:
        """Up to ``most`` entries from ``offset`` on and how many bytes may still be read, 0 when it stopped for that.

        ``first``: the first one is read whatever its size. Stops at a record that is broken.
        """
        found: list[fmt.Entry] = []
        data = os.pread(fd, min(left + fmt.HEAD_BYTES, self.end - offset), offset)
        view = memoryview(data)
        at = 0
        while offset + at < self.end and len(found) < most:
            if at + fmt.HEAD_BYTES > len(data):
                return found, 0 if at else left
            raw = fmt.raw_at(data, at, index)
            if raw is None:
                return found, left
            size = raw.size
            if at + size > len(data) or size > left:
                if at or not first:
                    return found, 0
                data = os.pread(fd, size, offset)
                view = memoryview(data)
                if size > len(data):
                    return found, left
            if not fmt.whole(raw, view, at):
                return found, left
            found.append(fmt.entry(raw, data, at))
            self.note(index, offset + at)
            at += size
            left -= size
            index += 1
        return found, left
