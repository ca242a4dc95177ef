"""Moments as they are recorded, and how long ago they were: a step of the wall clock lengthens and shortens nothing."""

from __future__ import annotations

from typing import Any

from ..domain.anchor import Anchor
from ..ports import Clock, ExecutionRow


def anchor(clock: Clock) -> Anchor:
    return Anchor(clock.boot_id(), clock.boottime(), clock.now())


def stamp(clock: Clock) -> dict[str, Any]:
    """This moment, ready for a record."""
    return {"boot_id": clock.boot_id(), "boottime": clock.boottime(), "wall": clock.now()}


def ran_s(row: ExecutionRow, clock: Clock) -> float:
    """Seconds since an execution that runs has begun.

    ``began`` in its record is exact. One that a kill followed at once has no such record: the journal knows its beginning by the
    wall clock only, and it cannot have run for longer than since it was ``sent``.
    """
    now = anchor(clock)
    if "began" in row.data:
        return now.since(Anchor.of(row.data["began"]))
    by_wall = max(0.0, now.wall - (row.started_at or now.wall))
    return min(by_wall, now.since(Anchor.of(row.data["sent"]))) if "sent" in row.data else by_wall
