"""What sandboxes use of their host, as the engine says: asked at most so often and so many at a time, never waited for long."""

from __future__ import annotations

import asyncio

from ..clock import iso
from ..errors import SandglassError
from ..ports import Clock, SandboxRuntime
from .tasks import Tasks

FRESH_S = 4.0
AT_ONCE = 4
WAIT_S = 1.0
Json = dict[str, object]


class Usage:
    """Figures of living sandboxes by engine id. One that was asked for and did not answer in time comes with the next look."""

    def __init__(self, runtime: SandboxRuntime, clock: Clock, tasks: Tasks) -> None:
        self._runtime = runtime
        self._clock = clock
        self._tasks = tasks
        self._known: dict[str, tuple[float, Json]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def of(self, engine_ids: list[str], living: set[str]) -> dict[str, Json]:
        """``{"memory_bytes", "cpu_s", "pids", "as_of"}`` of each where it is known. ``living``: the ids of others are forgotten."""
        for gone in self._known.keys() - living:
            del self._known[gone]
        now = self._clock.boottime()
        stale = [e for e in engine_ids if e not in self._known or now - self._known[e][0] > FRESH_S]
        for engine_id in stale:
            if engine_id not in self._asking:
                self._asking[engine_id] = self._tasks.spawn(self._ask(engine_id), "usage")
        if stale:
            await asyncio.wait([self._asking[e] for e in stale], timeout=WAIT_S)
        return {e: self._known[e][1] for e in engine_ids if e in self._known}

    async def _ask(self, engine_id: str) -> None:
        try:
            async with self._room:
                found = await self._runtime.stats(engine_id)
            self._known[engine_id] = (self._clock.boottime(), {**found, "as_of": iso(self._clock.now())} if found else {})
        except SandglassError:
            self._known.pop(engine_id, None)
        finally:
            del self._asking[engine_id]
