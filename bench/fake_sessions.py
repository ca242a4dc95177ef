"""Very many sessions on the fake engine, and how late the event loop is meanwhile."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.domain.model import Principal
from gateway.testing.clock import ManualClock

from .fake_engine import IDLE_S, WARN_S, boot

CREATING = 32
"""Sessions that are asked for at the same time."""


class Lag:
    """How late a timer of 5 ms is, and the deadlines that fire meanwhile."""

    def __init__(self) -> None:
        self.phases: dict[str, dict[str, float]] = {}
        self.deadlines: dict[str, dict[str, float]] = {}
        self.fired: list[float] = []
        self._late: list[float] = []
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.005
            await asyncio.sleep(0.005)
            self._late.append((loop.time() - due) * 1e3)

    def phase(self, name: str, seconds: float) -> None:
        late, self._late = self._late or [0.0], []
        self.phases[name] = _spread(late) | {"seconds": seconds}
        fired, self.fired = self.fired, []
        if fired:
            self.deadlines[name] = _spread([seconds * 1e3 for seconds in fired])


def _spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    return {"p50": cuts[49], "p99": cuts[98], "max": max(values), "samples": len(values)}


async def sessions(path: Path, count: int) -> dict[str, Any]:
    """The clock is a manual one that goes at the pace of the real one, and is put forward to just before the deadlines."""
    clock = ManualClock()
    lag = Lag()
    moved = clock.boottime()

    def late(seconds: float) -> None:
        # what fell due while the clock was put forward is late from then on only
        lag.fired.append(min(seconds, clock.boottime() - moved))

    def forward(seconds: float) -> None:
        nonlocal moved
        moved = clock.boottime() + max(0.0, seconds)
        clock.advance(max(0.0, seconds))

    gateway, runtime = await boot(path, clock, late)

    async def pace() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.02)
            clock.advance(time.monotonic() - before)

    async def until(condition: Callable[[], bool]) -> None:
        # a look at 10,000 sessions takes a millisecond or two itself
        while not condition():
            await asyncio.sleep(0.25)

    async def in_turns(work: Callable[[int], Any]) -> None:
        numbers = iter(range(count))

        async def some() -> None:
            for n in numbers:
                await work(n)

        await asyncio.gather(*(some() for _ in range(CREATING)))

    def states(state: str) -> bool:
        return sum(s.core.state == state for s in gateway.live.values()) == count

    def user(n: int) -> Principal:
        return Principal(f"user{n % 1000}", "bench")

    pacer = asyncio.get_running_loop().create_task(pace())
    ids: dict[int, str] = {}

    async def create(n: int) -> None:
        access = await gateway.create_session(user(n))
        ids[n] = str(access.to_json()["session_id"])
        while gateway.live[ids[n]].core.state != "active":
            await asyncio.sleep(0.01)

    async def come_back(n: int) -> None:
        access = await gateway.session(user(n), ids[n])
        execution = await access.execute("print:here")
        await access.wait_execution(execution, 60.0)

    async def phase(name: str, *steps: Any) -> None:
        begun = time.monotonic()
        for step in steps:
            await step
        lag.phase(name, time.monotonic() - begun)

    begun = clock.boottime()
    await phase("create", in_turns(create))
    took = clock.boottime() - begun
    forward(IDLE_S - WARN_S - (clock.boottime() - begun) - 1)
    await phase("deadline: warned, at the pace of creation", asyncio.sleep(took + 2))
    forward(IDLE_S - (clock.boottime() - begun) - 1)
    await phase("deadline: recycled, at the pace of creation", until(lambda: states("dormant") and not runtime.sandboxes))
    await phase("come back: an execution each", in_turns(come_back))
    forward(IDLE_S - WARN_S + 1)
    await asyncio.sleep(2)
    lag.phase("warned, all at once", 2.0)
    forward(IDLE_S)
    await phase("recycled, all at once", until(lambda: states("dormant") and not runtime.sandboxes))
    pacer.cancel()
    return {"phases": lag.phases, "deadlines": lag.deadlines, "task_failures": gateway.world.tasks.failures}
