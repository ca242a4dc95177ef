"""Chosen cells that run again after a loss, one after the other: how far it is, and what came back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .transcript import Cell

MAX_STEPS = 200


class RebuildState(StrEnum):
    """``STOPPED``: at an error, a loss or a person's wish. ``CUT``: by a restart of the gateway."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    CUT = "cut"


@dataclass(slots=True)
class Step:
    """``cell``: the execution whose code runs again; ``execution_id``: the one that it becomes, empty until then."""

    cell: str
    execution_id: str = ""
    exit_reason: str = ""


@dataclass(slots=True)
class Rebuild:
    """``lost``: the variables whose loss it mends; ``back``: those of them that were there again when it ended."""

    rebuild_id: str
    generation: int
    started_at: float
    steps: list[Step]
    lost: list[str]
    timeout_s: float | None = None
    allow_stdin: bool = False
    state: RebuildState = RebuildState.RUNNING
    finished_at: float | None = None
    detail: str = ""
    back: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Steps that ran to their end."""
        return sum(1 for step in self.steps if step.exit_reason)

    def returned(self, variables: Iterable[str]) -> list[str]:
        here = set(variables)
        return [name for name in self.lost if name in here]

    def end(self, state: RebuildState, at: float, variables: Iterable[str], detail: str = "") -> None:
        self.state, self.finished_at, self.detail = state, at, detail
        self.back = self.returned(variables)

    def to_row(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Rebuild:
        """Members that this release does not know are left out."""
        known = {name: row[name] for name in cls.__dataclass_fields__ if name in row}
        return cls(**known | {"steps": [Step(**step) for step in row["steps"]], "state": RebuildState(row["state"])})


def suggested(cells: Iterable[Cell], generation: int, last: Rebuild | None) -> list[Cell]:
    """What a rebuild takes when nobody chose: everything that succeeded in the last generation that was lost.

    Where the ``last`` rebuild did not come to its end: in this generation, the rest of it that once succeeded; in the one
    that was lost, all of it, and what else succeeded there.
    """
    known = [c for c in cells if c.code is not None]
    unfinished = last if last is not None and last.state is not RebuildState.DONE else None
    if unfinished is not None and unfinished.generation == generation:
        ran = {c.execution_id for c in known if c.succeeded}
        wanted = {step.cell for step in unfinished.steps if step.execution_id not in ran}
        return [c for c in known if c.execution_id in wanted and c.succeeded]
    lost = max((c.generation for c in known if c.generation < generation), default=None)
    found = {c.execution_id for c in known if c.generation == lost and c.succeeded}
    if unfinished is not None and unfinished.generation == lost:
        found = found - {step.execution_id for step in unfinished.steps} | {step.cell for step in unfinished.steps}
    return [c for c in known if c.execution_id in found]


def missing_names(lost: Iterable[str], last: Rebuild | None) -> list[str]:
    """What a rebuild is to bring back: what was lost, and what an earlier one that did not come to its end was to bring."""
    more = last.lost if last is not None and last.state is not RebuildState.DONE else []
    return list(dict.fromkeys((*lost, *more)))
