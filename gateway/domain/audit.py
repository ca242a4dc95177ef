"""What the audit calls things: ``source:subject:action``, a closed list. Pure."""

from __future__ import annotations

from enum import StrEnum


class Tag(StrEnum):
    """``retention``: the sweeper, by policy. Details hold counts, ids and reasons, never contents."""

    REST_SESSION_CREATE = "rest:session:create"
    MCP_SESSION_CREATE = "mcp:session:create"
    JUPYTER_SESSION_CREATE = "jupyter:session:create"
    USER_SESSION_END = "user:session:end"
    USER_SESSION_RECYCLE = "user:session:recycle"
    USER_SESSION_RESTART = "user:session:restart"
    ADMIN_SESSION_END = "admin:session:end"
    ADMIN_SESSION_EXTEND = "admin:session:extend"
    ADMIN_SESSION_RETRY = "admin:session:retry"
    ADMIN_SESSION_RELEASE = "admin:session:release"
    USER_ARTIFACT_DELETE = "user:artifact:delete"
    USER_TRANSCRIPT_DELETE = "user:transcript:delete"
    ADMIN_ARTIFACT_DELETE = "admin:artifact:delete"
    ADMIN_USER_DISABLE = "admin:user:disable"
    ADMIN_USER_ENABLE = "admin:user:enable"
    ADMIN_USER_END_SESSIONS = "admin:user:end_sessions"
    RETENTION_SESSION_END = "retention:session:end"
    RETENTION_ARTIFACT_DELETE = "retention:artifact:delete"
    RETENTION_OBJECT_DELETE = "retention:object:delete"
    RETENTION_JOURNAL_DELETE = "retention:journal:delete"
    RETENTION_CELL_DELETE = "retention:cell:delete"
    RETENTION_EXECUTION_DELETE = "retention:execution:delete"
    RETENTION_NOTICE_DELETE = "retention:notice:delete"
    RETENTION_SANDBOX_DELETE = "retention:sandbox:delete"
    RETENTION_SESSION_DELETE = "retention:session:delete"
    RETENTION_AUDIT_DELETE = "retention:audit:delete"
