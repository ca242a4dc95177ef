"""Quotas of users and tenants: what was used in the last minute or hour, who is refused, and when it goes on.

What is at once (sandboxes, open executions) is counted where it is; what is by time is metered here (``domain.quota``).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from ..clock import iso
from ..domain.quota import AT_ONCE, LASTING, PERIOD_S, UNIT, Key, Meter, Quota, QuotaLimits, Scope
from ..domain.texts import duration
from ..errors import QuotaExceeded, SandglassError, TooLarge
from ..ports import Clock, Records
from .tally import Tally

log = logging.getLogger("sandglass.quotas")
Json = dict[str, Any]
NOTE = "quotas"
SAVE_EVERY_S = 60.0
MOST_RECORDED = 10_000
OPEN_RETRY_S = 5.0
COUNTED = (Quota.SESSIONS, Quota.SANDBOXES, Quota.OPEN)


class Quotas:
    """``count``: how many a user (or, with ``""``, a tenant) has at once; the gateway knows. ``limit_at_once``: how many are allowed; 0: any."""

    def __init__(self, limits: QuotaLimits, clock: Clock, tally: Tally) -> None:
        self.limits = limits
        self._clock = clock
        self._tally = tally
        self._meters = {
            (quota, scope): Meter(amount, period) for quota, period in PERIOD_S.items() for scope in Scope if (amount := limits.of(quota, scope))
        }
        self.count: Callable[[Quota, Key], int] = lambda quota, key: 0
        self.limit_at_once: Callable[[Quota, Scope], int] = limits.of
        self._recorded: Json = {}

    # --- asking -------------------------------------------------------------------------------------------------------

    def execution(self, tenant: str, user: str) -> None:
        """One more is asked for. Raises QuotaExceeded, and then nothing was taken."""
        for scope, key in _keys(tenant, user):
            limit = self.limits.of(Quota.OPEN, scope)
            if limit and self.count(Quota.OPEN, key) >= limit:
                raise self.refusal(Quota.OPEN, scope, limit, OPEN_RETRY_S)
            self._insist(Quota.OUTPUT, scope, key, 1)
        self._take(Quota.EXECUTIONS, tenant, user, 1)

    def upload(self, tenant: str, user: str, size: int) -> None:
        """Before its first byte is taken. Raises QuotaExceeded, TooLarge (it would never fit)."""
        self._take(Quota.UPLOAD, tenant, user, size)

    def output(self, tenant: str, user: str, size: int) -> None:
        """An execution put out so much. It is known only now: who is past the limit waits with the next."""
        self._charge(Quota.OUTPUT, tenant, user, size)

    def _take(self, quota: Quota, tenant: str, user: str, amount: int) -> None:
        for scope, key in _keys(tenant, user):
            self._insist(quota, scope, key, amount)
        self._charge(quota, tenant, user, amount)

    def _charge(self, quota: Quota, tenant: str, user: str, amount: int) -> None:
        if amount:
            now = self._clock.boottime()
            for scope, key in _keys(tenant, user):
                if (meter := self._meters.get((quota, scope))) is not None:
                    meter.take(key, amount, now)

    def _insist(self, quota: Quota, scope: Scope, key: Key, amount: int) -> None:
        meter = self._meters.get((quota, scope))
        wait = 0.0 if meter is None else meter.wait_s(key, amount, self._clock.boottime())
        if meter is None or wait <= 0:
            return
        if math.isinf(wait):
            self._tally.quota_refusals[quota, scope] += 1
            raise TooLarge(f"A {scope} may have {meter.amount} {UNIT[quota]}, and this is more.", limit=meter.amount, quota=quota, scope=scope)
        raise self.refusal(quota, scope, meter.amount, wait)

    def refusal(self, quota: Quota, scope: Scope, limit: int, wait_s: float, detail: str = "") -> QuotaExceeded:
        """The one form of it, counted. ``wait_s``: known for what is by time, else a guess."""
        self._tally.quota_refusals[quota, scope] += 1
        whose = "You" if scope is Scope.USER else "Your tenant's users together"
        said = detail or f"{whose} may have {limit} {UNIT.get(quota) or AT_ONCE[quota]}; try again in {duration(max(1.0, wait_s))}."
        extra: Json = {"quota": quota, "scope": scope, "limit": limit}
        if quota in PERIOD_S:
            extra |= {"period_s": PERIOD_S[quota], "frees_at": iso(self._clock.now() + wait_s)}
        return QuotaExceeded(said, retry_after=wait_s, **extra)

    # --- showing ------------------------------------------------------------------------------------------------------

    def usage(self, tenant: str, user: str) -> list[Json]:
        """``{"quota", "scope", "used", "limit", "period_s", "full_at"}`` of each that has a limit; the last two null for what is at once."""
        now, wall = self._clock.boottime(), self._clock.now()
        found: list[Json] = []
        for scope, key in _keys(tenant, user):
            for quota, period in PERIOD_S.items():
                if (meter := self._meters.get((quota, scope))) is not None:
                    used = meter.used(key, now)
                    full_at = iso(wall + used / meter.amount * period) if used else None
                    found.append({"quota": quota, "scope": scope, "used": used, "limit": meter.amount, "period_s": period, "full_at": full_at})
            for quota in COUNTED:
                if limit := self.limit_at_once(quota, scope):
                    used = self.count(quota, key)
                    found.append({"quota": quota, "scope": scope, "used": used, "limit": limit, "period_s": None, "full_at": None})
        return found

    @property
    def keys(self) -> int:
        """How many buckets are not full."""
        return sum(map(len, self._meters.values()))

    # --- over a restart -----------------------------------------------------------------------------------------------

    async def load(self, records: Records) -> None:
        """What users owed when the last gateway recorded it. A note that cannot be read forgives them."""
        note = await records.get_note(NOTE) or {}
        now, wall = self._clock.boottime(), self._clock.now()
        for (quota, scope), meter in self._meters.items():
            try:
                owed = [((str(tenant), str(user)), float(at) - wall) for tenant, user, at in note.get(f"{scope}_{quota}", [])]
            except (TypeError, ValueError):
                log.warning("recorded use is not readable", extra={"quota": quota})
                continue
            meter.restore(owed, now)

    async def save(self, records: Records) -> None:
        now, wall = self._clock.boottime(), self._clock.now()
        note: Json = {}
        for (quota, scope), meter in self._meters.items():
            if quota in LASTING:
                owed = sorted(meter.owed(now), key=lambda item: -item[1])[:MOST_RECORDED]
                note[f"{scope}_{quota}"] = sorted([*key, round(wall + left)] for key, left in owed)
        if note != self._recorded:
            await records.put_note(NOTE, note)
            self._recorded = note

    async def keep(self, records: Records) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            try:
                await self.save(records)
            except SandglassError as error:
                log.warning("use was not recorded, will try again", extra={"why": error.code})


def _keys(tenant: str, user: str) -> tuple[tuple[Scope, Key], ...]:
    return (Scope.USER, (tenant, user)), (Scope.TENANT, (tenant, ""))
