"""The error tree: what can go wrong, with a stable code each, and no HTTP in it.

::

    SandglassError                      code            retry  meaning
    |-- BadRequest                      bad_request            the request is malformed
    |   |-- PathRefused                 path_refused           a file path or pattern that may not be used
    |   |-- ArtifactRejected            artifact_rejected      a file whose content is not let in or out
    |   `-- TooLarge                    too_large              a body, file or message over its limit
    |-- Unauthenticated                 unauthenticated        no token, or one that does not hold
    |   `-- UserDisabled                user_disabled          whoever it is may not come in any more
    |-- Forbidden                       forbidden              the token lacks a role or scope
    |-- NotFound                        not_found              unknown, ended long ago, or somebody else's
    |-- Conflict                        conflict               the state does not admit it
    |   |-- InvalidTransition           invalid_transition     an event that the state machine refuses
    |   |-- GenerationMismatch          generation_mismatch    the variables meant are gone
    |   `-- SessionEnded                session_ended          the session is over for good
    |-- QuotaExceeded                   quota_exceeded  yes    a cap of the user or session is reached
    `-- Unavailable                     unavailable     yes    a part of the platform does not serve now
        |-- EngineUnavailable           engine_unavailable  yes  the container engine does not answer
        |-- CapacityExhausted           capacity_exhausted  yes  no sandbox can be had now
        |-- ImageUnavailable            image_unavailable        the kernel image is missing
        |   `-- ImageChanged            image_unavailable        there is another image under its name than the pinned one
        |-- ProfileUnavailable          profile_unavailable      the profile's runtime or protection is missing
        |-- StoreUnavailable            store_unavailable   yes  the object store does not answer
        |-- RecordsUnavailable          records_unavailable yes  the records cannot be read or written
        |-- SandboxLost                 sandbox_lost        yes  the sandbox went away in the middle
        `-- ProtocolViolation           protocol_violation       the sandbox broke the stream protocol
"""

from __future__ import annotations

from typing import Any


class SandglassError(Exception):
    """Root of the tree. ``code`` is stable; ``detail`` is one sentence for a person, without secrets or host paths.

    ``extra`` holds JSON-ready members that a client may act on (e.g. ``lost_variables``).
    ``retry_after`` is in seconds, or None where trying again does not help.
    """

    code = "platform_fault"
    retry_after: float | None = None

    def __init__(self, detail: str = "", *, retry_after: float | None = None, **extra: Any) -> None:
        super().__init__(detail or type(self).__name__)
        self.detail = detail or (type(self).__doc__ or "").strip().split("\n")[0]
        self.extra: dict[str, Any] = extra
        if retry_after is not None:
            self.retry_after = retry_after


def code_of(error: BaseException) -> str:
    """The code under which any failure is told: what is not in the tree is a ``platform_fault``."""
    return error.code if isinstance(error, SandglassError) else SandglassError.code


class BadRequest(SandglassError):
    """The request is malformed."""

    code = "bad_request"


class PathRefused(BadRequest):
    """That path or pattern may not be used."""

    code = "path_refused"


class ArtifactRejected(BadRequest):
    """What this file holds is not let in or out. ``extra["rule"]`` names the rule that it breaks."""

    code = "artifact_rejected"


class TooLarge(BadRequest):
    """Over the limit for its kind."""

    code = "too_large"


class Unauthenticated(SandglassError):
    """No valid token was given."""

    code = "unauthenticated"


class UserDisabled(Unauthenticated):
    """This user has been disabled."""

    code = "user_disabled"


class Forbidden(SandglassError):
    """The token does not permit this."""

    code = "forbidden"


class NotFound(SandglassError):
    """There is no such object."""

    code = "not_found"


class Conflict(SandglassError):
    """The present state does not admit this."""

    code = "conflict"


class InvalidTransition(Conflict):
    """The state machine refuses this event; nothing changed."""

    code = "invalid_transition"


class GenerationMismatch(Conflict):
    """The session's variables are not the ones meant."""

    code = "generation_mismatch"


class SessionEnded(Conflict):
    """The session has ended for good."""

    code = "session_ended"


class QuotaExceeded(SandglassError):
    """A quota is reached."""

    code = "quota_exceeded"
    retry_after = 30.0


class Unavailable(SandglassError):
    """A part of the platform does not serve now."""

    code = "unavailable"
    retry_after: float | None = 5.0


class EngineUnavailable(Unavailable):
    """The container engine does not answer."""

    code = "engine_unavailable"


class CapacityExhausted(Unavailable):
    """No sandbox can be had now."""

    code = "capacity_exhausted"
    retry_after = 15.0


class ImageUnavailable(Unavailable):
    """The kernel image is missing from the engine."""

    code = "image_unavailable"
    retry_after = None


class ImageChanged(ImageUnavailable):
    """The kernel image is not the one that is pinned. ``extra``: ``expected`` and ``found`` digests."""


class ProfileUnavailable(Unavailable):
    """This profile cannot be served here."""

    code = "profile_unavailable"
    retry_after = None


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
    retry_after = None
