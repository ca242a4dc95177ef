"""What the service needs from the world. Each port has a fake in ``gateway.testing`` that passes the same contract suite.

Errors: implementations raise only ``gateway.errors`` types; anything else is a defect.
"""

from .records import CellRecords, Purged, Records, RetentionRecords, UserRecords
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
from .runtime import ByteStream, Clock, RuntimeEvent, RuntimeInfo, SandboxFacts, SandboxRuntime, SandboxSpec
from .store import ObjectStore, ObjectWriter

__all__ = [
    "AuditQuery",
    "AuditRow",
    "ByteStream",
    "CellRecords",
    "Clock",
    "DeclarationRow",
    "DisabledRow",
    "ExecutionQuery",
    "ExecutionRow",
    "NoticeRow",
    "ObjectStore",
    "ObjectWriter",
    "Purged",
    "Records",
    "RetentionRecords",
    "RevocationRow",
    "RuntimeEvent",
    "RuntimeInfo",
    "SandboxFacts",
    "SandboxRow",
    "SandboxRuntime",
    "SandboxSpec",
    "SessionQuery",
    "SessionRow",
    "UserRecords",
]
