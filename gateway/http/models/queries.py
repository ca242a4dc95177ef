"""The query arguments of the native requests, each parsed from its text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from ...domain.model import EndReason, ExitReason, SessionState
from ..paging import MAX_CURSOR_CHARS, MAX_LIMIT
from .base import Query

NAME_CHARS = 255


def _flag(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    word = text.strip().lower()
    if word not in ("0", "1", "true", "false"):
        raise ValueError("must be 0 or 1")
    return word in ("1", "true")


def _whole(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError("must be a whole number")
    return int(text)


def _seconds(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number of seconds") from None


Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "string", "enum": ["0", "1", "true", "false"]})]
Whole = Annotated[int, BeforeValidator(_whole), Field(ge=0, lt=10**18)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=NAME_CHARS)]
Time = Annotated[str, Field(max_length=40, description="A time (RFC 3339), such as 2026-01-31T10:00:00Z.")]
Limit = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str, Field(max_length=MAX_CURSOR_CHARS, description="The `next` of the page before.")]


class Sessions(Query):
    all: Flag = Field(False, description="An admin's: those of the tenant, or all of them.")
    ended: Flag = Field(False, description="With those that have ended.")


class Wait(Query):
    wait: Seconds = Field(0.0, description="Wait so many seconds for it to finish, at most those that the gateway admits (300).")


class Events(Query):
    after: Whole | None = Field(None, description="Resume behind this event; 0 begins with the oldest kept. `Last-Event-ID` counts before it.")


class Transcript(Query):
    after: Whole = Field(0, description="The `next` of the page before.")
    limit: Whole = Field(500, description="Cells, up to 500; 0 for none.")
    outputs: Flag = Field(True, description="0: without outputs, but with what is `suggested` to be run again.")


class Upload(Query):
    overwrite: Flag = Field(False, description="Take the place of a file of that name.")


class OnePattern(Query):
    pattern: str = Field(max_length=1024)


class Link(Query):
    link: str = Field("", max_length=8192)


class AdminSessions(Query):
    tenant: Text | None = Field(None, description="An admin's of the platform.")
    user: Text | None = None
    state: str | None = Field(None, description=f"Some of {', '.join(SessionState)}; several with commas.")
    reason: str | None = Field(None, description=f"Some of {', '.join(EndReason)}; several with commas.")
    since: Time | None = Field(None, description="Active or ended then, or later (RFC 3339).")
    cursor: Cursor | None = None
    limit: Limit = MAX_LIMIT


class Audit(Query):
    tenant: Text | None = Field(None, description="An admin's of the platform.")
    user: Text | None = Field(None, description="Whom it concerns.")
    session: Text | None = None
    tag: Text | None = Field(None, description="`admin:session:end`, or a beginning that ends in `:`.")
    since: Time | None = Field(None, description="Then or later (RFC 3339).")
    cursor: Annotated[int, BeforeValidator(_whole), Field(ge=0)] | None = Field(None, description="The `next` of the page before.")
    limit: Limit = 200


class AdminExecutions(Query):
    tenant: Text | None = Field(None, description="An admin's of the platform.")
    user: Text | None = None
    session: Text | None = None
    reason: str | None = Field(None, description=f"Some of {', '.join(ExitReason)}; several with commas.")
    since: Time | None = Field(None, description="Asked for then or later (RFC 3339).")
    until: Time | None = Field(None, description="Asked for before (RFC 3339).")
    cursor: Annotated[int, BeforeValidator(_whole), Field(ge=0)] | None = Field(None, description="The `next` of the page before.")
    limit: Limit = 200
