"""Transcripts in SQLite: see ``ports.CellRecords``."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from ..domain.transcript import Cell
from ..ports import AuditRow
from .records_db import Database
from .records_rows import CELL, encode, members, select, upsert, values, write_audit

_NAMES = tuple(name for name in CELL if name != "place")
_PUT = upsert("cells", _NAMES, "execution_id") + " RETURNING place"
_TOTALS = 1000
_WITHOUT_OUTPUTS = tuple("'[]' AS outputs" if name == "outputs" else name for name in CELL)
_IN = "(SELECT value FROM json_each(?))"


class CellTables:
    """A part of ``SqliteRecords``."""

    _db: Database

    def __init__(self) -> None:
        super().__init__()
        self._newest = 0
        self._totals: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Cells and bytes of the sessions that were written to last: counting them took longer than the writing."""

    async def put_cell(self, cell: Cell, most_bytes: int, most_cells: int) -> None:
        known = self._totals.pop(cell.session_id, None)
        place = int(self._db.returning(_PUT, values(cell, _NAMES))[0])
        if known is None or place <= self._newest:  # one that was there already counts as it is now
            count, size = self._held(cell.session_id)
        else:
            count, size = known[0] + 1, known[1] + cell.code_bytes + cell.output_bytes
        self._newest = max(self._newest, place)
        if count <= most_cells and size <= most_bytes:
            self._totals[cell.session_id] = count, size
            if len(self._totals) > _TOTALS:
                self._totals.popitem(last=False)
            return
        # a kill before this leaves a transcript over its bound until the next cell
        with self._db.transaction():
            if size > most_bytes:
                size -= self._drop_outputs(cell.session_id, size - most_bytes)
            if count > most_cells or size > most_bytes:
                self._drop_oldest(cell.session_id, count - most_cells, size - most_bytes)

    def _drop_outputs(self, session_id: str, wanted: int) -> int:
        """Of as many cells as it takes, but the newest; returns the bytes."""
        found = self._db.all("SELECT place, output_bytes FROM cells WHERE session_id = ? ORDER BY place", (session_id,))
        dropped, places = 0, []
        for place, size in found[:-1]:
            if dropped >= wanted:
                break
            if size:
                dropped += size
                places.append(place)
        self._db.run(
            f"UPDATE cells SET left_out = left_out + output_bytes, output_bytes = 0, outputs = '[]' WHERE place IN {_IN}",  # noqa: S608 - ours
            (encode(places),),
        )
        return dropped

    def _drop_oldest(self, session_id: str, too_many: int, too_large: int) -> None:
        found = self._db.all("SELECT place, code_bytes + output_bytes FROM cells WHERE session_id = ? ORDER BY place", (session_id,))
        places = []
        for number, (place, size) in enumerate(found[:-1]):
            if number >= too_many and too_large <= 0:
                break
            too_large -= size
            places.append(place)
        self._db.run(f"DELETE FROM cells WHERE place IN {_IN}", (encode(places),))  # noqa: S608 - ours

    async def list_cells(self, session_id: str, *, after: int = 0, limit: int = 100, outputs: bool = True) -> list[Cell]:
        found = self._db.all(
            f"{select('cells', CELL if outputs else _WITHOUT_OUTPUTS)}WHERE session_id = ? AND place > ? ORDER BY place LIMIT ?",
            (session_id, after, limit),
        )
        return [Cell(**members(row, CELL)) for row in found]

    async def get_cell(self, session_id: str, execution_id: str) -> Cell | None:
        found = self._db.first(select("cells", CELL) + "WHERE execution_id = ? AND session_id = ?", (execution_id, session_id))
        return None if found is None else Cell(**members(found, CELL))

    async def count_cells(self, session_id: str) -> tuple[int, int]:
        return self._held(session_id)

    def _held(self, session_id: str) -> tuple[int, int]:
        count, size = self._db.one("SELECT count(*), coalesce(sum(code_bytes + output_bytes), 0) FROM cells WHERE session_id = ?", (session_id,))
        return int(count), int(size)

    async def forget_cells(self, session_id: str, audit: AuditRow) -> int:
        self._totals.pop(session_id, None)
        self._db.run("PRAGMA secure_delete = ON")
        try:
            with self._db.transaction():
                count = self._db.run("DELETE FROM cells WHERE session_id = ?", (session_id,))
                if count:
                    write_audit(self._db, replace(audit, detail=audit.detail | {"count": count}))
        finally:
            self._db.run("PRAGMA secure_delete = OFF")
        return count
