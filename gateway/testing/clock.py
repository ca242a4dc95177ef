"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ManualClock:
    """Wall and boot time in seconds. ``advance`` moves both; ``jump_wall`` only what people see; ``reboot`` starts boot time anew.

    Whoever keeps deadlines in loop time can be told: ``on_advance(deadlines.run_due)``.
    """

    def __init__(self, now: float = 1_800_000_000.0, boottime: float = 1000.0) -> None:
        self._now = now
        self._boottime = boottime
        self._boots = 1
        self._hooks: list[Callable[[], None]] = []
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def boottime(self) -> float:
        return self._boottime

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def advance(self, seconds: float) -> None:
        """Let time pass; wakes ``sleep_until`` and calls the hooks, in that order."""
        if seconds < 0:
            raise ValueError("time does not go backwards: use jump_wall")
        self._now += seconds
        self._boottime += seconds
        due = [item for item in self._sleepers if item[0] <= self._boottime]
        self._sleepers = [item for item in self._sleepers if item[0] > self._boottime]
        for _, sleeper in sorted(due, key=lambda item: item[0]):
            if not sleeper.done():
                sleeper.set_result(None)
        for hook in list(self._hooks):
            hook()

    async def advance_and_settle(self, seconds: float, rounds: int = 20) -> None:
        """``advance``, then let the loop do what follows from it."""
        self.advance(seconds)
        for _ in range(rounds):
            await asyncio.sleep(0)

    def jump_wall(self, seconds: float) -> None:
        """The administrator sets the clock; boot time goes on as before."""
        self._now += seconds

    def reboot(self, down_s: float = 60.0) -> None:
        """The machine comes up again: another boot id, boot time near zero, wall time went on."""
        self._now += down_s
        self._boottime = 10.0
        self._boots += 1

    def on_advance(self, hook: Callable[[], None]) -> None:
        self._hooks.append(hook)

    async def sleep_until(self, boottime: float) -> None:
        if boottime <= self._boottime:
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((boottime, sleeper))
        await sleeper
