"""What is recorded, a class a table. Times in seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True, slots=True)
class ExecutionQuery:
    """Which executions; None and empty mean any. Asked for at ``since`` or later, before ``until``. ``behind``: the last place of the page before."""

    tenant: str | None = None
    user: str | None = None
    session_id: str | None = None
    reasons: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    behind: int | None = None
    limit: int = 200


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
