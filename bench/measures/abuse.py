"""A neighbour beside each resource attack, to the same beside a pure CPU loop under equal limits; the gateway's memory in each output attack."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from typing import Any

from ..lab import GATEWAY, Lab
from ..proc import rss
from ..processes import Server
from ..report import Figure
from ..subjects.web import Web

LOOP = "while True: pass"
CPU = "beside a CPU loop"
WITHIN = 2.0
GROWTH_MB = 64.0
AGAIN = "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
RESOURCE = {
    "forks": AGAIN + "while True:\n  try:\n    if os.fork() == 0: os._exit(0)\n  except OSError: pass",
    "threads": "import threading\nwhile True:\n  try: threading.Thread(target=lambda: None).start()\n  except RuntimeError: pass",
    "memory": "while True:\n  b = bytearray(256 << 20)\n  for n in range(0, len(b), 4096): b[n] = 1",
    "shared memory": "while True:\n  with open('/dev/shm/x', 'wb') as f:\n    for _ in range(30): f.write(bytes(1 << 20))",
    "disk": "import os\nwhile True:\n"
    "  with open('/workspace/x', 'wb') as f:\n    for _ in range(100): f.write(bytes(1 << 20))\n  os.unlink('/workspace/x')",
    "inodes": "import os\nwhile True:\n  for n in range(5000): open(f'/tmp/n{n}', 'w').close()\n  for n in range(5000): os.unlink(f'/tmp/n{n}')",
    "descriptors": "import socket\nwhile True:\n  k = []\n  try:\n    while True: k.append(socket.socket(1))\n  except OSError: pass\n  del k",
    "system calls": "import os\nwhile True: os.stat('/workspace')",
    "native loops": AGAIN + "for _ in range(16):\n  if os.fork() == 0: sum(iter(int, 1))\nsum(iter(int, 1))",
}
OUTPUT = {
    "prints": "s = 'x' * 1_000_000\nwhile True: print(s, flush=True)",
    "short prints": "n = 0\nwhile True: print(n, flush=True); n += 1",
    "errors": "import sys\nwhile True: sys.stderr.write('e' * 100_000); sys.stderr.flush()",
    "displays": "from IPython.display import publish_display_data as p\nwhile True: p({'text/html': 'h' * 1_000_000})",
    "updates": "from IPython.display import display, clear_output\n"
    "h = display('a', display_id=True)\nwhile True: h.update('u' * 10_000); clear_output()",
    "comms": "from comm import create_comm\nc = create_comm(target_name='x')\nwhile True: c.send({'d': 'c' * 10_000}, buffers=[b'b' * 10_000])",
    "one message": "while True: print('m' * 60_000_000, flush=True)",
    "a traceback": "raise ValueError('v' * 60_000_000)",
    "a result": "class R:\n  def __repr__(self): return 'r' * 50_000_000\nR()",
}


async def _times(other: Web, seconds: float) -> list[float]:
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 5:
        times.append((await other.run("sum(range(20000))")).seconds * 1e3)
    return times


async def _beside(lab: Lab, server: Server, profile: str, other: Web, code: str, seconds: float) -> tuple[float, float]:
    """The neighbour's p95 beside this code in a sandbox of its own, and by how many MB the gateway grew meanwhile."""
    loud = await lab.fresh(server, profile)
    await lab.settled(profile, server)
    before, worst = rss(server.pid), 0
    path = f"/api/v1/sessions/{loud.kernel_id}/executions"
    try:
        made: Any = await asyncio.to_thread(loud.api.call, "POST", path, {"code": code, "timeout_s": 120})
        await asyncio.sleep(0.5)
        measuring = asyncio.ensure_future(_times(other, seconds))
        while not measuring.done():
            worst = max(worst, rss(server.pid) - before)
            await asyncio.wait([measuring], timeout=0.02)
        times = measuring.result()
        with contextlib.suppress(Exception):
            await asyncio.to_thread(loud.api.call, "DELETE", f"{path}/{made['execution_id']}")
    finally:
        await loud.close()
    return statistics.quantiles(times, n=20)[-1], worst / 2**20


async def resources(lab: Lab, profile: str) -> None:
    """A neighbour's p95 beside each resource attack, each with a CPU loop right before it (aim: within 2x)"""
    server = lab.plain_gateway()
    other = await lab.fresh(server, profile)
    try:
        for name, code in RESOURCE.items():
            loop, attack = [], []
            for _ in range(lab.rounds(3)):
                loop.append((await _beside(lab, server, profile, other, LOOP, lab.size(4, 1)))[0])
                attack.append((await _beside(lab, server, profile, other, code, lab.size(4, 1)))[0])
            figures = {"beside it": Figure.of(attack), CPU: Figure.of(loop)}
            lab.report.add(f"neighbour's p95 beside an attack: {name}", profile, "ms", figures, ratio=(CPU, "<=", WITHIN))
    finally:
        await other.close()


async def outputs(lab: Lab, profile: str) -> None:
    """By how much the gateway's resident memory grows in each output attack (aim: under 64 MB)"""
    server = lab.plain_gateway()
    other = await lab.fresh(server, profile)
    try:
        for name, code in OUTPUT.items():
            grown = [(await _beside(lab, server, profile, other, code, lab.size(4, 1)))[1] for _ in range(lab.rounds(3))]
            lab.report.add(f"gateway memory grows, an output attack: {name}", profile, "MiB", {GATEWAY: Figure.of(grown)}, under=GROWTH_MB)
    finally:
        await other.close()
        lab.end_server("plain")
