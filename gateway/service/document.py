"""A transcript as its owner reads it: as JSON, as a notebook file; and its deletion. Of living and of ended sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain import ipynb
from ..domain.audit import Tag
from ..domain.rebuild import suggested
from ..domain.sensitive import Screen
from ..domain.transcript import MAX_CELLS, Cell, Policy
from ..errors import Conflict
from ..jsonio import dumps
from ..ports import AuditRow, SessionRow
from .journal import Journal
from .world import World

if TYPE_CHECKING:
    from .live import LiveSession

Json = dict[str, Any]
PAGE_CELLS = 500
PAGE_BYTES = 4 * 1024 * 1024
"""What one answer carries at the most; a single cell may have more."""
BATCH = 10


class Document:
    """``live``: None once the session has ended."""

    def __init__(self, world: World, row: SessionRow, live: LiveSession | None) -> None:
        self._world = world
        self._row = row
        self._live = live

    @property
    def policy(self) -> Policy:
        return self._world.transcripts.of(self._row.tenant)

    async def _settled(self) -> None:
        if self._live is not None:
            await self._live.transcript.settled()

    async def cells(self, after: int = 0, *, outputs: bool = True) -> AsyncGenerator[Cell, None]:
        """Oldest first; a few are read at a time."""
        screen = self._world.screens.of(self._row.tenant)
        while found := await self._world.records.list_cells(self._row.session_id, after=after, limit=BATCH, outputs=outputs):
            for cell in found:
                if screen.holds:
                    cell.outputs = [_held(screen, out) for out in cell.outputs]
                yield cell
            after = found[-1].place
            await asyncio.sleep(0)

    async def to_json(self, *, after: int = 0, limit: int = PAGE_CELLS, outputs: bool = True) -> Json:
        await self._settled()
        caps, shown, size, following = self._world.caps, list[Json](), 0, None
        async with aclosing(self.cells(after, outputs=outputs)) as cells:
            async for cell in cells:
                if limit <= 0:
                    break  # only what is said of the whole is wanted
                size += cell.code_bytes + (cell.output_bytes if outputs else 0)
                if shown and (len(shown) >= min(limit, PAGE_CELLS) or size > PAGE_BYTES):
                    following = after
                    break
                shown.append(_cell_json(cell, outputs))
                after = cell.place
        count, held = await self._world.records.count_cells(self._row.session_id)
        if self._live is not None and shown and not outputs:
            known = [cell async for cell in self.cells(outputs=False)]
            again = {c.execution_id for c in suggested(known, self._live.core.generation, self._live.rebuild)}
            shown = [cell | {"suggested": cell["execution_id"] in again} for cell in shown]
        return {
            "policy": self.policy, "cells": shown, "next": following, "held": {"cells": count, "bytes": held},
            "limits": {"bytes": caps.transcript_bytes, "cell_output_bytes": caps.cell_bytes, "cells": MAX_CELLS},
            "retained_s": self._world.retention.transcripts_s,
        }  # fmt: skip

    async def notebook(self) -> AsyncIterator[bytes]:
        """An ``.ipynb`` file, cell by cell. Raises Conflict before the first where nothing is kept by policy."""
        await self._settled()
        count, _ = await self._world.records.count_cells(self._row.session_id)
        if not count and self.policy is not Policy.FULL:
            raise Conflict("By policy no transcript is kept here.", policy=self.policy)
        notices = await self._world.records.list_notices(self._row.session_id, limit=1000)
        told = [(str(n.kind), n.generation, str(n.body.get("text", ""))) for n in notices]
        yield b'{"cells":['
        first, before = True, None
        async for cell in self.cells():
            for shown in ipynb.with_dividers([cell], told, before):
                yield (b"" if first else b",\n") + dumps(shown)
                first = False
            before = cell.generation
        yield b'],"metadata":' + dumps(ipynb.METADATA) + b',"nbformat":4,"nbformat_minor":5}\n'

    @property
    def name(self) -> str:
        return f"{self._row.name or 'session'}.ipynb"

    async def delete(self, by: str) -> None:
        """The cells, and what the journal still holds of them; recorded in the audit. Raises RecordsUnavailable, StoreUnavailable."""
        await self._settled()
        row = self._row
        audit = AuditRow(self._world.clock.now(), Tag.USER_TRANSCRIPT_DELETE, row.tenant, row.user, row.session_id, {"by": by})
        await self._world.records.forget_cells(row.session_id, audit)
        if self._live is not None:
            self._live.transcript.forget()
        else:
            await asyncio.to_thread(Journal(self._world.journals / row.session_id, 1, 1).delete)


def _held(screen: Screen, out: Json) -> Json:
    kind = str(out.get("output_type"))
    kinds = screen.look(kind, out)
    return screen.held(kind, out, kinds) if kinds else out


def _cell_json(cell: Cell, outputs: bool) -> Json:
    value: Json = {
        "execution_id": cell.execution_id, "generation": cell.generation, "source": cell.source, "exit_reason": cell.exit_reason,
        "succeeded": cell.succeeded, "execution_count": cell.execution_count, "created_at": iso(cell.created_at),
        "started_at": iso(cell.started_at) if cell.started_at else None, "finished_at": iso(cell.finished_at), "code": cell.code,
        "code_sha256": cell.code_sha256, "outputs_sha256": cell.outputs_sha256, "output_bytes": cell.output_bytes,
        "left_out_bytes": cell.left_out,
    }  # fmt: skip
    return value | {"outputs": cell.outputs} if outputs else value
