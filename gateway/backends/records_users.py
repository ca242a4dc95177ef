"""Disabled users and revoked tokens in SQLite: see ``ports.UserRecords``."""

from __future__ import annotations

from ..ports import AuditRow, DisabledRow, RevocationRow
from .records_db import Database
from .records_rows import DISABLED, REVOCATION, members, select, upsert, values, write_audit

_PUT = upsert("disabled_users", DISABLED, "tenant, user")
_REVOKE = upsert("revocations", REVOCATION, "token_id, tenant, user")


class UserTables:
    """A part of ``SqliteRecords``."""

    _db: Database

    async def disable_user(self, row: DisabledRow, audit: AuditRow) -> None:
        with self._db.transaction():
            self._db.run(_PUT, values(row, DISABLED))
            write_audit(self._db, audit)

    async def enable_user(self, tenant: str, user: str, at: float, audit: AuditRow) -> bool:
        with self._db.transaction():
            found = self._db.run("UPDATE disabled_users SET enabled_at = ? WHERE tenant = ? AND user = ? AND enabled_at IS NULL", (at, tenant, user))
            if found:
                write_audit(self._db, audit)
        return found == 1

    async def list_disabled(self, *, enabled_too: bool = False) -> list[DisabledRow]:
        where = "" if enabled_too else "WHERE enabled_at IS NULL "
        found = self._db.all(f"{select('disabled_users', DISABLED)}{where}ORDER BY at DESC, tenant, user")
        return [DisabledRow(**members(row, DISABLED)) for row in found]

    async def forget_enabled(self, before: float) -> None:
        self._db.run("DELETE FROM disabled_users WHERE enabled_at <= ?", (before,))

    async def put_revocation(self, row: RevocationRow) -> None:
        self._db.run(_REVOKE, values(row, REVOCATION))

    async def list_revocations(self) -> list[RevocationRow]:
        return [RevocationRow(**members(row, REVOCATION)) for row in self._db.all(f"{select('revocations', REVOCATION)}ORDER BY at")]

    async def forget_revocations(self, before: float) -> None:
        self._db.run("DELETE FROM revocations WHERE until <= ?", (before,))
