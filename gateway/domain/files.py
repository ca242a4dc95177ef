"""Which paths and patterns may be used, and which files of a sandbox are kept. Pure.

What the sandbox says of its files is not trusted: names are checked here, sizes only decide what is asked for (the
bytes are counted again when they arrive).

Patterns are globs over ``/``-separated paths: ``*`` is any run of characters but ``/``, ``?`` is one of them, ``**``
standing alone is any number of folders. Brackets mean themselves: people declare ``report [final].xlsx`` by its name.
A pattern whose last part has no wildcard also covers a folder of that name: whoever keeps ``models`` means what is in
it. Matching takes linear time for any pattern and any name; both may come from code that wants to stall the gateway.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..errors import PathRefused
from .model import FileInfo

MAX_SEGMENT_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 16
MAX_PATTERN_CHARS = 255
MAX_DECLARATIONS = 64
"""More than this many a session are refused, so that matching a full listing stays cheap."""
INPUTS = "in"
"""The folder of uploads: written by the gateway, read-only to the user's code, a root of its own in the relay."""

_SPOOFING = frozenset("\u200e\u200f\u2028\u2029\u061c\ufeff" + "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)])))
"""Marks that reorder or hide a shown name (``exe.fdp`` as ``pdf.exe``), and separators that break a line."""


def check_path(path: str) -> str:
    """The path unchanged, when it may be used: relative, POSIX, within bounds. Raises PathRefused.

    Does not ask for NFC: a file that the user's code named otherwise must be found under the name that it has.
    """
    try:
        raw = path.encode("utf-8")
    except UnicodeEncodeError:
        raise PathRefused("A file name must be valid UTF-8.") from None
    if not path:
        raise PathRefused("A path may not be empty.")
    if len(raw) > MAX_PATH_BYTES:
        raise PathRefused(f"A path may have at most {MAX_PATH_BYTES} bytes.")
    if path.startswith("/"):
        raise PathRefused("A path must be relative to the workspace, without a leading slash.")
    if path.startswith("-"):
        raise PathRefused("A path may not begin with a dash: a program would take it for an option.")
    if "\\" in path:
        raise PathRefused("A path uses / between its parts, and no backslash.")
    for char in path:
        if char in _SPOOFING or unicodedata.category(char) == "Cc":
            raise PathRefused("A path may not contain control characters.")
    segments = path.split("/")
    if len(segments) > MAX_DEPTH:
        raise PathRefused(f"A path may have at most {MAX_DEPTH} parts.")
    for segment in segments:
        if segment in ("", ".", ".."):
            raise PathRefused("A path may not have empty parts, '.' or '..'.")
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            raise PathRefused(f"Each part of a path may have at most {MAX_SEGMENT_BYTES} bytes.")
    return path


def clean_path(path: str, *, not_below: Sequence[str] = ()) -> str:
    """A path given by a person or program, in NFC, checked. ``not_below``: folders where this caller may not write.

    Raises PathRefused.
    """
    path = check_path(nfc(path))
    for folder in not_below:
        if path == folder or path.startswith(folder + "/"):
            raise PathRefused(f"Nothing may be written to {folder}/ this way.")
    return path


def nfc(text: str) -> str:
    """Composed form, so that an e with an accent has one spelling whatever keyboard it came from."""
    return unicodedata.normalize("NFC", text)


def split_root(path: str) -> tuple[str, str]:
    """``in/a.csv`` -> ``("in", "a.csv")``, ``out/b`` -> ``("workspace", "out/b")``: the relay's root and the path there."""
    folder, _, rest = path.partition("/")
    return (INPUTS, rest) if folder == INPUTS and rest else ("workspace", path)


def join_root(root: str, path: str) -> str:
    """The inverse of ``split_root``."""
    return f"{INPUTS}/{path}" if root == INPUTS else path


def printable(path: str) -> str:
    """An untrusted name in a form that is safe to show and log: odd characters escaped, at most 300 characters."""
    shown = "".join(
        char if char.isprintable() and char not in _SPOOFING else char.encode("unicode_escape").decode() for char in path[:300]
    )
    return shown[:300]


class Pattern:
    """A checked, compiled pattern. Raises PathRefused."""

    __slots__ = ("_parts", "literal_prefix", "text")

    def __init__(self, text: str) -> None:
        self.text = check_pattern(text)
        self._parts = [_ANY if part == "**" else _Part(part) for part in self.text.split("/")]
        wild = [self.text.find(mark) for mark in "*?" if mark in self.text]
        self.literal_prefix = self.text[: min(wild)] if wild else self.text

    def matches(self, path: str) -> bool:
        """Whether the pattern covers this file. Compares composed forms, so that either spelling of a name matches."""
        composed = path if path.isascii() else nfc(path)
        if not composed.startswith(self.literal_prefix):
            return False
        names = composed.split("/")
        covers_folder = isinstance(self._parts[-1], _Part) and self._parts[-1].literal
        # Which pattern positions are reachable after each name: a walk of at most 16 x 128 steps.
        reachable = self._closure({0})
        for name in names:
            following: set[int] = set()
            for position in reachable:
                if position == len(self._parts):
                    if covers_folder:
                        following.add(position)
                    continue
                part = self._parts[position]
                if part is _ANY:
                    following.add(position)
                elif isinstance(part, _Part) and part.matches(name):
                    following.add(position + 1)
            reachable = self._closure(following)
            if not reachable:
                return False
        return len(self._parts) in reachable

    def _closure(self, positions: set[int]) -> set[int]:
        """``**`` may also stand for nothing; but not at the end, where ``out/**`` means something in it."""
        for position in sorted(positions):
            while position < len(self._parts) - 1 and self._parts[position] is _ANY:
                position += 1
                positions.add(position)
            if position == len(self._parts) - 1 and self._parts[position] is _ANY and position not in positions:
                positions.add(position)
        if positions and self._parts[-1] is _ANY and len(self._parts) - 1 in positions:
            positions.add(_BEFORE_LAST)
        return positions

    @property
    def specificity(self) -> tuple[bool, int, int]:
        """Larger is more specific: no wildcard at all, then the longer literal beginning, then more literal characters."""
        literal = len(self.text.replace("*", "").replace("?", ""))
        return literal == len(self.text), len(self.literal_prefix), literal
