"""Runs chosen cells of the transcript again, in their order, until the first error, and says which variables came back.

One at a time waits in the session's queue, so that whatever else its user runs meanwhile has its turn.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain.execution import SENTENCES, status
from ..domain.model import ExitReason
from ..domain.rebuild import MAX_STEPS, Rebuild, RebuildState, Step, missing_names, suggested
from ..domain.transcript import Cell, Policy
from ..errors import Conflict, NotFound, SandglassError, TooLarge
from .run_views import find

if TYPE_CHECKING:
    from .access import Access
    from .live import LiveSession

log = logging.getLogger("sandglass.rebuild")
Json = dict[str, Any]
WAIT_S = 3600.0
CUT = "The gateway was restarted meanwhile. What had begun went on; the rest was not run."


async def start(access: Access, s: LiveSession, chosen: list[str] | None, *, timeout_s: float | None, allow_stdin: bool) -> Rebuild:
    """Begin. ``chosen``: execution ids; None takes those that ``domain.rebuild`` suggests.

    Raises Conflict (one runs already, nothing to run, no code kept), NotFound (an id that is not in the transcript), TooLarge.
    """
    if s.rebuild is not None and s.rebuild.state is RebuildState.RUNNING:
        raise Conflict("A rebuild of this session runs already.", rebuild_id=s.rebuild.rebuild_id)
    await s.transcript.settled()
    known = [cell async for cell in access.document.cells(outputs=False)]
    cells = _chosen(known, chosen) if chosen is not None else suggested(known, s.core.generation, s.rebuild)
    if not cells:
        kept = "" if s.transcript.policy is Policy.FULL else f" By policy the transcript keeps no code here ({s.transcript.policy})."
        raise Conflict("There is nothing to run again." + kept, policy=s.transcript.policy)
    if len(cells) > MAX_STEPS:
        raise TooLarge(f"A rebuild may have at most {MAX_STEPS} cells; these are {len(cells)}.")
    if s.rebuild is not None and s.rebuild.state is RebuildState.RUNNING:
        raise Conflict("A rebuild of this session runs already.", rebuild_id=s.rebuild.rebuild_id)
    made = Rebuild(
        secrets.token_hex(12), s.core.generation, s.world.clock.now(), [Step(cell.execution_id) for cell in cells],
        missing_names((v.name for v in s.lost_variables), s.rebuild), timeout_s, allow_stdin,
    )  # fmt: skip
    s.rebuild = made
    _changed(s, made)
    s.spawn(_run(access, s, made), "rebuild")
    return made


def _chosen(known: list[Cell], wanted: list[str]) -> list[Cell]:
    missing = [cell for cell in dict.fromkeys(wanted) if cell not in {c.execution_id for c in known}]
    if missing:
        raise NotFound("The transcript has no such cell.", cells=missing[:10])
    cells = [cell for cell in known if cell.execution_id in set(wanted)]
    if any(cell.code is None for cell in cells):
        raise Conflict("Of some of these cells no code is kept.", cells=[c.execution_id for c in cells if c.code is None][:10])
    return cells


async def _run(access: Access, s: LiveSession, made: Rebuild) -> None:
    try:
        for step in made.steps:
            if made.state is not RebuildState.RUNNING:
                return
            cell = await s.world.records.get_cell(s.session_id, step.cell)
            if cell is None or cell.code is None:
                _end(s, made, RebuildState.STOPPED, "The transcript was deleted meanwhile.")
                return
            step.execution_id = await access.execute(
                cell.code, timeout_s=made.timeout_s, expect_generation=made.generation, allow_stdin=made.allow_stdin
            )
            _changed(s, made)
            while not await access.wait_execution(step.execution_id, WAIT_S):
                pass
            row, _ = await find(s, step.execution_id)
            step.exit_reason = row.exit_reason
            if made.state is RebuildState.RUNNING and status(ExitReason(row.exit_reason)) != "ok":
                _end(s, made, RebuildState.STOPPED, SENTENCES[ExitReason(row.exit_reason)])
                return
            _changed(s, made)
        if made.state is RebuildState.RUNNING:
            _end(s, made, RebuildState.DONE)
    except SandglassError as error:
        log.info("a rebuild stopped", extra={"session": s.session_id, "why": error.code})
        if made.state is RebuildState.RUNNING:
            _end(s, made, RebuildState.STOPPED, error.detail)


def stop(s: LiveSession) -> None:
    """Run no more of it, and interrupt the cell that runs. Nothing happens when none runs."""
    made = s.rebuild
    if made is None or made.state is not RebuildState.RUNNING:
        return
    running = next((step.execution_id for step in made.steps if step.execution_id and not step.exit_reason), "")
    _end(s, made, RebuildState.STOPPED, "It was stopped.")
    run = s.runs.by_id(running) if running else None
    if run is not None:
        s.runs.cancel(run)


def restored(s: LiveSession, row: Json | None) -> None:
    """After a restart of the gateway: whether the cell that was under way was the last one nobody can tell, so nothing goes on."""
    s.rebuild = Rebuild.from_row(row) if row else None
    if s.rebuild is not None and s.rebuild.state is RebuildState.RUNNING:
        s.rebuild.end(RebuildState.CUT, s.world.clock.now(), (v.name for v in s.variables), CUT)
        _tell(s, s.rebuild)  # saved with the next change of the session; should that not come, it is found out again


def _end(s: LiveSession, made: Rebuild, state: RebuildState, detail: str = "") -> None:
    made.end(state, s.world.clock.now(), (v.name for v in s.variables), detail)
    _changed(s, made)


def _changed(s: LiveSession, made: Rebuild) -> None:
    s.save()
    _tell(s, made)


def _tell(s: LiveSession, made: Rebuild) -> None:
    s.write_state({"type": "rebuild", "rebuild": rebuild_json(s, made, steps=False)})


def rebuild_json(s: LiveSession, made: Rebuild, *, steps: bool = True) -> Json:
    running = made.state is RebuildState.RUNNING
    back = made.returned(v.name for v in s.variables) if running else made.back
    bad = next((step for step in made.steps if step.exit_reason and status(ExitReason(step.exit_reason)) != "ok"), None)
    value: Json = {
        "rebuild_id": made.rebuild_id, "state": made.state, "generation": made.generation, "started_at": iso(made.started_at),
        "finished_at": iso(made.finished_at) if made.finished_at else None, "done": made.done, "total": len(made.steps),
        "stopped_at": {"cell": bad.cell, "execution_id": bad.execution_id, "exit_reason": bad.exit_reason} if bad else None,
        "detail": made.detail, "lost_variables": made.lost, "back": back, "missing": [name for name in made.lost if name not in back],
    }  # fmt: skip
    if steps:
        value["cells"] = [
            {"cell": step.cell, "execution_id": step.execution_id or None, "exit_reason": step.exit_reason or None} for step in made.steps
        ]
    return value
