"""The service's rig with a clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.domain.model import Lifetimes, Limits
from gateway.domain.session_state import Session
from gateway.service.access import Access
from gateway.service.gateway import Gateway
from gateway.testing.clock import ManualClock
from gateway.testing.runtime import FakeRuntime

from .harness import ALICE, Rig

LIFE = Lifetimes(idle_s=1200.0, max_s=28_800.0, warn_before_s=(300.0,), drain_grace_s=30.0)


class ClockRig(Rig):
    """With a clock that stands still until ``pass_`` moves it."""

    clock: ManualClock  # type: ignore[assignment]

    def __init__(self, path: Path, **more: Any) -> None:
        super().__init__(path, lifetimes=LIFE, limits=replace(Limits(), interrupt_grace_s=0.3, kill_grace_s=0.3), **more)
        self.clock = ManualClock()
        self.runtime = FakeRuntime(self.clock)

    async def boot(self) -> Gateway:
        gateway = await super().boot()
        self.clock.on_advance(gateway.world.deadlines.run_due)
        return gateway

    async def pass_(self, seconds: float) -> None:
        await self.clock.advance_and_settle(seconds)

    async def again(self, access: Access, step_s: float, down_s: float = 10.0) -> Access:
        """``kill -9``, once what the session is stands in the records; the clock is set, another gateway."""
        await self.gateway.live[access.session_id].released()
        await self.kill()
        self.clock.jump_wall(step_s)
        self.clock.advance(down_s)
        found = await (await self.boot()).session(ALICE, access.session_id)
        assert isinstance(found, Access)
        return found

    def core(self, access: Access) -> Session:
        return self.gateway.live[access.session_id].core

    def left(self, access: Access) -> float:
        """Seconds to the maximum."""
        at = self.core(access).max_deadline
        assert at is not None
        return at - self.clock.boottime()

    async def to_a_second_before_the_maximum(self, access: Access) -> None:
        while (left := self.left(access) - 1) > 0:
            access.keep_alive()
            await self.pass_(min(1000.0, left))

    async def stays(self, access: Access, state: str) -> None:
        """Nothing that is under way changes it."""
        await asyncio.sleep(0.15)
        assert access.to_json()["state"] == state


@asynccontextmanager
async def clock_rig(path: Path, **more: Any) -> AsyncIterator[ClockRig]:
    made = ClockRig(path, **more)
    await made.boot()
    try:
        yield made
    finally:
        await made.kill()
