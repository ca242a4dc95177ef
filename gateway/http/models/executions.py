"""Bodies of ``/api/v1/sessions/{id}/executions`` and ``.../stdin``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ...service.outputs import MOST_BYTES
from ...service.placing import MAX_INPUTS
from .base import Body, Query

CODE_CHARS = 2 * 1024**2
TIMEOUT_S = 24 * 3600


class InputBody(Body):
    """A stored file that the code is to find, read-only, below in/."""

    artifact_id: Annotated[str, Field(min_length=1, max_length=128)]
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """In the workspace; a name without a folder goes to in/."""


class ExecuteBody(Body):
    """Code to run in a session, and how. Send an Idempotency-Key with it: whoever repeats the request then gets the same execution."""

    code: Annotated[str, Field(max_length=CODE_CHARS)]
    timeout_s: Annotated[float, Field(ge=0.001, le=TIMEOUT_S)] | None = None
    expect_generation: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """409 generation_mismatch when the variables meant are gone."""
    allow_stdin: bool = False
    stop_on_error: bool = False
    """When this one does not succeed, what waits behind it over REST is not run."""
    max_output_bytes: Annotated[int, Field(ge=0, le=MOST_BYTES)] | None = None
    """What an answer carries of its output; all of it is at full_output_url."""
    inputs: Annotated[list[InputBody], Field(max_length=MAX_INPUTS)] = []
    result_schema: dict[str, Any] | None = None
    """A JSON Schema that the value of sandglass.result(value) must fit."""


class StdinBody(Body):
    """The answer to an input_request of a running execution."""

    execution_id: Annotated[str, Field(max_length=200)]
    value: str


class OutputQuery(Query):
    """Which part of the output: the text of one stream, or without it all, a JSON object a line."""

    stream: Literal["stdout", "stderr"] | None = None
