"""Warm sandboxes: ready before they are asked for, claimed once, replaced when they are old or fail."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ..domain.model import Profile
from ..domain.pool import Backoff, Rate, Stock, plan, to_evict
from ..errors import CapacityExhausted, SandglassError, code_of
from ..ports import Clock, Records
from .link import SandboxLink
from .sandboxes import Sandbox, Sandboxes
from .tasks import Tasks

log = logging.getLogger("sandglass.pool")
CLOSE_S = 20.0
REFILL_AFTER_S = 0.75
"""A claim is followed by somebody's first cell: making the next sandbox does not compete with it."""
COLD_AT_ONCE = 8
"""Sandboxes of a profile that are made for somebody who waits. The others come one after the other: made all at once they would all be
late, and so would every other session's messages."""
UNCLAIMED = "unclaimed"
"""Among the end reasons in figures: of a sandbox that no session got to use (old, lost, too late, or left at the stop)."""
Json = dict[str, Any]


class Pool:
    """``obtain`` gives each sandbox once. What it gave never comes back to it."""

    def __init__(
        self, sandboxes: Sandboxes, records: Records, clock: Clock, tasks: Tasks, *, profiles: dict[str, Profile],
        warm_profiles: Iterable[str], target: int, max_live: int, parallel: int = 1,
    ) -> None:  # fmt: skip
        """``target``: warm ones kept a profile; ``max_live``: all sandboxes of this gateway; ``parallel``: creations at once."""
        self._sandboxes = sandboxes
        self._records = records
        self._clock = clock
        self._tasks = tasks
        self._profiles = profiles
        self._target = target
        self._warmed = set(warm_profiles)
        self._max_live = max_live
        self._warm: dict[str, deque[Sandbox]] = {name: deque() for name in profiles}
        self._creating = dict.fromkeys(profiles, 0)
        self._backoff = {name: Backoff() for name in profiles}
        self._parallel = parallel
        self._cold = {name: asyncio.Semaphore(COLD_AT_ONCE) for name in profiles}
        self._fills: set[asyncio.Task[Any]] = set()
        self._rate = Rate()
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        self.live = 0
        """Sandboxes claimed and not yet destroyed."""
        self.claims = self.hits = 0
        self.last_problem: dict[str, str] = {}
        self._tally = sandboxes.tally

    def has_warm(self, profile: str) -> bool:
        return any(s.link.lost is None for s in self._warm[profile])

    def claim_nowait(self, profile: str) -> Sandbox | None:
        """A warm one, or None. No await: two callers can never get the same."""
        warm = self._warm[profile]
        while warm:
            sandbox = warm.popleft()
            if sandbox.link.lost is None:
                self._sandboxes.claim(sandbox)
                return sandbox
            self._discard(sandbox)
        return None

    async def obtain(self, profile: str) -> Sandbox:
        """A claimed sandbox, warm or made now. Raises CapacityExhausted, EngineUnavailable, ImageUnavailable, ..."""
        if self.live >= self._max_live:
            self._tally.pool_failures[profile, "claim", CapacityExhausted.code] += 1
            raise CapacityExhausted(f"All {self._max_live} sandboxes of this gateway are in use.")
        self.live += 1
        try:
            return await self._obtain(profile, self._make_room)
        except BaseException:
            self.live -= 1
            raise

    async def lend(self, profile: str) -> Sandbox:
        """The same for work of the gateway's own (``disposable``, which bounds how many): beyond ``max_live``, and never ``released``."""
        return await self._obtain(profile, lambda: None)

    async def _obtain(self, profile: str, make_room: Callable[[], None]) -> Sandbox:
        self.claims += 1
        try:
            sandbox, kind = self.claim_nowait(profile), "warm"
            if sandbox is not None:
                self.hits += 1
            else:
                sandbox, kind = await self._made_or_warm(profile, make_room)
        except Exception as error:
            self._tally.pool_failures[profile, "claim", code_of(error)] += 1
            raise
        self._tally.claims[profile, kind] += 1
        self._later(REFILL_AFTER_S)
        return sandbox

    async def _made_or_warm(self, profile: str, make_room: Callable[[], None]) -> tuple[Sandbox, str]:
        """A claimed one, and its kind. A waiting person goes before the pool's own refill, whatever that has in flight."""
        async with self._cold[profile]:
            sandbox = self.claim_nowait(profile)
            if sandbox is not None:  # it became ready while others went first
                self.hits += 1
                return sandbox, "warm"
            make_room()
            sandbox = await self._sandboxes.create(self._profiles[profile])
            self._sandboxes.claim(sandbox)
            return sandbox, "cold"

    def released(self) -> None:
        """A claimed sandbox is destroyed (or was adopted elsewhere)."""
        self.live -= 1
        self.maintain()

    def _stocks(self) -> dict[str, Stock]:
        now = self._clock.boottime()
        return {
            name: Stock(self.target(name), tuple(now - s.ready_at for s in warm), self._creating[name], self._backoff[name].wait_s(now))
            for name, warm in self._warm.items()
        }

    def maintain(self) -> None:
        """Retire what is lost or aged, create what is missing, within the caps."""
        if self._closed:
            return
        for warm in self._warm.values():
            for sandbox in [s for s in warm if s.link.lost]:
                warm.remove(sandbox)
                self._discard(sandbox)
        now = self._clock.boottime()
        todo = plan(
            self._stocks(), live=self.live, max_live=self._max_live, parallel=self._parallel, allowed=self._rate.allowed(now),
            allowed_in_s=self._rate.wait_s(now),
        )  # fmt: skip
        for name, count in todo.retire.items():
            for _ in range(count):
                self._discard(self._warm[name].popleft())
        for name, count in todo.create.items():
            for _ in range(count):
                self._rate.take()
                self._creating[name] += 1
                fill = self._tasks.spawn(self._fill(name), f"pool-{name}")
                self._fills.add(fill)
                fill.add_done_callback(self._fills.discard)
        if todo.again_s is not None:
            self._later(todo.again_s)

    def _make_room(self) -> None:
        name = to_evict(self._stocks(), live=self.live - 1, max_live=self._max_live)
        if name is not None and self._warm[name]:
            self._discard(self._warm[name].popleft())

    def warm(self, profiles: Iterable[str]) -> None:
        """Keep these profiles warm from now on (an engine that was absent has come up)."""
        self._warmed = set(profiles)
        self.maintain()

    def _later(self, wait: float) -> None:
        """Look again then, or earlier if that is planned already."""
        loop = asyncio.get_running_loop()
        due = loop.time() + wait
        if self._retry is not None and not self._retry.cancelled() and loop.time() < self._retry.when() <= due:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._retry = loop.call_at(due, self.maintain)

    async def _fill(self, name: str) -> None:
        try:
            sandbox = await self._sandboxes.create(self._profiles[name], warm=True)
        except SandglassError as error:
            self._backoff[name].failed(self._clock.boottime())
            self.last_problem[name] = error.code
            self._tally.pool_failures[name, "fill", error.code] += 1
            log.warning("the pool could not be filled", extra={"profile": name, "why": error.code, "detail": error.detail})
        else:
            self._backoff[name].succeeded()
            self.last_problem.pop(name, None)
            if self._closed:
                await self._drop(sandbox)
            else:
                sandbox.link.on_lost = lambda error: self.maintain()
                self._warm[name].append(sandbox)
        finally:
            self._creating[name] -= 1
            self._later(0.0)

    def _discard(self, sandbox: Sandbox) -> None:
        self._tasks.spawn(self._drop(sandbox), f"pool-drop-{sandbox.sandbox_id[:8]}")

    async def _drop(self, sandbox: Sandbox) -> None:
        self._tally.sandboxes_ended[sandbox.profile.name, UNCLAIMED] += 1
        await sandbox.link.close()
        await self._sandboxes.destroy(sandbox.row)

    def links(self) -> list[SandboxLink]:
        return [s.link for warm in self._warm.values() for s in warm]

    async def close(self) -> None:
        """Stop filling and remove the warm ones; those that are being made, too, as soon as they are."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        drops = [self._drop(s) for warm in self._warm.values() for s in warm]
        for warm in self._warm.values():
            warm.clear()
        await asyncio.gather(*drops, return_exceptions=True)
        if self._fills:
            await asyncio.wait(self._fills, timeout=CLOSE_S)

    @property
    def max_live(self) -> int:
        return self._max_live

    def target(self, profile: str) -> int:
        return self._target if profile in self._warmed else 0

    def statistics(self) -> Json:
        return {
            "warm": {name: len(warm) for name, warm in self._warm.items()},
            "creating": dict(self._creating), "live": self.live, "claims": self.claims, "hits": self.hits,
            "problems": dict(self.last_problem),
        }  # fmt: skip
