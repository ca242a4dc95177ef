"""Which paths and patterns may be used. Pure.

Patterns are globs over ``/``-separated paths: ``*`` is any run of characters but ``/``, ``**`` standing alone is any
number of folders. Nothing else is special: people declare ``report [final].xlsx`` by its name (``?`` is refused, for
whoever writes it means a wildcard). A pattern whose last part has no star also covers a folder of that name: whoever
keeps ``models`` means what is in it. Matching never backtracks, and is cheap for any pattern and any name: both may
come from code that wants to stall the gateway.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ..errors import PathRefused

MAX_SEGMENT_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 16
MAX_PATTERN_CHARS = 255
MAX_STARS = 8
"""Wildcards in one pattern."""
MAX_KEY_CHARS = 512
_KEY = re.compile("[A-Za-z0-9._-]{1,200}(/[A-Za-z0-9._-]{1,200})*")
_REMEMBERED_FOLDERS = 2048
_NO_PARTS = frozenset(("", ".", ".."))
INPUTS = "in"
"""The folder of uploads: written by the gateway, read-only to the user's code, a root of its own in the relay."""

_HIDDEN = re.compile("[\u061c\u200e\u200f\ufeff\u2028-\u202e\u2066-\u2069]")
"""Marks that reorder or hide a shown name (``exe.fdp`` as ``pdf.exe``), and separators that break a line."""
_CONTROL = re.compile(f"[\x00-\x1f\x7f-\x9f]|{_HIDDEN.pattern}")


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
    if _CONTROL.search(path):
        raise PathRefused("A path may not contain control characters.")
    segments = path.split("/")
    if len(segments) > MAX_DEPTH:
        raise PathRefused(f"A path may have at most {MAX_DEPTH} parts.")
    if not _NO_PARTS.isdisjoint(segments):
        raise PathRefused("A path may not have empty parts, '.' or '..'.")
    if len(raw) > MAX_SEGMENT_BYTES and any(len(segment.encode()) > MAX_SEGMENT_BYTES for segment in segments):
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


def check_key(key: str) -> str:
    """An object's key, unchanged: 512 characters, in parts of ``[A-Za-z0-9._-]`` of up to 200. Raises PathRefused."""
    if len(key) > MAX_KEY_CHARS or not _KEY.fullmatch(key) or not _NO_PARTS.isdisjoint(key.split("/")):
        raise PathRefused("That is no key for an object.")
    return key


def nfc(text: str) -> str:
    """Composed form, so that an e with an accent has one spelling whatever keyboard it came from."""
    return unicodedata.normalize("NFC", text)


def split_root(path: str) -> tuple[str, str]:
    """The relay's root and the path in it: ``in/a`` -> ``("in", "a")``, ``out/b`` -> ``("workspace", "out/b")``."""
    folder, _, rest = path.partition("/")
    return (INPUTS, rest) if folder == INPUTS and rest else ("workspace", path)


def join_root(root: str, path: str) -> str:
    """The inverse of ``split_root``."""
    return f"{INPUTS}/{path}" if root == INPUTS else path


def printable(path: str) -> str:
    """An untrusted name in a form that is safe to show and log: odd characters escaped, at most 300 characters."""
    if path.isprintable() and not _HIDDEN.search(path):
        return path[:300]
    return "".join(char if char.isprintable() and not _HIDDEN.match(char) else char.encode("unicode_escape").decode() for char in path[:300])[:300]


def check_pattern(text: str) -> str:
    """A pattern in NFC, checked; ``models/`` becomes ``models/**``. Raises PathRefused."""
    text = nfc(text)
    if len(text) > MAX_PATTERN_CHARS:
        raise PathRefused(f"A pattern may have at most {MAX_PATTERN_CHARS} characters.")
    text = text + "**" if text.endswith("/") and text != "/" else text
    check_path(text)
    if "?" in text:
        raise PathRefused("A pattern knows only * and ** as wildcards.")
    names = text.split("/")
    if any("**" in name and name != "**" for name in names):
        raise PathRefused("In a pattern ** stands alone between slashes, as in out/**/*.csv.")
    if text.replace("**", "*").count("*") > MAX_STARS:
        raise PathRefused(f"A pattern may have at most {MAX_STARS} wildcards.")
    return text


