"""Which files of a sandbox are kept. Pure.

What the sandbox says of its files is not trusted: names are checked here, sizes only decide what is asked for (the
bytes are counted again when they arrive).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..errors import PathRefused
from .model import FileInfo
from .paths import INPUTS, Pattern, check_path, printable

MAX_DECLARATIONS = 32
"""More than this many a session are refused, so that matching a full listing stays cheap."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a user said of a pattern: keep it, or (``keep=False``) do not. ``at``: seconds since the epoch."""

    pattern: str
    keep: bool = True
    at: float = 0.0


DEFAULT_DECLARATIONS = (Declaration("out/**"), Declaration(INPUTS + "/**"))
"""In force until the user says otherwise: results, and what they uploaded."""


class Declarations:
    """The user's declarations over the defaults.

    Of those that cover a file the most specific decides; between equals the latest. Any that the user made goes before
    the defaults, so that ``**`` with ``keep=False`` means it. Raises PathRefused for a pattern that is no good.
    """

    def __init__(self, declared: Iterable[Declaration] = (), defaults: Iterable[Declaration] = DEFAULT_DECLARATIONS) -> None:
        self._ordered = [
            (pattern, declaration.keep, own) for own, group in ((True, declared), (False, defaults)) for pattern, declaration in self._ranked(group)
        ]

    @staticmethod
    def _ranked(group: Iterable[Declaration]) -> list[tuple[Pattern, Declaration]]:
        """The deciding one first; ``at`` and then the place in the sequence tell which is later."""
        numbered = [(Pattern(declaration.pattern), declaration, place) for place, declaration in enumerate(group)]
        numbered.sort(key=lambda item: (item[0].specificity, item[1].at, item[2]), reverse=True)
        return [(pattern, declaration) for pattern, declaration, _ in numbered]

    def decide(self, path: str) -> tuple[bool, bool]:
        """``(kept, by the user's own word)``."""
        for pattern, keep, own in self._ordered:
            if pattern.matches(path):
                return keep, own
        return False, False


class Refusal(StrEnum):
    """Why a declared file is not kept. ``str()`` is the code; ``sentence`` is for a person."""

    LINK = "link"
    NOT_A_FILE = "not_a_file"
    BAD_NAME = "bad_name"
    BAD_SIZE = "bad_size"
    TOO_LARGE = "too_large"
    SESSION_FULL = "session_full"
    TOO_MANY = "too_many"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Refusal.LINK: "It is a link; only regular files are kept.",
    Refusal.NOT_A_FILE: "It is not a regular file.",
    Refusal.BAD_NAME: "Its name cannot be kept (length, depth, control characters or a backslash).",
    Refusal.BAD_SIZE: "The sandbox reported an impossible size.",
    Refusal.TOO_LARGE: "It is larger than one file may be.",
    Refusal.SESSION_FULL: "The session's kept files have reached their total size.",
    Refusal.TOO_MANY: "The session has too many kept files.",
}


@dataclass(frozen=True, slots=True)
class PersistLimits:
    """Bytes and counts. Sizes are apparent: a sparse file counts in full, for that is what a restore would write."""

    file_bytes: int = 256 * 1024**2
    session_bytes: int = 2 * 1024**3
    files: int = 5_000


@dataclass(frozen=True, slots=True)
class Stored:
    """The size and time of a file when its stored version was read, see ``stamp``."""

    size: int
    mtime_ns: int


def stamp(info: FileInfo, read_at: float) -> Stored:
    """What to remember of a file that was stored. ``read_at``: when it was read, seconds since the epoch.

    A file changed less than two seconds before it was read may change again within the same tick of its file system's
    clock; its time is then not remembered, so that the next look takes it for changed.
    """
    fresh = read_at * 1e9 - info.mtime_ns < 2e9
    return Stored(info.size, -1 if fresh else info.mtime_ns)


@dataclass(frozen=True, slots=True)
class Plan:
    """``keep``: to be read and stored, the user's own words first, small ones first. ``unchanged``: already stored.

    ``refused``: declared and yet not kept, ``(printable path, why)``. ``undeclared``: what a recycle loses.
    """

    keep: list[FileInfo]
    refused: list[tuple[str, Refusal]]
    undeclared: list[FileInfo]
    unchanged: list[FileInfo]


def plan_persist(
    listing: Iterable[FileInfo],
    declarations: Declarations,
    already_stored: Mapping[str, Stored],
    limits: PersistLimits = PersistLimits(),
) -> Plan:
    """Sort a sandbox's listing into what is kept, refused and lost.

    The bounds hold for everything kept, stored or not; what is stored already comes first, so that a flood of new files
    never pushes out an old one. Folders are no entries of their own. A path listed twice counts once.
    """
    refused: list[tuple[str, Refusal]] = []
    undeclared: list[FileInfo] = []
    wanted: list[tuple[tuple[int, bool, int, str], FileInfo]] = []
    seen: set[str] = set()
    for info in listing:
        if info.kind == "dir" or info.path in seen:
            continue
        seen.add(info.path)
        kept, own = declarations.decide(info.path)
        if not kept:
            undeclared.append(info)
        elif (why := _refusal(info, limits)) is not None:
            refused.append((printable(info.path), why))
        else:
            rank = _rank(info, already_stored.get(info.path))
            wanted.append(((rank, not own, info.size, info.path), info))
    wanted.sort(key=lambda item: item[0])
    keep: list[FileInfo] = []
    unchanged: list[FileInfo] = []
    total = 0
    for (rank, *_), info in wanted:
        if len(keep) + len(unchanged) >= limits.files:
            refused.append((printable(info.path), Refusal.TOO_MANY))
        elif total + info.size > limits.session_bytes:
            refused.append((printable(info.path), Refusal.SESSION_FULL))
        else:
            total += info.size
            (unchanged if rank == _UNCHANGED else keep).append(info)
    return Plan(keep, refused, undeclared, unchanged)


_UNCHANGED, _CHANGED, _NEW = range(3)


def _rank(info: FileInfo, stored: Stored | None) -> int:
    if stored is None:
        return _NEW
    return _UNCHANGED if (stored.size, stored.mtime_ns) == (info.size, info.mtime_ns) else _CHANGED


def _refusal(info: FileInfo, limits: PersistLimits) -> Refusal | None:
    if info.kind == "link":
        return Refusal.LINK
    if info.kind != "file":
        return Refusal.NOT_A_FILE
    try:
        check_path(info.path)
    except PathRefused:
        return Refusal.BAD_NAME
    if info.size < 0:
        return Refusal.BAD_SIZE
    if info.size > limits.file_bytes:
        return Refusal.TOO_LARGE
    return None
