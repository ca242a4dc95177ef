"""A neighbour beside a flood of output that nobody reads."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from ..lab import GATEWAY, Lab
from ..proc import rss
from ..report import Figure

LOADS = {"beside a CPU loop": "while True: pass", "beside a flood": "s = 'x' * 1000000\nwhile True: print(s, flush=True)"}


async def neighbour(lab: Lab, profile: str) -> None:
    """A neighbour's execution p95 beside an endless print, to the same beside a CPU loop; the gateway's memory meanwhile"""
    server = lab.plain_gateway()
    webs = {"loud": await lab.fresh(server, profile), "neighbour": await lab.fresh(server, profile)}
    loud, other = webs["loud"], webs["neighbour"]
    assert loud.socket is not None
    loud.socket.close()
    beside: dict[str, list[float]] = {name: [] for name in reversed(LOADS)}
    grown: list[float] = []
    path = f"/api/v1/sessions/{loud.kernel_id}/executions"
    try:
        await lab.settled(profile, server)
        memory = rss(server.pid)
        for _ in range(lab.rounds(4)):
            for label, code in LOADS.items():
                made: Any = await asyncio.to_thread(loud.api.call, "POST", path, {"code": code, "timeout_s": 120})
                await asyncio.sleep(0.5)
                times, worst = [], 0
                until = time.perf_counter() + lab.size(5, 1)
                while time.perf_counter() < until:
                    times.append((await other.run("sum(range(20000))")).seconds * 1e3)
                    worst = max(worst, rss(server.pid) - memory)
                beside[label].append(statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0])
                if label == "beside a flood":
                    grown.append(worst / 2**20)
                await asyncio.to_thread(loud.api.call, "DELETE", f"{path}/{made['execution_id']}")
                await asyncio.sleep(1.0)
    finally:
        for web in webs.values():
            await web.close()
        lab.end_server("plain")
    lab.report.add("neighbour's execution, p95 of each round", profile, "ms", {name: Figure.of(v) for name, v in beside.items()})
    lab.report.add("gateway memory grows during the flood", profile, "MiB", {GATEWAY: Figure.of(grown)})
