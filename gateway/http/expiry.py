"""A timer for the moment at which a token expires, by the wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..ports import Clock

LONGEST_S = 3600.0
"""The loop's timers stand still while the machine sleeps; looking once in a while keeps them honest."""


class Expiry:
    """Calls ``then`` once, when ``at`` (seconds since the epoch; 0 = never) has passed."""

    def __init__(self, clock: Clock, at: float, then: Callable[[], None]) -> None:
        self._clock = clock
        self._at = at
        self._then = then
        self._handle: asyncio.TimerHandle | None = None
        if at:
            self._arm()

    def _arm(self) -> None:
        delay = min(max(self._at - self._clock.now(), 0.0), LONGEST_S)
        self._handle = asyncio.get_running_loop().call_later(delay, self._fired)

    def _fired(self) -> None:
        self._handle = None
        if self._clock.now() >= self._at:
            self._then()
        else:
            self._arm()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
