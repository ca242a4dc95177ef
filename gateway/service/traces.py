"""What is recorded and counted of a finished execution for those who look after the platform (P34): facts and hashes, no code and no output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ports import ExecutionRow
from .tally import Tally

if TYPE_CHECKING:
    from .live import LiveSession
    from .runs import Run

LOGGED = ("user", "tenant", "profile", "via", "generation", "exit_reason", "started_at", "finished_at", "output_bytes", "cpu_s")
"""Of the trace; all of it is in the records."""


def trace_of(s: LiveSession, run: Run) -> dict[str, Any]:
    """``inputs``: hashes of what lies in ``in/``, without the names; ``given``: what this execution named itself, with the artifact's id."""
    row = run.row
    return {
        "user": row.user, "tenant": row.tenant, "code_sha256": row.code_sha256, "profile": s.profile.name,
        "network_policy": "none", "exit_reason": row.exit_reason, "generation": row.generation, "via": row.source,
        "started_at": row.started_at, "finished_at": row.finished_at, "output_bytes": run.output_bytes,
        "dropped_bytes": run.dropped_bytes, "cpu_s": row.data.get("cpu_s"), "inputs": sorted(set(s.keeper.inputs.values())),
        "given": [{"artifact_id": i["artifact_id"], "sha256": i["sha256"]} for i in row.data.get("inputs", [])],
        **s.world.trace.get(s.profile.name, {}),
    }  # fmt: skip


def count(tally: Tally, row: ExecutionRow) -> None:
    tally.executions[row.source, row.exit_reason] += 1
    if row.started_at is not None and row.finished_at is not None:
        tally.execution_seconds[(row.source,)].observe(row.data["took_s"])
        tally.execution_wait_seconds[(row.source,)].observe(row.started_at - row.created_at)
