"""A small cache of converted messages, bounded by bytes, so that one conversion serves every client of a session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

ENTRY_OVERHEAD = 256
"""What an entry costs besides its bytes, roughly: a flood of tiny entries stays bounded too."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes ready to be sent; ``binary`` tells which kind of websocket frame they go in."""

    data: bytes
    binary: bool = False


class ByteCache:
    """The least recently used goes first. A value larger than half the cache is handed out, not kept."""

    def __init__(self, max_bytes: int = 16 * 1024**2) -> None:
        self._max = max_bytes
        self._size = 0
        self._entries: OrderedDict[Hashable, Payload] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable, make: Callable[[], Payload]) -> Payload:
        """The value for ``key``, made when it is not there. What ``make`` raises passes through and is not kept."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
            self.hits += 1
            return found
        self.misses += 1
        value = make()
        cost = len(value.data) + ENTRY_OVERHEAD
        if cost * 2 <= self._max:
            self._entries[key] = value
            self._size += cost
            while self._size > self._max:
                _, old = self._entries.popitem(last=False)
                self._size -= len(old.data) + ENTRY_OVERHEAD
        return value

    def statistics(self) -> dict[str, int]:
        return {"bytes": self._size, "entries": len(self._entries), "hits": self.hits, "misses": self.misses}
