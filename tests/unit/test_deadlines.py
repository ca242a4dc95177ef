"""Deadlines that fall together: each fires, and the loop serves others in between."""

from __future__ import annotations

import asyncio
import time

from gateway.clock import SystemClock
from gateway.service.deadlines import Deadlines


async def test_thousands_that_are_due_together_leave_the_loop_to_others() -> None:
    clock = SystemClock()
    deadlines = Deadlines(clock)
    fired: list[int] = []

    def call(number: int) -> None:
        time.sleep(0.001)
        fired.append(number)

    due = clock.boottime() + 0.02
    for number in range(60):
        deadlines.arm(number, due, lambda number=number: call(number))  # type: ignore[misc]
    seen: set[int] = set()
    while len(fired) < 60:
        await asyncio.sleep(0)
        seen.add(len(fired))
    assert sorted(fired) == list(range(60))
    assert len(seen - {0, 60}) >= 3, "somebody else had a turn in between, several times"
    deadlines.close()


async def test_one_that_is_disarmed_or_moved_fires_no_earlier_time() -> None:
    clock = SystemClock()
    deadlines = Deadlines(clock)
    fired: list[str] = []
    deadlines.after("gone", 0.01, lambda: fired.append("gone"))
    deadlines.after("moved", 0.01, lambda: fired.append("early"))
    deadlines.after("moved", 0.03, lambda: fired.append("late"))
    deadlines.disarm("gone")
    await asyncio.sleep(0.08)
    assert fired == ["late"]
    deadlines.close()
