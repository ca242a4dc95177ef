"""How much a user and a tenant may ask for in a time: buckets that fill up again steadily. Pure.

A bucket is one number: when it is full again. So a key that has not been used for a while is no key at all, forgetting it
forgives nothing, and what is kept is bounded by how many were active within one period.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MINUTE_S, HOUR_S = 60.0, 3600.0
MAX_KEYS = 100_000
GIB = 1024**3


class Quota(StrEnum):
    """What is counted. The first three by time, the others at once."""

    EXECUTIONS = "executions"
    OUTPUT = "output_bytes"
    UPLOAD = "upload_bytes"
    SANDBOXES = "sandboxes"
    OPEN = "open_executions"
    SESSIONS = "sessions"
    QUEUE = "queue"


class Scope(StrEnum):
    """Whose."""

    USER = "user"
    TENANT = "tenant"
    SESSION = "session"


PERIOD_S = {Quota.EXECUTIONS: MINUTE_S, Quota.OUTPUT: HOUR_S, Quota.UPLOAD: HOUR_S}
"""Bytes by the hour: a day's allowance would be gone in a morning and lock its user out until the next; the hour's comes back while one waits."""
LASTING = (Quota.OUTPUT, Quota.UPLOAD)
"""What a restart of the gateway must not give back; a minute is over sooner than it is worth recording."""
UNIT = {Quota.EXECUTIONS: "executions a minute", Quota.OUTPUT: "bytes of output an hour", Quota.UPLOAD: "bytes of uploads an hour"}
AT_ONCE = {
    Quota.SANDBOXES: "sandboxes at once", Quota.OPEN: "executions that run or wait", Quota.SESSIONS: "sessions",
    Quota.QUEUE: "executions that wait in one session",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """0: no limit. (Sandboxes and sessions of a user are among the caps, ``service.world``.)"""

    user_executions: int = 6000
    tenant_executions: int = 0
    user_output_bytes: int = 64 * GIB
    tenant_output_bytes: int = 0
    user_upload_bytes: int = 16 * GIB
    tenant_upload_bytes: int = 0
    user_open_executions: int = 2000
    tenant_open_executions: int = 0
    tenant_sandboxes: int = 0

    def of(self, quota: Quota, scope: Scope) -> int:
        return int(getattr(self, f"{scope}_{quota}", 0))


Key = tuple[str, str]
"""Tenant and user; the user is empty for the tenant's own."""


class Meter:
    """The buckets of one quota. ``amount`` within ``period_s``, all of it at once if need be."""

    def __init__(self, amount: int, period_s: float, most_keys: int = MAX_KEYS) -> None:
        self.amount = amount
        self.period_s = period_s
        self._most = most_keys
        self._full_at: dict[Key, float] = {}
        self._look_at = 1024

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_s(self, key: Key, amount: float, now: float) -> float:
        """In how many seconds so much can be had; 0: now; infinite: never."""
        if amount > self.amount:
            return float("inf")
        return max(0.0, self._owed(key, now) + self._time(amount) - self.period_s)

    def take(self, key: Key, amount: float, now: float) -> None:
        """Whether or not it is there: what is known only afterwards makes debts, of one more period at most."""
        owed = min(self._owed(key, now) + self._time(amount), 2 * self.period_s)
        if owed > 0:
            self._full_at[key] = now + owed
            if len(self._full_at) > self._look_at:
                self._tidy(now)

    def used(self, key: Key, now: float) -> int:
        return round(self._owed(key, now) / self.period_s * self.amount)

    def owed(self, now: float) -> list[tuple[Key, float]]:
        """For the records: in how many seconds each is full again."""
        return [(key, at - now) for key, at in self._full_at.items() if at > now]

    def restore(self, owed: Iterable[tuple[Key, float]], now: float) -> None:
        for key, left in owed:
            if left > 0:
                self._full_at[key] = now + min(left, 2 * self.period_s)

    def _owed(self, key: Key, now: float) -> float:
        return max(0.0, self._full_at.get(key, now) - now)

    def _time(self, amount: float) -> float:
        return amount / self.amount * self.period_s

    def _tidy(self, now: float) -> None:
        """Forget what is full; past the bound also those that are nearest to it, a tenth at a time."""
        kept = {key: at for key, at in self._full_at.items() if at > now}
        if len(kept) > self._most:
            for key in sorted(kept, key=kept.__getitem__)[: len(kept) - self._most * 9 // 10]:
                del kept[key]
        self._full_at = kept
        self._look_at = min(max(1024, 2 * len(kept)), max(self._most, len(kept)))
