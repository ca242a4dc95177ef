"""Deadlines that fall together: each fires, and the loop serves others in between."""

from __future__ import annotations

import asyncio
import random
import time

from gateway.clock import SystemClock
from gateway.service.deadlines import Deadlines
from gateway.testing.clock import ManualClock


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


async def test_thousands_fire_each_once_in_order_and_none_early() -> None:
    """Armed in any order, a third of them moved (earlier or later), a tenth disarmed; the machine sleeps in between."""
    rng, clock = random.Random(5), ManualClock()
    late: list[float] = []
    deadlines = Deadlines(clock, late.append)
    clock.on_advance(deadlines.run_due)
    fired: list[tuple[float, int]] = []
    due: dict[int, float] = {}

    def arm(number: int) -> None:
        due[number] = at = clock.boottime() + rng.uniform(0.0, 1000.0)
        deadlines.arm(number, at, lambda: fired.append((at, number)))

    for number in rng.sample(range(5000), 5000):
        arm(number)
    for number in rng.sample(range(5000), 1700):
        arm(number)
    for number in rng.sample(range(5000), 500):
        deadlines.disarm(number)
        del due[number]
    seen = 0
    for span in (*[1.0] * 50, 300.0, *[5.0] * 20, 5000.0):
        clock.advance(span)
        expected = sorted((at, number) for number, at in due.items() if at <= clock.boottime())
        while len(fired) < len(expected):
            await asyncio.sleep(0)
        assert fired == expected, "each once, in order, none early"
        assert all(0 <= seconds <= span for seconds in late[seen:]), "and how late it was is told"
        seen = len(late)
    assert len(fired) == len(due) == 4500 and not len(deadlines)
    deadlines.close()


async def test_one_that_fails_or_arms_another_stops_nobody() -> None:
    clock = ManualClock()
    deadlines = Deadlines(clock)
    clock.on_advance(deadlines.run_due)
    fired: list[str] = []

    def fails() -> None:
        fired.append("fails")
        raise RuntimeError("a defect of one session")

    def again() -> None:
        fired.append("again")
        deadlines.arm("again", clock.boottime(), lambda: fired.append("and again"))

    deadlines.after("fails", 1.0, fails)
    deadlines.after("again", 2.0, again)
    deadlines.after("last", 3.0, lambda: fired.append("last"))
    assert deadlines.none_within(0.9) and not deadlines.none_within(1.0)
    clock.advance(10.0)
    while len(fired) < 4:
        await asyncio.sleep(0)
    assert fired == ["fails", "again", "last", "and again"]
    deadlines.close()
