"""Small executions: round trip, what a thousand of them cost in processor time, and eight kernels at once."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from ..client import Seen
from ..lab import BARE, GATEWAY, INSIDE, PEER, RELAY, SHARED, TUNED, Lab, alternate
from ..proc import Engine, cpu_s, family, parents
from ..report import Figure
from ..subjects.web import Web


def figures(found: dict[str, list[Any]], scale: float = 1e3) -> dict[str, Figure]:
    """Of the seconds of ``Seen``; what did not finish is told."""
    made = {}
    for name, seen in found.items():
        if seen and isinstance(seen[-1], Exception):
            made[name] = Figure.failed(seen[-1])
            continue
        bad = sum(not s.finished for s in seen)
        made[name] = Figure.of([s.seconds * scale for s in seen if s.finished], f"{bad} of {len(seen)} did not finish" if bad else "")
    return made


async def roundtrip(lab: Lab, profile: str) -> None:
    """`pass`: from sending the request to having both its reply and its idle"""
    subjects = await lab.subjects(profile, GATEWAY, INSIDE, SHARED, RELAY, BARE, PEER, TUNED)
    count = lab.size(40, 10)

    async def turn(name: str) -> list[Seen]:
        # what a client inside made the shared kernel say waits at the gateway's websocket: taken off before it counts
        await subjects[name].runs("pass", 3)
        found: list[Seen] = await subjects[name].runs("pass", count)
        return found

    found = await alternate({name: partial(turn, name) for name in subjects}, lab.rounds(10))
    lab.report.add("execute `pass`", profile, "ms", figures(found), over=(INSIDE, 0.5))


async def cpu(lab: Lab, profile: str) -> None:
    """Processor time of 1,000 executions: the server's, and beside it the engine's, the shim's and the sandbox's"""
    subjects = await lab.subjects(profile, GATEWAY, TUNED)
    count = lab.size(500, 50)
    gateway, peer = subjects[GATEWAY], subjects[TUNED]
    engine = Engine(lab.docker_host, f"sandglass-{gateway.sandbox_id()}")
    spent: dict[str, list[float]] = {GATEWAY: [], TUNED: []}

    def peers() -> dict[str, float]:
        return {"the peer's kernels": sum(map(cpu_s, family(peer.server.pid, parents())[1:]))}

    for _ in range(lab.rounds(6)):
        for name, subject in ((GATEWAY, gateway), (TUNED, peer)):
            beside = engine.cpu if name == GATEWAY else peers
            before, old = beside(), cpu_s(subject.server.pid)
            await subject.runs("pass", count)
            spent[name].append((cpu_s(subject.server.pid) - old) * 1000 / count)
            for part, value in beside().items():
                spent.setdefault(part, []).append((value - before.get(part, value)) * 1000 / count)
    rows = {name: Figure.of(values) for name, values in spent.items()}
    lab.report.add("processor time of 1,000 executions", profile, "s", rows, compare=(TUNED,), ratio=(TUNED, "<=", 0.6))


async def eight(lab: Lab, profile: str) -> None:
    """Eight kernels at once: executions per second in total"""
    kernels, seconds = 8, lab.size(5, 1)
    servers = {GATEWAY: lab.gateway(), TUNED: lab.tuned(), PEER: lab.peer()}
    held: dict[str, list[Web]] = {name: [] for name in servers}

    async def turn(name: str) -> list[float]:
        until, done = time.perf_counter() + seconds, 0

        async def drive(web: Web) -> None:
            nonlocal done
            while time.perf_counter() < until:
                seen = await web.run("pass")
                done += seen.finished  # not in one statement: the others add meanwhile

        begun = time.perf_counter()
        await asyncio.gather(*(drive(web) for web in held[name]))
        return [done / (time.perf_counter() - begun)]

    try:
        for name, server in servers.items():
            for _ in range(kernels):
                held[name].append(await lab.fresh(server, profile))
        await lab.settled(profile)
        for name in servers:
            await turn(name)  # not counted: the first cells of a kernel take longer
        found = await alternate({name: partial(turn, name) for name in servers}, lab.rounds(5), 0.2)
    finally:
        for web in [web for some in held.values() for web in some]:
            await web.close()
    rows = {name: Figure.of([v for v in values if isinstance(v, float)]) for name, values in found.items()}
    lab.report.add(f"{kernels} kernels at once", profile, "executions/s", rows, ratio=(TUNED, ">=", 1.0))
