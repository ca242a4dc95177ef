"""Warm sandboxes: ready before they are asked for, claimed once, replaced when they are old or fail."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

from ..domain.model import Profile, SandboxState
from ..domain.pool import Backoff, deficit
from ..errors import CapacityExhausted, SandglassError, code_of
from ..ports import Clock, Records
from .link import SandboxLink
from .sandboxes import Sandbox, Sandboxes
from .tasks import Tasks

log = logging.getLogger("sandglass.pool")
MAX_AGE_S = 3600.0
UNCLAIMED = "unclaimed"
"""Among the end reasons in figures: of a sandbox that no session got to use (old, lost, too late, or left at the stop)."""
Json = dict[str, Any]


class Pool:
    """``obtain`` gives each sandbox once. What it gave never comes back to it."""

    def __init__(
        self, sandboxes: Sandboxes, records: Records, clock: Clock, tasks: Tasks, *, profiles: dict[str, Profile],
        warm_profiles: Iterable[str], target: int, max_live: int, parallel: int = 2,
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
        self._slots = asyncio.Semaphore(parallel)
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
                sandbox.row.state = SandboxState.CLAIMED
                return sandbox
            self._discard(sandbox)
        return None

    async def obtain(self, profile: str) -> Sandbox:
        """A claimed sandbox, warm or made now. Raises CapacityExhausted, EngineUnavailable, ImageUnavailable, ..."""
        if self.live >= self._max_live:
            self._tally.pool_failures[profile, "claim", CapacityExhausted.code] += 1
            raise CapacityExhausted(f"All {self._max_live} sandboxes of this gateway are in use.")
        self.live += 1
        self.claims += 1
        try:
            sandbox, kind = self.claim_nowait(profile), "warm"
            if sandbox is not None:
                self.hits += 1
            else:
                # a waiting person goes before the pool's own refill: no semaphore here
                kind = "cold"
                sandbox = await self._sandboxes.create(self._profiles[profile])
            sandbox.row.state, sandbox.row.claimed_at = SandboxState.CLAIMED, self._clock.now()
            self._tally.claims[profile, kind] += 1
            self.maintain()
            return sandbox
        except BaseException as error:
            self.live -= 1
            if isinstance(error, Exception):
                self._tally.pool_failures[profile, "claim", code_of(error)] += 1
            raise

    def released(self) -> None:
        """A claimed sandbox is destroyed (or was adopted elsewhere)."""
        self.live -= 1
        self.maintain()

    def maintain(self) -> None:
        """Create what is missing, within the caps."""
        if self._closed:
            return
        now = self._clock.boottime()
        for name in self._warmed:
            for sandbox in [s for s in self._warm[name] if s.link.lost or self._clock.now() - s.row.created_at > MAX_AGE_S]:
                self._warm[name].remove(sandbox)
                self._discard(sandbox)
            held = self.live + sum(map(len, self._warm.values())) + sum(self._creating.values())
            missing = deficit(self._target, len(self._warm[name]), self._creating[name], held, self._max_live)
            wait = self._backoff[name].wait_s(now)
            if missing and wait > 0:
                self._later(wait)
                continue
            for _ in range(missing):
                self._creating[name] += 1
                self._tasks.spawn(self._fill(name), f"pool-{name}")

    def warm(self, profiles: Iterable[str]) -> None:
        """Keep these profiles warm from now on (an engine that was absent has come up)."""
        self._warmed = set(profiles)
        self.maintain()

    def _later(self, wait: float) -> None:
        if self._retry is None or self._retry.cancelled() or self._retry.when() < asyncio.get_running_loop().time():
            self._retry = asyncio.get_running_loop().call_later(wait, self.maintain)

    async def _fill(self, name: str) -> None:
        try:
            async with self._slots:
                if self._closed:
                    return
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
                self._discard(sandbox)
            else:
                sandbox.link.on_lost = lambda error: self.maintain()
                self._warm[name].append(sandbox)
        finally:
            self._creating[name] -= 1
            self._later(self._backoff[name].wait_s(self._clock.boottime()) or 0.05)

    def _discard(self, sandbox: Sandbox) -> None:
        self._tasks.spawn(self._drop(sandbox), f"pool-drop-{sandbox.sandbox_id[:8]}")

    async def _drop(self, sandbox: Sandbox) -> None:
        self._tally.sandboxes_ended[sandbox.profile.name, UNCLAIMED] += 1
        await sandbox.link.close()
        await self._sandboxes.destroy(sandbox.row)

    def links(self) -> list[SandboxLink]:
        return [s.link for warm in self._warm.values() for s in warm]

    async def close(self) -> None:
        """Stop filling and remove the warm ones."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        drops = [self._drop(s) for warm in self._warm.values() for s in warm]
        for warm in self._warm.values():
            warm.clear()
        await asyncio.gather(*drops, return_exceptions=True)

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
