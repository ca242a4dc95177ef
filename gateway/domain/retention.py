"""What is old enough to go. Pure; nothing here deletes anything.

Two rules hold whatever the settings say: the newest version of a path of a living session stays, and everything stays
``MARGIN_S`` longer than its setting says, so that rows written while the clock was an hour behind are not early.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

DAY_S = 86400.0
MARGIN_S = 2 * 3600.0
ORPHAN_S = DAY_S
"""So long an object without a row must be known as one before it goes."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things stay at the least, in seconds; ``versions``: how many older versions of a path stay beside the newest."""

    artifacts_s: float = 30 * DAY_S
    versions_s: float = 7 * DAY_S
    versions: int = 10
    journals_s: float = DAY_S
    transcripts_s: float = 30 * DAY_S
    history_s: float = 90 * DAY_S
    sessions_s: float = 180 * DAY_S
    audit_s: float = 180 * DAY_S
    dormant_s: float = 0.0
    """A session that nobody has woken for so long ends; 0: never."""


class Rows(StrEnum):
    """Rows that go by age alone."""

    EXECUTIONS = "execution"
    NOTICES = "notice"
    SANDBOXES = "sandbox"
    CELLS = "cell"
    SESSIONS = "session"
    AUDIT = "audit"


class Why(StrEnum):
    """Why a stored version goes."""

    ENDED = "session_ended"
    SUPERSEDED = "superseded"
    TOO_MANY = "too_many_versions"


@dataclass(frozen=True, slots=True)
class Version:
    """One stored version. ``artifact_id``: empty for a mark that the path was deleted by its user."""

    artifact_id: str
    size: int
    created_at: float


@dataclass(frozen=True, slots=True)
class StoredPath:
    """All versions of one path, oldest first. ``ended_at``: None while the session lives."""

    session_id: str
    tenant: str
    user: str
    path: str
    ended_at: float | None
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Due:
    version: Version
    why: Why


def old(at: float | None, keep_s: float, now: float) -> bool:
    """Whether what was over at ``at`` has stayed for ``keep_s`` and the margin; what is not over, or is yet to come, has not."""
    return at is not None and now - at >= keep_s + MARGIN_S


def cut(keep_s: float, now: float) -> float:
    """``old`` for a query: rows that were over at this time or before are due."""
    return now - keep_s - MARGIN_S


def due_versions(path: StoredPath, keep: Retention, now: float) -> list[Due]:
    """The versions that may go now, oldest first.

    A version counts as superseded from the moment at which the next one (or the mark of its deletion) was written.
    """
    versions = path.versions
    if not versions:
        return []
    if path.ended_at is not None and old(max(path.ended_at, versions[-1].created_at), keep.artifacts_s, now):
        return [Due(v, Why.ENDED) for v in versions if v.artifact_id]
    due: list[Due] = []
    newer = 0 if versions[-1].artifact_id else 1
    for following, version in zip(versions[:0:-1], versions[-2::-1], strict=True):
        newer += 1 if following.artifact_id else 0
        if version.artifact_id and old(following.created_at, keep.versions_s, now):
            due.append(Due(version, Why.SUPERSEDED))
        elif version.artifact_id and newer > keep.versions:
            due.append(Due(version, Why.TOO_MANY))
    return due[::-1]


def only_marks(path: StoredPath) -> bool:
    """Nothing of it is stored any more: the marks of its deletion say nothing."""
    return all(not v.artifact_id for v in path.versions)
