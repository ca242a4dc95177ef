"""Transcripts in SQLite: see ``ports.CellRecords``."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

from ..domain.transcript import Cell
from ..ports import AuditRow
from .records_db import Database
from .records_rows import CELL, encode, members, select, upsert, values, write_audit

_NAMES = tuple(name for name in CELL if name != "place")
_PUT = upsert("cells", _NAMES, "execution_id") + " RETURNING place"
_TOTALS = 1000
_WITHOUT_OUTPUTS = tuple("'[]' AS outputs" if name == "outputs" else name for name in CELL)
_IN = "(SELECT value FROM json_each(?))"
_OLDEST = "FROM cells WHERE session_id = ? AND place > ? AND place < ? ORDER BY place"


class _Held(NamedTuple):
    """A session's cells and their bytes; up to the place ``bare`` no cell has an output left."""

    cells: int
    size: int
    bare: int = 0


class CellTables:
    """A part of ``SqliteRecords``."""

    _db: Database

    def __init__(self) -> None:
        super().__init__()
        self._newest = 0
        self._totals: OrderedDict[str, _Held] = OrderedDict()
        """Of the sessions that were written to last: counting took longer than the writing."""

    async def put_cell(self, cell: Cell, most_bytes: int, most_cells: int) -> None:
        known = self._totals.pop(cell.session_id, None)
        place = int(self._db.returning(_PUT, values(cell, _NAMES))[0])
        if known is None or place <= self._newest:  # one that was there already counts as it is now
            held = _Held(*self._held(cell.session_id))
        else:
            held = _Held(known.cells + 1, known.size + cell.code_bytes + cell.output_bytes, known.bare)
        self._newest = max(self._newest, place)
        if held.cells > most_cells or held.size > most_bytes:
            # a kill before this leaves a transcript over its bound until the next cell
            with self._db.transaction():
                held = self._drop_outputs(cell.session_id, held, most_bytes, place)
                held = self._drop_oldest(cell.session_id, held, most_bytes, most_cells, place)
        self._totals[cell.session_id] = held
        if len(self._totals) > _TOTALS:
            self._totals.popitem(last=False)

    def _drop_outputs(self, session_id: str, held: _Held, most_bytes: int, newest: int) -> _Held:
        """Of as many of the oldest cells as it takes."""
        if held.size <= most_bytes:
            return held
        size, bare, places = held.size, held.bare, []
        found = self._db.each(f"SELECT place, output_bytes {_OLDEST}", (session_id, held.bare, newest))
        for place, bytes_ in found:
            if size <= most_bytes:
                break
            bare = place
            if bytes_:
                size -= bytes_
                places.append(place)
        found.close()
        if places:
            self._db.run(
                f"UPDATE cells SET left_out = left_out + output_bytes, output_bytes = 0, outputs = '[]' WHERE place IN {_IN}",  # noqa: S608 - ours
                (encode(places),),
            )
        return _Held(held.cells, size, bare)

    def _drop_oldest(self, session_id: str, held: _Held, most_bytes: int, most_cells: int, newest: int) -> _Held:
        count, size, places = held.cells, held.size, []
        found = self._db.each(f"SELECT place, code_bytes + output_bytes {_OLDEST}", (session_id, 0, newest))
        for place, bytes_ in found:
            if count <= most_cells and size <= most_bytes:
                break
            count, size = count - 1, size - bytes_
            places.append(place)
        found.close()
        if places:
            self._db.run(f"DELETE FROM cells WHERE place IN {_IN}", (encode(places),))  # noqa: S608 - ours
        return _Held(count, size, held.bare)

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
                self._db.run(
                    "UPDATE executions SET data = json_remove(data, '$.files', '$.hints') WHERE session_id = ?"
                    " AND (json_extract(data, '$.files') IS NOT NULL OR json_extract(data, '$.hints') IS NOT NULL)", (session_id,),
                )  # fmt: skip
                if count:
                    write_audit(self._db, replace(audit, detail=audit.detail | {"count": count}))
        finally:
            self._db.run("PRAGMA secure_delete = OFF")
        return count
