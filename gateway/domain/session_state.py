"""What is known of a session while it lives, and the times at which something is due. Pure.

Every time is boot time in seconds (it goes on while the machine sleeps and never jumps).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .model import Lifetimes, SessionState


class Phase(StrEnum):
    """Where a drain stands."""

    FINISHING = "finishing"
    KILLING = "killing"
    PERSISTING = "persisting"
    DESTROYING = "destroying"


LATE_S = 1.0
"""A warning that is later than this says how long is left, not how long it was meant to be."""


@dataclass(frozen=True, slots=True)
class Session:
    """``wanted``: work arrived that needs a sandbox as soon as this drain is over. ``ending``: the drain leads to ENDED.

    ``reason``: why the last sandbox ended, or once ENDED the session; ``end_reason``: the session's, while it waits for the drain.
    """

    lifetimes: Lifetimes
    state: SessionState = SessionState.NEW
    generation: int = 1
    sandbox_id: str = ""
    reason: str = ""
    phase: Phase | None = None
    ending: bool = False
    wanted: bool = False
    busy: bool = False
    idle_since: float | None = None
    claimed_at: float | None = None
    drain_since: float | None = None
    quarantined_at: float | None = None
    retry_at: float | None = None
    attempts: int = 0
    warned: frozenset[str] = frozenset()
    end_reason: str = ""
    extended_s: float = 0.0
    """By how much an admin moved this sandbox's maximum."""

    @property
    def idle_deadline(self) -> float | None:
        if self.state is not SessionState.ACTIVE or self.busy or self.idle_since is None:
            return None
        return self.idle_since + self.lifetimes.idle_s

    @property
    def max_s(self) -> float:
        return self.lifetimes.max_s + self.extended_s

    @property
    def max_deadline(self) -> float | None:
        return None if self.claimed_at is None else self.claimed_at + self.max_s


def leads(timer_s: float, warn_before_s: tuple[float, ...]) -> tuple[float, ...]:
    """Lead times in force, longest first; one not shorter than the timer itself becomes half of it."""
    return tuple(sorted({lead if lead < timer_s else timer_s / 2 for lead in warn_before_s}, reverse=True))


def timers(s: Session) -> dict[str, float]:
    """Name -> boot time at which ``TimerFired(name)`` is due. The service keeps exactly these armed."""
    wanted: dict[str, float] = {}
    for name, deadline, total in (
        ("idle", s.idle_deadline, s.lifetimes.idle_s),
        ("max", s.max_deadline if s.state is SessionState.ACTIVE else None, s.max_s),
    ):
        if deadline is None:
            continue
        wanted[name] = deadline
        for lead in leads(total, s.lifetimes.warn_before_s):
            key = f"{name}_warn:{lead:g}"
            if key not in s.warned:
                wanted[key] = deadline - lead
    if s.state is SessionState.DRAINING and s.phase is Phase.FINISHING and s.drain_since is not None:
        wanted["drain"] = s.drain_since + s.lifetimes.drain_grace_s
    if s.state is SessionState.QUARANTINED and s.retry_at is not None:
        wanted["persist"] = s.retry_at
    return wanted


def to_tell(s: Session, name: str, due: float, now: float) -> tuple[str, float | None]:
    """For the warning timer ``name``, which was due at ``due``: ``idle`` or ``max``, and how many seconds are left, as it is to be told.

    After a leap (the machine slept, no gateway ran) the nearest warning speaks for the others, and none speaks of what is over: None.
    """
    kind, _, text = name.partition("_warn:")
    lead = float(text)
    left = due + lead - now
    total = s.lifetimes.idle_s if kind == "idle" else s.max_s
    if left <= 0 or any(left <= nearer < lead for nearer in leads(total, s.lifetimes.warn_before_s)):
        return kind, None
    return kind, lead if left > lead - LATE_S else left
