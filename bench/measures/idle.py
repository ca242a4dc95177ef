"""What a sandbox costs while it does nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import docker

from gateway.backends.docker import usage_of

from ..lab import GATEWAY, Lab
from ..proc import Engine, cpu_s, pss, rss
from ..report import Figure

MIB = 2**20


async def sandbox(lab: Lab, profile: str) -> None:
    """Memory and processor time of an idle sandbox, and how many fit in a GiB"""
    client = docker.APIClient(base_url=lab.docker_host, version="auto")
    found: dict[str, list[float]] = {}
    parts: dict[str, list[float]] = {}
    busy: list[float] = []
    wait_s = lab.size(10, 2)
    webs = [await lab.fresh(lab.gateway(), profile) for _ in range(lab.size(4, 1))]
    try:
        await lab.settled(profile)
        await asyncio.sleep(lab.size(5, 1))
        engines = [Engine(lab.docker_host, f"sandglass-{web.sandbox_id()}") for web in webs]
        before = [sum(map(cpu_s, [*e.sandbox(), e.shim])) for e in engines]
        await asyncio.sleep(wait_s)
        for engine, old in zip(engines, before, strict=True):
            pids = engine.sandbox()
            busy.append((sum(map(cpu_s, [*pids, engine.shim])) - old) / wait_s * 1000)
            stats: Any = client.stats(engine.engine_id, stream=False, one_shot=True)
            for name, value in (("cgroup", usage_of(stats).get("memory_bytes", 0)), ("cgroup, all", _charged(stats)),
                                ("PSS of its processes", sum(map(pss, pids))), ("RSS of its processes", sum(map(rss, pids))),
                                ("shim (RSS)", rss(engine.shim))):  # fmt: skip
                if value:
                    found.setdefault(name, []).append(value / MIB)
            for pid in pids:
                parts.setdefault(f"{engine.part(pid)} (PSS)", []).append(pss(pid) / MIB)
    finally:
        client.close()
        for web in webs:
            await web.close()
    lab.report.add("memory of an idle sandbox", profile, "MiB", {n: Figure.of(v) for n, v in (found | parts).items()}, compare=())
    fit = [1024 / (memory + shim) for memory, shim in zip(found.get("PSS of its processes", []), found.get("shim (RSS)", []), strict=True)]
    in_cgroup = [1024 / memory for memory in found.get("cgroup", [])]
    row = {"by PSS and the shim's RSS": Figure.of(fit), "by cgroup": Figure.of(in_cgroup)}
    lab.report.add("idle sessions in a GiB", profile, "sessions", row, compare=())
    lab.report.add("processor time of an idle sandbox", profile, "ms/s", {GATEWAY: Figure.of(busy)})


def _charged(stats: Any) -> float:
    return float((stats.get("memory_stats") or {}).get("usage", 0))


