"""Durable rows, by what they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..domain.model import Artifact
from ..domain.retention import Rows, StoredPath
from ..domain.transcript import Cell
from .rows import (
    AuditQuery,
    AuditRow,
    DeclarationRow,
    DisabledRow,
    ExecutionQuery,
    ExecutionRow,
    NoticeRow,
    RevocationRow,
    SandboxRow,
    SessionQuery,
    SessionRow,
)


@dataclass(frozen=True, slots=True)
class Purged:
    """One batch. ``next``: where the following one begins, None when nothing older is left."""

    count: int
    next: int | None
    sessions: tuple[str, ...] = ()


class RetentionRecords(Protocol):
    """What the sweeper asks. Every call is one short transaction; what it deletes and what it says in the audit go together."""

    async def get_note(self, name: str) -> dict[str, Any] | None:
        """A small value of the installation's own."""
        ...

    async def put_note(self, name: str, value: dict[str, Any]) -> None: ...

    async def stored_paths(self, after: tuple[str, str], limit: int) -> list[StoredPath]:
        """The next paths behind ``after``, by (session, path). Doomed versions are left out, so one may have none at all."""
        ...

    async def doom_artifacts(self, artifact_ids: list[str], at: float, audit: AuditRow) -> int:
        """From here on nobody finds them. Returns how many; with none nothing is written."""
        ...

    async def doomed_artifacts(self, after: int, limit: int) -> list[tuple[int, Artifact]]:
        """``(place, artifact)`` behind the place ``after``, oldest first."""
        ...

    async def forget_artifact(self, artifact_id: str) -> None:
        """Remove a doomed artifact's row: its object is gone."""
        ...

    async def drop_marks(self, session_id: str, path: str) -> None:
        """Remove the marks of deletion of a path of which nothing is stored."""
        ...

    async def purge(self, rows: Rows, before: float, after: int, limit: int, audit: AuditRow) -> Purged:
        """Look at the ``limit`` oldest rows behind ``after`` and delete those that were over at ``before``.

        Executions that are finished (or their session is), notices that were told (or their session ended), cells of ended
        sessions, sandboxes that are gone, ended sessions that nothing refers to any more. The count goes into the audit's ``detail``.
        """
        ...

    async def unknown_objects(self, keys: dict[str, str]) -> list[str]:
        """Of these keys (-> artifact id) those whose artifact has no row."""
        ...

    async def note_orphans(self, keys: list[str], at: float) -> None:
        """Remember when each was first seen."""
        ...

    async def orphans(self, before: float, limit: int) -> list[str]:
        """Those seen first at ``before`` or earlier."""
        ...

    async def forget_orphan(self, key: str, audit: AuditRow | None) -> None: ...


class CellRecords(Protocol):
    """The transcripts: what a session ran and what came of it, the user's own document."""

    async def put_cell(self, cell: Cell, most_bytes: int, most_cells: int) -> None:
        """Record it (again: its execution names it), and keep its session within the bounds.

        Outputs of the oldest cells go first, then the oldest cells; the newest one stays whatever its size.
        """
        ...

    async def list_cells(self, session_id: str, *, after: int = 0, limit: int = 100, outputs: bool = True) -> list[Cell]:
        """Oldest first, behind the place ``after``."""
        ...

    async def get_cell(self, session_id: str, execution_id: str) -> Cell | None: ...
    async def count_cells(self, session_id: str) -> tuple[int, int]:
        """How many, and their bytes."""
        ...

    async def forget_cells(self, session_id: str, audit: AuditRow) -> int:
        """Delete all, so that the records' file does not hold them either. Returns how many; with none nothing is written.

        What the session's executions quote of code and workspace (``data``: ``hints``, ``files``) goes with them. The count goes
        into the audit's ``detail``.
        """
        ...


class UserRecords(Protocol):
    async def disable_user(self, row: DisabledRow, audit: AuditRow) -> None: ...
    async def enable_user(self, tenant: str, user: str, at: float, audit: AuditRow) -> bool:
        """False when that user is not disabled."""
        ...

    async def list_disabled(self, *, enabled_too: bool = False) -> list[DisabledRow]:
        """Newest first."""
        ...

    async def forget_enabled(self, before: float) -> None:
        """Drop the rows of users who were enabled again at ``before`` or earlier."""
        ...

    async def put_revocation(self, row: RevocationRow) -> None:
        """One a token, one a user: a later one takes the place of the earlier."""
        ...

    async def list_revocations(self) -> list[RevocationRow]: ...
    async def forget_revocations(self, before: float) -> None:
        """Drop those that were moot at ``before`` or earlier."""
        ...


