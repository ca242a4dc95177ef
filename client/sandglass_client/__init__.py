"""The Python client of Sandglass, for programs and agents::

    async with Sandglass(url, token) as s:
        r = await s.run("df.head()")

``SyncSandglass`` is the same without ``await``.
"""

from .client import Sandglass
from .errors import (
    ArtifactRejected,
    BadRequest,
    CapacityExhausted,
    Conflict,
    EngineUnavailable,
    ExecutionFailed,
    Forbidden,
    GenerationMismatch,
    ImageUnavailable,
    InvalidTransition,
    NotFound,
    PathRefused,
    ProfileUnavailable,
    ProtocolViolation,
    QuotaExceeded,
    RecordsUnavailable,
    SandboxLost,
    SandglassError,
    SessionEnded,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unreachable,
    UserDisabled,
)
from .events import Display, Done, Error, Event, Gap, GenerationChanged, Queued, Result, Started, Stderr, Stdout, Warned
from .gateway import Gateway
from .models import CodeError, Declaration, Execution, File, Notice, Output, Profile, Rebuild, Session, Truncated, Variable
from .sync import SyncGateway, SyncSandglass

__all__ = [
    "ArtifactRejected", "BadRequest", "CapacityExhausted", "CodeError", "Conflict", "Declaration", "Display", "Done", "EngineUnavailable",
    "Error", "Event", "Execution", "ExecutionFailed", "File", "Forbidden", "Gap", "Gateway", "GenerationChanged", "GenerationMismatch",
    "ImageUnavailable", "InvalidTransition", "NotFound", "Notice", "Output", "PathRefused", "Profile", "ProfileUnavailable",
    "ProtocolViolation", "Queued", "QuotaExceeded", "Rebuild", "RecordsUnavailable", "Result", "SandboxLost", "Sandglass", "SandglassError",
    "Session", "SessionEnded", "Started", "Stderr", "Stdout", "StoreUnavailable", "SyncGateway", "SyncSandglass", "TooLarge", "Truncated",
    "Unauthenticated", "Unavailable", "Unreachable", "UserDisabled", "Variable", "Warned",
]  # fmt: skip
