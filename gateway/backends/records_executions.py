"""The search through the executions of everybody, in SQLite."""

from __future__ import annotations

from ..ports import ExecutionQuery, ExecutionRow
from .records_db import Database
from .records_rows import EXECUTION, members, select

LOOK_AT = 20_000
"""Rows that one call looks at: a filter that matches little must not hold up the loop."""


class ExecutionSearch:
    """A part of ``SqliteRecords``. The order is that of ``seq``, in which executions were asked for."""

    _db: Database

    async def find_executions(self, query: ExecutionQuery) -> tuple[list[ExecutionRow], int | None]:
        last, first = self._db.one("SELECT coalesce(max(seq), 0), coalesce(min(seq), 1) FROM executions")
        top = last if query.behind is None else min(last, query.behind - 1)
        if query.until is not None:
            top = min(top, self._place(query.until, first, last + 1) - 1)
        bottom = first if query.since is None else self._place(query.since, first, last + 1)
        clause, given = _where(query)
        within = f"FROM executions {clause} AND seq BETWEEN ? AND ? ORDER BY seq DESC"  # of an index alone: owner or session
        past = self._db.first(f"SELECT seq {within} LIMIT 1 OFFSET ?", (*given, bottom, top, LOOK_AT))
        low = bottom if past is None else int(past[0]) + 1
        reasons = f" AND exit_reason IN ({', '.join('?' * len(query.reasons))})" if query.reasons else ""
        found = self._db.all(
            f"{select('executions', (*EXECUTION, 'seq'))}{clause} AND seq BETWEEN ? AND ?{reasons} ORDER BY seq DESC LIMIT ?",
            (*given, low, top, *query.reasons, query.limit),
        )
        rows = [ExecutionRow(**members(row[:-1], EXECUTION)) for row in found]
        reached = int(found[-1][-1]) if len(found) == query.limit else low
        return rows, reached if reached > bottom else None

    def _place(self, at: float, low: int, high: int) -> int:
        """The first ``seq`` that was asked for at ``at`` or later. They were numbered in the order of time, so halving finds it."""
        while low < high:
            middle = (low + high) // 2
            row = self._db.first("SELECT seq, created_at FROM executions WHERE seq >= ? ORDER BY seq LIMIT 1", (middle,))
            if row is not None and row[0] < high and row[1] < at:
                low = int(row[0]) + 1
            else:
                high = middle
        return low


def _where(query: ExecutionQuery) -> tuple[str, list[str]]:
    """One index at most, and always one whose rows come in the order of ``seq``: a plus before a column keeps an index of it out."""
    of_owner = query.session_id is None and query.tenant is not None and query.user is not None
    plus = "" if of_owner else "+"
    wanted = (("session_id", query.session_id), (f"{plus}tenant", query.tenant), (f"{plus}user", query.user))
    given = [(name, value) for name, value in wanted if value is not None]
    return "WHERE " + (" AND ".join(f"{name} = ?" for name, _ in given) or "true"), [value for _, value in given]
