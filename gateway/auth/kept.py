"""Revocations that outlive the gateway: each is written to the records, and read from there at the next start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import RecordsUnavailable
from ..ports import Records, RevocationRow
from .revocation import Revocation, Revocations

log = logging.getLogger("sandglass.auth")
AGAIN_S, LONGEST_S = 0.05, 5.0


class KeptRevocations:
    """``spawn``: makes a task that is held. Disabled users are recorded elsewhere, before anybody is told."""

    def __init__(self, records: Records, spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]) -> None:
        self._records = records
        self._spawn = spawn
        self._writing: set[asyncio.Task[None]] = set()

    async def load(self) -> Revocations:
        """What earlier gateways revoked; from here on new ones are recorded. Raises RecordsUnavailable."""
        rows = await self._records.list_revocations()
        revocations = Revocations(Revocation(row.at, row.until, row.token_id, row.tenant, row.user) for row in rows)
        revocations.listeners.append(self.note)
        return revocations

    def note(self, entry: Revocation) -> None:
        """For ``Revocations.listeners``."""
        if entry.every:
            return
        row = RevocationRow(entry.token_id, entry.tenant, entry.user, entry.at, entry.until)
        task = self._spawn(self._write(row), "revocation")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def recorded(self, timeout_s: float = 1.0) -> None:
        """Wait until everything noted so far is written, a moment at most: it counts already, and goes on being tried."""
        if self._writing:
            await asyncio.wait(set(self._writing), timeout=timeout_s)

    async def _write(self, row: RevocationRow) -> None:
        delay = AGAIN_S
        while True:
            try:
                await self._records.put_revocation(row)
                return
            except RecordsUnavailable as error:
                log.error("a revocation cannot be recorded, will try again", extra={"why": error.detail})
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_S)
