"""What the service needs from the world. Each port has a fake in ``gateway.testing`` that passes the same contract suite.

Errors: implementations raise only ``gateway.errors`` types; anything else is a defect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from .domain.model import Artifact, Profile
from .domain.retention import Rows, StoredPath
from .domain.transcript import Cell


class Clock(Protocol):
    def now(self) -> float: ...
    def boottime(self) -> float: ...
    def boot_id(self) -> str: ...


class ByteStream(Protocol):
    """The sandbox's standard input and output, as bytes cut anywhere."""

    async def read(self) -> bytes:
        """The next bytes of standard output; ``b""`` when the stream has ended. Raises EngineUnavailable."""
        ...

    def write(self, data: bytes) -> None:
        """Queue bytes for standard input; never blocks. Raises SandboxLost once closed."""
        ...

    async def drain(self) -> None:
        """Wait until little of what was written is still queued."""
        ...

    @property
    def queued(self) -> int:
        """Bytes written but not yet taken by the engine."""
        ...

    async def close(self) -> None: ...

    def stderr_tail(self) -> str:
        """The last few KiB that init or relay wrote to standard error: untrusted, for the operator's log only."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What to create. ``relay_uid`` and ``user_uid`` belong to this container alone on its host; ``group_id`` is shared by the two."""

    sandbox_id: str
    instance: str
    profile: Profile
    image: str
    relay_uid: int
    user_uid: int
    group_id: int
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """What the engine says of a container. ``started_at`` and ``finished_at``: seconds since the epoch, 0 if never."""

    engine_id: str
    sandbox_id: str
    running: bool
    exit_code: int | None = None
    oom_killed: bool = False
    started_at: float = 0.0
    finished_at: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """``action``: ``die``, ``oom`` or ``destroy``; ``engine_up`` after the event stream was (re)connected."""

    action: str
    engine_id: str
    sandbox_id: str
    at: float
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What the engine offers. ``runtimes``: OCI runtime name -> version; ``problems``: profile tier -> why it is refused."""

    version: str
    runtimes: dict[str, str]
    problems: dict[str, str]
    cgroup_version: int = 0


class SandboxRuntime(Protocol):
    """A container engine. Every call is bounded in time and raises EngineUnavailable when the engine is absent or hangs."""

    async def info(self) -> RuntimeInfo: ...

    async def image_digest(self, image: str) -> str:
        """The image's id. Raises ImageUnavailable."""
        ...

    async def create(self, spec: SandboxSpec) -> str:
        """Create, not start; returns the engine's id. Raises ImageUnavailable, ProfileUnavailable, CapacityExhausted."""
        ...

    async def attach(self, engine_id: str) -> ByteStream:
        """Open the sandbox's byte stream (before ``start``, or again later). Raises SandboxLost when there is no such container."""
        ...

    async def start(self, engine_id: str) -> None: ...

    async def inspect(self, engine_id: str) -> SandboxFacts | None:
        """None when the engine has no such container."""
        ...

    async def remove(self, engine_id: str) -> None:
        """Kill and remove; returns when the engine confirms that it is gone (also when it never was)."""
        ...

    async def list(self, instance: str) -> list[SandboxFacts]:
        """Every container with this instance's label, running or not."""
        ...

    def events(self, instance: str, since: float) -> AsyncIterator[RuntimeEvent]:
        """Endless; reconnects by itself and replays from the last seen time."""
        ...

    async def stats(self, engine_id: str) -> dict[str, float]:
        """``memory_bytes``, ``cpu_s``, ``pids``; empty when not running."""
        ...

    async def close(self) -> None: ...


class ObjectWriter(Protocol):
    """An upload in progress; nothing is visible under the key before ``commit``."""

    async def write(self, data: bytes) -> None: ...
    async def commit(self) -> str:
        """Make it visible, after it is durable; returns its SHA-256 in hex."""
        ...

    async def abort(self) -> None: ...


