"""What can go wrong, as one tree; each class has the gateway's stable code.

::

    SandglassError              platform_fault, and every code that is not known here
    |-- BadRequest              bad_request, method_not_allowed
    |   |-- PathRefused         path_refused
    |   |-- ArtifactRejected    artifact_rejected; ``extra["rule"]`` names the rule
    |   `-- TooLarge            too_large
    |-- Unauthenticated         unauthenticated
    |   `-- UserDisabled        user_disabled
    |-- Forbidden               forbidden
    |-- NotFound                not_found
    |-- Conflict                conflict
    |   |-- InvalidTransition   invalid_transition
    |   |-- GenerationMismatch  generation_mismatch; ``lost_variables``, ``kept_files``, ``generation``
    |   `-- SessionEnded        session_ended
    |-- QuotaExceeded           quota_exceeded
    |-- Unavailable             unavailable
    |   |-- EngineUnavailable, CapacityExhausted, ImageUnavailable, ProfileUnavailable, StoreUnavailable, RecordsUnavailable, SandboxLost,
    |   |   ProtocolViolation   as their names say
    |   `-- Unreachable         unreachable: the connection failed; nothing was answered
    `-- ExecutionFailed         the exit reason, only from ``Execution.check()``
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import Execution

Json = dict[str, Any]


class SandglassError(Exception):
    """``retry_after``: seconds after which trying again may help, None where it does not. ``extra``: the problem's other members."""

    code = "platform_fault"

    def __init__(self, detail: str = "", *, code: str = "", status: int = 0, retry_after: float | None = None, extra: Json | None = None) -> None:
        super().__init__(detail or (type(self).__doc__ or type(self).__name__).split("\n")[0])
        self.code = code or type(self).code
        self.detail = str(self)
        self.status = status
        self.retry_after = retry_after
        self.extra: Json = extra or {}


class BadRequest(SandglassError):
    """The request is malformed."""

    code = "bad_request"


class PathRefused(BadRequest):
    """That path or pattern may not be used."""

    code = "path_refused"


class ArtifactRejected(BadRequest):
    """What this file or value holds is refused."""

    code = "artifact_rejected"


class TooLarge(BadRequest):
    """Over the limit for its kind."""

    code = "too_large"


class Unauthenticated(SandglassError):
    """The gateway does not take this token."""

    code = "unauthenticated"


class UserDisabled(Unauthenticated):
    """This user has been disabled."""

    code = "user_disabled"


class Forbidden(SandglassError):
    """The token does not permit this."""

    code = "forbidden"


class NotFound(SandglassError):
    """There is no such object, or it is somebody else's."""

    code = "not_found"


class Conflict(SandglassError):
    """The present state does not admit this."""

    code = "conflict"


class InvalidTransition(Conflict):
    """The present state does not admit this."""

    code = "invalid_transition"


class GenerationMismatch(Conflict):
    """The session's variables are not the ones meant."""

    code = "generation_mismatch"

    @property
    def generation(self) -> int:
        """The session's present one."""
        return int(self.extra.get("generation") or 0)

    @property
    def lost_variables(self) -> tuple[str, ...]:
        return tuple(str(v.get("name", "")) if isinstance(v, dict) else str(v) for v in _list(self.extra.get("lost_variables")))

    @property
    def kept_files(self) -> tuple[str, ...]:
        return tuple(str(f.get("path", "")) if isinstance(f, dict) else str(f) for f in _list(self.extra.get("kept_files")))


class SessionEnded(Conflict):
    """The session has ended for good."""

    code = "session_ended"


class QuotaExceeded(SandglassError):
    """A quota is reached."""

    code = "quota_exceeded"


class Unavailable(SandglassError):
    """A part of the platform does not serve now."""

    code = "unavailable"


class EngineUnavailable(Unavailable):
    """The container engine does not answer."""

    code = "engine_unavailable"


class CapacityExhausted(Unavailable):
    """No sandbox can be had now."""

    code = "capacity_exhausted"


class ImageUnavailable(Unavailable):
    """The kernel image is missing."""

    code = "image_unavailable"


class ProfileUnavailable(Unavailable):
    """This profile cannot be served there."""

    code = "profile_unavailable"


class StoreUnavailable(Unavailable):
    """The object store does not answer."""

    code = "store_unavailable"


class RecordsUnavailable(Unavailable):
    """The records cannot be read or written."""

    code = "records_unavailable"


class SandboxLost(Unavailable):
    """The sandbox went away."""

    code = "sandbox_lost"


class ProtocolViolation(Unavailable):
    """The sandbox broke the stream protocol."""

    code = "protocol_violation"


class Unreachable(Unavailable):
    """``sent``: the request may have been taken, its answer did not come."""

    code = "unreachable"

    def __init__(self, detail: str, *, sent: bool = False) -> None:
        super().__init__(detail)
        self.sent = sent


class ExecutionFailed(SandglassError):
    """An execution that did not end well; ``code`` is its exit reason."""

    def __init__(self, execution: Execution) -> None:
        said = f"{execution.error.name}: {execution.error.value}" if execution.error else execution.reason_text
        super().__init__(f"{execution.exit_reason}: {said}", code=execution.exit_reason or "", retry_after=execution.retry_after)
        self.execution = execution
        self.next_action = execution.next_action


def _family(root: type[SandglassError]) -> Iterator[type[SandglassError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _family(kind)


_KINDS: list[type[SandglassError]] = [SandglassError, *_family(SandglassError)]
BY_CODE = {kind.code: kind for kind in _KINDS if kind not in (Unreachable, ExecutionFailed)}
_BY_STATUS = {400: BadRequest, 401: Unauthenticated, 403: Forbidden, 404: NotFound, 405: BadRequest, 409: Conflict, 410: SessionEnded,
              413: TooLarge, 422: ArtifactRejected, 429: QuotaExceeded, 502: Unavailable, 503: Unavailable, 504: Unavailable}  # fmt: skip
_OWN = frozenset({"type", "title", "status", "detail", "code", "message", "reason", "retry_after"})


def from_response(status: int, headers: Mapping[str, str], body: bytes) -> SandglassError:
    """The error that an answer of 4xx or 5xx means. One that is no problem+json (a proxy's, say) is told by its status alone."""
    problem = _object(body) if "json" in headers.get("content-type", "") else {}
    code, detail = problem.get("code"), problem.get("detail")
    if not isinstance(code, str):
        kind = _BY_STATUS.get(status, SandglassError)
        text = detail if isinstance(detail, str) else f"HTTP {status} from something that is not the gateway"
        return kind(text, status=status, retry_after=seconds(headers.get("retry-after")))
    kind = BY_CODE.get(code) or _BY_STATUS.get(status, SandglassError)
    return kind(
        detail if isinstance(detail, str) else "", code=code, status=status, retry_after=seconds(problem.get("retry_after")),
        extra={k: v for k, v in problem.items() if k not in _OWN},
    )  # fmt: skip


def seconds(value: object) -> float | None:
    """Of a ``Retry-After`` (a date is taken for "no number") or a JSON member; None for what is no time to wait."""
    try:
        found = float(value) if isinstance(value, (str, int, float)) else -1.0
    except ValueError:
        return None
    return found if 0 <= found < 1e9 else None


def _object(body: bytes) -> Json:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
