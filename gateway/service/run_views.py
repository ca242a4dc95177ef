"""What executions look like to clients (``docs/api.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain import execution as ex
from ..domain.model import ExecutionState, ExitReason
from ..errors import NotFound
from ..ports import ExecutionRow
from .views import session_brief

if TYPE_CHECKING:
    from .live import LiveSession
    from .runs import Run

Json = dict[str, Any]


def execution_json(s: LiveSession, row: ExecutionRow, run: Run | None = None) -> Json:
    """An Execution without its outputs."""
    reason = ExitReason(row.exit_reason) if row.exit_reason else None
    duration = row.data.get("took_s", row.finished_at - row.started_at) if row.finished_at and row.started_at else None
    return {
        "execution_id": row.execution_id, "source": row.source, "state": row.state, "msg_id": row.msg_id,
        "session": session_brief(s),
        "position": s.runs.position(run) if run is not None and row.state == ExecutionState.QUEUED else None,
        "status": ex.status(reason) if reason else None, "exit_reason": reason, "next_action": row.data.get("next_action"),
        "reason_text": row.data.get("detail") or (ex.SENTENCES[reason] if reason else ""),
        "execution_count": row.data.get("execution_count"), "generation": row.generation,
        "truncated": row.data.get("truncated"), "created_at": iso(row.created_at),
        "started_at": iso(row.started_at) if row.started_at else None,
        "finished_at": iso(row.finished_at) if row.finished_at else None,
        "duration_ms": round(duration * 1000) if duration is not None else None,
    }  # fmt: skip


async def find(s: LiveSession, execution_id: str) -> tuple[ExecutionRow, Run | None]:
    """Its record, and the run where it is not finished. Raises NotFound, also for one of another session."""
    s.runs.settle()
    run = s.runs.by_id(execution_id)
    if run is not None:
        return run.row, run
    row = await s.world.records.get_execution(execution_id)
    if row is None or row.session_id != s.session_id:
        raise NotFound("There is no such execution.")
    return row, None


async def listed(s: LiveSession) -> list[Json]:
    """The last ones, oldest first, without their outputs."""
    s.runs.settle()
    rows = await s.world.records.list_executions(s.session_id)
    known = {r.execution_id for r in rows}
    values = [execution_json(s, run.row if run else row, run) for row in rows for run in (s.runs.by_id(row.execution_id),)]
    waiting = [r for r in s.runs.open.values() if r.row.execution_id not in known]
    return values + [execution_json(s, r.row, r) for r in waiting]
