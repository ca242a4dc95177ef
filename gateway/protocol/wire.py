"""``v1.kernel.websocket.jupyter.org`` messages as bytes: the form in which a kernel message travels; gateway and relay use it.

A message is a count N, N offsets (little-endian u64 each), and the pieces between the offsets: channel, header, parent header,
metadata, content, then buffers. Standard library only: this file is copied into the kernel image, beside ``frames.py``.
Nothing is allocated for a count or offset that the bytes at hand do not bear out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

CHANNELS = ("shell", "iopub", "stdin", "control")
MAX_BUFFERS = 1024
MIN_PARTS = 4
"""Header, parent header, metadata, content."""
MAX_PARTS = MIN_PARTS + MAX_BUFFERS
MAX_HEADER = 64 * 1024
"""The most that a header or a parent header may have."""

_NAMES = {name.encode(): name for name in CHANNELS}
_ONE = struct.Struct("<Q")


class WireError(ValueError):
    """Bytes that are no kernel message."""


def pack(channel: str, parts: Sequence[bytes | bytearray | memoryview]) -> bytes:
    """``parts``: header, parent header, metadata, content, then buffers, as they are. Raises ``WireError``."""
    if channel not in CHANNELS or not MIN_PARTS <= len(parts) <= MAX_PARTS:
        raise WireError("a message has a known channel and four parts or more")
    name = channel.encode()
    count = len(parts) + 2
    at = 8 * (count + 1)
    offsets = [count, at, at := at + len(name)]
    for part in parts:
        offsets.append(at := at + len(part))
    return b"".join((struct.pack(f"<{count + 1}Q", *offsets), name, *parts))


def packed_size(channel: str, parts: Sequence[bytes | bytearray | memoryview]) -> int:
    """What ``pack`` would make, in bytes."""
    return 8 * (len(parts) + 3) + len(channel) + sum(map(len, parts))


def split(body: bytes | memoryview) -> tuple[str, tuple[int, ...]]:
    """Channel and offsets: part i (0 = header) lies between offset i and i + 1. Raises ``WireError``."""
    size = len(body)
    if size < 8:
        raise WireError("shorter than a count")
    (count,) = _ONE.unpack_from(body, 0)
    if not MIN_PARTS + 2 <= count <= MAX_PARTS + 2 or 8 * (count + 1) > size:
        raise WireError("a count of parts that cannot be")
    offsets: tuple[int, ...] = struct.unpack_from(f"<{count}Q", body, 8)
    at = 8 * (count + 1)
    if offsets[0] != at or offsets[-1] != size:
        raise WireError("offsets that do not fit the message")
    for offset in offsets:
        if offset < at:
            raise WireError("offsets that go backwards")
        at = offset
    channel = _NAMES.get(bytes(body[offsets[0] : min(offsets[1], offsets[0] + 16)]))
    if channel is None:
        raise WireError("an unknown channel")
    if offsets[2] - offsets[1] > MAX_HEADER or offsets[3] - offsets[2] > MAX_HEADER:
        raise WireError("a header that is too long")
    return channel, offsets[1:]


def unpack(body: bytes) -> tuple[str, list[bytes]]:
    """Channel and parts. Raises ``WireError``."""
    channel, offsets = split(body)
    return channel, [body[start:end] for start, end in pairwise(offsets)]
