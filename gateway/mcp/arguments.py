"""What each tool takes: models that check a call's arguments, and of which the schemas in ``tools/list`` are made."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import BadRequest

NAME_CHARS = 100
CODE_CHARS = 2 * 1024**2
TIMEOUT_S = 24 * 3600
SHOWN_CHARS = 20_000
MOST_SHOWN_CHARS = 200_000
READ_BYTES = 256 * 1024
MOST_READ_BYTES = 2 * 1024**2
"""What one download carries; files beyond come in parts, or over the REST interface."""
WAIT_S = 3600

Path = Annotated[str, Field(min_length=1, max_length=1024, description="Path in the workspace, e.g. in/data.csv or out/report.xlsx")]
Shown = Annotated[
    int,
    Field(ge=100, le=MOST_SHOWN_CHARS, description="How much of each of stdout, stderr and a result is shown; what is longer is cut in the middle"),
]


class Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class OfSession(Nothing):
    session: Annotated[
        str, Field(max_length=NAME_CHARS, description="Name or id of the session; empty: this connection's own (as a rule 'mcp')")
    ] = ""


class RunCode(OfSession):
    code: Annotated[str, Field(max_length=CODE_CHARS, description="Python, as in a notebook cell; variables stay for the next call")]
    timeout_s: Annotated[float | None, Field(gt=0, le=TIMEOUT_S, description="Interrupt the code after so many seconds")] = None
    expect_generation: Annotated[
        int | None, Field(ge=0, description="Run only if the session is still in this generation, i.e. no variables were lost since")
    ] = None
    profile: Annotated[str | None, Field(max_length=100, description="Only for a session that this call makes: see profiles")] = None
    max_output_chars: Shown = SHOWN_CHARS


class SessionStatus(OfSession):
    execution_id: Annotated[str, Field(max_length=200, description="Also tell of this execution, with its outputs")] = ""
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S, description="Wait so long for that execution to finish")] = 0.0
    max_output_chars: Shown = SHOWN_CHARS


class ListFiles(OfSession):
    under: Annotated[str, Field(max_length=1024, description="Only paths that begin with this")] = ""


class Upload(OfSession):
    path: Path
    text: Annotated[str | None, Field(description="The file's content, when it is text")] = None
    base64: Annotated[str | None, Field(description="The file's content in base64, when it is not")] = None
    overwrite: Annotated[bool, Field(description="Replace a file that is there")] = False

    @model_validator(mode="after")
    def _one_content(self) -> Upload:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("give exactly one of text and base64")
        return self


class Download(OfSession):
    path: Path
    offset: Annotated[int, Field(ge=0, le=2**53, description="Begin at this byte")] = 0
    max_bytes: Annotated[int, Field(ge=1, le=MOST_READ_BYTES, description="Read at most so many bytes")] = READ_BYTES


class DeclareFiles(OfSession):
    patterns: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1024)]],
        Field(min_length=1, max_length=50, description="Paths or patterns such as out/** or *.parquet"),
    ]
    keep: Annotated[bool, Field(description="False: such files are not to be kept")] = True


class Rebuild(OfSession):
    cells: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=200)]] | None,
        Field(min_length=1, max_length=200, description="Execution ids to run again; without: those that succeeded before the loss"),
    ] = None
    timeout_s: Annotated[float | None, Field(gt=0, le=TIMEOUT_S, description="Limit of each cell")] = None


A = TypeVar("A", bound=Nothing)


def check(model: type[A], given: dict[str, Any] | None) -> A:
    """Raises BadRequest, which names the argument and what is wrong with it (never its value)."""
    try:
        return model.model_validate(given or {})
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        told = [{"argument": ".".join(str(part) for part in p["loc"])[:200], "problem": p["msg"]} for p in problems[:10]]
        first = f"{told[0]['argument']}: {told[0]['problem']}" if told[0]["argument"] else told[0]["problem"]
        raise BadRequest(f"The arguments are not right: {first}.", problems=told, known=sorted(model.model_fields)) from None


def schema(model: type[Nothing]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    made = model.model_json_schema()
    for value in (made, *made.get("properties", {}).values()):
        value.pop("title", None)
    made.pop("description", None)
    return made
