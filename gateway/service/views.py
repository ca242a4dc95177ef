"""How a session is shown (``docs/api.md``)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain.model import SessionState
from ..domain.session import QUARANTINE_MAX_S
from ..ports import SessionRow

if TYPE_CHECKING:
    from .live import LiveSession

Json = dict[str, Any]


def _time(at: float | None) -> str | None:
    return None if at is None else iso(at)


def wall(session: LiveSession, at: float | None) -> float | None:
    """Boot time -> wall time, by the clocks of this moment."""
    clock = session.world.clock
    return None if at is None else clock.now() + (at - clock.boottime())


def session_json(s: LiveSession) -> Json:
    """The Session of a living session."""
    s.runs.settle()
    core, row = s.core, s.row
    running = s.runs.running
    return {
        "session_id": s.session_id, "name": row.name, "profile": s.profile.name, "tier": s.profile.tier, "tenant": row.tenant,
        "user": row.user, "state": core.state, "reason": core.reason, "busy": core.busy, "generation": core.generation,
        "created_at": iso(row.created_at), "last_activity": iso(row.last_activity), "server_time": iso(s.world.clock.now()),
        "idle_deadline": _time(wall(s, core.idle_deadline)), "idle_paused": core.busy,
        "max_deadline": _time(wall(s, core.max_deadline)),
        "idle_timeout_s": core.lifetimes.idle_s, "max_lifetime_s": core.lifetimes.max_s,
        "extended_s": core.extended_s, "quarantine": quarantine_json(s), "warnings": s.telling.warnings,
        "variables": [asdict(v) for v in s.variables], "variables_as_of": _time(s.variables_at),
        "lost_variables": [asdict(v) for v in s.lost_variables], "lost_because": s.lost_because, "restored_files": s.restored,
        "ended_at": _time(row.ended_at),
        "queue": {
            "running": running.row.execution_id if running else None,
            "queued": sum(1 for r in s.runs.open.values() if r is not running),
        },
        "last_event": s.journal.last_index,
    }  # fmt: skip


def quarantine_json(s: LiveSession) -> Json | None:
    """Why, since when and until when a sandbox waits for the store; ``next_retry`` is None while it is tried."""
    core = s.core
    if core.state is not SessionState.QUARANTINED or core.quarantined_at is None:
        return None
    return {
        "since": _time(wall(s, core.quarantined_at)), "why": s.store_problem, "attempts": core.attempts,
        "next_retry": _time(wall(s, core.retry_at)), "gives_up_at": _time(wall(s, core.quarantined_at + QUARANTINE_MAX_S)),
    }  # fmt: skip


def session_brief(s: LiveSession) -> Json:
    """What an Execution says of its session."""
    core = s.core
    return {
        "id": s.session_id, "generation": core.generation, "state": core.state,
        "idle_deadline": _time(wall(s, core.idle_deadline)), "max_deadline": _time(wall(s, core.max_deadline)),
    }  # fmt: skip


def ended_brief(row: SessionRow) -> Json:
    """The same of one that is over."""
    return {"id": row.session_id, "generation": row.generation, "state": SessionState.ENDED, "idle_deadline": None, "max_deadline": None}


def ended_json(row: SessionRow, tier: str, now: float) -> Json:
    """The Session of one that is over, from its record alone."""
    data = row.data
    lifetimes = data.get("lifetimes", {})
    return {
        "session_id": row.session_id, "name": row.name, "profile": row.profile, "tier": tier, "tenant": row.tenant,
        "user": row.user, "state": SessionState.ENDED, "reason": row.reason, "busy": False, "generation": row.generation,
        "created_at": iso(row.created_at), "last_activity": iso(row.last_activity), "server_time": iso(now),
        "idle_deadline": None, "idle_paused": False, "max_deadline": None, "idle_timeout_s": lifetimes.get("idle_s"),
        "max_lifetime_s": lifetimes.get("max_s"), "extended_s": 0.0, "quarantine": None, "warnings": [], "variables": [], "variables_as_of": None,
        "lost_variables": data.get("lost", []), "lost_because": data.get("lost_because", ""),
        "restored_files": [], "ended_at": _time(row.ended_at), "queue": {"running": None, "queued": 0}, "last_event": 0,
    }  # fmt: skip
