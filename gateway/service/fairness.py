"""Watches the processor time of claimed sandboxes: shares it among tenants by weight, and tells admins who uses much for long."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain.fairness import FULL_WEIGHT, WORKING_CORES, Load, weights
from ..domain.model import NoticeKind
from ..domain.texts import duration
from ..errors import SandglassError
from .views import wall

if TYPE_CHECKING:
    from .gateway import Gateway
    from .live import LiveSession

log = logging.getLogger("sandglass.fairness")
Json = dict[str, Any]
LOOK_S = 10.0
AT_ONCE = 4


class CpuWatch:
    """``sustained_s``: after so long near its cap a sandbox is told of; 0: never."""

    def __init__(self, gateway: Gateway, sustained_s: float) -> None:
        self._gateway = gateway
        self._world = gateway.world
        self._sustained_s = sustained_s
        self._loads: dict[str, Load] = {}
        self._weights: dict[str, int] = {}
        self._told: set[str] = set()
        self._refused: set[str] = set()
        """Runtimes that take no weight for a running sandbox; said once."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """One look at all of them. An engine that does not answer costs this look and no more."""
        live = {s.sandbox.row.engine_id: s for s in self._gateway.live.values() if s.sandbox is not None}
        for session in self._gateway.live.values():
            if session.sandbox is None:
                session.cpu_sustained = None
        for gone in self._loads.keys() - live.keys():
            del self._loads[gone]
            self._weights.pop(gone, None)
            self._told.discard(gone)
        room = asyncio.Semaphore(AT_ONCE)

        async def ask(engine_id: str, session: LiveSession) -> None:
            async with room:
                try:
                    used = (await self._world.sandboxes.runtime.stats(engine_id)).get("cpu_s")
                except SandglassError:
                    return
            at = self._world.clock.boottime()
            if used is not None:
                before = self._loads.get(engine_id)
                self._loads[engine_id] = before.look(used, at, session.profile.limits.cpus) if before else Load(used, at)

        await asyncio.gather(*(ask(engine_id, session) for engine_id, session in live.items()))
        await self._share(live)
        for engine_id, session in live.items():
            await self._tell(engine_id, session)

    async def _share(self, live: dict[str, LiveSession]) -> None:
        working = {e: s.row.tenant for e, s in live.items() if e in self._loads and self._loads[e].cores >= WORKING_CORES}
        wanted = dict.fromkeys(live, FULL_WEIGHT) | weights(working)
        for engine_id, weight in wanted.items():
            runtime = live[engine_id].profile.runtime
            if self._weights.get(engine_id, FULL_WEIGHT) == weight or runtime in self._refused:
                continue
            try:
                await self._world.sandboxes.runtime.set_cpu_weight(engine_id, weight)
                self._weights[engine_id] = weight
            except SandglassError as error:
                if live[engine_id].sandbox is not None and (await self._runs(engine_id)):
                    log.warning("a sandbox's processor weight was not set", extra={"runtime": runtime, "why": error.detail})
                    self._refused.add(runtime)

    async def _runs(self, engine_id: str) -> bool:
        try:
            facts = await self._world.sandboxes.runtime.inspect(engine_id)
        except SandglassError:
            return False
        return facts is not None and facts.running

    async def _tell(self, engine_id: str, session: LiveSession) -> None:
        load = self._loads.get(engine_id)
        if load is None or not self._sustained_s:
            return
        if not load.sustained(self._sustained_s):
            session.cpu_sustained = None
            self._told.discard(engine_id)
            return
        since = wall(session, load.high_since)
        session.cpu_sustained = {"cores": round(load.cores, 2), "since": iso(since) if since else None}
        if engine_id in self._told:
            return
        self._told.add(engine_id)
        self._world.tally.cpu_sustained += 1
        log.warning("a sandbox uses much processor time for long", extra={"session": session.session_id, "cores": round(load.cores, 2)})
        text = f"This sandbox has used {load.cores:.1f} of its {session.profile.limits.cpus:g} processor cores "
        text += f"for {duration(self._sustained_s)} or longer. It goes on; administrators see this, too."
        body = {"text": text, "cores": round(load.cores, 2), "cap": session.profile.limits.cpus, "since": session.cpu_sustained["since"]}
        await session.telling.tell(NoticeKind.CPU_SUSTAINED, body)
