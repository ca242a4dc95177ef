"""The files that an execution wrote, as its answer lists them: looked for once, when somebody first asks.

Nothing watches the workspace; a file is this execution's when it was changed while it ran, by the sandbox's own clock and word. Code
that calls nothing that could write is not looked after, so that a small cell costs no look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..domain.model import Artifact, ExecutionState, SessionState
from ..errors import SandglassError
from ..ports import ExecutionRow
from .keeping import declarations_of, entries

if TYPE_CHECKING:
    from .live import LiveSession

Json = dict[str, Any]
MOST = 100
LIST_ENTRIES = 5000
CLOCK_S = 0.02
"""File times are the clock of the last tick."""


async def of(s: LiveSession, row: ExecutionRow) -> list[Json]:
    """``[{"path", "size", "declared", "sha256", "mime"}]``; the last two are null while the file is not stored."""
    if row.state != ExecutionState.FINISHED or not row.data.get("acts") or row.started_at is None:
        return []
    if "files" not in row.data:
        found = await _look(s, row)
        if found is not None:
            row.data["files"] = found
            s.spawn(s.insist(lambda: s.world.records.put_execution(row)), "save-files")
    stored = {a.path: a for a in await s.world.records.list_artifacts(s.session_id)}
    listed = {each["path"]: {**each, **_stored(stored.get(each["path"]), each["size"])} for each in row.data.get("files", [])}
    for artifact in stored.values():
        if artifact.execution_id == row.execution_id and artifact.path not in listed and len(listed) < MOST:
            listed[artifact.path] = {"path": artifact.path, "size": artifact.size, "declared": True, **_stored(artifact, artifact.size)}
    return [listed[path] for path in sorted(listed)]


def _stored(artifact: Artifact | None, size: int) -> Json:
    same = artifact is not None and artifact.size == size
    return {"sha256": artifact.sha256, "mime": artifact.mime} if artifact is not None and same else {"sha256": None, "mime": None}


async def _look(s: LiveSession, row: ExecutionRow) -> list[Json] | None:
    """None where nobody can tell (any more)."""
    sandbox = s.sandbox
    if sandbox is None or sandbox.sandbox_id != row.sandbox_id or s.core.state is not SessionState.ACTIVE or sandbox.link.lost is not None:
        return None
    assert row.started_at is not None and row.finished_at is not None
    try:
        listing, _ = await entries(sandbox.link, "workspace", LIST_ENTRIES)
        declared = declarations_of(await s.world.records.list_declarations(s.session_id))
    except SandglassError:
        return None
    mine = [f for f in listing if f.kind == "file" and row.started_at - CLOCK_S <= f.mtime_ns / 1e9 <= row.finished_at + CLOCK_S]
    return [{"path": f.path, "size": f.size, "declared": declared.decide(f.path)[0]} for f in mine[:MOST]]
