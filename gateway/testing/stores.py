"""Records and objects in memory; they pass the contract suites of the real ones.

``failing``: set it to an error, and every call raises it until it is None again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

from ..domain.model import Artifact, ExecutionState, SandboxState, SessionState
from ..domain.paths import check_key
from ..errors import Conflict, NotFound, SandglassError, StoreUnavailable
from ..ports import AuditQuery, AuditRow, DeclarationRow, ExecutionQuery, ExecutionRow, NoticeRow, SandboxRow, SessionQuery, SessionRow
from .cells import MemoryCells
from .upkeep import MemoryUpkeep

CHUNK_BYTES = 256 * 1024
R = TypeVar("R", SessionRow, SandboxRow, ExecutionRow, NoticeRow, AuditRow, DeclarationRow)


def _copy(row: R) -> R:
    """As it would come back from a disk: JSON members are JSON, words are plain strings."""
    changes: dict[str, Any] = {}
    for name in row.__slots__:
        value = getattr(row, name)
        if isinstance(value, dict):
            changes[name] = json.loads(json.dumps(value))
        elif isinstance(value, str):
            changes[name] = str(value)
    return replace(row, **changes)


class MemoryRecords(MemoryUpkeep, MemoryCells):
    """``ports.Records``. ``is_gone(owner, asking)`` says whether a lease's owner has surely ended."""

    def __init__(self, is_gone: Callable[[str, str], bool] = lambda owner, asking: False) -> None:
        super().__init__()
        self.failing = None
        self.errors = 0
        self._is_gone = is_gone
        self._lease = ("", 0, 0.0)
        self._sessions = {}
        self._sandboxes = {}
        self._executions = {}
        self._notices = []
        self._notice_id = 0
        self._declarations = {}
        self._artifacts = []
        self._audit = []

    def _serve(self, session_id: str = "") -> None:
        if self.failing is not None:
            self.errors += 1
            raise self.failing
        if session_id and session_id not in self._sessions:
            raise Conflict("There is no such session.")

    async def open(self) -> None:
        self._serve()

    async def close(self) -> None:
        pass

    async def instance_id(self) -> str:
        self._serve()
        return "memory"

    async def acquire_lease(self, owner: str, now: float, ttl_s: float) -> int:
        self._serve()
        holder, epoch, until = self._lease
        if holder not in ("", owner) and until > now and not self._is_gone(holder, owner):
            raise Conflict("Another gateway owns these records.", retry_after=until - now)
        self._lease = (owner, epoch + 1, now + ttl_s)
        return epoch + 1

    async def renew_lease(self, owner: str, now: float, ttl_s: float) -> bool:
        self._serve()
        holder, epoch, _ = self._lease
        if holder == owner:
            self._lease = (owner, epoch, now + ttl_s)
        return holder == owner

    async def release_lease(self, owner: str) -> None:
        self._serve()
        if self._lease[0] == owner:
            self._lease = ("", self._lease[1], 0.0)

    async def put_session(self, row: SessionRow) -> None:
        self._serve()
        known = self._sessions.get(row.session_id)
        if known is not None and known.version > row.version:
            raise Conflict("A newer version of this session is recorded.")
        self._sessions[row.session_id] = _copy(row)

    async def get_session(self, session_id: str) -> SessionRow | None:
        self._serve()
        found = self._sessions.get(session_id)
        return None if found is None else _copy(found)

    async def list_sessions(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        live_only: bool = False,
        limit: int = 1000,
        offset: int = 0,
    ) -> list[SessionRow]:
        self._serve()
        found = [
            row
            for row in self._sessions.values()
            if tenant in (None, row.tenant) and user in (None, row.user) and not (live_only and row.state == SessionState.ENDED)
        ]
        found.sort(key=lambda row: (-row.created_at, row.session_id))
        return [_copy(row) for row in found[offset : offset + limit]]

    async def find_sessions(self, query: SessionQuery) -> list[SessionRow]:
        rows = await self.list_sessions(tenant=query.tenant, user=query.user, limit=10**9)
        found = [
            row
            for row in rows
            if (not query.states or row.state in query.states)
            and (not query.reasons or row.reason in query.reasons)
            and (query.since is None or max(row.last_activity, row.created_at, row.ended_at or 0) >= query.since)
            and (query.behind is None or (-row.created_at, row.session_id) > (-query.behind[0], query.behind[1]))
        ]
        return found[: query.limit]

    async def put_sandbox(self, row: SandboxRow) -> None:
        self._serve(row.session_id)
        self._sandboxes[row.sandbox_id] = _copy(row)

    async def get_sandbox(self, sandbox_id: str) -> SandboxRow | None:
        self._serve()
        found = self._sandboxes.get(sandbox_id)
        return None if found is None else _copy(found)

    async def list_sandboxes(self, *, session_id: str | None = None, live_only: bool = True) -> list[SandboxRow]:
        self._serve()
        found = [
            row for row in self._sandboxes.values() if session_id in (None, row.session_id) and not (live_only and row.state == SandboxState.GONE)
        ]
        return [_copy(row) for row in sorted(found, key=lambda row: (row.created_at, row.sandbox_id))]

    async def put_execution(self, row: ExecutionRow) -> None:
        self._serve(row.session_id)
        self._executions[row.execution_id] = _copy(row)

    async def get_execution(self, execution_id: str) -> ExecutionRow | None:
        self._serve()
        found = self._executions.get(execution_id)
        return None if found is None else _copy(found)

    async def list_executions(self, session_id: str, *, unfinished_only: bool = False, limit: int = 100) -> list[ExecutionRow]:
        self._serve()
        found = [
            row
            for row in self._executions.values()
            if row.session_id == session_id and not (unfinished_only and row.state == ExecutionState.FINISHED)
        ]
        return [_copy(row) for row in _newest(found, limit)]

    async def find_executions(self, query: ExecutionQuery) -> tuple[list[ExecutionRow], int | None]:
        self._serve()
        wanted = [
            (place, row)
            for place, row in enumerate(self._executions.values(), 1)
            if (query.behind is None or place < query.behind)
            and query.tenant in (None, row.tenant) and query.user in (None, row.user) and query.session_id in (None, row.session_id)
            and (not query.reasons or row.exit_reason in query.reasons)
            and (query.since is None or row.created_at >= query.since) and (query.until is None or row.created_at < query.until)
        ][::-1]  # fmt: skip
        page = wanted[: query.limit]
        return [_copy(row) for _, row in page], page[-1][0] if len(page) == query.limit and page[-1][0] > 1 else None

    async def add_notice(self, row: NoticeRow) -> int:
        self._serve(row.session_id)
        self._notice_id += 1
        self._notices.append(replace(_copy(row), notice_id=self._notice_id))
        return self._notice_id

    async def list_notices(self, session_id: str, *, undelivered_only: bool = False, limit: int = 100) -> list[NoticeRow]:
        self._serve()
        found = [row for row in self._notices if row.session_id == session_id and not (undelivered_only and row.delivered)]
        return [_copy(row) for row in _newest(found, limit)]

    async def mark_delivered(self, session_id: str, notice_ids: list[int]) -> None:
        self._serve()
        for row in self._notices:
            if row.session_id == session_id and row.notice_id in notice_ids:
                row.delivered = True

    async def put_declaration(self, row: DeclarationRow) -> None:
        self._serve(row.session_id)
        self._declarations[row.session_id, row.pattern] = _copy(row)

    async def list_declarations(self, session_id: str) -> list[DeclarationRow]:
        self._serve()
        found = [row for row in self._declarations.values() if row.session_id == session_id]
        return [_copy(row) for row in sorted(found, key=lambda row: (row.created_at, row.pattern))]

    async def delete_declaration(self, session_id: str, pattern: str) -> bool:
        self._serve()
        return self._declarations.pop((session_id, pattern), None) is not None

    async def add_artifact(self, artifact: Artifact) -> None:
        self._serve(artifact.session_id)
        if any(known.artifact_id == artifact.artifact_id for known, gone in self._artifacts if not gone):
            raise Conflict("There is an artifact with that id.")
        self._artifacts.append((artifact, False))

    async def list_artifacts(self, session_id: str, *, latest_only: bool = True) -> list[Artifact]:
        self._serve()
        mine = [item for item in self._artifacts if item[0].session_id == session_id and item[0].artifact_id not in self._doomed]
        if latest_only:
            newest = {artifact.path: (artifact, gone) for artifact, gone in mine}
            mine = sorted(newest.values(), key=lambda item: item[0].path.encode())
        return [artifact for artifact, gone in mine if not gone]

    async def get_artifact(self, artifact_id: str) -> Artifact | None:
        self._serve()
        if artifact_id in self._doomed:
            return None
        return next((found for found, gone in self._artifacts if found.artifact_id == artifact_id and not gone), None)

    async def judge_artifact(self, artifact_id: str, mime: str, verdict: str) -> None:
        self._serve()
        self._artifacts[:] = [
            (replace(found, mime=mime, verdict=verdict) if found.artifact_id == artifact_id and not gone else found, gone)
            for found, gone in self._artifacts
        ]

    async def drop_artifact_path(self, session_id: str, path: str, at: float) -> None:
        self._serve(session_id)
        gone = Artifact("", session_id, "", "", path, "", 0, "", 0, at)
        self._artifacts.append((gone, True))

    async def add_audit(self, row: AuditRow) -> None:
        self._serve()
        self._audit.append(_copy(row))

    async def list_audit(self, *, tenant: str | None = None, session_id: str | None = None, limit: int = 200) -> list[AuditRow]:
        self._serve()
        found = [row for row in self._audit if tenant in (None, row.tenant) and session_id in (None, row.session_id)]
        return [_copy(row) for row in reversed(_newest(found, limit))]

    async def find_audit(self, query: AuditQuery) -> tuple[list[AuditRow], int | None]:
        self._serve()
        wanted = [
            (place, row)
            for place, row in enumerate(self._audit, 1)
            if (query.behind is None or place < query.behind)
            and query.tenant in (None, row.tenant) and query.user in (None, row.user) and query.session_id in (None, row.session_id)
            and (query.tag in (None, row.tag) or (str(query.tag).endswith(":") and row.tag.startswith(str(query.tag))))
            and (query.since is None or row.at >= query.since)
        ][::-1]  # fmt: skip
        page = wanted[: query.limit]
        return [_copy(row) for _, row in page], page[-1][0] if len(page) == query.limit and page[-1][0] > 1 else None


