"""A session's state as its record holds it, and back: the one place that knows both forms."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..domain.anchor import Anchor
from ..domain.model import Lifetimes, SessionState
from ..domain.session_state import Phase, Session
from ..ports import Clock, SessionRow
from .anchors import anchor, stamp

Json = dict[str, Any]
TIMES = ("idle_since", "claimed_at", "drain_since", "quarantined_at", "retry_at")
FACTS = ("ending", "end_reason", "wanted", "busy", "attempts", "extended_s")
OF_THE_SANDBOX = frozenset({"idle_since", "claimed_at"})
"""Times that cannot be earlier than the container's start."""


def data_of(core: Session, clock: Clock) -> Json:
    """The part of ``SessionRow.data`` that is the state machine's. Times are boot times, with the moment that anchors them."""
    return {
        "lifetimes": asdict(core.lifetimes), **stamp(clock), "phase": core.phase, "warned": sorted(core.warned),
        **{name: getattr(core, name) for name in (*TIMES, *FACTS)},
    }  # fmt: skip


def core_of(row: SessionRow, clock: Clock, started_at: float | None) -> Session:
    """The state machine's state from its record, with times in this boot's clock.

    ``started_at``: wall time, the engine's, of the container's start: a sandbox is not older than that.
    """
    data, now = row.data, anchor(clock)
    then = Anchor.of(data)
    known: Json = {name: data[name] for name in FACTS if name in data}
    known |= {name: now.carried(data[name], then, started_at if name in OF_THE_SANDBOX else None) for name in TIMES if data.get(name) is not None}
    lifetimes = dict(data.get("lifetimes") or {})
    if "warn_before_s" in lifetimes:
        lifetimes["warn_before_s"] = tuple(lifetimes["warn_before_s"])
    phase = data.get("phase")
    return Session(
        Lifetimes(**lifetimes), SessionState(row.state), row.generation, row.sandbox_id, row.reason,
        phase=Phase(phase) if phase else None, warned=frozenset(data.get("warned", ())), **known,
    )  # fmt: skip
