#!/usr/bin/env python3
"""Figures of this machine, side by side in one run: ``.venv/bin/python bench/run.py`` beside a gateway that serves.

Each row is a ratio or a difference against a plain client inside the same container, or against the same neighbour beside a pure
CPU loop; times in milliseconds, medians with the lower and upper quartile. ``--json FILE`` also writes them as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import docker  # noqa: E402

from bench.through import Api, Socket  # noqa: E402

Row = dict[str, Any]
ROUNDS = 6
PER_ROUND = 40


def quartiles(times: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(times, n=4)
    return low * 1e3, middle * 1e3, high * 1e3


def shown(times: list[float]) -> str:
    low, middle, high = quartiles(times)
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


class Bench:
    def __init__(self, run: Row, state: Path) -> None:
        token = subprocess.run(
            [str(Path(sys.executable).parent / "sandglass"), "token", "--user", "bench", "--tenant", "bench"],
            capture_output=True, text=True, check=True, env={**os.environ, "SANDGLASS_STATE": str(state)},
        ).stdout.strip()  # fmt: skip
        self.api = Api(run["url"], token)
        self.pid = int(run["pid"])
        self.engine = docker.APIClient(base_url=run["docker_host"], version="auto")
        self.rows: list[Row] = []

    def add(self, what: str, value: str, **figures: Any) -> None:
        self.rows.append({"what": what, "value": value, **figures})
        print(f"{what:<70} {value}", flush=True)

    def container_of(self, before: set[str]) -> Row:
        """The one container that runs now and is claimed by the newest session."""
        found = [c for c in self.engine.containers(filters={"label": "sandglass.instance"}) if c["Id"] not in before]
        return dict(sorted(found, key=lambda c: c["Created"])[-1])

    def inside(self, container: str, code: str, count: int) -> list[float]:
        info = self.engine.inspect_container(container)
        env = dict(item.split("=", 1) for item in info["Config"]["Env"])
        source = (ROOT / "bench" / "inside.py").read_text()
        made = self.engine.exec_create(
            container, ["/opt/kernel/bin/python", "-c", source, json.dumps({"code": code, "count": count})],
            user=f"{env['SANDGLASS_RELAY_UID']}:{env['SANDGLASS_GROUP_ID']}",
            environment={"HOME": "/tmp", "IPYTHONDIR": "/tmp/bench", "JUPYTER_RUNTIME_DIR": "/tmp/bench"},
        )  # fmt: skip
        out = self.engine.exec_start(made["Id"]).decode(errors="replace")
        return list(json.loads(out.strip().splitlines()[-1]))

    def rss(self) -> float:
        """Of the gateway, MB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    async def profile(self, name: str) -> None:
        before = {c["Id"] for c in self.engine.containers(filters={"label": "sandglass.instance"})}
        begun = time.perf_counter()
        session = self.api.session(name)
        start = time.perf_counter() - begun
        socket = await Socket.open(self.api, session)
        first = await socket.execute("1+1")
        self.add(f"{name}: request of a session -> first result", f"{(start + first) * 1e3:.0f} ms", ms=(start + first) * 1e3)
        container = await self._find(socket, before)
        through: list[float] = []
        direct: list[float] = []
        for _ in range(ROUNDS):
            through += [await socket.execute("pass") for _ in range(PER_ROUND)]
            direct += await asyncio.to_thread(self.inside, container, "pass", PER_ROUND)
        over = quartiles(through)[1] - quartiles(direct)[1]
        self.add(f"{name}: `pass` through the gateway, ms", shown(through))
        self.add(f"{name}: `pass` by a client inside the container, ms", shown(direct))
        self.add(f"{name}: the gateway adds", f"{over:+.2f} ms", ms=over)
        restarts: list[float] = []
        for _ in range(8):
            begun = time.perf_counter()
            await asyncio.to_thread(self.api.call, "POST", f"/api/kernels/{session}/restart", {})
            await socket.execute("1+1")
            restarts.append(time.perf_counter() - begun)
        self.add(f"{name}: kernel restart -> next result, ms", shown(restarts), ms=quartiles(restarts)[1])
        await self.flood(name, session)
        self.api.call("DELETE", f"/api/v1/sessions/{session}")

    async def _find(self, socket: Socket, before: set[str]) -> str:
        """The session's container: the one whose processor time grows while its cell spins."""
        names = [c["Id"] for c in self.engine.containers(filters={"label": "sandglass.instance"})]
        old = {n: self._cpu(n) for n in names}
        await socket.execute("import time\nt = time.time()\nwhile time.time() - t < 1.0: pass")
        return max(names, key=lambda n: self._cpu(n) - old[n] if old[n] else 0)

    def _cpu(self, container: str) -> int:
        try:
            stats = self.engine.stats(container, stream=False, one_shot=True)
        except docker.errors.NotFound:
            return 0  # one of the pool's, or of a session that has just ended
        return int(stats["cpu_stats"]["cpu_usage"].get("total_usage", 0))

    async def flood(self, name: str, session: str) -> None:
        """A cell prints 1 GB while nobody reads; a neighbour works. Against the same neighbour beside a pure CPU loop."""
        neighbour = self.api.session(name)
        socket = await Socket.open(self.api, neighbour)
        beside: dict[str, list[float]] = {}
        loads = {"a CPU loop": "while True: pass", "1 GB printed": "s = 'x' * 1000000\nwhile True: print(s, flush=True)"}
        memory = self.rss()
        worst = 0.0
        for _ in range(3):
            for label, code in loads.items():
                made = self.api.call("POST", f"/api/v1/sessions/{session}/executions", {"code": code, "timeout_s": 60})
                await asyncio.sleep(0.5)
                times = beside.setdefault(label, [])
                until = time.perf_counter() + 4.0
                while time.perf_counter() < until:
                    times.append(await socket.execute("sum(range(20000))"))
                    worst = max(worst, self.rss() - memory)
                self.api.call("DELETE", f"/api/v1/sessions/{session}/executions/{made['execution_id']}")
                await asyncio.sleep(1.0)
        p95 = {label: statistics.quantiles(times, n=20)[-1] for label, times in beside.items()}
        ratio = p95["1 GB printed"] / p95["a CPU loop"]
        self.add(f"{name}: neighbour's execute p95 beside a flood, to beside a CPU loop", f"{ratio:.2f}x", ratio=ratio)
        self.add(f"{name}: gateway memory grows during the flood", f"{worst:.1f} MB", mb=worst)
        self.api.call("DELETE", f"/api/v1/sessions/{neighbour}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", default=os.environ.get("SANDGLASS_STATE", ".sandglass"), help="the gateway's state directory")
    parser.add_argument("--json", help="write the figures here, too")
    parser.add_argument("--profile", action="append", help="only this one (may be repeated)")
    arguments = parser.parse_args()
    run = json.loads((Path(arguments.state) / "run.json").read_text())
    bench = Bench(run, Path(arguments.state))
    for profile in arguments.profile or run["profiles"]:
        asyncio.run(bench.profile(profile))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(bench.rows, indent=1))


if __name__ == "__main__":
    main()
