"""What the gateway itself costs, on a fake engine in a process of its own (``bench/fake.py``)."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from typing import Any

from ..client import Socket
from ..lab import GATEWAY, Lab
from ..processes import ROOT, Server
from ..report import Figure
from ..subjects.web import Api

KB = 1024


async def _start(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.fake", *arguments, cwd=ROOT, stdin=pipe, stdout=pipe)


async def _line(process: asyncio.subprocess.Process, ask: bool = False) -> Any:
    assert process.stdin is not None and process.stdout is not None
    if ask:
        process.stdin.write(b"\n")
    line = await asyncio.wait_for(process.stdout.readline(), 1800)
    if not line:
        raise RuntimeError("the gateway on the fake engine ended")
    return json.loads(line)


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), 20)
    except TimeoutError:
        process.kill()
        await process.wait()


async def memory(lab: Lab, _: str) -> None:
    """Gateway memory, descriptors and tasks of an idle session with one attachment (a websocket that has seen one execution)"""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = lab.size(500, 40)
    per: dict[str, list[float]] = {}
    for _round in range(lab.size(3, 1)):
        process = await _start("bare", str(count))
        first, last = await _line(process)
        await _end(process)
        fakes = (last["rss"] - first["rss"]) / count
        process = await _start("serve")
        sockets: list[Socket] = []
        try:
            url = (await _line(process))["url"]
            await _attach(url, 20, sockets)
            first = await _line(process, ask=True)
            await _attach(url, count, sockets)
            await asyncio.sleep(1.0)
            last = await _line(process, ask=True)
        finally:
            for socket in sockets:
                socket.close()
            await _end(process)
        per.setdefault("memory", []).append(((last["rss"] - first["rss"]) / count - fakes) / KB)
        per.setdefault("fake engine", []).append(fakes / KB)
        for name in ("descriptors", "tasks"):
            per.setdefault(name, []).append((last[name] - first[name]) / count)
    row = {GATEWAY: Figure.of(per["memory"]), "fake engine's share (taken off)": Figure.of(per["fake engine"])}
    lab.report.add(f"gateway memory per idle session, of {count}", "", "KB", row, under=100, compare=())
    lab.report.add("the same", "", "per session", {name: Figure.of(per[name]) for name in ("descriptors", "tasks")}, compare=())


async def _attach(url: str, count: int, sockets: list[Socket]) -> None:
    for n in range(count):
        server = Server(GATEWAY, url, f"user{n}", 0, run={"fake": True})
        kernel_id = await asyncio.to_thread(lambda server=server: Api(server).call("POST", "/api/kernels", {})["id"])  # type: ignore[misc]
        socket = await Socket.open(url, server.token, kernel_id)
        await socket.execute("print:hello")
        sockets.append(socket)


async def sessions(lab: Lab, _: str) -> None:
    """10,000 sessions: how late loop and deadlines are while they are created, warned, recycled, come back, all recycled at once"""
    count = lab.size(10_000, 300)
    process = await _start("sessions", str(count))
    try:
        found = await _line(process)
    finally:
        await _end(process)
    for name, phase in found["phases"].items():
        row = {f"p{part}" if part != "max" else part: Figure.of([phase[key]]) for part, key in (("99", "p99"), ("50", "p50"), ("max", "max"))}
        row["seconds it took"] = Figure.of([phase["seconds"]])
        lab.report.add(f"{count:,} sessions, {name}: event loop late by", "", "ms", row, under=50, compare=())
    for name, phase in found["deadlines"].items():
        row = {part: Figure.of([phase[key]]) for part, key in (("latest", "max"), ("p99", "p99"), ("p50", "p50"))}
        # when all fall due in one moment they take turns with what follows from each
        under = 250 if name.startswith("deadline") else None
        lab.report.add(f"{count:,} sessions, {name}: deadlines fire late by", "", "ms", row, under=under, compare=())
    if found["task_failures"]:
        raise RuntimeError(f"{found['task_failures']} tasks of the gateway failed")
