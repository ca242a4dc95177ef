"""Delivery positions: how far each attachment of a session has been served, in 256 slots of fixed size.

Pure bookkeeping; the journal writes what it gets from here. A slot is the first 16 bytes of the key's SHA-256, the
index, a number that grows with every write (it tells the oldest slot, and needs no clock) and a CRC.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import OrderedDict

from .journal_format import CRC, SLOT_BYTES, SLOTS, SLOTS_AT

_SLOT = struct.Struct("<16sQQ")
_KEY_BYTES = 16


class Positions:
    """The newest ``SLOTS`` keys; the one set longest ago gives its slot to a new one."""

    def __init__(self) -> None:
        self._slots: OrderedDict[bytes, tuple[int, int, int]] = OrderedDict()
        """Key -> (slot, index, order), the one set longest ago first."""
        self._digests: dict[str, bytes] = {}
        self._order = 0

    def get(self, key: str) -> int | None:
        known = self._slots.get(self._digest(key))
        return None if known is None else known[1]

    def set(self, key: str, index: int) -> tuple[int, bytes]:
        """``(offset in the segment, bytes)`` to write."""
        digest = self._digest(key)
        known = self._slots.get(digest)
        slot = self._free_slot() if known is None else known[0]
        self._order = order = self._order + 1
        self._slots[digest] = (slot, index, order)
        self._slots.move_to_end(digest)
        return SLOTS_AT + slot * SLOT_BYTES, _pack(digest, index, order)

    def snapshot(self) -> dict[int, bytes]:
        """Offset -> bytes of every slot in use, for a new segment."""
        return {SLOTS_AT + slot * SLOT_BYTES: _pack(digest, index, order) for digest, (slot, index, order) in self._slots.items()}

    def restore(self, data: bytes | memoryview, last_index: int) -> None:
        """Read a segment's table; a broken slot is left out.

        After the end of the machine a position can be ahead of what was kept: cut to ``last_index``, so that it does
        not skip what comes now.
        """
        found = []
        for slot in range(SLOTS):
            begin = SLOTS_AT + slot * SLOT_BYTES
            packed = bytes(data[begin : begin + _SLOT.size])
            digest, index, order = _SLOT.unpack(packed)
            (crc,) = CRC.unpack_from(data, begin + _SLOT.size)
            if order and crc == zlib.crc32(packed):
                found.append((order, digest, slot, index))
        for order, digest, slot, index in sorted(found):
            self._slots[digest] = (slot, min(index, last_index), order)
            self._order = order

    def _digest(self, key: str) -> bytes:
        digest = self._digests.get(key)
        if digest is None:
            if len(self._digests) >= 2 * SLOTS:
                self._digests.clear()
            digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:_KEY_BYTES]
            self._digests[key] = digest
        return digest

    def _free_slot(self) -> int:
        if len(self._slots) >= SLOTS:
            return self._slots.popitem(last=False)[1][0]
        taken = {slot for slot, _, _ in self._slots.values()}
        return next(slot for slot in range(SLOTS) if slot not in taken)


def _pack(digest: bytes, index: int, order: int) -> bytes:
    start = _SLOT.pack(digest, index, order)
    return start + CRC.pack(zlib.crc32(start))
