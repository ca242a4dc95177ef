"""The part of ``MemoryRecords`` that holds transcripts."""

from __future__ import annotations

from dataclasses import replace

from ..domain.transcript import Cell
from ..errors import Conflict, SandglassError
from ..ports import AuditRow, ExecutionRow, SessionRow


class MemoryCells:
    """``MemoryRecords`` keeps what is named here without a value."""

    failing: SandglassError | None
    errors: int
    _sessions: dict[str, SessionRow]
    _audit: list[AuditRow]
    _executions: dict[str, ExecutionRow]

    def __init__(self) -> None:
        super().__init__()
        self._cells: dict[str, Cell] = {}
        self._places = 0

    def _reached(self) -> None:
        if self.failing is not None:
            self.errors += 1
            raise self.failing

    def _of(self, session_id: str) -> list[Cell]:
        return sorted((cell for cell in self._cells.values() if cell.session_id == session_id), key=lambda cell: cell.place)

    async def put_cell(self, cell: Cell, most_bytes: int, most_cells: int) -> None:
        self._reached()
        if cell.session_id not in self._sessions:
            raise Conflict("There is no such session.")
        known = self._cells.get(cell.execution_id)
        self._places += known is None
        self._cells[cell.execution_id] = replace(cell, outputs=list(cell.outputs), place=known.place if known else self._places)
        mine = self._of(cell.session_id)
        for old in mine[:-1]:
            if (await self.count_cells(cell.session_id))[1] <= most_bytes:
                break
            old.left_out, old.output_bytes, old.outputs = old.left_out + old.output_bytes, 0, []
        for old in mine[:-1]:
            count, size = await self.count_cells(cell.session_id)
            if count <= most_cells and size <= most_bytes:
                break
            del self._cells[old.execution_id]

    async def list_cells(self, session_id: str, *, after: int = 0, limit: int = 100, outputs: bool = True) -> list[Cell]:
        self._reached()
        found = [cell for cell in self._of(session_id) if cell.place > after][:limit]
        return [replace(cell, outputs=list(cell.outputs) if outputs else []) for cell in found]

    async def get_cell(self, session_id: str, execution_id: str) -> Cell | None:
        self._reached()
        found = self._cells.get(execution_id)
        return replace(found) if found is not None and found.session_id == session_id else None

    async def count_cells(self, session_id: str) -> tuple[int, int]:
        self._reached()
        mine = self._of(session_id)
        return len(mine), sum(cell.code_bytes + cell.output_bytes for cell in mine)

    async def forget_cells(self, session_id: str, audit: AuditRow) -> int:
        self._reached()
        mine = self._of(session_id)
        for cell in mine:
            del self._cells[cell.execution_id]
        for row in self._executions.values():
            if row.session_id == session_id:
                row.data = {name: value for name, value in row.data.items() if name not in ("files", "hints")}
        if mine:
            self._audit.append(replace(audit, detail=audit.detail | {"count": len(mine)}))
        return len(mine)
