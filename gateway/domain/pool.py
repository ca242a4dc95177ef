"""What the pool of warm sandboxes does next: how many to make and to retire, and when to look again. Pure; times in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_AGE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Stock:
    """One profile's part. ``ages_s``: of the warm ones that answer; ``creating``: in flight; ``wait_s``: what is left of its backoff."""

    target: int
    ages_s: tuple[float, ...] = ()
    creating: int = 0
    wait_s: float = 0.0

    @property
    def aged(self) -> int:
        return sum(1 for age in self.ages_s if age > MAX_AGE_S)

    @property
    def missing(self) -> int:
        return max(0, self.target - (len(self.ages_s) - self.aged) - self.creating)


@dataclass(frozen=True, slots=True)
class Plan:
    """``create`` and ``retire`` (the oldest): profile -> how many. ``again_s``: when to look again, None when something will happen first."""

    create: Mapping[str, int]
    retire: Mapping[str, int]
    again_s: float | None = None


def plan(stocks: Mapping[str, Stock], *, live: int, max_live: int, parallel: int, allowed: int, allowed_in_s: float) -> Plan:
    """``live``: claimed sandboxes of all profiles; ``parallel``: creations at once; ``allowed``: by the rate, now.

    Creations in flight count as sandboxes, so no cap is passed however slowly the engine answers. The profile that lacks most comes first.
    """
    create = dict.fromkeys(stocks, 0)
    retire = {name: stock.aged for name, stock in stocks.items()}
    in_flight = sum(stock.creating for stock in stocks.values())
    held = live + in_flight + sum(len(stock.ages_s) - stock.aged for stock in stocks.values())
    waits: list[float] = []
    room = min(parallel - in_flight, max_live - held)
    lacking = {name: stock.missing for name, stock in stocks.items() if stock.missing}
    for name in list(lacking):
        if stocks[name].wait_s > 0:
            waits.append(stocks[name].wait_s)
            del lacking[name]
    while lacking and room > 0:
        if allowed <= 0:
            waits.append(allowed_in_s)
            break
        name = max(lacking, key=lambda n: lacking[n])
        create[name] += 1
        room, allowed, lacking[name] = room - 1, allowed - 1, lacking[name] - 1
        if not lacking[name]:
            del lacking[name]
    return Plan({n: c for n, c in create.items() if c}, {n: c for n, c in retire.items() if c}, min(waits, default=None))


def to_evict(stocks: Mapping[str, Stock], *, live: int, max_live: int) -> str | None:
    """Before a sandbox is made for somebody who waits: the profile whose oldest warm one makes room for it, if that is needed."""
    held = live + sum(len(stock.ages_s) + stock.creating for stock in stocks.values())
    filled = {name: len(stock.ages_s) for name, stock in stocks.items() if stock.ages_s}
    return max(filled, key=lambda n: filled[n]) if held >= max_live and filled else None


@dataclass(slots=True)
class Rate:
    """At most ``burst`` at once and ``per_s`` in the long run (a token bucket), so that a fault that eats sandboxes does not eat the engine."""

    per_s: float = 2.0
    burst: float = 20.0
    tokens: float = field(default=20.0)
    at: float = 0.0

    def refill(self, now: float) -> None:
        self.tokens = min(self.burst, self.tokens + max(0.0, now - self.at) * self.per_s)
        self.at = now

    def allowed(self, now: float) -> int:
        self.refill(now)
        return int(self.tokens)

    def wait_s(self, now: float) -> float:
        self.refill(now)
        return max(0.0, (1.0 - self.tokens) / self.per_s)

    def take(self) -> None:
        self.tokens -= 1.0


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
