"""What executions look like to clients (``docs/api.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain import execution as ex
from ..domain.advice import advise
from ..domain.model import ExecutionState, ExitReason
from ..errors import NotFound
from ..ports import ExecutionRow
from . import made_files, values
from .api import Trail
from .outputs import MOST_BYTES, collect
from .presenting import presented
from .telling import notice_json
from .views import session_brief

if TYPE_CHECKING:
    from .live import LiveSession
    from .runs import Run
    from .world import World

Json = dict[str, Any]
MOST_NOTICES = 20
_NOTHING_MISSING = {"stdout": False, "stderr": False, "results": False, "bytes_dropped": 0, "messages_dropped": 0, "bytes_left_out": 0}


def execution_json(s: LiveSession, row: ExecutionRow, run: Run | None = None) -> Json:
    """An Execution without its outputs."""
    position = s.runs.position(run) if run is not None and row.state == ExecutionState.QUEUED else None
    return row_json(row, session_brief(s), position)


def row_json(row: ExecutionRow, session: Json, position: int | None = None) -> Json:
    """What its record tells. ``session``: the brief of its session."""
    reason = ExitReason(row.exit_reason) if row.exit_reason else None
    duration = row.data.get("took_s", row.finished_at - row.started_at) if row.finished_at and row.started_at else None
    return {
        "execution_id": row.execution_id, "source": row.source, "state": row.state, "msg_id": row.msg_id,
        "session": session, "position": position,
        "status": ex.status(reason) if reason else None, "exit_reason": reason, "next_action": row.data.get("next_action"),
        "reason_text": row.data.get("detail") or (ex.SENTENCES[reason] if reason else ""),
        "execution_count": row.data.get("execution_count"), "generation": row.generation,
        "truncated": _truncated(row, row.data.get("truncated")), "created_at": iso(row.created_at),
        "started_at": iso(row.started_at) if row.started_at else None,
        "finished_at": iso(row.finished_at) if row.finished_at else None,
        "duration_ms": round(duration * 1000) if duration is not None else None,
        "hints": row.data.get("hints", []), "inputs": row.data.get("inputs", []), "rejected": row.data.get("rejected"),
        "resources": {"cpu_s": row.data.get("cpu_s"), "output_bytes": row.data.get("output", {}).get("bytes")},
    }  # fmt: skip


async def whole(s: LiveSession, row: ExecutionRow, run: Run | None) -> Json:
    """An Execution with its outputs, as many of them as it asked for. Raises StoreUnavailable."""
    trail = trail_of(s, row)
    out = await collect(s.journal, row.msg_id, trail.began, trail.end, min(row.data.get("max_output_bytes", MOST_BYTES), MOST_BYTES))
    if trail.finished is False and run is not None and run.row.state == ExecutionState.FINISHED:
        return await whole(s, run.row, run)  # it ended meanwhile: what it says and what it carries belong together
    value, shown = execution_json(s, row, run), out.to_json()
    missing = out.truncated()
    if trail.began + 1 < s.journal.first_index and (run.output_messages if run else row.data.get("output", {}).get("messages")):
        missing |= {"no_longer_kept": True}
    if missing:
        value["truncated"] = _truncated(row, (row.data.get("truncated") or {}) | missing)
    if "value" in row.data:
        there, handed_over = values.read(s.journal, row.data["value"])
        if there and value["rejected"] is None:
            shown["value"] = handed_over
    value |= presented(shown, s.world.screens.of(s.row.tenant))
    value["advice"] = advise(value["exit_reason"], str((value["error"] or {}).get("value", "")), s.world.packages)
    value["files"] = await made_files.of(s, row)
    await s.told()
    found = [n for n in await s.world.records.list_notices(s.session_id) if n.generation >= row.generation]
    notices = [notice_json(n) for n in found if n.at >= row.created_at or "opens" in row.data]
    value["notices"] = [{k: v for k, v in n.items() if k != "type"} for n in notices[:MOST_NOTICES]]
    return value | {"untrusted": True}


def _truncated(row: ExecutionRow, found: Json | None) -> Json | None:
    """What is missing of its output in an answer: dropped for good, or left out and to be had from ``full_output_url``."""
    if not found:
        return None
    return _NOTHING_MISSING | found | {"full_output_url": f"/api/v1/sessions/{row.session_id}/executions/{row.execution_id}/output"}


def trail_of(s: LiveSession, row: ExecutionRow) -> Trail:
    first, last = row.data.get("first", 0), row.data.get("last")
    finished = row.state == ExecutionState.FINISHED and last is not None
    end = s.journal.last_index if last is None or not finished else int(last)
    return Trail(row.execution_id, row.msg_id, first, row.data.get("output_after", first), end, finished)


async def ended_execution(world: World, row: ExecutionRow, session: Json) -> Json:
    """One of a session that has ended: how it went, without its outputs (the transcript has those that are kept)."""
    value = row_json(row, session)
    if row.data.get("output", {}).get("messages") and not value["truncated"]:
        value["truncated"] = dict(_NOTHING_MISSING)
    if value["truncated"]:
        value["truncated"] |= {"no_longer_kept": True, "full_output_url": None}
    value["advice"] = advise(value["exit_reason"], "", world.packages)
    notices = [notice_json(n) for n in await world.records.list_notices(row.session_id) if n.at >= row.created_at]
    value["notices"] = [{k: v for k, v in n.items() if k != "type"} for n in notices[:MOST_NOTICES]]
    return value | {"untrusted": True}


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
