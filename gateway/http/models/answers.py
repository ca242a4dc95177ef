"""What native requests are answered with, for the OpenAPI document. Answers are not checked against these while serving; tests do that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...domain.model import ExecutionState, ExitReason, NoticeKind, SessionState
from ...domain.quota import Quota, Scope
from ...domain.rebuild import RebuildState
from ..errors import STATUS

Time = Annotated[str, Field(description="RFC 3339, UTC, with microseconds", examples=["2026-01-31T10:00:00.000000Z"])]
Source = Literal["jupyter", "rest"]
Json = dict[str, Any]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Open(Answer):
    """It may have more than what is listed."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class Problem(Open):
    """Every refusal, as `application/problem+json`. What a client may act on comes as further members."""

    type: str
    title: str
    status: int
    detail: str = Field(description="A sentence for a person")
    code: Literal[(*sorted(STATUS), "method_not_allowed")] = Field(description="Stable")  # type: ignore[valid-type]
    message: str = Field(description="The same as `detail`")
    reason: str = Field(description="The same as `code`")
    retry_after: float | None = Field(None, description="Seconds; absent where trying again does not help")


class Used(Answer):
    """A quota that has a limit."""

    quota: Quota
    scope: Scope
    used: int
    limit: int
    period_s: float | None = Field(description="Null: of what is held at once")
    full_at: Time | None = Field(description="When nothing of it is used any more")


class Me(Answer):
    user: str
    tenant: str
    roles: list[str]
    scopes: list[str] | None = Field(description="What the credential is narrowed to; null: all that its roles allow")
    expires_at: Time | None
    frame_url: str
    server_time: Time
    quotas: list[Used]


class Profile(Answer):
    name: str
    tier: str
    runtime: str
    available: bool
    problem: str
    display_name: str
    limits: dict[str, float | None]
    lifetimes: Json


class Profiles(Answer):
    profiles: list[Profile]
    default: str


class Variable(Answer):
    name: str
    type: str
    size: int | None


class Sized(Open):
    path: str
    size: int


class Quarantine(Answer):
    since: Time
    why: str
    attempts: int
    next_retry: Time | None
    gives_up_at: Time


class Warning(Answer):
    kind: NoticeKind
    at: Time
    text: str
    reason: str
    deadline: Time | None
    lead_s: float
    variables: list[Variable]
    undeclared_files: list[str]
    kept_files: list[Sized]
    actions: list[str]


class Queue(Answer):
    running: str | None
    queued: int


class Session(Answer):
    session_id: str
    name: str
    profile: str
    tier: str
    tenant: str
    user: str
    state: SessionState
    reason: str
    busy: bool
    generation: int = Field(description="Grows when the variables are lost")
    created_at: Time
    last_activity: Time
    server_time: Time
    idle_deadline: Time | None
    idle_paused: bool
    max_deadline: Time | None
    idle_timeout_s: float | None
    max_lifetime_s: float | None
    extended_s: float
    quarantine: Quarantine | None
    warnings: list[Warning]
    variables: list[Variable]
    variables_as_of: Time | None
    lost_variables: list[Variable]
    lost_because: str
    restored_files: list[Sized]
    ended_at: Time | None
    queue: Queue
    last_event: int


class Sessions(Answer):
    sessions: list[Session]


class Notice(Open):
    notice_id: int
    kind: NoticeKind
    generation: int
    at: Time
    text: str


class Notices(Answer):
    notices: list[Notice]


class Brief(Answer):
    id: str
    generation: int
    state: SessionState
    idle_deadline: Time | None
    max_deadline: Time | None


class Result(Open):
    data: Json = Field(description="A MIME bundle")
    metadata: Json
    is_main_result: bool


class CodeError(Open):
    name: str | None
    value: str | None
    traceback: list[str]
    folded: list[str] = Field(description="Lines for whoever mends the code: its own frames, those of libraries folded")


class Sensitive(Open):
    where: str = Field(description="`stdout`, `stderr`, `error`, `value` or `results[N]`")
    kinds: list[str]
    held: bool


class Execution(Open):
    """Outputs (`stdout`, `stderr`, `results`, `error`, `sensitive`, `notices`) only where one execution is read, with the scope `results:read`."""

    execution_id: str
    session: Brief
    source: Source
    state: ExecutionState
    position: int | None = Field(description="In the queue")
    status: Literal["ok", "error", "interrupted", "timeout", "lost"] | None
    exit_reason: ExitReason | None
    next_action: str | None
    reason_text: str
    execution_count: int | None
    msg_id: str
    generation: int
    truncated: Json | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    duration_ms: int | None
    stdout: str = ""
    stderr: str = ""
    results: list[Result] = []
    error: CodeError | None = None
    advice: Json | None = Field(None, description="What to do after anything but `ok`")
    sensitive: list[Sensitive] = []
    notices: list[Notice] = []


