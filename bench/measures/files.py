"""A file of 200 MB up and down over REST, against a plain copy over the relay's stream."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Callable
from functools import partial

from ..lab import GATEWAY, RELAY, TUNED, Lab, alternate
from ..report import Figure
from ..subjects.relay import Relay
from ..subjects.web import Web

MB = 1_000_000


def _put(web: Web, data: bytes) -> float:
    """jupyter_server takes base64 in JSON, and its client has to make that; so the time includes it."""
    begun = time.perf_counter()
    if web.server.is_gateway:
        web.api.raw("PUT", f"/api/v1/sessions/{web.kernel_id}/files/bench.bin?overwrite=1", data)
    else:
        body = {"type": "file", "format": "base64", "content": base64.b64encode(data).decode()}
        web.api.raw("PUT", "/api/contents/bench.bin", json.dumps(body).encode())
    return len(data) / MB / (time.perf_counter() - begun)


def _get(web: Web, data: bytes) -> float:
    begun = time.perf_counter()
    path = f"/api/v1/sessions/{web.kernel_id}/files/in/bench.bin" if web.server.is_gateway else "/files/bench.bin"
    found = web.api.raw("GET", path)
    seconds = time.perf_counter() - begun
    if found != data:
        raise RuntimeError(f"{len(found)} bytes came back, and not the same")
    return len(data) / MB / seconds


async def _in_thread(work: Callable[[Web, bytes], float], web: Web, data: bytes) -> list[float]:
    return [await asyncio.to_thread(work, web, data)]


async def _plain(relay: Relay, what: str, data: bytes) -> list[float]:
    begun = time.perf_counter()
    if what == "up":
        await relay.put(data)
    elif await relay.get() != data:
        raise RuntimeError("other bytes came back")
    return [len(data) / MB / (time.perf_counter() - begun)]


async def updown(lab: Lab, profile: str) -> None:
    """A file up and down over REST, 200 MB, compared byte by byte"""
    found = await lab.subjects(profile, GATEWAY, RELAY, TUNED)
    relay, webs = found.pop(RELAY), found
    data = os.urandom(lab.size(200, 10) * MB)
    for what, work in (("up", _put), ("down", _get)):
        turns = {n: partial(_in_thread, work, w, data) for n, w in webs.items()}
        found = await alternate({GATEWAY: turns[GATEWAY], RELAY: partial(_plain, relay, what, data), TUNED: turns[TUNED]}, lab.rounds(5), 0.5)
        figures = {n: Figure.failed(v[-1]) if isinstance(v[-1], Exception) else Figure.of(v) for n, v in found.items()}
        lab.report.add(f"file of {len(data) // MB} MB {what}", profile, "MB/s", figures, ratio=(RELAY, ">=", 0.6))