class Records(RetentionRecords, UserRecords, CellRecords, Protocol):
    """Durable rows. Each call is one transaction and returns when it would survive ``kill -9``. Raises RecordsUnavailable.

    ``errors``: how many statements failed because it did not serve, for the operator's figures.
    """

    @property
    def errors(self) -> int: ...

    async def open(self) -> None:
        """Create or migrate the schema."""
        ...

    async def close(self) -> None: ...

    async def instance_id(self) -> str:
        """A name for this installation, made at first use."""
        ...

    async def acquire_lease(self, owner: str, now: float, ttl_s: float) -> int:
        """Become the one gateway of this instance; returns an epoch above every earlier one. Raises Conflict while another holds it."""
        ...

    async def renew_lease(self, owner: str, now: float, ttl_s: float) -> bool: ...
    async def release_lease(self, owner: str) -> None: ...

    async def put_session(self, row: SessionRow) -> None: ...
    async def get_session(self, session_id: str) -> SessionRow | None: ...
    async def list_sessions(
        self, *, tenant: str | None = None, user: str | None = None, live_only: bool = False, limit: int = 1000, offset: int = 0
    ) -> list[SessionRow]:
        """Newest first. ``live_only``: not ENDED."""
        ...

    async def find_sessions(self, query: SessionQuery) -> list[SessionRow]:
        """In the same order; ``behind`` is ``(created_at, session_id)``, and new sessions move no page."""
        ...

    async def put_sandbox(self, row: SandboxRow) -> None: ...
    async def get_sandbox(self, sandbox_id: str) -> SandboxRow | None: ...
    async def list_sandboxes(self, *, session_id: str | None = None, live_only: bool = True) -> list[SandboxRow]:
        """``live_only``: not GONE."""
        ...

    async def put_execution(self, row: ExecutionRow) -> None: ...
    async def get_execution(self, execution_id: str) -> ExecutionRow | None: ...
    async def list_executions(self, session_id: str, *, unfinished_only: bool = False, limit: int = 100) -> list[ExecutionRow]:
        """Oldest first (the newest ``limit``)."""
        ...

    async def find_executions(self, query: ExecutionQuery) -> tuple[list[ExecutionRow], int | None]:
        """As ``find_audit``, through the executions of everybody."""
        ...

    async def add_notice(self, row: NoticeRow) -> int: ...
    async def list_notices(self, session_id: str, *, undelivered_only: bool = False, limit: int = 100) -> list[NoticeRow]: ...
    async def mark_delivered(self, session_id: str, notice_ids: list[int]) -> None: ...

    async def put_declaration(self, row: DeclarationRow) -> None: ...
    async def list_declarations(self, session_id: str) -> list[DeclarationRow]: ...
    async def delete_declaration(self, session_id: str, pattern: str) -> bool: ...

    async def add_artifact(self, artifact: Artifact) -> None: ...
    async def list_artifacts(self, session_id: str, *, latest_only: bool = True) -> list[Artifact]:
        """``latest_only``: one version a path, the newest; a path whose newest version is a deletion is left out."""
        ...

    async def get_artifact(self, artifact_id: str) -> Artifact | None: ...
    async def judge_artifact(self, artifact_id: str, mime: str, verdict: str) -> None:
        """What its content turned out to be; nothing happens when there is none."""
        ...

    async def drop_artifact_path(self, session_id: str, path: str, at: float) -> None:
        """Record that the user deleted this path: it is not restored any more."""
        ...

    async def add_audit(self, row: AuditRow) -> None: ...
    async def list_audit(self, *, tenant: str | None = None, session_id: str | None = None, limit: int = 200) -> list[AuditRow]: ...
    async def find_audit(self, query: AuditQuery) -> tuple[list[AuditRow], int | None]:
        """Newest first, and where the next page begins, None at the end.

        One call looks at a bounded number of entries, so a page may be short, or empty, though there is a next one.
        """
        ...