class Executions(Answer):
    executions: list[Execution]


class Cell(Answer):
    execution_id: str
    generation: int
    source: Source
    exit_reason: ExitReason
    succeeded: bool
    execution_count: int | None
    created_at: Time
    started_at: Time | None
    finished_at: Time
    code: str | None
    code_sha256: str
    outputs_sha256: str
    output_bytes: int
    left_out_bytes: int
    outputs: list[Json] = Field([], description="nbformat outputs")
    suggested: bool = Field(False, description="Comes with `?outputs=0`: succeeded in the generation that was lost")


class Held(Answer):
    cells: int
    bytes: int


class TranscriptLimits(Answer):
    bytes: int
    cell_output_bytes: int
    cells: int


class Transcript(Answer):
    policy: Literal["off", "hash", "full"]
    cells: list[Cell]
    next: int | None
    held: Held
    limits: TranscriptLimits
    retained_s: float


class RebuildStop(Answer):
    cell: str
    execution_id: str | None
    exit_reason: ExitReason


class RebuildCell(Answer):
    cell: str
    execution_id: str | None
    exit_reason: ExitReason | None


class Rebuild(Answer):
    rebuild_id: str
    state: RebuildState
    generation: int
    started_at: Time
    finished_at: Time | None
    done: int
    total: int
    stopped_at: RebuildStop | None
    detail: str
    lost_variables: list[str]
    back: list[str]
    missing: list[str]
    cells: list[RebuildCell]


class File(Answer):
    path: str
    size: int
    mtime: Time
    declared: bool
    stored: bool
    stored_at: Time | None = None
    sha256: str | None = None
    held_back: str | None = Field(None, description="The rule that keeps it from being handed out")


class RefusedFile(Answer):
    path: str
    reason: str
    detail: str


class Files(Answer):
    files: list[File]
    refused: list[RefusedFile]
    live: bool = Field(description="Of a sandbox; else what is stored")
    truncated: bool


class Uploaded(Answer):
    path: str
    size: int
    sha256: str
    mime: str
    artifact_id: str | None = Field(description="Null: it is not stored (yet)")


class Declaration(Answer):
    pattern: str
    keep: bool
    source: str
    created_at: Time


class Declarations(Answer):
    declarations: list[Declaration]


class Artifact(Answer):
    artifact_id: str
    path: str
    sha256: str
    size: int
    mime: str
    generation: int
    created_at: Time
    execution_id: str | None
    verdict: str


class Artifacts(Answer):
    artifacts: list[Artifact]


class Link(Answer):
    url: str
    expires_at: Time


class Ticket(Answer):
    ticket: str
    expires_at: Time
    url: str | None = None


class CpuSustained(Open):
    """Much processor time for long."""

    cores: float
    since: Time | None


class AdminSession(Session):
    sandbox_id: str | None = Field(None, description="Of a living session, as the three below")
    resources: Json = {}
    extension_left_s: float | None = None
    cpu_sustained: CpuSustained | None = None


class AdminSessions(Answer):
    sessions: list[AdminSession]
    next: str | None


class SandboxHistory(Answer):
    sandbox_id: str
    state: str
    claimed_at: Time | None
    ended_at: Time | None
    reason: str


class AuditEntry(Answer):
    at: Time
    tag: str
    tenant: str
    user: str
    session_id: str
    detail: Json


class WouldLose(Answer):
    files: list[Sized]
    undeclared: list[Sized]
    more: int


class AdminSessionDetail(AdminSession):
    history: list[SandboxHistory]
    notices: list[Notice]
    audit: list[AuditEntry]
    would_lose: WouldLose | None


class Audit(Answer):
    audit: list[AuditEntry]
    next: str | None


class Trace(Open):
    """Facts and hashes of an execution: no code, no output, no names."""

    execution_id: str
    session_id: str
    tenant: str
    user: str
    source: Source
    state: ExecutionState
    generation: int
    code_sha256: str
    exit_reason: ExitReason | None
    next_action: str | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None


class Traces(Answer):
    executions: list[Trace]
    next: str | None


class DisabledUser(Answer):
    user: str
    tenant: str
    disabled: Literal[True]
    disabled_at: Time
    by: str
    reason_text: str
    sessions: Literal["recycle", "end"]
    session_ids: list[str] = Field([], description="In the answer of `disable`: those that end")


class DisabledUsers(Answer):
    users: list[DisabledUser]


class EnabledUser(Answer):
    user: str
    tenant: str
    disabled: Literal[False]


class EndedSessions(Answer):
    user: str
    tenant: str
    session_ids: list[str]


