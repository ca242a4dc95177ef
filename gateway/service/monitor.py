"""Looks at what nobody asks for: the engine's events, silent sandboxes, processor time, orphans, the lease."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from ..domain.model import ExitReason
from ..errors import SandboxLost, SandglassError
from .adoption import Adoption
from .gateway import Gateway
from .runs import Run

log = logging.getLogger("sandglass.monitor")
PING_S = 15.0
PINGS = 20
MUTE_S = 60.0
CPU_S = 5.0
SWEEP_S = 300.0
LEASE_TTL_S = 30.0


class Monitor:
    def __init__(self, gateway: Gateway, adoption: Adoption, instance: str, owner: str, lost_lease: Callable[[], None]) -> None:
        """``lost_lease`` is called when another gateway owns the sandboxes now: this one must stop at once."""
        self._gateway = gateway
        self._world = gateway.world
        self._adoption = adoption
        self._instance = instance
        self._owner = owner
        self._lost_lease = lost_lease
        self._cpu: dict[Run, float] = {}

    def start(self) -> None:
        for name, run in (
            ("events", self._events()), ("pings", self._pings()), ("cpu", self._processor_time()), ("sweep", self._sweeps()),
            ("lease", self._lease()),
        ):  # fmt: skip
            self._world.tasks.spawn(run, f"monitor-{name}")

    async def _events(self) -> None:
        since = self._world.clock.now() - 5.0
        async for event in self._world.sandboxes.runtime.events(self._instance, since):
            if event.action == "oom":
                session = self._gateway.by_sandbox(event.sandbox_id)
                if session is not None:
                    session.mending.oom.set()
            elif event.action == "engine_up":
                await self._sweep()
                self._world.pool.maintain()

    async def _pings(self) -> None:
        """Every sandbox once in ``PING_S``, a few at a time: thousands at once would stop the loop, and answer all at once, too."""
        while True:
            links = [s.sandbox.link for s in self._gateway.live.values() if s.sandbox is not None]
            links += self._world.pool.links() + self._world.disposables.links()
            pause = PING_S / max(1, math.ceil(len(links) / PINGS))
            for some in (links[i : i + PINGS] for i in range(0, max(1, len(links)), PINGS)):
                await asyncio.sleep(pause)
                now = asyncio.get_running_loop().time()
                for link in some:
                    if link.lost is None and now - link.last_heard > MUTE_S:
                        link.give_up(SandboxLost("the sandbox is mute"))
                    elif link.lost is None:
                        link.ping()

    async def _processor_time(self) -> None:
        """The limit on processor time of one execution, measured by the engine."""
        while True:
            await asyncio.sleep(CPU_S)
            busy = [(s, run) for s in self._gateway.live.values() if (run := s.runs.running) is not None and s.sandbox is not None]
            for session, run in busy:
                assert session.sandbox is not None
                try:
                    used = (await self._world.sandboxes.runtime.stats(session.sandbox.row.engine_id)).get("cpu_s")
                except SandglassError:
                    continue
                if used is None:
                    continue
                before = self._cpu.setdefault(run, used)
                run.row.data["cpu_s"] = round(used - before, 2)
                if used - before > session.profile.limits.cpu_s and run.e.imposed is None and not run.done.is_set():
                    session.runs.limit_reached(run, ExitReason.CPU_LIMIT)
            running = {run for _, run in busy}
            self._cpu = {run: at for run, at in self._cpu.items() if run in running}

    async def _sweeps(self) -> None:
        await self._gateway.adopted.wait()
        while True:
            await asyncio.sleep(SWEEP_S)
            await self._sweep()

    async def _sweep(self) -> None:
        if self._gateway.adopted.is_set():
            try:
                await self._adoption.sweep()
            except SandglassError as error:
                log.warning("no sweep", extra={"why": error.detail})

    async def _lease(self) -> None:
        while True:
            await asyncio.sleep(LEASE_TTL_S / 3)
            try:
                if not await self._world.records.renew_lease(self._owner, self._world.clock.now(), LEASE_TTL_S):
                    log.critical("another gateway owns this instance now")
                    self._lost_lease()
                    return
            except SandglassError as error:
                log.error("the lease was not renewed", extra={"why": error.detail})
