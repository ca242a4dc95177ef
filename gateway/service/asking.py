"""A request for an execution over REST: checked, matched with an earlier one of the same key, looked at, and put into the queue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..domain import hints
from ..domain.schemas import check_schema
from ..errors import Conflict, GenerationMismatch, TooLarge
from ..ports import ExecutionRow
from ..protocol import jupyter
from . import placing

if TYPE_CHECKING:
    from .live import LiveSession
    from .runs import Run

Json = dict[str, Any]
REST_KEY = "rest"
MAX_CODE = 4 * 1024 * 1024
OWN = "sandglass"
"""The member of a request's metadata that is ours: it stands in the journal with the code, and not in the records."""


async def ask(
    s: LiveSession, code: str, *, timeout_s: float | None = None, expect_generation: int | None = None, allow_stdin: bool = False,
    stop_on_error: bool = False, max_output_bytes: int | None = None, inputs: Sequence[tuple[str, str]] = (), result_schema: Json | None = None,
    idempotency_key: str = "",
) -> str:  # fmt: skip
    """Queue an execution; its id. See ``api.SessionFacade.execute``."""
    if len(code) > MAX_CODE:
        raise TooLarge(f"Code may have at most {MAX_CODE // 2**20} MiB.")
    execution_id, asked = "", ""
    if idempotency_key:
        execution_id = _id_of(s.session_id, idempotency_key)
        asked = _digest(code, timeout_s, expect_generation, allow_stdin, stop_on_error, max_output_bytes, [*inputs], result_schema)
        if await _earlier(s, execution_id, asked):
            return execution_id
    _expect(s, expect_generation)
    if result_schema is not None:
        check_schema(result_schema)
    placed = await placing.look_up(s, inputs) if inputs else []
    if execution_id and (twin := s.runs.by_id(execution_id)) is not None:  # the same request came while this one was looked at
        _same(twin.row, asked)
        await s.runs.record(twin)
        return execution_id
    _expect(s, expect_generation)
    found, acts = hints.look(code)
    run = _take_on(s, code, allow_stdin, stop_on_error, result_schema, timeout_s, execution_id, {
        "stop_on_error": stop_on_error, "max_output_bytes": max_output_bytes, "inputs": placed, "hints": found, "acts": acts, "asked": asked,
    })  # fmt: skip
    s.want()
    await s.runs.record(run)
    return run.row.execution_id


def _take_on(
    s: LiveSession, code: str, allow_stdin: bool, stop_on_error: bool, schema: Json | None, timeout_s: float | None, execution_id: str, about: Json
) -> Run:
    limits = s.profile.limits
    timeout = limits.execution_s_agent if timeout_s is None else min(timeout_s, limits.execution_s_person)
    header = jupyter.make_header("execute_request", f"{REST_KEY}-{s.session_id}")
    content = {
        "code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": allow_stdin, "stop_on_error": stop_on_error,
    }  # fmt: skip
    body = jupyter.build("shell", header, {}, {OWN: {"result_schema": schema}} if schema is not None else {}, content)
    return s.runs.add(
        header["msg_id"], header, body, code, key=REST_KEY, source="rest", silent=False, timeout_s=timeout,
        execution_id=execution_id, schema=schema,
        about={name: value for name, value in about.items() if value is not None and value is not False and value not in ("", [])},
    )  # fmt: skip


def schema_of(message: jupyter.KernelMessage) -> Json | None:
    """The schema that a recorded request was asked with. Raises ValueError."""
    own = message.metadata.get(OWN)
    schema = own.get("result_schema") if isinstance(own, dict) else None
    return schema if isinstance(schema, dict) else None


def _expect(s: LiveSession, generation: int | None) -> None:
    """Raises GenerationMismatch, with what was lost, what is kept and how to go on."""
    if generation is None or generation == s.core.generation:
        return
    raise GenerationMismatch(
        f"The session is in generation {s.core.generation}, not {generation}: its variables were lost.",
        generation=s.core.generation, lost_because=s.lost_because, lost_variables=[v.name for v in s.lost_variables],
        kept_files=s.telling.kept or s.restored, next_action="rebuild",
        rebuild={
            "method": "POST", "path": f"/api/v1/sessions/{s.session_id}/rebuild",
            "what": "runs the cells again that had succeeded; or run your own first steps again, with expect_generation as told here",
        },
    )  # fmt: skip


# --- the same request again -----------------------------------------------------------------------------------------------


def _id_of(session_id: str, key: str) -> str:
    """The execution's id follows from its key, so that whoever has the records finds the one by the other."""
    return hashlib.sha256(f"{session_id}\0{key}".encode()).hexdigest()[:24]


def _digest(*asked: Any) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


async def _earlier(s: LiveSession, execution_id: str, asked: str) -> bool:
    """Whether it was asked for already, with the same body. Raises Conflict when that was another."""
    run = s.runs.by_id(execution_id)
    if run is not None:
        _same(run.row, asked)
        await s.runs.record(run)  # the first answer may still wait for that, and nothing is promised before
        return True
    row = await s.world.records.get_execution(execution_id)
    if row is not None:
        _same(row, asked)
    return row is not None


def _same(row: ExecutionRow, asked: str) -> None:
    if row.data.get("asked") != asked:
        raise Conflict(
            "This Idempotency-Key was used for another request of this session; a new request needs a new key.", execution_id=row.execution_id
        )
