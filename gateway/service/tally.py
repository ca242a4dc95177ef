"""What happened so far, in plain numbers: counted where it happens, read by whoever shows it (``backends/metrics.py``).

Nothing here knows how it is shown, and nothing is named after a user, a tenant, a session or an execution: keys are words of
closed vocabularies. One count is one addition; what a kernel message passes through adds to an attribute and no more.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..errors import code_of
from ..ports import Clock

STARTS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
EXECUTIONS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0, 300.0, 900.0, 3600.0)
FILES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0)
LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
SAMPLE_S = 0.25
Words = tuple[str, ...]


class Histogram:
    """``counts``: how many fell between two bounds, the last one past all of them; not cumulative."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """A clock that was set back counts as no time at all."""
        value = max(value, 0.0)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Histograms(defaultdict[Words, Histogram]):
    """One a combination of words."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        super().__init__(lambda: Histogram(bounds))


class Tally:
    """One a gateway. The comment beside each says what the words of its keys are."""

    def __init__(self) -> None:
        self.claims = Counter[Words]()  # profile, warm|cold
        self.pool_failures = Counter[Words]()  # profile, claim|fill, error code
        self.start_seconds = Histograms(STARTS_S)  # profile, warm|cold
        self.start_failures = Counter[Words]()  # profile, warm|cold, error code
        self.removal_retries = Counter[Words]()  # error code
        self.sandboxes_ended = Counter[Words]()  # profile, end reason
        self.sessions_created = Counter[Words]()  # profile
        self.sessions_ended = Counter[Words]()  # end reason
        self.active_seconds = Histograms(STARTS_S)  # profile, new|again
        self.executions = Counter[Words]()  # source, exit reason
        self.execution_seconds = Histograms(EXECUTIONS_S)  # source
        self.execution_wait_seconds = Histograms(EXECUTIONS_S)  # source
        self.file_seconds = Histograms(FILES_S)  # checkpoint|persist|restore
        self.file_failures = Counter[Words]()  # checkpoint|persist|restore, error code
        self.quota_refusals = Counter[Words]()  # quota, user|tenant
        self.cpu_sustained = 0
        """Sandboxes that came to use much processor time for long."""
        self.loop_lag = Histogram(LAG_S)
        self.deadline_late = Histogram(LAG_S)
        self.at_work = (float("-inf"), "")
        """When a sandbox last said no more than an ordinary cell does, in loop time, and which."""
        self.stream_in = self.stream_out = 0
        """Bytes read from, and written to, the sandboxes' streams."""
        self.websocket_in = self.websocket_out = self.events_out = 0
        """Bytes of messages from websockets, of frames to them, and of event streams."""

    @contextmanager
    def files(self, kind: str, clock: Clock) -> Iterator[None]:
        """Time a checkpoint, persist or restore that succeeds; count one that does not."""
        began = clock.boottime()
        try:
            yield
        except Exception as error:
            self.file_failures[kind, code_of(error)] += 1
            raise
        self.file_seconds[(kind,)].observe(clock.boottime() - began)

    async def watch_loop(self) -> None:
        """How late the loop runs what is due: a sleep, and by how much it was longer than asked for."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_S
            await asyncio.sleep(SAMPLE_S)
            self.loop_lag.observe(loop.time() - due)


def cumulated(histogram: Histogram) -> Iterable[tuple[float, int]]:
    """``(bound, how many were not above it)``, and last of all ``(inf, all)``."""
    seen = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        seen += count
        yield bound, seen
