"""The transcript of one session: written as its executions finish, read and deleted by its owner (docs/adr/0009).

A cell is recorded before its execution is recorded as finished, so that an execution that a kill cut off there is finished,
and its cell recorded, by the next gateway.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from ..domain.cell_outputs import CellOutputs, encoded_bytes
from ..domain.transcript import MAX_CELLS, Cell, Policy
from ..errors import SandglassError, Unavailable
from ..jsonio import dumps
from ..protocol import jupyter
from .journal import Entry, EntryKind, Flag, Head, Journal

if TYPE_CHECKING:
    from .live import LiveSession
    from .runs import Run

log = logging.getLogger("sandglass.transcript")
Json = dict[str, Any]
SETTLE_S = 5.0
SLICE = 100
"""Journal entries looked at in one turn of the loop."""
LAST = 8
"""Of what was not read for want of room, the last messages are: the error is among them."""
SMALL = 64 * 1024
_NO_OUTPUT = Flag.REPLY | Flag.BUSY | Flag.IDLE | Flag.INPUT


async def gather(journal: Journal, msg_id: str, first: int, last: int, most: int) -> CellOutputs:
    """The outputs of a request behind the entry ``first``, up to ``last``; ``most``: bytes. Raises StoreUnavailable."""
    out = CellOutputs(most)
    skipped: deque[Head] = deque(maxlen=LAST)
    while first < last:
        first = await _read(out, journal, msg_id, first, last)
        if first < last:
            first = await _pass_over(out, skipped, journal, msg_id, first, last)
    for head in skipped:
        if (entry := _at(journal, head.index)) is not None and _take(out, entry, only="error"):
            out.leave(-head.length)
    return out


async def _read(out: CellOutputs, journal: Journal, msg_id: str, after: int, last: int) -> int:
    """Take what comes, until there is no room for more; returns the last entry that was looked at."""
    while after < last and not out.full:
        entries = journal.read(after, max_entries=min(SLICE, last - after))
        for entry in entries:
            if entry.index > last or out.full:
                break
            after = entry.index
            if _is_output(entry, msg_id):
                _take(out, entry)
        if not entries or entries[-1].index > last:
            return after if out.full else last
        await asyncio.sleep(0)
    return after


async def _pass_over(out: CellOutputs, skipped: deque[Head], journal: Journal, msg_id: str, after: int, last: int) -> int:
    """Only count, without reading it, until the cell clears its output, which makes room; returns as ``_read`` does."""
    for number, head in enumerate(journal.scan(after), 1):
        if number % SLICE == 0:
            await asyncio.sleep(0)
        if head.index > last:
            break
        if not _is_output(head, msg_id):
            continue
        if head.flags & Flag.OUTPUT:
            out.leave(head.length)
            skipped.append(head)
        elif head.length < SMALL and (entry := _at(journal, head.index)) is not None and _take(out, entry, only="clear_output") and not out.full:
            skipped.clear()
            return head.index
    return last


def _is_output(head: Head | Entry, msg_id: str) -> bool:
    """Or ``clear_output``, which has no flag of its own."""
    return head.parent == msg_id and head.kind is EntryKind.MESSAGE and not head.target and not head.flags & _NO_OUTPUT


def _at(journal: Journal, index: int) -> Entry | None:
    entries = journal.read(index - 1, max_entries=1)
    return entries[0] if entries and entries[0].index == index else None


def _take(out: CellOutputs, entry: Entry, only: str = "") -> bool:
    """False when it is something else, or malformed: it comes from user code, and hurts only its own transcript."""
    try:
        message = jupyter.decode(entry.body)
        kind, content = message.msg_type, message.content
    except ValueError:
        return False
    if only and kind != only:
        return False
    out.take(kind, content)
    return True


class Transcript:
    """The writer of a living session. ``forget_before``: journal entries that go, too, once nothing runs; 0 for none."""

    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self._turn = asyncio.Lock()
        """Cells stand in the order in which they finished, however long each takes to be gathered."""
        self.forget_before = 0

    @property
    def policy(self) -> Policy:
        return self._s.world.transcripts.of(self._s.row.tenant)

    async def keep(self, run: Run) -> None:
        """Record a finished execution as the policy says."""
        async with self._turn:
            policy, caps = self.policy, self._s.world.caps
            if policy is not Policy.OFF and not run.silent:
                cell = await self._cell(run, policy)
                try:
                    await self._s.insist(lambda: self._s.world.records.put_cell(cell, caps.transcript_bytes, MAX_CELLS))
                except SandglassError as error:
                    log.error("a cell is missing in a transcript", extra={"execution": run.row.execution_id, "why": error.code})
        self.forget_journal(run)

    async def _cell(self, run: Run, policy: Policy) -> Cell:
        row = run.row
        outputs, left_out = await self._outputs(run) if run.output_messages or run.dropped_messages or run.e.reply != "ok" else ([], 0)
        full = policy is Policy.FULL
        return Cell(
            execution_id=row.execution_id, session_id=row.session_id, generation=row.generation, source=row.source,
            exit_reason=row.exit_reason, created_at=row.created_at, started_at=row.started_at, finished_at=row.finished_at or row.created_at,
            execution_count=row.data.get("execution_count"), code_sha256=row.code_sha256,
            outputs_sha256=hashlib.sha256(dumps(outputs)).hexdigest(), code_bytes=encoded_bytes(run.code) if full else 0,
            output_bytes=encoded_bytes(outputs) if full and outputs else 0, left_out=left_out + run.dropped_bytes,
            code=run.code if full else None, outputs=outputs if full else [],
        )  # fmt: skip

    async def _outputs(self, run: Run) -> tuple[list[Json], int]:
        """And how many bytes of them there was no room for."""
        row, caps = run.row, self._s.world.caps
        last: int = row.data["last"]
        try:
            # From where it began: of a thousand cells asked for at once, each would else look at what all before it printed.
            found = await gather(self._s.journal, row.msg_id, row.data.get("output_after", last), last, caps.cell_bytes)
            return found.finished(), found.left_out
        except SandglassError as error:
            log.warning("the output of a cell cannot be read", extra={"execution": row.execution_id, "why": error.code})
            return [], run.output_bytes

    async def settled(self) -> None:
        """Wait until every execution that has finished is in the transcript. Raises Unavailable while the records take nothing."""
        self._s.runs.settle()
        try:
            await asyncio.wait_for(self._s.runs.closed(), SETTLE_S)
        except TimeoutError:
            raise Unavailable("What was run last is not recorded yet.") from None

    def forget(self) -> None:
        """What the journal holds until now goes as well: at once, or when what runs has ended (its client may still need it)."""
        self.forget_before = self._s.journal.cut()
        self.forget_journal(None)
        self._s.save()

    def forget_journal(self, ending: Run | None) -> None:
        if self.forget_before and not self._s.runs.busy_but(ending):
            self._s.journal.drop_before(self.forget_before)
            self.forget_before = 0
            self._s.save_soon()
