"""Many agents at a gateway that has sandboxes for few: each waits for its turn, works through its steps, and leaves."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import sandglass_client as sg

from gateway.config import Settings

from ..lab import GATEWAY, Lab
from ..proc import rss
from ..processes import Server
from ..report import Figure
from ..subjects.web import Api

LIVE = 8
PATIENCE_S = 1800.0
TTL_S = 4 * 3600.0


@dataclass
class Crowd:
    """What all of them saw. ``memory``: the gateway's, after each that was done."""

    steps: int = 0
    failed: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    live: int = 0


def tokens(server: Server, state: Path, count: int) -> list[str]:
    """Each agent is a user of its own, so that no user's cap stands before the gateway's."""
    auth = Settings.from_env({"SANDGLASS_STATE": str(state)}).auth
    return [auth.issue_dev_token(f"agent{n}", "bench", ["user"], TTL_S, time.time()) for n in range(count)]


async def _agent(name: str, server: Server, token: str, profile: str, steps: int, crowd: Crowd) -> None:
    try:
        async with sg.Sandglass(server.url, token, profile=profile, patience_s=PATIENCE_S) as s:
            for n in range(steps):
                code = "done = [0]\nlen(done)" if n == 0 else f"done.append({n})\nlen(done) if done == list(range({n + 1})) else done"
                r = await s.run(code, expect_generation=s.generation if n else None)
                if not r.ok:
                    raise RuntimeError(f"step {n}: {r.exit_reason} {r.error}")
                crowd.steps += 1
                if r.text != str(n + 1):
                    crowd.disordered.append(f"{name}: step {n} saw {r.text}")
    except Exception as error:
        crowd.failed.append(f"{name}: {type(error).__name__} {error}")
    crowd.memory.append(rss(server.pid))


async def _watch(api: Api, crowd: Crowd) -> None:
    while True:
        pool = (await asyncio.to_thread(api.call, "GET", "/healthz"))["checks"]["pool"]
        crowd.live = max(crowd.live, int(pool["live"]))
        await asyncio.sleep(0.5)


async def queue(lab: Lab, profile: str) -> None:
    """100 agents, 20 steps each, 8 sandboxes live: errors, order, steps a second, and the gateway's memory from a quarter on"""
    agents, steps = lab.size(100, 12), lab.size(20, 5)
    server = lab.small_gateway(LIVE)
    state = lab.state or Path(server.scratch.name if server.scratch else "")
    await lab.settled(profile, server)
    crowd = Crowd()
    watching = asyncio.create_task(_watch(Api(server), crowd))
    begun = time.perf_counter()
    try:
        held = tokens(server, state, agents)
        await asyncio.gather(*(_agent(f"agent{n}", server, token, profile, steps, crowd) for n, token in enumerate(held)))
        seconds = time.perf_counter() - begun
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        lab.end_server("small")
    for line in (*crowd.failed, *crowd.disordered)[:10]:
        print(f"    {line}", flush=True)
    what = f"{agents} agents, {steps} steps each, {LIVE} sandboxes"
    note = f"(at most {crowd.live} live, {crowd.steps} steps in {seconds:.0f} s)"
    lab.report.add(f"{what}: agents that failed", profile, "agents", {GATEWAY: Figure.of([float(len(crowd.failed))], note)}, under=1)
    lab.report.add(f"{what}: steps out of order", profile, "steps", {GATEWAY: Figure.of([float(len(crowd.disordered))])}, under=1)
    lab.report.add(f"{what}: steps a second", profile, "1/s", {GATEWAY: Figure.of([crowd.steps / seconds])})
    grown = (max(crowd.memory[agents // 4 :]) - crowd.memory[agents // 4 - 1]) / 2**20
    lab.report.add(f"{what}: gateway memory grows after the first quarter", profile, "MiB", {GATEWAY: Figure.of([grown])}, under=16)
