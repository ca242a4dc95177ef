"""The audit in SQLite."""

from __future__ import annotations

from ..ports import AuditQuery, AuditRow
from .records_db import Database
from .records_rows import AUDIT, members, select, where, write_audit

LOOK_AT = 20_000
"""Entries that one call looks at: a filter that matches little must not hold up the loop (some 20 ms)."""


class AuditTables:
    """A part of ``SqliteRecords``."""

    _db: Database

    async def add_audit(self, row: AuditRow) -> None:
        write_audit(self._db, row)

    async def list_audit(self, *, tenant: str | None = None, session_id: str | None = None, limit: int = 200) -> list[AuditRow]:
        """Newest first."""
        clause, given = where(tenant=tenant, session_id=session_id)
        found = self._db.all(f"{select('audit', AUDIT)}{clause} ORDER BY seq DESC LIMIT ?", (*given, limit))
        return [AuditRow(**members(row, AUDIT)) for row in found]

    async def find_audit(self, query: AuditQuery) -> tuple[list[AuditRow], int | None]:
        clause, given = where(tenant=query.tenant, user=query.user, session_id=query.session_id)
        values: list[object] = [*given]
        if query.tag is not None:
            clause += " AND substr(tag, 1, ?) = ?" if query.tag.endswith(":") else " AND length(tag) = ? AND tag = ?"
            values += [len(query.tag), query.tag]
        if query.since is not None:
            clause += " AND at >= ?"
            values.append(query.since)
        last, first = self._db.one("SELECT coalesce(max(seq), 0), coalesce(min(seq), 0) FROM audit")
        top = last if query.behind is None else min(last, query.behind - 1)
        low = max(first, top - LOOK_AT + 1)
        found = self._db.all(
            f"{select('audit', (*AUDIT, 'seq'))}{clause} AND seq BETWEEN ? AND ? ORDER BY seq DESC LIMIT ?", (*values, low, top, query.limit)
        )
        rows = [AuditRow(**members(row[:-1], AUDIT)) for row in found]
        reached = int(found[-1][-1]) if len(found) == query.limit else low
        return rows, reached if reached > first else None
