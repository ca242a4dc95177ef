"""Stored files that an execution names as its inputs: looked up when it is asked for, placed read-only when its turn comes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..domain.model import ExecutionState, ExitReason
from ..domain.paths import INPUTS, clean_path
from ..errors import BadRequest, NotFound, PathRefused, SandglassError, TooLarge, Unavailable
from .keeping import write_sandbox
from .sandboxes import Sandbox

if TYPE_CHECKING:
    from .live import LiveSession
    from .runs import Run

log = logging.getLogger("sandglass.files")
Json = dict[str, Any]
MAX_INPUTS = 32


async def look_up(s: LiveSession, inputs: Sequence[tuple[str, str]]) -> list[Json]:
    """``(artifact id, path)`` -> what is recorded of each. Those of others are unknown.

    Raises NotFound, PathRefused, BadRequest, TooLarge.
    """
    if len(inputs) > MAX_INPUTS:
        raise TooLarge(f"An execution may have at most {MAX_INPUTS} inputs.")
    found: list[Json] = []
    for artifact_id, path in inputs:
        path = clean_path(path)
        path = path if "/" in path else f"{INPUTS}/{path}"
        if not path.startswith(f"{INPUTS}/"):
            raise PathRefused(f"Inputs are placed in {INPUTS}/, where code can only read.", path=path)
        if any(path == each["path"] for each in found):
            raise BadRequest("Two inputs have the same path.", path=path)
        artifact = await s.world.records.get_artifact(artifact_id)
        if artifact is None or (artifact.tenant, artifact.user) != (s.row.tenant, s.row.user):
            raise NotFound("There is no such artifact.", artifact_id=artifact_id)
        found.append({"artifact_id": artifact_id, "path": path, "sha256": artifact.sha256, "size": artifact.size})
    total = sum(each["size"] for each in found)
    if total > s.profile.limits.inputs_bytes:
        raise TooLarge(f"These inputs have {total:,} bytes; {INPUTS}/ holds at most {s.profile.limits.inputs_bytes:,}.")
    return found


async def place(s: LiveSession, run: Run, sandbox: Sandbox) -> None:
    """Put the inputs into the sandbox, each verified as it was stored; where that cannot be, the execution ends without having run.

    A lost stream ends nothing: it is tried again once that is mended.
    """
    run.placed = sandbox.sandbox_id
    s.activity()
    try:
        for each in run.row.data["inputs"]:
            artifact = await s.world.records.get_artifact(each["artifact_id"])
            if artifact is None:
                raise NotFound(f"The input {each['path']} was deleted meanwhile.")
            await write_sandbox(sandbox.link, each["path"], artifact.size, artifact.sha256, s.keeper.read_artifact(artifact), overwrite=True)
            s.keeper.inputs[each["path"]] = artifact.sha256
    except SandglassError as error:
        if sandbox.link.lost is not None:
            run.placed = ""
            return
        log.info("an input was not placed", extra={"session": s.session_id, "execution": run.row.execution_id, "why": error.code})
        if run.e.state is not ExecutionState.FINISHED:
            run.row.data["detail"] = f"An input could not be placed, so nothing was run: {error.detail}"
            s.runs.reject(run, ExitReason.PLATFORM_FAULT if isinstance(error, Unavailable) else ExitReason.ARTIFACT_REJECTED)
