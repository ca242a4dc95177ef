"""Counts what is on its way to one client, for the back pressure that a ``Sink`` gives."""

from __future__ import annotations

import asyncio


class Outflow:
    """Bytes handed over and not yet taken by the operating system. Ends for good with ``lose``."""

    def __init__(self) -> None:
        self.queued = 0
        self.lost = False
        self._waiters: list[asyncio.Future[None]] = []

    def add(self, size: int) -> None:
        self.queued += size

    def took(self, size: int) -> None:
        """So much has left."""
        self.queued -= size
        if self.queued <= 0:
            self._wake(None)

    def lose(self) -> None:
        """The client is gone: whoever waits, now or later, gets ConnectionError."""
        if not self.lost:
            self.lost = True
            self._wake(ConnectionResetError("the client went away"))

    async def flushed(self) -> None:
        """Wait until nothing is queued. Raises ConnectionError when the client is gone."""
        if not self.lost and self.queued > 0:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self.lost:
            raise ConnectionResetError("the client went away")

    def _wake(self, error: Exception | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
