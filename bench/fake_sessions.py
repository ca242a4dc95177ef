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
SPREAD_S = 60.0
"""5,000 deadlines come within so many seconds."""
LEAD_S = 10.0


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

    def forget(self) -> None:
        self._late, self.fired = [], []

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

    async def in_turns(which: range, work: Callable[[int], Any]) -> None:
        numbers = iter(which)

        async def some() -> None:
            for n in numbers:
                await work(n)

        await asyncio.gather(*(some() for _ in range(CREATING)))

    def states(state: str) -> int:
        return sum(s.core.state == state for s in gateway.live.values())

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

    def touch(n: int) -> None:
        gateway.live[ids[n]].activity()

    async def phase(name: str, *steps: Any) -> None:
        begun = time.monotonic()
        for step in steps:
            await step
        lag.phase(name, time.monotonic() - begun)

    some, others = range(count // 2), range(count // 2, count)
    spread = SPREAD_S * len(some) / 5000

    async def touch_spread() -> None:
        """So that their deadlines come as they do where people work: one after the other."""
        begun = time.monotonic()
        for n in some:
            touch(n)
            if n % 10 == 9:
                await asyncio.sleep(max(0.0, begun + spread * n / len(some) - time.monotonic()))

    async def idle(seconds: float) -> None:
        """Put the clock forward to a little before that time after the first was touched; the others are at work until then."""
        forward(seconds - (clock.boottime() - begun) - LEAD_S)
        for n in others:
            touch(n)
            if n % 20 == 19:
                await asyncio.sleep(0)
        lag.forget()

    await phase("create", in_turns(range(count), create))
    begun = clock.boottime()
    await touch_spread()
    await idle(IDLE_S - WARN_S)
    await phase(f"deadline: {len(some):,} warned within {spread:.0f} s", asyncio.sleep(spread + LEAD_S + 2))
    await idle(IDLE_S)
    gone = until(lambda: states("dormant") == len(some) == count - len(runtime.sandboxes))
    await phase(f"deadline: {len(some):,} recycled within {spread:.0f} s", gone)
    await phase("come back: an execution each", in_turns(some, come_back))
    forward(IDLE_S - WARN_S + 1)
    await asyncio.sleep(2)
    lag.phase("warned, all at once", 2.0)
    forward(IDLE_S)
    await phase("recycled, all at once", until(lambda: states("dormant") == count and not runtime.sandboxes))
    pacer.cancel()
    return {"phases": lag.phases, "deadlines": lag.deadlines, "task_failures": gateway.world.tasks.failures}
