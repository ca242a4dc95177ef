"""A gateway on a fake engine, in a process of its own: what the gateway itself costs, where no machine has room for so many sandboxes.

    python -m bench.fake serve              HTTP on a free port; a token is a user's name; each line on stdin asks for figures
    python -m bench.fake bare COUNT         the fake engine's share of that: so many sandboxes, and no gateway that holds them
    python -m bench.fake sessions COUNT     so many sessions: created, warned, recycled, come back, all recycled at once
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from gateway.backends.records import SqliteRecords
from gateway.clock import SystemClock
from gateway.domain.model import Lifetimes, Limits, Principal, Profile
from gateway.http.app import body_limit, make_app
from gateway.http.deps import Deps
from gateway.http.server import bind, serve
from gateway.ports import Clock, Records, RuntimeEvent, SandboxRow
from gateway.service.adoption import Adoption
from gateway.service.deadlines import Deadlines
from gateway.service.gateway import Gateway
from gateway.service.monitor import LEASE_TTL_S, Monitor
from gateway.service.pool import Pool
from gateway.service.sandboxes import Sandboxes
from gateway.service.tasks import Tasks
from gateway.service.world import Caps, World
from gateway.testing.clock import ManualClock
from gateway.testing.runtime import FakeRuntime
from gateway.testing.stores import MemoryStore

from .proc import descriptors, rss

IMAGE, TIER = "sandglass-kernel:test", "container"
IDLE_S, WARN_S, MOST = 1200.0, 60.0, 100_000
CREATING = 32
"""Sessions that are asked for at the same time."""


class Engine(FakeRuntime):
    def _is_of(self, event: RuntimeEvent, instance: str) -> bool:
        return True  # the fake's own search through all it ever made would be what is measured


async def boot(path: Path, clock: Clock) -> tuple[Gateway, Engine]:
    """As ``gateway.main`` puts it together, with everything that runs beside the sessions."""
    records, tasks, runtime, deadlines = SqliteRecords(path / "records.sqlite"), Tasks(), Engine(clock), Deadlines(clock)
    await records.open()
    limits = replace(Limits(), interrupt_grace_s=0.3, kill_grace_s=0.3)
    profile = Profile(TIER, TIER, "runc", IMAGE, TIER, limits, Lifetimes(idle_s=IDLE_S, max_s=86400.0, warn_before_s=(WARN_S,), drain_grace_s=0.5))
    instance = await records.instance_id()
    epoch = await records.acquire_lease("bench", clock.now(), LEASE_TTL_S)
    sandboxes = Sandboxes(runtime, records, clock, tasks, instance=instance, epoch=epoch, images={TIER: IMAGE})
    pool = Pool(sandboxes, records, clock, tasks, profiles={TIER: profile}, warm_profiles=[TIER], target=0, max_live=MOST)
    caps = Caps(sessions_a_user=MOST, live_sandboxes_a_user=MOST)
    world = World(clock, records, MemoryStore(), tasks, deadlines, sandboxes, pool, {TIER: profile}, path / "journals", caps)
    gateway = Gateway(world, default_profile=TIER, problems={})
    adoption = Adoption(gateway, instance)
    await adoption.load()
    await adoption.run()
    Monitor(gateway, adoption, instance, "bench", lambda: None).start()
    if isinstance(clock, ManualClock):
        clock.on_advance(deadlines.run_due)
    return gateway, runtime


class _Names:
    def verify(self, token: str) -> Principal:
        return Principal(token, "bench", expires_at=time.time() + 86400)


def _figures() -> dict[str, int]:
    gc.collect()
    pid = os.getpid()
    return {"rss": rss(pid), "descriptors": descriptors(pid), "tasks": len(asyncio.all_tasks()), "objects": len(gc.get_objects())}


async def serving(path: Path) -> None:
    clock = SystemClock()
    gateway, _ = await boot(path, clock)
    deps = Deps(_Names(), cast(Any, None), clock, web_dir=path, tasks=gateway.world.tasks)
    sockets, port = bind("127.0.0.1", 0)
    deps.url = deps.frame_url = f"http://127.0.0.1:{port}"
    serve(make_app(gateway, deps), sockets, body_limit(deps))
    print(json.dumps({"url": deps.url}), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(_figures()), flush=True)


class _NoRecords:
    async def put_sandbox(self, row: SandboxRow) -> None: ...


async def bare(count: int) -> None:
    clock, tasks = SystemClock(), Tasks()
    runtime = Engine(clock)
    profile = Profile(TIER, TIER, "runc", IMAGE, TIER, Limits(), Lifetimes())
    sandboxes = Sandboxes(runtime, cast(Records, _NoRecords()), clock, tasks, instance="bench", epoch=1, images={TIER: IMAGE})
    seen = []
    for size in (20, count):
        for _ in range(size):
            sandbox = await sandboxes.create(profile)
            await sandbox.link.close()
        await asyncio.sleep(0.1)
        seen.append(_figures())
    print(json.dumps(seen), flush=True)


class Lag:
    """How late a timer of 5 ms is."""

    def __init__(self) -> None:
        self.phases: dict[str, dict[str, float]] = {}
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
        cuts = statistics.quantiles(late, n=100, method="inclusive") if len(late) > 1 else late * 99
        self.phases[name] = {"p50": cuts[49], "p99": cuts[98], "max": max(late), "seconds": seconds, "samples": len(late)}


async def sessions(path: Path, count: int) -> None:
    clock = ManualClock()
    gateway, runtime = await boot(path, clock)
    lag = Lag()

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
    clock.advance(max(0.0, IDLE_S - WARN_S - (clock.boottime() - begun) - 1))
    await phase("deadline: warned, at the pace of creation", asyncio.sleep(took + 2))
    clock.advance(max(0.0, IDLE_S - (clock.boottime() - begun) - 1))
    await phase("deadline: recycled, at the pace of creation", until(lambda: states("dormant") and not runtime.sandboxes))
    await phase("come back: an execution each", in_turns(come_back))
    clock.advance(IDLE_S - WARN_S + 1)
    await asyncio.sleep(2)
    lag.phase("warned, all at once", 2.0)
    clock.advance(IDLE_S)
    await phase("recycled, all at once", until(lambda: states("dormant") and not runtime.sandboxes))
    pacer.cancel()
    print(json.dumps({"phases": lag.phases, **_figures(), "task_failures": gateway.world.tasks.failures}), flush=True)


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="sandglass-bench-", ignore_cleanup_errors=True) as scratch:
        works = {
            "serve": lambda: serving(Path(scratch)), "bare": lambda: bare(int(sys.argv[2])),
            "sessions": lambda: sessions(Path(scratch), int(sys.argv[2])),
        }  # fmt: skip
        asyncio.run(works[sys.argv[1]]())


if __name__ == "__main__":
    main()
