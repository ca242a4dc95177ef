"""Who gets how much of the processors where there are too few: weights of sandboxes, and who has used much for long. Pure.

The engine shares by weight among sandboxes that want more than there is. A tenant's weight is split among its sandboxes that
work, so that eight of one tenant get together what one of another does. Each has its own cap besides (``limits.cpus``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

FULL_WEIGHT = 1024
"""The engine's default, and what a tenant with one working sandbox has."""
LEAST_WEIGHT = 16
WORKING_CORES = 0.05
"""Below, a sandbox does no more than look after itself."""
HIGH, LOW = 0.8, 0.5
"""Parts of its cap: from the first on a sandbox counts as one that uses much, and until it falls below the second."""


def weights(working: Mapping[str, str]) -> dict[str, int]:
    """``working``: sandbox -> tenant, of those that work. Their weights; the others have ``FULL_WEIGHT``, which they do not use."""
    count = Counter(working.values())
    return {sandbox: max(LEAST_WEIGHT, FULL_WEIGHT // count[tenant]) for sandbox, tenant in working.items()}


@dataclass(frozen=True, slots=True)
class Load:
    """Of one sandbox: processor seconds used so far, at which (boot) time, the cores it took since the look before, since when it is high."""

    used_s: float
    at: float
    cores: float = 0.0
    high_since: float | None = None

    def look(self, used_s: float, at: float, cap: float) -> Load:
        """The next look. One that comes too early, or a counter that went back, changes nothing but the counter."""
        if at - self.at < 0.001 or used_s < self.used_s:
            return Load(used_s, at, self.cores, self.high_since)
        cores = (used_s - self.used_s) / (at - self.at)
        high = self.high_since
        if high is None and cores >= HIGH * cap:
            high = self.at
        elif high is not None and cores < LOW * cap:
            high = None
        return Load(used_s, at, cores, high)

    def sustained(self, after_s: float) -> bool:
        return self.high_since is not None and self.at - self.high_since >= after_s
