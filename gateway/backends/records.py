"""The records in SQLite: every durable row of an installation, in one file.

The methods are ``async`` because the port is (a server's database will wait for the network); these do not suspend. Why
that is right here, and what it costs, stands in ``records_db``: about 0.1 ms for a session or an execution.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from ..domain.model import Artifact
from ..errors import Conflict
from ..ports import DeclarationRow, ExecutionRow, NoticeRow, SandboxRow, SessionQuery, SessionRow
from .records_audit import AuditTables
from .records_cells import CellTables
from .records_db import Database
from .records_executions import ExecutionSearch
from .records_lease import is_gone, make_owner
from .records_retention import RetentionTables
from .records_rows import (
    ARTIFACT,
    DECLARATION,
    EXECUTION,
    NOTICE,
    SANDBOX,
    SESSION,
    encode,
    members,
    sandbox,
    select,
    upsert,
    values,
    where,
)
from .records_users import UserTables

__all__ = ["SqliteRecords", "make_owner"]


_PUT_SESSION = upsert("sessions", SESSION, "session_id", "WHERE excluded.version >= sessions.version")
_PUT_SANDBOX = upsert("sandboxes", SANDBOX, "sandbox_id")
_PUT_EXECUTION = upsert("executions", EXECUTION, "execution_id")
_PUT_DECLARATION = upsert("declarations", DECLARATION, "session_id, pattern")


class SqliteRecords(RetentionTables, UserTables, AuditTables, CellTables, ExecutionSearch):
    """``ports.Records`` on a SQLite file. Raises RecordsUnavailable; Conflict where a row refers to one that is not."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._db = Database(path)

    @property
    def errors(self) -> int:
        return self._db.errors

    async def open(self) -> None:
        self._db.open()

    async def close(self) -> None:
        self._db.close()

    async def instance_id(self) -> str:
        self._db.run("INSERT OR IGNORE INTO meta VALUES ('instance_id', ?)", (secrets.token_hex(8),))
        return str(self._db.one("SELECT value FROM meta WHERE key = 'instance_id'")[0])

    # ------------------------------------------------------------------ the lease

    async def acquire_lease(self, owner: str, now: float, ttl_s: float) -> int:
        with self._db.transaction():
            held = self._db.first("SELECT owner, epoch, until FROM lease")
            epoch = 1
            if held is not None:
                holder, last, until = held
                if holder not in ("", owner) and until > now and not is_gone(holder, owner):
                    raise Conflict("Another gateway owns these records.", retry_after=max(until - now, 0.1))
                epoch = last + 1
            self._db.run("INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?)", (owner, epoch, now + ttl_s))
        return epoch

    async def renew_lease(self, owner: str, now: float, ttl_s: float) -> bool:
        return self._db.run("UPDATE lease SET until = ? WHERE owner = ?", (now + ttl_s, owner)) == 1

    async def release_lease(self, owner: str) -> None:
        self._db.run("UPDATE lease SET owner = '', until = 0 WHERE owner = ?", (owner,))

    # ------------------------------------------------------------------ sessions and sandboxes

    async def put_session(self, row: SessionRow) -> None:
        """Raises Conflict when a newer version is recorded; the same version may be written again."""
        if self._db.run(_PUT_SESSION, values(row, SESSION)) == 0:
            raise Conflict("A newer version of this session is recorded.")

    async def get_session(self, session_id: str) -> SessionRow | None:
        found = self._db.first(select("sessions", SESSION) + "WHERE session_id = ?", (session_id,))
        return None if found is None else SessionRow(**members(found, SESSION))

    async def list_sessions(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        live_only: bool = False,
        limit: int = 1000,
        offset: int = 0,
    ) -> list[SessionRow]:
        clause, given = where(tenant=tenant, user=user)
        if live_only:
            clause += " AND state <> 'ended'"
        found = self._db.all(
            f"{select('sessions', SESSION)}{clause} ORDER BY created_at DESC, session_id LIMIT ? OFFSET ?",
            (*given, limit, offset),
        )
        return [SessionRow(**members(row, SESSION)) for row in found]

    async def find_sessions(self, query: SessionQuery) -> list[SessionRow]:
        clause, given = where(tenant=query.tenant, user=query.user)
        values_of: list[object] = [*given]
        for name, words in (("state", query.states), ("reason", query.reasons)):
            if words:
                clause += f" AND {name} IN ({', '.join('?' * len(words))})"
                values_of += words
        if query.since is not None:
            clause += " AND max(last_activity, created_at, coalesce(ended_at, 0)) >= ?"
            values_of.append(query.since)
        if query.behind is not None:
            at, session_id = query.behind
            clause += " AND created_at <= ? AND (created_at < ? OR session_id > ?)"
            values_of += [at, at, session_id]
        found = self._db.all(f"{select('sessions', SESSION)}{clause} ORDER BY created_at DESC, session_id LIMIT ?", (*values_of, query.limit))
        return [SessionRow(**members(row, SESSION)) for row in found]

    async def put_sandbox(self, row: SandboxRow) -> None:
        self._db.run(_PUT_SANDBOX, values(row, SANDBOX, session_id=row.session_id or None))

    async def get_sandbox(self, sandbox_id: str) -> SandboxRow | None:
        found = self._db.first(select("sandboxes", SANDBOX) + "WHERE sandbox_id = ?", (sandbox_id,))
        return None if found is None else sandbox(found)

    async def list_sandboxes(self, *, session_id: str | None = None, live_only: bool = True) -> list[SandboxRow]:
        """Oldest first."""
        clause, given = where(session_id=session_id)
        if live_only:
            clause += " AND state <> 'gone'"
        found = self._db.all(f"{select('sandboxes', SANDBOX)}{clause} ORDER BY created_at, sandbox_id", given)
        return [sandbox(row) for row in found]

    # ------------------------------------------------------------------ executions and notices

    async def put_execution(self, row: ExecutionRow) -> None:
        self._db.run(_PUT_EXECUTION, values(row, EXECUTION))

    async def get_execution(self, execution_id: str) -> ExecutionRow | None:
        found = self._db.first(select("executions", EXECUTION) + "WHERE execution_id = ?", (execution_id,))
        return None if found is None else ExecutionRow(**members(found, EXECUTION))

    async def list_executions(self, session_id: str, *, unfinished_only: bool = False, limit: int = 100) -> list[ExecutionRow]:
        unfinished = " AND state <> 'finished'" if unfinished_only else ""
        found = self._db.all(
            f"{select('executions', EXECUTION)}WHERE session_id = ?{unfinished} ORDER BY seq DESC LIMIT ?",
            (session_id, limit),
        )
        return [ExecutionRow(**members(row, EXECUTION)) for row in reversed(found)]

    async def add_notice(self, row: NoticeRow) -> int:
        return self._db.insert(
            "INSERT INTO notices (session_id, kind, generation, at, delivered, body) VALUES (?, ?, ?, ?, ?, ?)",
            (row.session_id, row.kind, row.generation, row.at, row.delivered, encode(row.body)),
        )

    async def list_notices(self, session_id: str, *, undelivered_only: bool = False, limit: int = 100) -> list[NoticeRow]:
        """Oldest first (the newest ``limit``)."""
        undelivered = " AND NOT delivered" if undelivered_only else ""
        found = self._db.all(
            f"{select('notices', NOTICE)}WHERE session_id = ?{undelivered} ORDER BY notice_id DESC LIMIT ?",
            (session_id, limit),
        )
        return [NoticeRow(**members(row, NOTICE)) for row in reversed(found)]

    async def mark_delivered(self, session_id: str, notice_ids: list[int]) -> None:
        self._db.run(
            "UPDATE notices SET delivered = 1 WHERE session_id = ? AND notice_id IN (SELECT value FROM json_each(?))",
            (session_id, encode(notice_ids)),
        )

    # ------------------------------------------------------------------ declarations and artifacts

    async def put_declaration(self, row: DeclarationRow) -> None:
        self._db.run(_PUT_DECLARATION, values(row, DECLARATION))

    async def list_declarations(self, session_id: str) -> list[DeclarationRow]:
        """Oldest first."""
        found = self._db.all(select("declarations", DECLARATION) + "WHERE session_id = ? ORDER BY created_at, pattern", (session_id,))
        return [DeclarationRow(**members(row, DECLARATION)) for row in found]

    async def delete_declaration(self, session_id: str, pattern: str) -> bool:
        return self._db.run("DELETE FROM declarations WHERE session_id = ? AND pattern = ?", (session_id, pattern)) == 1

    async def add_artifact(self, artifact: Artifact) -> None:
        """Raises Conflict when there is one with that id."""
        self._add_version(artifact, artifact.artifact_id, deleted=False)

    def _add_version(self, artifact: Artifact, artifact_id: str | None, *, deleted: bool) -> None:
        names = (*ARTIFACT, "deleted")
        self._db.run(
            f"INSERT INTO artifacts ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",  # noqa: S608 - our names
            (*values(artifact, ARTIFACT, artifact_id=artifact_id), deleted),
        )

    async def list_artifacts(self, session_id: str, *, latest_only: bool = True) -> list[Artifact]:
        """By path with ``latest_only``, else oldest first."""
        if latest_only:
            newest = "SELECT max(seq) FROM artifacts WHERE session_id = ? AND doomed_at IS NULL GROUP BY path"
            rest, given = f"AND seq IN ({newest}) AND NOT deleted ORDER BY path", [session_id, session_id]
        else:
            rest, given = "AND NOT deleted AND doomed_at IS NULL ORDER BY seq", [session_id]
        found = self._db.all(f"{select('artifacts', ARTIFACT)}WHERE session_id = ? {rest}", given)
        return [Artifact(**members(row, ARTIFACT)) for row in found]

    async def get_artifact(self, artifact_id: str) -> Artifact | None:
        found = self._db.first(select("artifacts", ARTIFACT) + "WHERE artifact_id = ? AND doomed_at IS NULL", (artifact_id,))
        return None if found is None else Artifact(**members(found, ARTIFACT))

    async def judge_artifact(self, artifact_id: str, mime: str, verdict: str) -> None:
        self._db.run("UPDATE artifacts SET mime = ?, verdict = ? WHERE artifact_id = ?", (mime, verdict, artifact_id))

    async def drop_artifact_path(self, session_id: str, path: str, at: float) -> None:
        gone = Artifact("", session_id, "", "", path, "", 0, "", 0, at)
        self._add_version(gone, None, deleted=True)
