"""Executions that an earlier gateway left unfinished: read back from the records and the journal, and gone on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..domain import execution as ex
from ..domain.cell_outputs import count as prompt_number
from ..domain.execution import Execution
from ..domain.model import ExecutionState, ExitReason, SessionState
from ..ports import ExecutionRow
from ..protocol import jupyter
from . import values
from .anchors import ran_s
from .asking import schema_of
from .journal import EntryKind, Flag, Head
from .runs import Run

if TYPE_CHECKING:
    from .live import LiveSession


def load(session: LiveSession, rows: list[ExecutionRow], arrived: int | None) -> None:
    """Take up unfinished executions. ``arrived``: the last request number that reached the relay, None without a sandbox.

    What the journal holds of each (its reply, its idle, how much output) is read back from there.
    """
    early = dict(session.runs.open)  # asked for while this gateway was starting: recorded too, but behind these
    session.runs.open.clear()
    for row in rows:
        if row.msg_id in early:
            continue
        data = row.data
        body = session.find_request(row.msg_id, data.get("first", 0))
        code, schema = "", None
        try:
            message = jupyter.decode(body)
            header, code = message.header, str(message.content.get("code", ""))
            schema = schema_of(message)
        except ValueError:
            header = {"msg_id": row.msg_id, "msg_type": "execute_request", "session": "", "username": "", "version": "5.3"}
        e = Execution(row.execution_id, row.msg_id, ExecutionState(row.state))
        run = Run(e, row, data.get("key", ""), header, body, data.get("timeout_s", 60.0), bool(data.get("silent")), code, schema=schema)
        number = data.get("number")
        run.forwarded = arrived is not None and number is not None and number <= arrived
        if run.forwarded:
            run.body = b""
        session.runs.know(run)
    after = min((row.data.get("first", 0) for row in rows), default=0)
    for head in session.journal.scan(after) if rows else ():
        found = session.runs.open.get(head.parent)
        if found is not None and head.kind == EntryKind.MESSAGE:
            _replay(session, found, head)
    session.runs.open.update(early)
    _end_outdated(session)


def _end_outdated(session: LiveSession) -> None:
    """A kill came between a loss and the records of the work that it ended: that must not run, or run again, on other variables."""
    core = session.core
    lost = ExitReason.KERNEL_DIED if core.state is SessionState.ACTIVE else ExitReason.SANDBOX_ENDED
    for run in [run for run in session.runs.open.values() if run.row.generation < core.generation]:
        session.traffic.tell_failed(run, lost)
        session.runs.finish(run, None if run.e.complete else lost)


def _replay(session: LiveSession, run: Run, head: Head) -> None:
    if head.target == values.TARGET and not head.flags:
        run.row.data["value"] = head.index
        run.values += 1
    elif head.flags & Flag.OUTPUT:
        run.output_bytes += head.length
        run.output_messages += 1
    elif head.flags & Flag.BUSY:
        run.e = ex.started(run.e)
        run.row.state, run.row.started_at = run.e.state, run.row.started_at or head.at
        run.row.data["output_after"] = head.index
    elif head.flags & Flag.IDLE:
        run.e = ex.idled(run.e)
    elif head.flags & Flag.REPLY:
        entry = session.journal.read(head.index - 1, max_entries=1)[0]
        try:
            content = jupyter.decode(bytes(entry.body)).content
        except ValueError:
            content = {}
        run.e = ex.replied(run.e, str(content.get("status", "error")), str(content.get("ename", "")))
        if not head.number and isinstance(told := content.get("sandglass"), dict):
            # the last gateway's own word in the kernel's place (``Traffic.tell_failed``)
            run.e = ex.imposed(run.e, ExitReason(told["exit_reason"]))
        if (count := prompt_number(content.get("execution_count"))) is not None:
            run.row.data["execution_count"] = count


def resume(session: LiveSession) -> None:
    """Go on with what was loaded: finish what is complete, put the clocks of what runs back."""
    for run in list(session.runs.open.values()):
        if run.e.complete:
            session.runs.finish(run, None)
        elif run.e.state is ExecutionState.RUNNING and run.row.started_at:
            session.runs.limit(run, max(0.0, run.timeout_s - ran_s(run.row, session.world.clock)))