class ObjectStore(Protocol):
    """Keys are slash-separated, of ``[A-Za-z0-9._-]`` segments. Raises StoreUnavailable, NotFound.

    ``errors``: how many calls failed because it did not serve, for the operator's figures.
    """

    @property
    def errors(self) -> int: ...

    async def writer(self, key: str) -> ObjectWriter: ...
    def read(self, key: str) -> AsyncIterator[bytes]:
        """The object's bytes in chunks. Raises NotFound at the first step when there is none.

        Where the store can tell that they are not those that were stored it raises Conflict, before the last of them.
        """
        ...

    async def stat(self, key: str) -> int:
        """Its size in bytes. Raises NotFound."""
        ...

    async def delete(self, key: str) -> None:
        """Also fine when there is none."""
        ...

    def list(self, prefix: str) -> AsyncIterator[str]: ...
    async def check(self) -> None:
        """Raise StoreUnavailable when it would not serve."""
        ...


@dataclass(slots=True)
class SessionRow:
    """A session as recorded. Times in seconds since the epoch; ``version`` grows by one at each write."""

    session_id: str
    tenant: str
    user: str
    name: str
    profile: str
    state: str
    generation: int
    created_at: float
    last_activity: float
    reason: str = ""
    """The last end reason (of the sandbox, or of the session once ENDED)."""
    sandbox_id: str = ""
    idle_deadline: float | None = None
    max_deadline: float | None = None
    ended_at: float | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """JSON: lifetimes in force, boot-time anchors, variables, execution count, cached kernel_info, lost and restored lists."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """Which sessions; None and empty mean any. ``since``: active or ended then or later. ``behind``: the last one of the page before."""

    tenant: str | None = None
    user: str | None = None
    states: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    since: float | None = None
    behind: tuple[float, str] | None = None
    limit: int = 1000


@dataclass(slots=True)
class SandboxRow:
    sandbox_id: str
    engine_id: str
    session_id: str
    profile: str
    state: str
    relay_uid: int
    user_uid: int
    marker: str
    epoch: int
    created_at: float
    claimed_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ExecutionRow:
    """``msg_id`` is the execute_request's; ``source``: ``jupyter`` or ``rest``; the code itself is not here, only its hash."""

    execution_id: str
    session_id: str
    tenant: str
    user: str
    msg_id: str
    source: str
    state: str
    generation: int
    code_sha256: str
    created_at: float
    sandbox_id: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    exit_reason: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    """JSON: lane number of the request, timeout, trace members (P34), output counters, execution_count."""


@dataclass(slots=True)
class NoticeRow:
    session_id: str
    kind: str
    generation: int
    at: float
    body: dict[str, Any]
    notice_id: int = 0
    delivered: bool = False
    """True once it was the first output of an execution (for kinds that are told that way)."""


@dataclass(slots=True)
class AuditRow:
    """``tag`` is ``source:subject:action``, e.g. ``user:session:create``."""

    at: float
    tag: str
    tenant: str
    user: str
    session_id: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which audit entries; None means any. ``tag``: whole, or ending in ``:`` its beginning. ``behind``: the last place of the page before."""

    tenant: str | None = None
    user: str | None = None
    session_id: str | None = None
    tag: str | None = None
    since: float | None = None
    behind: int | None = None
    limit: int = 200


@dataclass(slots=True)
class DeclarationRow:
    session_id: str
    pattern: str
    keep: bool
    source: str
    created_at: float


@dataclass(slots=True)
class DisabledRow:
    """A user who may not come in. ``sessions``: ``recycle`` or ``end``. Stays after ``enabled_at``, for page sessions from before."""

    tenant: str
    user: str
    at: float
    by: str
    text: str = ""
    sessions: str = "recycle"
    enabled_at: float | None = None


@dataclass(frozen=True, slots=True)
class RevocationRow:
    """A token that does not count any more, or those of a user issued up to ``at``. ``until``: when all have expired by themselves."""

    token_id: str
    tenant: str
    user: str
    at: float
    until: float


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

        The count goes into the audit's ``detail``.
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