T = TypeVar("T")


def _newest(rows: list[T], limit: int) -> list[T]:
    return rows[len(rows) - min(limit, len(rows)) :]


class MemoryStore:
    """``ports.ObjectStore``. ``room``: bytes that fit in all; an upload past it fails as on a full disk."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.failing: SandglassError | None = None
        self.errors = 0
        self.room = room
        self.objects: dict[str, bytes] = {}

    def _serve(self) -> None:
        if self.failing is not None:
            self.errors += 1
            raise self.failing

    async def open(self) -> None:
        self._serve()

    async def writer(self, key: str) -> MemoryWriter:
        check_key(key)
        self._serve()
        return MemoryWriter(self, key)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        check_key(key)
        self._serve()
        if key not in self.objects:
            raise NotFound("There is no such object.")
        data = self.objects[key]
        for begin in range(0, len(data), CHUNK_BYTES):
            self._serve()
            yield data[begin : begin + CHUNK_BYTES]

    async def stat(self, key: str) -> int:
        check_key(key)
        self._serve()
        if key not in self.objects:
            raise NotFound("There is no such object.")
        return len(self.objects[key])

    async def delete(self, key: str) -> None:
        check_key(key)
        self._serve()
        self.objects.pop(key, None)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        self._serve()
        if "/" in prefix:
            check_key(prefix.rpartition("/")[0])
        for key in sorted(self.objects):
            if key.startswith(prefix):
                yield key

    async def check(self) -> None:
        self._serve()

    async def close(self) -> None:
        pass


class MemoryWriter:
    """An upload into a MemoryStore."""

    def __init__(self, store: MemoryStore, key: str) -> None:
        self._store, self._key = store, key
        self._data = bytearray()
        self._over = False

    async def write(self, data: bytes) -> None:
        self._store._serve()
        if self._over:
            raise StoreUnavailable("The upload is over.")
        if sum(map(len, self._store.objects.values())) + len(self._data) + len(data) > self._store.room:
            raise StoreUnavailable("The object store is full.")
        self._data += data

    async def commit(self) -> str:
        self._store._serve()
        if self._over:
            raise StoreUnavailable("The upload is over.")
        self._over = True
        self._store.objects[self._key] = bytes(self._data)
        return hashlib.sha256(self._data).hexdigest()

    async def abort(self) -> None:
        self._over = True
