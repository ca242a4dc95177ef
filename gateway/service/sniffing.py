"""What a file is by its first bytes, while it passes; the one place where ``puremagic`` is asked."""

from __future__ import annotations

import puremagic

from ..domain.filetypes import ARCHIVES, SNIFF_BYTES, fits, is_kind, type_of
from ..domain.inspection import Rule

LEAST = 0.3
"""Below it a match is of one or two bytes, which any text may begin with."""


def sniff(head: bytes) -> str:
    """What the library says, a MIME type, or empty when it knows none. Takes about half a millisecond."""
    try:
        matches = puremagic.magic_string(head[:SNIFF_BYTES])
    except (puremagic.PureError, ValueError):  # nothing matches; nothing to look at
        return ""
    return next((match.mime_type for match in matches if match.mime_type and match.confidence >= LEAST), "")


class Look:
    """A look at the beginning of one file: feed it what comes, until it has seen enough."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._head = bytearray()
        self._mime = ""

    def feed(self, chunk: bytes) -> bool:
        """True once it has seen enough (and at every call from then on)."""
        if len(self._head) < SNIFF_BYTES:
            self._head += chunk[: SNIFF_BYTES - len(self._head)]
        return len(self._head) >= SNIFF_BYTES

    @property
    def mime(self) -> str:
        """By what it has seen; final once ``feed`` said so, or the file is over."""
        if not self._mime or len(self._head) < SNIFF_BYTES:
            head = bytes(self._head)
            self._mime = type_of(head, self._path, sniff(head))
        return self._mime

    @property
    def rule(self) -> Rule | None:
        """What is wrong with it by its beginning, if anything."""
        return None if fits(self.mime, self._path) else Rule.TYPE

    @property
    def archive(self) -> str:
        """The kind of archive that it is, whatever its name: a workbook is a ZIP. Empty when it is none."""
        kind = is_kind(bytes(self._head))
        return kind if kind in ARCHIVES else ""
