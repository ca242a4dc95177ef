"""How many sandboxes to make, and how long to wait after failures. Pure."""

from __future__ import annotations

from dataclasses import dataclass


def deficit(target: int, warm: int, creating: int, held: int, max_live: int) -> int:
    """What is missing in one profile's pool. ``held``: every sandbox that lives or is being made, in all profiles."""
    return max(0, min(target - warm - creating, max_live - held))


@dataclass(slots=True)
class Backoff:
    """Doubles from ``first_s`` to ``most_s`` at each failure in a row. Times: boot time, seconds."""

    first_s: float = 1.0
    most_s: float = 60.0
    failures: int = 0
    until: float = 0.0

    def failed(self, now: float) -> None:
        self.until = now + min(self.first_s * 2**self.failures, self.most_s)
        self.failures = min(self.failures + 1, 32)

    def succeeded(self) -> None:
        self.failures, self.until = 0, 0.0

    def wait_s(self, now: float) -> float:
        return max(0.0, self.until - now)
