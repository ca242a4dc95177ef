"""One call of a tool: who asks, over which connection, about which session; and what every tool may need."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..domain.model import Principal
from ..errors import Forbidden, SandglassError
from ..service.api import GatewayFacade, SessionFacade
from ..service.tasks import Tasks
from .finding import Finder, Told

Json = dict[str, Any]


@dataclass(slots=True)
class Service:
    """What all calls share. ``url``: the gateway's own. ``closing``: it is being stopped; what runs goes on under the next one."""

    gateway: GatewayFacade
    tasks: Tasks
    url: str
    finder: Finder
    told: Told = field(default_factory=Told)
    closing: bool = False


@dataclass(slots=True)
class Call:
    """``connection``: by which the notices that were told are counted. ``default``: the session of a call that names none."""

    service: Service
    principal: Principal
    connection: str
    default: str
    progress: Callable[[float, str], Awaitable[None]]
    session: SessionFacade | None = None
    ended_before: Json | None = None
    began: float = field(default_factory=time.monotonic)

    def permits(self, scope: str) -> bool:
        return not self.principal.scopes or scope in self.principal.scopes

    def require(self, *scopes: str) -> None:
        """Raises Forbidden, which names what the token lacks."""
        for scope in scopes:
            if not self.permits(scope):
                raise Forbidden(f"The token lacks the scope {scope}.", scope=scope, needs=list(scopes))

    async def find(self, name: str) -> SessionFacade:
        """The session that the call names; raises NotFound where there is none."""
        self.session = await self.service.finder.find(self.principal, name or self.default)
        return self.session

    async def obtain(self, name: str, profile: str | None = None) -> SessionFacade:
        """The same, made where there is none."""
        self.session, self.ended_before = await self.service.finder.obtain(
            self.principal, name or self.default, profile, lambda: self.require("sessions:write")
        )
        return self.session

    async def report(self, message: str) -> None:
        """Progress, for a client that asked for it: seconds since the call began, which always grow."""
        await self.progress(time.monotonic() - self.began, message)

    def undo(self, step: Coroutine[Any, Any, None]) -> None:
        """The caller has given the call up: ``step`` ends what it had begun. Not when it is the gateway that stops."""
        if self.service.closing:
            step.close()
        else:
            self.service.tasks.spawn(_quietly(step), "mcp-undo")


async def _quietly(step: Coroutine[Any, Any, None]) -> None:
    with suppress(SandglassError):  # it is over already, or its session is
        await step
