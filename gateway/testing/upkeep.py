"""The part of ``MemoryRecords`` that the sweeper and the list of disabled users ask."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from typing import Any

from ..domain.model import Artifact, ExecutionState, SandboxState, SessionState
from ..domain.retention import Rows, StoredPath, Version
from ..domain.transcript import Cell
from ..errors import SandglassError
from ..ports import AuditRow, DeclarationRow, DisabledRow, ExecutionRow, NoticeRow, Purged, RevocationRow, SandboxRow, SessionRow


class MemoryUpkeep:
    """Places are numbers in the order of writing; ``MemoryRecords`` keeps what is named here without a value."""

    failing: SandglassError | None
    errors: int
    _sessions: dict[str, SessionRow]
    _sandboxes: dict[str, SandboxRow]
    _executions: dict[str, ExecutionRow]
    _notices: list[NoticeRow]
    _declarations: dict[tuple[str, str], DeclarationRow]
    _artifacts: list[tuple[Artifact, bool]]
    _audit: list[AuditRow]
    _cells: dict[str, Cell]

    def __init__(self) -> None:
        super().__init__()
        self._notes: dict[str, str] = {}
        self._doomed: set[str] = set()
        self._orphans: dict[str, float] = {}
        self._disabled: dict[tuple[str, str], DisabledRow] = {}
        self._revoked: dict[tuple[str, str, str], RevocationRow] = {}

    def _up(self) -> None:
        if self.failing is not None:
            self.errors += 1
            raise self.failing

    def _over(self, session_id: str) -> bool:
        return self._sessions[session_id].state == SessionState.ENDED

    def _ended_at(self, session_id: str, otherwise: float) -> float:
        s = self._sessions[session_id]
        return otherwise if not self._over(session_id) else s.last_activity if s.ended_at is None else s.ended_at

    async def get_note(self, name: str) -> dict[str, Any] | None:
        self._up()
        return json.loads(self._notes[name]) if name in self._notes else None

    async def put_note(self, name: str, value: dict[str, Any]) -> None:
        self._up()
        self._notes[name] = json.dumps(value)

    # ------------------------------------------------------------------ artifacts

    async def stored_paths(self, after: tuple[str, str], limit: int) -> list[StoredPath]:
        self._up()
        found = []
        rows = sorted(self._artifacts, key=lambda item: (item[0].session_id, item[0].path.encode()))
        for (session_id, path), group in groupby(rows, key=lambda item: (item[0].session_id, item[0].path)):
            if (session_id, path.encode()) <= (after[0], after[1].encode()):
                continue
            s = self._sessions[session_id]
            ended_at = (s.last_activity if s.ended_at is None else s.ended_at) if self._over(session_id) else None
            versions = tuple(Version("" if gone else a.artifact_id, a.size, a.created_at) for a, gone in group if a.artifact_id not in self._doomed)
            found.append(StoredPath(session_id, s.tenant, s.user, path, ended_at, versions))
        return found[:limit]

    async def doom_artifacts(self, artifact_ids: list[str], at: float, audit: AuditRow) -> int:
        self._up()
        fresh = {a.artifact_id for a, gone in self._artifacts if not gone and a.artifact_id in artifact_ids} - self._doomed
        self._doomed |= fresh
        if fresh:
            self._audit.append(audit)
        return len(fresh)

    async def doomed_artifacts(self, after: int, limit: int) -> list[tuple[int, Artifact]]:
        self._up()
        found = [(place, a) for place, (a, _) in enumerate(self._artifacts, 1) if a.artifact_id in self._doomed and place > after]
        return found[:limit]

    async def forget_artifact(self, artifact_id: str) -> None:
        self._up()
        if artifact_id in self._doomed:
            self._doomed.discard(artifact_id)
            self._artifacts = [item for item in self._artifacts if item[0].artifact_id != artifact_id]

    async def drop_marks(self, session_id: str, path: str) -> None:
        self._up()
        mine = [gone for a, gone in self._artifacts if (a.session_id, a.path) == (session_id, path)]
        if all(mine):
            self._artifacts = [item for item in self._artifacts if (item[0].session_id, item[0].path) != (session_id, path)]

    # ------------------------------------------------------------------ rows that go by age

    async def purge(self, rows: Rows, before: float, after: int, limit: int, audit: AuditRow) -> Purged:
        self._up()
        keys, kept = self._due(rows, before)
        taken = keys[:limit]
        for key in taken:
            kept.remove(key) if isinstance(kept, list) else kept.pop(key)
        if rows is Rows.SESSIONS:
            self._declarations = {key: row for key, row in self._declarations.items() if key[0] not in taken}
            self._sandboxes = {key: row for key, row in self._sandboxes.items() if row.session_id not in taken}
        ids = tuple(taken) if rows is Rows.SESSIONS else ()
        if taken:
            self._audit.append(replace(audit, detail=audit.detail | {"count": len(taken)} | ({"ids": list(ids)} if ids else {})))
        return Purged(len(taken), 0 if len(keys) > limit else None, ids)

    def _due(self, rows: Rows, before: float) -> tuple[list[Any], Any]:
        if rows is Rows.AUDIT:
            return [row for row in self._audit if row.at <= before], self._audit
        if rows is Rows.NOTICES:
            return [row for row in self._notices if row.at <= before and (row.delivered or self._over(row.session_id))], self._notices
        if rows is Rows.SANDBOXES:
            gone = [k for k, row in self._sandboxes.items() if row.state == SandboxState.GONE and (row.ended_at or before + 1) <= before]
            return gone, self._sandboxes
        if rows is Rows.EXECUTIONS:
            return [
                key
                for key, row in self._executions.items()
                if (row.state == ExecutionState.FINISHED or self._over(row.session_id)) and (row.finished_at or row.created_at) <= before
            ], self._executions
        if rows is Rows.CELLS:
            return [key for key, cell in self._cells.items() if self._ended_at(cell.session_id, before + 1) <= before], self._cells
        used = {a.session_id for a, _ in self._artifacts} | {e.session_id for e in self._executions.values()} | {n.session_id for n in self._notices}
        used |= {cell.session_id for cell in self._cells.values()}
        used |= {row.session_id for row in self._sandboxes.values() if row.state != SandboxState.GONE}
        over = [k for k, s in self._sessions.items() if self._over(k) and s.ended_at is not None and s.ended_at <= before and k not in used]
        return over, self._sessions

    # ------------------------------------------------------------------ objects without a row

    async def unknown_objects(self, keys: dict[str, str]) -> list[str]:
        self._up()
        known = {a.artifact_id for a, _ in self._artifacts}
        return [key for key, artifact_id in keys.items() if artifact_id not in known]

    async def note_orphans(self, keys: list[str], at: float) -> None:
        self._up()
        for key in keys:
            self._orphans.setdefault(key, at)

    async def orphans(self, before: float, limit: int) -> list[str]:
        self._up()
        return sorted(key for key, at in self._orphans.items() if at <= before)[:limit]

    async def forget_orphan(self, key: str, audit: AuditRow | None) -> None:
        self._up()
        if self._orphans.pop(key, None) is not None and audit is not None:
            self._audit.append(audit)

    # ------------------------------------------------------------------ disabled users

    async def disable_user(self, row: DisabledRow, audit: AuditRow) -> None:
        self._up()
        self._disabled[row.tenant, row.user] = replace(row)
        self._audit.append(audit)

    async def enable_user(self, tenant: str, user: str, at: float, audit: AuditRow) -> bool:
        self._up()
        row = self._disabled.get((tenant, user))
        if row is None or row.enabled_at is not None:
            return False
        row.enabled_at = at
        self._audit.append(audit)
        return True

    async def list_disabled(self, *, enabled_too: bool = False) -> list[DisabledRow]:
        self._up()
        found = [replace(row) for row in self._disabled.values() if enabled_too or row.enabled_at is None]
        return sorted(found, key=lambda row: (-row.at, row.tenant, row.user))

    async def forget_enabled(self, before: float) -> None:
        self._up()
        self._disabled = {key: row for key, row in self._disabled.items() if row.enabled_at is None or row.enabled_at > before}

    async def put_revocation(self, row: RevocationRow) -> None:
        self._up()
        self._revoked[row.token_id, row.tenant, row.user] = row

    async def list_revocations(self) -> list[RevocationRow]:
        self._up()
        return sorted(self._revoked.values(), key=lambda row: row.at)

    async def forget_revocations(self, before: float) -> None:
        self._up()
        self._revoked = {key: row for key, row in self._revoked.items() if row.until > before}
