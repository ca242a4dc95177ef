"""What a token may be narrowed to. Whoever makes tokens (an identity provider, ``sandglass token``) writes these words into ``scope``."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """``MEANING`` says what each opens; a token without any scope claim has all that its role allows."""

    SESSIONS_WRITE = "sessions:write"
    EXECUTE = "execute"
    RESULTS_READ = "results:read"
    FILES_READ = "files:read"
    FILES_WRITE = "files:write"
    APPROVE = "approve"
    ADMIN = "admin"


MEANING: dict[Scope, str] = {
    Scope.SESSIONS_WRITE: "make, keep alive, recycle and end sessions, and delete transcripts",
    Scope.EXECUTE: "run code, cancel, interrupt, restart, answer input()",
    Scope.RESULTS_READ: "read what code printed and returned: executions, events, transcripts",
    Scope.FILES_READ: "list and download files",
    Scope.FILES_WRITE: "upload, declare and delete files",
    Scope.APPROVE: "decide on what waits for a person",
    Scope.ADMIN: "act as the admin that its role says",
}
