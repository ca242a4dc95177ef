"""Identifiers, values and the closed vocabularies. Pure: no clock, no I/O, no third-party import."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .scopes import Scope


class ExitReason(StrEnum):
    """Why an execution finished. Decided by evidence, never guessed from text."""

    OK = "ok"
    CODE_ERROR = "code_error"
    SYNTAX_ERROR = "syntax_error"
    DEPENDENCY_MISSING = "dependency_missing"
    NETWORK_DENIED = "network_denied"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    CPU_LIMIT = "cpu_limit"
    MEMORY_LIMIT = "memory_limit"
    PROCESS_LIMIT = "process_limit"
    DISK_LIMIT = "disk_limit"
    OUTPUT_LIMIT = "output_limit"
    POLICY_DENIED = "policy_denied"
    APPROVAL_REQUIRED = "approval_required"
    ARTIFACT_REJECTED = "artifact_rejected"
    KERNEL_DIED = "kernel_died"
    SANDBOX_ENDED = "sandbox_ended"
    GENERATION_MISMATCH = "generation_mismatch"
    CAPACITY_EXHAUSTED = "capacity_exhausted"
    IMAGE_UNAVAILABLE = "image_unavailable"
    PLATFORM_FAULT = "platform_fault"


class EndReason(StrEnum):
    """Why a sandbox, or a session, ended."""

    IDLE_TIMEOUT = "idle_timeout"
    MAX_LIFETIME = "max_lifetime"
    USER = "user"
    ADMIN = "admin"
    OUT_OF_MEMORY = "out_of_memory"
    CRASH = "crash"
    HOST_LOST = "host_lost"
    POLICY = "policy"
    PROTOCOL_VIOLATION = "protocol_violation"
    UPGRADE = "upgrade"
    RETENTION = "retention"


class NextAction(StrEnum):
    """What an agent may do next."""

    FIX_CODE = "fix_code"
    REDUCE_DATA = "reduce_data"
    SPLIT = "split"
    USE_TOOL = "use_tool"
    REQUEST_APPROVAL = "request_approval"
    ASK_USER = "ask_user"
    REBUILD = "rebuild"
    RETRY_AFTER = "retry_after"
    STOP = "stop"


class SessionState(StrEnum):
    NEW = "new"
    STARTING = "starting"
    ACTIVE = "active"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    DORMANT = "dormant"
    ENDED = "ended"


class SandboxState(StrEnum):
    CREATING = "creating"
    WARM = "warm"
    CLAIMED = "claimed"
    REMOVING = "removing"
    GONE = "gone"


class ExecutionState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class NoticeKind(StrEnum):
    """What a user is told about lifetimes, losses, restores and limits."""

    IDLE_WARNING = "idle_warning"
    MAX_WARNING = "max_warning"
    RECYCLED = "recycled"
    VARIABLES_LOST = "variables_lost"
    RESTORED = "restored"
    FILES_LOST = "files_lost"
    KERNEL_DIED = "kernel_died"
    KERNEL_RESTARTED = "kernel_restarted"
    OUTPUT_TRUNCATED = "output_truncated"
    QUARANTINED = "quarantined"
    EXTENDED = "extended"
    START_FAILED = "start_failed"
    CPU_SUSTAINED = "cpu_sustained"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller. ``expires_at``: seconds since the epoch. ``scopes``: empty for a token that was not narrowed."""

    user: str
    tenant: str
    roles: frozenset[str] = frozenset({"user"})
    scopes: frozenset[str] = frozenset()
    expires_at: float = 0.0
    token_id: str = ""

    def permits(self, scope: str) -> bool:
        return not self.scopes or scope in self.scopes

    @property
    def is_platform_admin(self) -> bool:
        return "admin" in self.roles and self.permits(Scope.ADMIN)

    @property
    def is_tenant_admin(self) -> bool:
        """A role's power is the token's only when its scopes hold ``admin``: an agent of an admin is not one."""
        return ("tenant_admin" in self.roles and self.permits(Scope.ADMIN)) or self.is_platform_admin

    def may_see(self, tenant: str, user: str) -> bool:
        """Owner, the tenant's admin, or a platform admin."""
        if self.is_platform_admin:
            return True
        return tenant == self.tenant and (user == self.user or self.is_tenant_admin)

    def owns(self, tenant: str, user: str) -> bool:
        return tenant == self.tenant and user == self.user


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox and one execution may use. Bytes, seconds and counts; the table is shown by ``doctor``."""

    memory_bytes: int = 2 * 1024**3
    cpus: float = 1.0
    processes: int = 128
    workspace_bytes: int = 512 * 1024**2
    inputs_bytes: int = 256 * 1024**2
    tmp_bytes: int = 128 * 1024**2
    shm_bytes: int = 64 * 1024**2
    workspace_inodes: int = 20_000
    open_files: int = 1024
    output_bytes: int = 32 * 1024**2
    output_messages: int = 100_000
    message_bytes: int = 64 * 1024**2
    retain_bytes: int = 32 * 1024**2
    execution_s_agent: float = 300.0
    execution_s_person: float = 3600.0
    cpu_s: float = 3600.0
    interrupt_grace_s: float = 5.0
    kill_grace_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Timers of a session, in seconds."""

    idle_s: float = 20 * 60.0
    max_s: float = 8 * 3600.0
    warn_before_s: tuple[float, ...] = (300.0, 60.0)
    drain_grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Named limits, runtime and image that a policy may grant.

    ``runtime`` is the OCI runtime's name in the engine (``runc``, ``runsc``).
    """

    name: str
    tier: str
    runtime: str
    image: str = ""
    display_name: str = ""
    limits: Limits = field(default_factory=Limits)
    lifetimes: Lifetimes = field(default_factory=Lifetimes)


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in the user's namespace; ``size`` in bytes where the type is known, else None."""

    name: str
    type: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as the sandbox reports it (not trusted). ``path`` is relative to the workspace, e.g. ``out/report.xlsx``."""

    path: str
    size: int
    mtime_ns: int
    kind: str = "file"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One stored version of a declared file."""

    artifact_id: str
    session_id: str
    tenant: str
    user: str
    path: str
    sha256: str
    size: int
    mime: str
    generation: int
    created_at: float
    execution_id: str = ""
    verdict: str = ""
    """Empty: not looked into yet. ``ok``, or the rule that it breaks (``domain.inspection``); a restore takes it all the same."""
