"""From error codes to HTTP: one total map, and the one shape in which an error leaves the gateway.

Nothing here knows a request; a body never holds a traceback, a host path or the text of an unexpected exception.
"""

from __future__ import annotations

import http
import math
from typing import Any

from ..domain.advice import advise
from ..domain.execution import next_action
from ..domain.model import ExitReason, NextAction
from ..errors import SandglassError
from ..jsonio import dumps

CONTENT_TYPE = "application/problem+json"

STATUS: dict[str, int] = {
    "bad_request": 400,
    "path_refused": 400,
    "unauthenticated": 401,
    "user_disabled": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "invalid_transition": 409,
    "generation_mismatch": 409,
    "session_ended": 410,
    "too_large": 413,
    "artifact_rejected": 422,
    "quota_exceeded": 429,
    "platform_fault": 500,
    "unavailable": 503,
    "engine_unavailable": 503,
    "capacity_exhausted": 503,
    "image_unavailable": 503,
    "profile_unavailable": 503,
    "store_unavailable": 503,
    "records_unavailable": 503,
    "sandbox_lost": 503,
    "protocol_violation": 503,
}
"""Every code of ``gateway.errors`` (a test walks the tree)."""

_FROM_STATUS = {400: "bad_request", 401: "unauthenticated", 403: "forbidden", 404: "not_found", 409: "conflict"}
_FROM_STATUS |= {405: "method_not_allowed", 413: "too_large", 429: "quota_exceeded", 503: "unavailable"}
_RESERVED = frozenset({"type", "title", "status", "detail", "code", "message", "reason", "retry_after"})
_EXIT_REASONS = frozenset(map(str, ExitReason)) - {ExitReason.PLATFORM_FAULT}
"""A 500 stands for no execution, and a client can do nothing about it."""
_NEXT = {"quota_exceeded": NextAction.RETRY_AFTER, "too_large": NextAction.REDUCE_DATA, "session_ended": NextAction.STOP}
RETRY_AFTER_S = 5
"""Said with every 429 and 503 whose cause knows no better."""


def status_of(error: SandglassError) -> int:
    return STATUS[error.code]


def problem(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The status and body for any exception; what is not in the tree is a ``platform_fault`` without its text."""
    if not isinstance(error, SandglassError):
        error = SandglassError("Something went wrong inside the gateway; its log has the details.")
    extra = _what_to_do(error.code) | {k: v for k, v in error.extra.items() if k not in _RESERVED}
    return status_of(error), _body(status_of(error), error.code, error.detail, error.retry_after, extra)


def _what_to_do(code: str) -> dict[str, Any]:
    """The same words as an execution has, for a refusal that stands in the place of one."""
    if code in _EXIT_REASONS:
        reason = ExitReason(code)
        return {"next_action": next_action(reason), "advice": advise(reason)}
    return {"next_action": _NEXT[code]} if code in _NEXT else {}


def problem_of_status(status: int, detail: str = "") -> dict[str, Any]:
    """The body for an error that the web framework found by itself (404, 405, a malformed request)."""
    code = _FROM_STATUS.get(status, "bad_request" if status < 500 else "platform_fault")
    return _body(status, code, detail or http.HTTPStatus(status).description or title_of(status), None, {})


def title_of(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _body(status: int, code: str, detail: str, retry_after: float | None, extra: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": title_of(status),
        "status": status,
        "detail": detail,
        "code": code,
        "message": detail,
        "reason": code,
    }
    if retry_after is not None:
        body["retry_after"] = retry_after
    return body | extra


def headers_of(status: int, body: dict[str, Any]) -> dict[str, str]:
    """Headers that go with a problem: ``Retry-After`` in whole seconds on 429 and 503, the challenge on 401."""
    headers = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
    if status in (429, 503):
        headers["Retry-After"] = str(max(1, math.ceil(body.get("retry_after") or RETRY_AFTER_S)))
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="sandglass"'
    return headers


def encode(value: Any) -> bytes:
    return dumps(value)
