"""The append-only, bounded journal of one session: the single source of every attachment.

Whatever a session has to tell (kernel messages, notices, states) and is told (requests) is appended here once, and each
websocket or event stream is a reader with a cursor. A message is acknowledged to the relay when it stands here; a write
is not synced, because the page cache is enough against ``kill -9`` (see ``journal_format`` for the files).

Everything here is synchronous and short, so it is done on the event loop's thread: measured on two busy cores, an
append of 300 bytes takes 6-10 us, a position 3-4 us, reading an entry 5-7 us, an append of 64 MiB 70 ms. One thread has
a journal. Errors: StoreUnavailable when the disk is full or fails (nothing half written stays), TooLarge for what no
record may hold.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ..errors import StoreUnavailable, TooLarge
from . import journal_format as fmt
from .journal_format import Entry, EntryKind, Flag, Head
from .journal_positions import Positions
from .journal_segment import WINDOW, Segment

__all__ = ["Entry", "EntryKind", "Flag", "Head", "Journal"]

_RECENT = 512
"""The newest entries' offsets are all remembered: that is where live readers read."""
_JOIN = 64 * 1024
"""Up to this size a body is copied behind its head: cheaper than a vector write."""


class Journal:
    """Made by ``Journal.open``. At most one descriptor is held, and ``release`` gives it back until the next use."""

    def __init__(self, directory: Path, max_bytes: int, segment_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._segment_bytes = min(segment_bytes, max_bytes)
        self._segments: list[Segment] = []
        self._next = 1
        self._size = 0
        self._fd = -1
        self._closed = False
        self._torn = False
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._received: dict[int, int] = {}
        self._positions = Positions()

    @classmethod
    def open(cls, directory: Path, *, max_bytes: int = 64 * 1024**2, segment_bytes: int = 8 * 1024**2) -> Journal:
        """Open or create. Reads the last segment only (20-60 ms when full of small records); cuts what is torn there.

        ``max_bytes`` bounds the records kept; the newest segment stays whatever its size, so one record of 64 MiB fits.
        """
        journal = cls(directory, max_bytes, segment_bytes)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            journal._restore()
        except OSError as exc:
            raise _unavailable(exc) from exc
        return journal

    # ------------------------------------------------------------------ what is kept

    @property
    def first_index(self) -> int:
        """The oldest entry kept; ``last_index + 1`` when there is none."""
        return self._segments[0].first if self._segments else self._next

    @property
    def last_index(self) -> int:
        """0 before the first entry."""
        return self._next - 1

    @property
    def size_bytes(self) -> int:
        """Of the records kept."""
        return self._size

    @property
    def received(self) -> dict[int, int]:
        """Lane -> the highest number taken from the relay since the last MARK (requests have the gateway's numbers)."""
        return dict(self._received)

    # ------------------------------------------------------------------ writing

    def append(
        self,
        kind: EntryKind,
        body: fmt.Data,
        *,
        flags: Flag | int = 0,
        lane: int = 0,
        number: int = 0,
        at: float,
        target: str = "",
        parent: str = "",
    ) -> int:
        """Add one entry; returns its index. It is in the page cache when this returns.

        Raises StoreUnavailable (then nothing was added) and TooLarge.
        """
        target_raw, parent_raw = target.encode("utf-8", "replace"), parent.encode("utf-8", "replace")
        if len(body) > fmt.MAX_BODY or max(len(target_raw), len(parent_raw)) > fmt.MAX_TEXT:
            raise TooLarge("A journal record may hold 64 MiB, and its target and parent 1024 bytes each.")
        index = self._next
        start, size = fmt.pack(index, kind, flags, lane, number, at, target_raw, parent_raw, body)
        try:
            segment = self._segment_for(size)
            self._write(segment, start, body, size)
        except OSError as exc:
            raise _unavailable(exc) from exc
        segment.note(index, segment.end)
        self._recent.append(segment.end)
        segment.end += size
        self._size += size
        self._next = index + 1
        self._take(kind, lane, number)
        while self._size > self._max_bytes and len(self._segments) > 1:
            self._drop_oldest()
        return index

    def _write(self, segment: Segment, start: bytes, body: fmt.Data, size: int) -> None:
        fd = self._writable()
        if self._torn:
            os.ftruncate(fd, segment.end)
            self._torn = False
        try:
            small = len(body) <= _JOIN
            done = os.pwrite(fd, b"".join((start, body)), segment.end) if small else os.pwritev(fd, (start, body), segment.end)
            if done < size:  # a nearly full disk takes a part; asking for the rest tells why
                done += os.pwrite(fd, b"".join((start, body))[done:], segment.end + done)
            if done < size:
                raise OSError(errno.ENOSPC, "short write")
        except OSError:
            self._torn = True
            with contextlib.suppress(OSError):
                os.ftruncate(fd, segment.end)
                self._torn = False
            raise

    def _take(self, kind: int, lane: int, number: int) -> None:
        if kind == EntryKind.MARK:
            self._received.clear()
        elif number and kind != EntryKind.REQUEST and number > self._received.get(lane, 0):
            self._received[lane] = number

    def _segment_for(self, size: int) -> Segment:
        if self._segments:
            segment = self._segments[-1]
            if not segment.size or segment.size + size <= self._segment_bytes:
                return segment
        return self._begin_segment()

    def _begin_segment(self) -> Segment:
        """Made under another name and renamed, so that a kill leaves no segment without its head."""
        if self._closed:
            raise StoreUnavailable("The journal is closed.")
        path = self._directory / f"{self._next:020d}.seg"
        fresh = path.with_suffix(".new")
        data = fmt.pack_segment(self._next, self._received, self._positions.snapshot())
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.pwrite(fd, data, 0) < len(data):
                raise OSError(errno.ENOSPC, "short write")
            fresh.rename(path)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        self.release()
        self._fd = fd
        self._torn = False
        self._recent.clear()
        segment = Segment(path, self._next, fmt.DATA_AT)
        self._segments.append(segment)
        return segment

    def _drop_oldest(self) -> None:
        segment = self._segments.pop(0)
        self._size -= segment.size
        with contextlib.suppress(OSError):
            segment.path.unlink()

    def cut(self) -> int:
        """Begin a new segment, so that ``drop_before`` what it returns takes everything written until now. Raises StoreUnavailable."""
        try:
            if self._segments and self._segments[-1].size:
                self._begin_segment()
        except OSError as exc:
            raise _unavailable(exc) from exc
        return self._next

    def drop_before(self, index: int) -> None:
        """Remove the segments that hold nothing from ``index`` on. The newest one stays: it has the numbers and positions."""
        while len(self._segments) > 1 and self._segments[1].first <= index:
            self._drop_oldest()

    def _writable(self) -> int:
        if self._closed:
            raise StoreUnavailable("The journal is closed.")
        if self._fd < 0:
            self._fd = os.open(self._segments[-1].path, os.O_RDWR | os.O_CLOEXEC)
        return self._fd

    # ------------------------------------------------------------------ reading

    def read(self, after: int, *, max_bytes: int = 256 * 1024, max_entries: int = 512) -> list[Entry]:
        """Entries with an index above ``after``, in order; at least one when there is one, however large.

        Starts at the oldest kept when ``after`` is older: compare with ``first_index`` to tell the reader what is
        missing. Raises StoreUnavailable.
        """
        found: list[Entry] = []
        left = max_bytes
        for segment, index in self._from(after):
            if left <= 0 or len(found) >= max_entries:
                break
            with self._reader(segment, shared=True) as fd:
                offset = self._locate(segment, fd, index) if fd >= 0 else None
                if offset is not None:
                    most = max_entries - len(found)
                    entries, left = segment.read(fd, offset, index, left, most, first=not found)
                    found += entries
        if not found and max(after + 1, self.first_index) <= self.last_index:
            # Never an empty answer here: a reader that waits for the rest would ask again for ever.
            raise StoreUnavailable("A part of a session's journal cannot be read.")
        return found

    def _from(self, after: int) -> list[tuple[Segment, int]]:
        """The segments to look at, each with the first index wanted of it."""
        index = max(after + 1, self.first_index)
        place = bisect_right(self._segments, index, key=lambda segment: segment.first) - 1
        return [(segment, max(index, segment.first)) for segment in self._segments[max(place, 0) :]]

    def scan(self, after: int = 0) -> Iterator[Head]:
        """Heads with an index above ``after``, without the bodies (2-5 us each). For adoption after a start."""
        for segment, index in self._from(after):
            with self._reader(segment, shared=False) as fd:
                offset = self._locate(segment, fd, index) if fd >= 0 else None
                if offset is not None:
                    for raw, data, at, _ in segment.heads(fd, offset, index, 4 * WINDOW):
                        yield fmt.head(raw, data, at)

    @contextlib.contextmanager
    def _reader(self, segment: Segment, *, shared: bool) -> Iterator[int]:
        """A descriptor to read this segment, -1 when its file is gone.

        ``shared``: the open one may serve. Not for a generator: while that rests, the descriptor could be closed and
        its number go to another file.
        """
        mine = not (shared and self._fd >= 0 and segment is self._segments[-1])
        fd = -1
        try:
            if mine:
                with contextlib.suppress(FileNotFoundError):
                    fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            yield fd if mine else self._fd
        except OSError as exc:
            raise _unavailable(exc) from exc
        finally:
            if fd >= 0:
                os.close(fd)

    def _locate(self, segment: Segment, fd: int, index: int) -> int | None:
        """The offset of this entry, or None when the segment does not hold it."""
        if segment is self._segments[-1]:
            if index >= self._next:
                return None
            back = self._next - index
            if back <= len(self._recent):
                return self._recent[-back]
        return segment.locate(fd, index)

    # ------------------------------------------------------------------ delivery positions

    def set_position(self, key: str, index: int) -> None:
        """Remember that this attachment has everything up to ``index``. Kept for the 256 keys set last."""
        begin, packed = self._positions.set(key, index)
        try:
            if self._segments:
                os.pwrite(self._writable(), packed, begin)
            else:
                self._begin_segment()
        except OSError as exc:
            raise _unavailable(exc) from exc

    def position(self, key: str) -> int | None:
        """What ``set_position`` was last told, None for a key that is not known (any more)."""
        return self._positions.get(key)

    # ------------------------------------------------------------------ opening and closing

    def _restore(self) -> None:
        for left in self._directory.glob("*.new"):
            left.unlink(missing_ok=True)
        for path in sorted(self._directory.glob("*.seg")):
            if path.stem.isdigit():
                self._segments.append(Segment(path, int(path.stem), path.stat().st_size))
        while self._segments and not self._restore_last(self._segments[-1]):
            self._segments.pop().path.unlink(missing_ok=True)
        for segment in self._segments[:-1]:
            segment.end = max(segment.end, fmt.DATA_AT)
        self._size = sum(segment.size for segment in self._segments)

    def _restore_last(self, segment: Segment) -> bool:
        """Walk the last segment: find its end, cut the rest, restore what is kept in memory. False: it has no head."""
        self._next = max(self._next, segment.first)
        if segment.end < fmt.DATA_AT:
            return False
        with segment.path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            received = fmt.unpack_segment(data, segment.first)
            if received is None:
                return False
            self._received = received
            offset, index = fmt.DATA_AT, segment.first
            with memoryview(data) as view:
                while offset + fmt.HEAD_BYTES <= segment.end:
                    raw = fmt.raw_at(view, offset, index)
                    if raw is None or offset + raw.size > segment.end or not fmt.whole(raw, view, offset):
                        break
                    segment.note(index, offset)
                    self._recent.append(offset)
                    self._take(raw.kind, raw.lane, raw.number)
                    offset += raw.size
                    index += 1
                self._positions.restore(view, index - 1)
            if offset < segment.end:
                os.ftruncate(file.fileno(), offset)
            segment.end, self._next = offset, index
        return True

    def release(self) -> None:
        """Close the descriptor of an idle journal; the next use opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        self.release()
        self._closed = True

    def delete(self) -> None:
        """Close, and remove the directory with everything in it. Raises StoreUnavailable."""
        self.close()
        self._segments.clear()
        self._size = 0
        try:
            shutil.rmtree(self._directory)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise _unavailable(exc) from exc


def _unavailable(exc: OSError) -> StoreUnavailable:
    if exc.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return StoreUnavailable("The disk that holds the sessions' journals is full.")
    return StoreUnavailable(f"A session's journal cannot be read or written ({os.strerror(exc.errno or errno.EIO)}).")
