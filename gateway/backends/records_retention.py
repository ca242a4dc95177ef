"""What the sweeper asks of the records, in SQLite: see ``ports.RetentionRecords``.

No statement here looks at more than one batch of rows, so the longest holds the loop for a few milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from typing import Any

from ..domain.model import Artifact
from ..domain.retention import Rows, StoredPath, Version
from ..ports import AuditRow, Purged
from .records_db import Database
from .records_rows import ARTIFACT, members, select, write_audit

_NOTE = "note:"
_ENDED = "(SELECT state FROM sessions s WHERE s.session_id = {0}.session_id) = 'ended'"
_SESSION_OVER = "(SELECT CASE WHEN state = 'ended' THEN coalesce(ended_at, last_activity) END FROM sessions s WHERE s.session_id = cells.session_id)"

_BY_PLACE = {
    Rows.EXECUTIONS: (
        "executions", "seq", "created_at",
        f"CASE WHEN state = 'finished' OR {_ENDED.format('executions')} THEN max(created_at, coalesce(finished_at, created_at)) END",
    ),
    Rows.NOTICES: ("notices", "notice_id", "at", f"CASE WHEN delivered OR {_ENDED.format('notices')} THEN at END"),
    Rows.CELLS: ("cells", "place", "finished_at", _SESSION_OVER),
    Rows.AUDIT: ("audit", "seq", "at", "at"),
}  # fmt: skip
"""Table, place, the time of writing, the time since which a row is over (NULL: it is not)."""

_GONE = """DELETE FROM sandboxes WHERE sandbox_id IN (
  SELECT sandbox_id FROM sandboxes WHERE state = 'gone' AND ended_at <= ? ORDER BY ended_at LIMIT ?)"""

_OVER = """SELECT session_id FROM sessions s WHERE state = 'ended' AND ended_at <= ?
  AND NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.session_id = s.session_id)
  AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.session_id = s.session_id)
  AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.session_id = s.session_id)
  AND NOT EXISTS (SELECT 1 FROM cells c WHERE c.session_id = s.session_id)
  AND NOT EXISTS (SELECT 1 FROM sandboxes b WHERE b.session_id = s.session_id AND b.state <> 'gone')
  ORDER BY ended_at LIMIT ?"""

_PATHS = """SELECT a.session_id, a.path, s.tenant, s.user, CASE WHEN s.state = 'ended' THEN coalesce(s.ended_at, s.last_activity) END,
    a.artifact_id, a.size, a.created_at, a.doomed_at
  FROM (SELECT DISTINCT session_id, path FROM artifacts WHERE (session_id, path) > (?, ?) ORDER BY session_id, path LIMIT ?) p
  JOIN artifacts a ON a.session_id = p.session_id AND a.path = p.path
  JOIN sessions s ON s.session_id = a.session_id
  ORDER BY a.session_id, a.path, a.seq"""


class RetentionTables:
    """A part of ``SqliteRecords``."""

    _db: Database

    async def get_note(self, name: str) -> dict[str, Any] | None:
        found = self._db.first("SELECT value FROM meta WHERE key = ?", (_NOTE + name,))
        return None if found is None else dict(json.loads(found[0]))

    async def put_note(self, name: str, value: dict[str, Any]) -> None:
        self._db.run("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_NOTE + name, json.dumps(value)))

    # ------------------------------------------------------------------ artifacts

    async def stored_paths(self, after: tuple[str, str], limit: int) -> list[StoredPath]:
        found = []
        for (session_id, path, tenant, user, ended_at), rows in groupby(self._db.all(_PATHS, (*after, limit)), key=lambda row: row[:5]):
            versions = tuple(Version(artifact_id or "", size, at) for *_, artifact_id, size, at, doomed in rows if doomed is None)
            found.append(StoredPath(session_id, tenant, user, path, ended_at, versions))
        return found

    async def doom_artifacts(self, artifact_ids: list[str], at: float, audit: AuditRow) -> int:
        with self._db.transaction():
            count = self._db.run(
                "UPDATE artifacts SET doomed_at = ? WHERE doomed_at IS NULL AND artifact_id IN (SELECT value FROM json_each(?))",
                (at, json.dumps(artifact_ids)),
            )
            if count:
                write_audit(self._db, audit)
        return count

    async def doomed_artifacts(self, after: int, limit: int) -> list[tuple[int, Artifact]]:
        rows = self._db.all(
            select("artifacts", ("seq", *ARTIFACT)) + "WHERE doomed_at IS NOT NULL AND seq > ? ORDER BY seq LIMIT ?", (after, limit)
        )
        return [(seq, Artifact(**members(tuple(rest), ARTIFACT))) for seq, *rest in rows]

    async def forget_artifact(self, artifact_id: str) -> None:
        self._db.run("DELETE FROM artifacts WHERE artifact_id = ? AND doomed_at IS NOT NULL", (artifact_id,))

    async def drop_marks(self, session_id: str, path: str) -> None:
        self._db.run(
            "DELETE FROM artifacts WHERE session_id = ?1 AND path = ?2 AND NOT EXISTS "
            "(SELECT 1 FROM artifacts WHERE session_id = ?1 AND path = ?2 AND artifact_id IS NOT NULL)",
            (session_id, path),
        )

    # ------------------------------------------------------------------ rows that go by age

    async def purge(self, rows: Rows, before: float, after: int, limit: int, audit: AuditRow) -> Purged:
        with self._db.transaction():
            if rows is Rows.SESSIONS:
                done = self._purge_sessions(before, limit)
            elif rows is Rows.SANDBOXES:
                count = self._db.run(_GONE, (before, limit))
                done = Purged(count, 0 if count == limit else None)
            else:
                done = self._purge_by_place(rows, before, after, limit)
            if done.count:
                ids = {"ids": list(done.sessions)} if done.sessions else {}
                write_audit(self._db, replace(audit, detail=audit.detail | {"count": done.count} | ids))
        return done

    def _purge_by_place(self, rows: Rows, before: float, after: int, limit: int) -> Purged:
        """In the order of writing: a batch in which nothing was written before ``before`` is the last one to look at."""
        table, place, written, over = _BY_PLACE[rows]
        found = self._db.all(
            f"SELECT {place}, {written} <= ?, {over} <= ? FROM {table} WHERE {place} > ? ORDER BY {place} LIMIT ?",  # noqa: S608 - our names
            (before, before, after, limit),
        )
        due = json.dumps([seq for seq, _, is_over in found if is_over])
        count = self._db.run(f"DELETE FROM {table} WHERE {place} IN (SELECT value FROM json_each(?))", (due,))  # noqa: S608 - our names
        more = len(found) == limit and any(is_old for _, is_old, _ in found)
        return Purged(count, found[-1][0] if more else None)

    def _purge_sessions(self, before: float, limit: int) -> Purged:
        ids = tuple(str(row[0]) for row in self._db.all(_OVER, (before, limit)))
        for table in ("declarations", "sandboxes", "sessions") if ids else ():
            self._db.run(f"DELETE FROM {table} WHERE session_id IN (SELECT value FROM json_each(?))", (json.dumps(ids),))  # noqa: S608 - our names
        return Purged(len(ids), 0 if len(ids) == limit else None, ids)

    # ------------------------------------------------------------------ objects without a row

    async def unknown_objects(self, keys: dict[str, str]) -> list[str]:
        known = {
            row[0]
            for row in self._db.all(
                "SELECT artifact_id FROM artifacts WHERE artifact_id IN (SELECT value FROM json_each(?))", (json.dumps(list(keys.values())),)
            )
        }
        return [key for key, artifact_id in keys.items() if artifact_id not in known]

    async def note_orphans(self, keys: list[str], at: float) -> None:
        self._db.run("INSERT OR IGNORE INTO orphans SELECT value, ? FROM json_each(?)", (at, json.dumps(keys)))

    async def orphans(self, before: float, limit: int) -> list[str]:
        return [str(row[0]) for row in self._db.all("SELECT key FROM orphans WHERE seen_at <= ? ORDER BY key LIMIT ?", (before, limit))]

    async def forget_orphan(self, key: str, audit: AuditRow | None) -> None:
        with self._db.transaction():
            if self._db.run("DELETE FROM orphans WHERE key = ?", (key,)) and audit is not None:
                write_audit(self._db, audit)
