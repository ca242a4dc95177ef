"""The records in SQLite: every durable row of an installation, in one file.

The methods are ``async`` because the port is (a server's database will wait for the network); these do not suspend. Why
that is right here, and what it costs, stands in ``records_db``: about 0.1 ms for a session or an execution.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..domain.model import Artifact
from ..errors import Conflict
from ..ports import AuditRow, DeclarationRow, ExecutionRow, NoticeRow, SandboxRow, SessionRow
from .records_db import Database, Row
from .records_lease import is_gone, make_owner

__all__ = ["SqliteRecords", "make_owner"]


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


_SESSION, _SANDBOX, _EXECUTION = _names(SessionRow), _names(SandboxRow), _names(ExecutionRow)
_ARTIFACT, _AUDIT, _DECLARATION = _names(Artifact), _names(AuditRow), _names(DeclarationRow)
_NOTICE = _names(NoticeRow)


def _select(table: str, names: Iterable[str]) -> str:
    return f"SELECT {', '.join(names)} FROM {table} "  # noqa: S608 - names of our own, never a caller's text


def _upsert(table: str, names: tuple[str, ...], key: str, guard: str = "") -> str:
    marks = ", ".join("?" * len(names))
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key.split(", "))
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) "  # noqa: S608 - as above
        f"ON CONFLICT ({key}) DO UPDATE SET {updates} {guard}"
    )


_PUT_SESSION = _upsert("sessions", _SESSION, "session_id", "WHERE excluded.version >= sessions.version")
_PUT_SANDBOX = _upsert("sandboxes", _SANDBOX, "sandbox_id")
_PUT_EXECUTION = _upsert("executions", _EXECUTION, "execution_id")
_PUT_DECLARATION = _upsert("declarations", _DECLARATION, "session_id, pattern")


class SqliteRecords:
    """``ports.Records`` on a SQLite file. Raises RecordsUnavailable; Conflict where a row refers to one that is not."""

    def __init__(self, path: Path) -> None:
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
        if self._db.run(_PUT_SESSION, _values(row, _SESSION)) == 0:
            raise Conflict("A newer version of this session is recorded.")

    async def get_session(self, session_id: str) -> SessionRow | None:
        found = self._db.first(_select("sessions", _SESSION) + "WHERE session_id = ?", (session_id,))
        return None if found is None else SessionRow(**_members(found, _SESSION))

    async def list_sessions(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        live_only: bool = False,
        limit: int = 1000,
        offset: int = 0,
    ) -> list[SessionRow]:
        where, values = _where(tenant=tenant, user=user)
        if live_only:
            where += " AND state <> 'ended'"
        found = self._db.all(
            f"{_select('sessions', _SESSION)}{where} ORDER BY created_at DESC, session_id LIMIT ? OFFSET ?",
            (*values, limit, offset),
        )
        return [SessionRow(**_members(row, _SESSION)) for row in found]

    async def put_sandbox(self, row: SandboxRow) -> None:
        self._db.run(_PUT_SANDBOX, _values(row, _SANDBOX, session_id=row.session_id or None))

    async def get_sandbox(self, sandbox_id: str) -> SandboxRow | None:
        found = self._db.first(_select("sandboxes", _SANDBOX) + "WHERE sandbox_id = ?", (sandbox_id,))
        return None if found is None else _sandbox(found)

    async def list_sandboxes(self, *, session_id: str | None = None, live_only: bool = True) -> list[SandboxRow]:
        """Oldest first."""
        where, values = _where(session_id=session_id)
        if live_only:
            where += " AND state <> 'gone'"
        found = self._db.all(f"{_select('sandboxes', _SANDBOX)}{where} ORDER BY created_at, sandbox_id", values)
        return [_sandbox(row) for row in found]

    # ------------------------------------------------------------------ executions and notices

    async def put_execution(self, row: ExecutionRow) -> None:
        self._db.run(_PUT_EXECUTION, _values(row, _EXECUTION))

    async def get_execution(self, execution_id: str) -> ExecutionRow | None:
        found = self._db.first(_select("executions", _EXECUTION) + "WHERE execution_id = ?", (execution_id,))
        return None if found is None else ExecutionRow(**_members(found, _EXECUTION))

    async def list_executions(self, session_id: str, *, unfinished_only: bool = False, limit: int = 100) -> list[ExecutionRow]:
        unfinished = " AND state <> 'finished'" if unfinished_only else ""
        found = self._db.all(
            f"{_select('executions', _EXECUTION)}WHERE session_id = ?{unfinished} ORDER BY seq DESC LIMIT ?",
            (session_id, limit),
        )
        return [ExecutionRow(**_members(row, _EXECUTION)) for row in reversed(found)]

    async def add_notice(self, row: NoticeRow) -> int:
        return self._db.insert(
            "INSERT INTO notices (session_id, kind, generation, at, delivered, body) VALUES (?, ?, ?, ?, ?, ?)",
            (row.session_id, row.kind, row.generation, row.at, row.delivered, _json(row.body)),
        )

    async def list_notices(self, session_id: str, *, undelivered_only: bool = False, limit: int = 100) -> list[NoticeRow]:
        """Oldest first (the newest ``limit``)."""
        undelivered = " AND NOT delivered" if undelivered_only else ""
        found = self._db.all(
            f"{_select('notices', _NOTICE)}WHERE session_id = ?{undelivered} ORDER BY notice_id DESC LIMIT ?",
            (session_id, limit),
        )
        return [NoticeRow(**_members(row, _NOTICE)) for row in reversed(found)]

    async def mark_delivered(self, session_id: str, notice_ids: list[int]) -> None:
        self._db.run(
            "UPDATE notices SET delivered = 1 WHERE session_id = ? AND notice_id IN (SELECT value FROM json_each(?))",
            (session_id, _json(notice_ids)),
        )

    # ------------------------------------------------------------------ declarations and artifacts

    async def put_declaration(self, row: DeclarationRow) -> None:
        self._db.run(_PUT_DECLARATION, _values(row, _DECLARATION))

    async def list_declarations(self, session_id: str) -> list[DeclarationRow]:
        """Oldest first."""
        found = self._db.all(_select("declarations", _DECLARATION) + "WHERE session_id = ? ORDER BY created_at, pattern", (session_id,))
        return [DeclarationRow(**_members(row, _DECLARATION)) for row in found]

    async def delete_declaration(self, session_id: str, pattern: str) -> bool:
        where = "WHERE session_id = ? AND pattern = ?"
        return self._db.run(f"DELETE FROM declarations {where}", (session_id, pattern)) == 1  # noqa: S608 - a constant

    async def add_artifact(self, artifact: Artifact) -> None:
        """Raises Conflict when there is one with that id."""
        self._add_version(artifact, artifact.artifact_id, deleted=False)

    def _add_version(self, artifact: Artifact, artifact_id: str | None, *, deleted: bool) -> None:
        names = (*_ARTIFACT, "deleted")
        self._db.run(
            f"INSERT INTO artifacts ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",  # noqa: S608 - our names
            (*_values(artifact, _ARTIFACT, artifact_id=artifact_id), deleted),
        )

    async def list_artifacts(self, session_id: str, *, latest_only: bool = True) -> list[Artifact]:
        """By path with ``latest_only``, else oldest first."""
        if latest_only:
            rest = "AND seq IN (SELECT max(seq) FROM artifacts WHERE session_id = ? GROUP BY path) AND NOT deleted ORDER BY path"
            values = [session_id, session_id]
        else:
            rest, values = "AND NOT deleted ORDER BY seq", [session_id]
        found = self._db.all(f"{_select('artifacts', _ARTIFACT)}WHERE session_id = ? {rest}", values)
        return [Artifact(**_members(row, _ARTIFACT)) for row in found]

    async def get_artifact(self, artifact_id: str) -> Artifact | None:
        found = self._db.first(_select("artifacts", _ARTIFACT) + "WHERE artifact_id = ?", (artifact_id,))
        return None if found is None else Artifact(**_members(found, _ARTIFACT))

    async def drop_artifact_path(self, session_id: str, path: str, at: float) -> None:
        gone = Artifact("", session_id, "", "", path, "", 0, "", 0, at)
        self._add_version(gone, None, deleted=True)

    # ------------------------------------------------------------------ audit

    async def add_audit(self, row: AuditRow) -> None:
        self._db.insert(
            f"INSERT INTO audit ({', '.join(_AUDIT)}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - our names
            _values(row, _AUDIT),
        )

    async def list_audit(self, *, tenant: str | None = None, session_id: str | None = None, limit: int = 200) -> list[AuditRow]:
        """Newest first."""
        where, values = _where(tenant=tenant, session_id=session_id)
        found = self._db.all(f"{_select('audit', _AUDIT)}{where} ORDER BY seq DESC LIMIT ?", (*values, limit))
        return [AuditRow(**_members(row, _AUDIT)) for row in found]


_JSON_MEMBERS = frozenset(("data", "body", "detail"))
_FLAGS = frozenset(("keep", "delivered"))


_json = json.JSONEncoder(separators=(",", ":")).encode


def _values(row: object, names: tuple[str, ...], **other: object) -> tuple[object, ...]:
    """The row's members as columns; ``other`` replaces some."""
    found = (other[name] if name in other else getattr(row, name) for name in names)
    return tuple(_json(value) if name in _JSON_MEMBERS else value for name, value in zip(names, found, strict=True))


def _members(row: Row, names: tuple[str, ...]) -> dict[str, Any]:
    """The inverse."""
    return {
        name: json.loads(value) if name in _JSON_MEMBERS else bool(value) if name in _FLAGS else value for name, value in zip(names, row, strict=True)
    }


def _sandbox(row: Row) -> SandboxRow:
    members = _members(row, _SANDBOX)
    return SandboxRow(**members | {"session_id": members["session_id"] or ""})


def _where(**wanted: str | None) -> tuple[str, tuple[str, ...]]:
    """A WHERE clause for the members that are not None."""
    given = {name: value for name, value in wanted.items() if value is not None}
    return "WHERE " + (" AND ".join(f"{name} = ?" for name in given) or "true"), tuple(given.values())
