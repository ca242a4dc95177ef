"""Large single messages: display data and comm buffers of 20 MB, and 100 MB of buffers into a kernel."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from ..client import Seen
from ..lab import GATEWAY, INSIDE, PEER, RELAY, TUNED, Lab, alternate
from ..report import Figure
from ..subjects.web import Web

MB = 1_000_000
TARGET = """
import comm
got = [0, 0]
def _opened(c, message):
    @c.on_msg
    def _(m):
        got[0] += 1
        got[1] += sum(len(b) for b in m['buffers'])
comm.get_comm_manager().register_target('bench', _opened)
"""


def _figures(found: dict[str, list[Any]], size: int) -> dict[str, Figure]:
    figures = {}
    for name, seen in found.items():
        if seen and isinstance(seen[-1], Exception):
            figures[name] = Figure.failed(seen[-1])
            continue
        whole = [s for s in seen if s.finished and s.payload >= size]
        note = f"{len(seen) - len(whole)} of {len(seen)} lost" if len(whole) < len(seen) else ""
        figures[name] = Figure.of([size / MB / s.seconds for s in whole], note)
    return figures


async def _outward(lab: Lab, profile: str, what: str, code: str, size: int) -> None:
    subjects = await lab.subjects(profile, GATEWAY, RELAY, INSIDE, TUNED, PEER)

    async def turn(subject: Any) -> list[Seen]:
        return [await subject.run(code)]

    found = await alternate({name: partial(turn, subject) for name, subject in subjects.items()}, lab.rounds(5), 0.5)
    lab.report.add(what, profile, "MB/s", _figures(found, size))


async def display(lab: Lab, profile: str) -> None:
    """20 MB of display data in one message"""
    n = lab.size(20, 5)
    code = f"from IPython.display import display\ndisplay({{'image/png': 'A' * {n * MB}}}, raw=True)"
    await _outward(lab, profile, f"display data of {n} MB", code, n * MB)


async def comm(lab: Lab, profile: str) -> None:
    """20 MB in the buffer of a comm message, out of the kernel"""
    n = lab.size(20, 5)
    code = f"import comm\nc = comm.create_comm(target_name='bench-none')\nc.send({{}}, buffers=[bytes({n * MB})])"
    await _outward(lab, profile, f"comm buffer of {n} MB", code, n * MB)


async def _send(web: Web, parts: int, size: int) -> list[Seen]:
    """Comm messages with one buffer each, until the kernel says that it has them all."""
    assert web.socket is not None
    await web.run(TARGET)
    comm_id = f"bench-{time.monotonic_ns()}"
    await web.socket.send("shell", "comm_open", {"comm_id": comm_id, "target_name": "bench", "data": {}})
    begun = time.perf_counter()
    for _ in range(parts):
        await web.socket.send("shell", "comm_msg", {"comm_id": comm_id, "data": {}}, [bytes(size)])
    seen = await web.run("print(*got)")
    seconds = time.perf_counter() - begun
    check = await web.run(f"assert got == [{parts}, {parts * size}], got\nprint('all')")
    return [Seen(seconds, payload=parts * size if check.text == 4 else 0, finished=seen.finished)]


async def inward(lab: Lab, profile: str) -> None:
    """100 MB into a kernel, as buffers of 1 MB each, and 20 MB in one"""
    webs = await lab.subjects(profile, GATEWAY, TUNED, PEER)
    for parts, size in ((lab.size(100, 10), MB), (1, lab.size(20, 5) * MB)):
        found = await alternate({n: partial(_send, w, parts, size) for n, w in webs.items()}, lab.rounds(5), 0.5)
        what = f"{parts} x {size // MB} MB" if parts > 1 else f"one of {size // MB} MB"
        lab.report.add(f"comm buffers into a kernel, {what}", profile, "MB/s", _figures(found, parts * size))
        for name, seen in found.items():
            if seen and isinstance(seen[-1], Exception):  # a server that refuses such a message closes the websocket
                await webs[name].attach()