class Pattern:
    """A checked, compiled pattern. Raises PathRefused."""

    __slots__ = (
        "_anchor",
        "_below",
        "_covers_folder",
        "_folders",
        "_parts",
        "_prefix",
        "_start",
        "specificity",
        "text",
    )

    def __init__(self, text: str) -> None:
        self.text = check_pattern(text)
        names = self.text.split("/")
        self._covers_folder = "*" not in names[-1]
        if names[-1] == "**":
            names.append("*")  # "out/**" means something in out, not out itself
        self._parts = [None if name == "**" else _Part(name) for name in names]
        self._start = self._skip({0})
        self._folders: dict[str, frozenset[int]] = {}
        literals = self.text.split("*")
        self._prefix = literals[0]
        self._below = self.text.endswith("**") and len(literals) == 3
        """The pattern is ``folder/**`` with nothing special in the folder."""
        self._anchor = max((run for literal in literals for run in literal.split("/")), key=len)
        """The longest literal run within a name: a path without it cannot match, which settles most paths at once."""
        self.specificity = (len(literals) == 1, len(self._prefix), sum(map(len, literals)))
        """Larger is more specific: no wildcard at all, then the longer literal beginning, then more literal text."""

    def matches(self, path: str) -> bool:
        """Whether the pattern covers this file. Compares composed forms, so that either spelling of a name matches."""
        path = path if path.isascii() else nfc(path)
        if not path.startswith(self._prefix) or self._anchor not in path:
            return False
        if self._below:
            return True
        # Deeper than any path that could be kept, and deep enough to exhaust the stack: nothing declares that.
        return path.count("/") < 4 * MAX_DEPTH and len(self._parts) in self._reach(path)

    def _reach(self, path: str) -> frozenset[int]:
        """The positions in the pattern that are reachable once this path is read; there is never a way back to try.

        A folder's answer is remembered for the next file in it, so that a deep tree costs one step a file.
        """
        folder, _, name = path.rpartition("/")
        before = self._start
        if folder:
            known = self._folders.get(folder)
            before = self._reach(folder) if known is None else known
            if len(self._folders) >= _REMEMBERED_FOLDERS:
                self._folders.clear()
            self._folders[folder] = before
        end = len(self._parts)
        after = set()
        for position in before:
            if position == end:
                if self._covers_folder:
                    after.add(end)
            elif (part := self._parts[position]) is None:
                after.add(position)
            elif part.matches(name):
                after.add(position + 1)
        return self._skip(after)

    def _skip(self, positions: set[int]) -> frozenset[int]:
        """Add what is reached when a ``**`` stands for no folder at all."""
        for reached in tuple(positions):
            position = reached
            while position < len(self._parts) and self._parts[position] is None:
                position += 1
                positions.add(position)
        return frozenset(positions)


class _Part:
    """A pattern for one name. Each literal run between stars is looked for at its leftmost place, which is enough."""

    __slots__ = ("_head", "_inner", "_tail")

    def __init__(self, text: str) -> None:
        self._head, *rest = text.split("*")
        self._tail = rest[-1] if rest else None
        self._inner = [run for run in rest[:-1] if run]

    def matches(self, name: str) -> bool:
        if self._tail is None:
            return name == self._head
        start, end = len(self._head), len(name) - len(self._tail)
        if end < start or not name.startswith(self._head) or not name.endswith(self._tail):
            return False
        for run in self._inner:
            start = name.find(run, start, end) + len(run)
            if start < len(run):
                return False
        return True
