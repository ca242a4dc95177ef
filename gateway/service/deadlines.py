"""Deadlines in boot time: one heap, one loop timer, looked at again when it fires.

The loop's own clock stands still while the machine sleeps, so no single wait is longer than ``MAX_WAIT_S``; what is due is
always decided by boot time.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Hashable

from ..ports import Clock

log = logging.getLogger("sandglass.deadlines")
MAX_WAIT_S = 20.0
TURN_S = 0.005
"""So long a turn of the loop may take: thousands that are due together (the machine slept) go in many turns, messages in between."""


class Deadlines:
    """``arm(key, at, call)`` replaces what was armed under ``key``; ``disarm`` forgets it. Calls run on the loop."""

    def __init__(self, clock: Clock, late: Callable[[float], None] = lambda seconds: None) -> None:
        """``late`` is told by how many seconds each was late when its call began."""
        self._clock = clock
        self._late = late
        self._heap: list[tuple[float, int, Hashable]] = []
        self._armed: dict[Hashable, tuple[float, int, Callable[[], None]]] = {}
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, key: Hashable, at: float, call: Callable[[], None]) -> None:
        """``at``: boot time, seconds."""
        current = self._armed.get(key)
        if current is not None and current[0] == at:
            self._armed[key] = (at, current[1], call)
            return
        self._serial += 1
        self._armed[key] = (at, self._serial, call)
        heapq.heappush(self._heap, (at, self._serial, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._armed):
            self._heap = [(at, serial, key) for key, (at, serial, _) in self._armed.items()]
            heapq.heapify(self._heap)
        self._schedule()

    def disarm(self, key: Hashable) -> None:
        self._armed.pop(key, None)

    def after(self, key: Hashable, delay_s: float, call: Callable[[], None]) -> None:
        self.arm(key, self._clock.boottime() + delay_s, call)

    def none_within(self, seconds: float) -> bool:
        """True when the loop may stand still for so long and nothing is late for it."""
        return not self._heap or self._heap[0][0] > self._clock.boottime() + seconds

    def run_due(self) -> None:
        """Call everything that is due now (the loop timer does this; tests with a manual clock do it themselves)."""
        now = self._clock.boottime()
        loop = asyncio.get_running_loop()
        stop = loop.time() + TURN_S
        while self._heap and self._heap[0][0] <= now and loop.time() < stop:
            _, serial, key = heapq.heappop(self._heap)
            armed = self._armed.get(key)
            if armed is None or armed[1] != serial:
                continue
            del self._armed[key]
            self._late(self._clock.boottime() - armed[0])
            try:
                armed[2]()
            except Exception:
                # one session's defect must not stop everybody's clock
                log.exception("deadline failed", extra={"key": str(key)})
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            delay = min(max(self._heap[0][0] - self._clock.boottime(), 0.0), MAX_WAIT_S)
            self._timer = asyncio.get_running_loop().call_later(delay, self.run_due)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed.clear()
        self._heap.clear()
