"""The bodies of the native requests. Their docstrings and descriptions are published, in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ...domain.rebuild import MAX_STEPS
from .base import Body

CODE_CHARS = 2 * 1024**2
TIMEOUT_S = 24 * 3600
NAME_CHARS = 255
ID_CHARS = 200

Timeout = Annotated[float, Field(ge=0.001, le=TIMEOUT_S, description="Seconds; the profile has a bound of its own.")]
AllowStdin = Annotated[bool, Field(description="Whether the code may ask with input(). Without it, that fails at once.")]
Tenant = Annotated[str, Field(max_length=NAME_CHARS, description="Another tenant than the own, for an admin of the platform.")]
Reason = Annotated[str, Field(max_length=1000, description="The admin's own words: for the audit, and told to the user.")]


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("must say why: the user is told, and it is recorded")
    return text.strip()


Why = Annotated[Reason, AfterValidator(_words), Field(json_schema_extra={"pattern": r"\S"})]


def _yes(sure: bool) -> bool:
    if not sure:
        raise ValueError("must be true: what could not be stored will be lost")
    return sure


class Nothing(Body):
    """An empty object, or no body at all."""


class NewSession(Body):
    """A session starts without a sandbox's state: no variables, no files."""

    profile: str | None = Field(None, max_length=100, description="Absent: the default profile.")
    name: str = Field("", max_length=200)


class NewRebuild(Body):
    """Cells of the transcript to run again."""

    cells: list[Annotated[str, Field(max_length=128)]] | None = Field(
        None, max_length=MAX_STEPS, description="Execution ids. Absent: those that succeeded in the generation that was lost."
    )
    timeout_s: Timeout | None = None
    allow_stdin: AllowStdin = False


class NewDeclaration(Body):
    """Files that a pattern matches are kept when the sandbox ends (or, with `keep` false, are not)."""

    pattern: str = Field(min_length=1, max_length=1024)
    keep: bool = True


class NewTicket(Body):
    """A link that logs the caller in on the page; it never outlives, nor outranks, the credential that it is asked with."""

    purpose: Literal["login", "attach"]


class WithReason(Body):
    reason_text: Reason = ""


class Extension(Body):
    seconds: float = Field(gt=0, le=1e9)
    reason_text: Why


class Release(Body):
    """It loses what could not be stored, so it is asked for twice: `confirm` must be true."""

    confirm: Annotated[bool, AfterValidator(_yes), Field(json_schema_extra={"const": True})]
    reason_text: Why


class Disabling(Body):
    tenant: Tenant | None = None
    sessions: Literal["recycle", "end"] = Field("recycle", description="What becomes of the user's sessions; declared files are stored either way.")
    reason_text: Reason = ""


class OfTenant(Body):
    tenant: Tenant | None = None


class EndingSessions(Body):
    tenant: Tenant | None = None
    reason_text: Reason = ""
