"""A gateway that dies, or whose world fails, at a chosen call to the world: between it and its ports stands a ``Fate``.

A call counts when it is made. At the chosen one something happens, just before the call takes effect or just after it and before
the gateway hears of it: those are the only moments at which a death can leave different things behind.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any


class Fate:
    """``at``: which call, 0 for the first; None for never. ``late``: after the call took effect. ``strike`` is what happens.

    ``only``: calls of this name count, and no others.
    """

    def __init__(self, at: int | None, late: bool, strike: Callable[[], None], only: str = "") -> None:
        self.only = only
        self.at = at
        self.late = late
        self.strike = strike
        self.calls = 0
        self.struck = ""
        """The call at which it happened."""
        self.dead = False
        self.buried = False
        self.died = asyncio.Event()

    def die(self) -> None:
        """From here on nothing that this gateway does has an effect."""
        self.dead = True
        self.died.set()

    async def pass_through(self, name: str, call: Callable[[], Any]) -> Any:
        await self.limbo()
        counts = self.only in ("", name)
        mine, self.calls = counts and self.calls == self.at, self.calls + counts
        if mine and not self.late:
            self.struck = f"before {name}"
            self.strike()
            await self.limbo()
        result = await call()
        if mine and self.late:
            self.struck = f"after {name}"
            self.strike()
        await self.limbo()
        return result

    async def limbo(self) -> None:
        """Where a dead gateway's calls stay, until its tasks are cancelled."""
        if self.buried:
            raise asyncio.CancelledError
        if self.dead:
            await asyncio.Event().wait()


class Mortal:
    """A port, as a gateway under a ``Fate`` sees it. What its calls return (a stream, an upload) is under the same fate."""

    def __init__(self, real: Any, fate: Fate, name: str) -> None:
        self._real, self._fate, self._name = real, fate, name

    def __getattr__(self, attribute: str) -> Any:
        real, fate, name = getattr(self._real, attribute), self._fate, f"{self._name}.{attribute}"
        if inspect.isasyncgenfunction(real):

            async def steps(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                async for item in real(*args, **kwargs):
                    await fate.limbo()
                    yield item
                    await fate.limbo()

            return steps
        if inspect.iscoroutinefunction(real):
            if attribute in ("read", "drain"):  # of a stream: they go on all the time, and leave nothing behind

                async def quiet(*args: Any, **kwargs: Any) -> Any:
                    await fate.limbo()
                    result = await real(*args, **kwargs)
                    await fate.limbo()
                    return result

                return quiet

            async def call(*args: Any, **kwargs: Any) -> Any:
                result = await fate.pass_through(name, lambda: real(*args, **kwargs))
                return Mortal(result, fate, attribute) if attribute in ("attach", "writer") else result

            return call
        if attribute == "write":

            def write(data: bytes) -> None:
                if not fate.dead:
                    real(data)

            return write
        return real
