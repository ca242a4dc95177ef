"""The MCP server as an ASGI application: hosts and origins checked, and each user with a session manager of the SDK's own.

A manager of one's own means that nobody finds, ends or crowds out another user's connections, whatever ids they send.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request

from ..domain.model import Principal
from ..errors import Forbidden, Unavailable
from ..service.api import GatewayFacade
from ..service.tasks import Tasks
from .call import Service
from .finding import Finder
from .server import PRINCIPAL, make_server

log = logging.getLogger("sandglass.mcp")
IDLE_S = 1800.0
"""A connection of the older protocols that asks nothing for so long is forgotten; its client begins anew."""
CONNECTIONS_A_USER = 32
STOP_S = 3.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def security(url: str, host: str, port: int, origins: Iterable[str], hosts: Iterable[str]) -> TransportSecuritySettings:
    """Under which names we are reached: the public address, the one that is listened on, loopback, configured ones."""
    names = {urlsplit(url).netloc, *hosts}
    names |= {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host)}
    for name in hosts:
        if ":" not in name.rpartition("]")[2]:
            names.add(f"{name}:{port}")
    mine = {f"{urlsplit(url).scheme or 'http'}://{name}" for name in names}
    return TransportSecuritySettings(allowed_hosts=sorted(names), allowed_origins=sorted(mine | set(origins)))


class _Seat:
    """One user's connections, held by a task of their own."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self.manager = manager
        self.ready = asyncio.Event()
        self.stop = asyncio.Event()
        self.asking = 0
        self.quiet_since = 0.0


class McpApp:
    """Call it with an ASGI scope that holds the caller (``PRINCIPAL``). May raise an error of ours before it has answered."""

    def __init__(
        self, gateway: GatewayFacade, tasks: Tasks, url: str, transport: TransportSecuritySettings, *, body_bytes: int, idle_s: float = IDLE_S
    ) -> None:
        self._service = Service(gateway, tasks, url.rstrip("/"), Finder(gateway))
        self._server = make_server(self._service)
        self._transport = transport
        self._check = TransportSecurityMiddleware(transport)
        self._body_bytes = body_bytes
        self._idle_s = idle_s
        self._seats: dict[tuple[str, str], _Seat] = {}
        self._running: set[asyncio.Task[Any]] = set()

    def statistics(self) -> dict[str, int]:
        return {"users": len(self._seats), "requests": sum(seat.asking for seat in self._seats.values())}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal: Principal = scope[PRINCIPAL]
        refused = await self._check.validate_request(Request(scope))
        if refused is not None:
            raise Forbidden(
                f"{bytes(refused.body).decode()}: this address or page is not one of the gateway's own. "
                "Its operator names others in SANDGLASS_BASE_URL, SANDGLASS_ALLOWED_HOSTS and SANDGLASS_ALLOWED_ORIGINS."
            )
        if self._service.closing:
            raise Unavailable("The gateway is being stopped.")
        seat = self._seat(principal)
        seat.asking += 1
        try:
            await seat.ready.wait()
            await seat.manager.handle_request(scope, receive, send)
        finally:
            seat.asking -= 1
            seat.quiet_since = asyncio.get_running_loop().time()

    def _seat(self, principal: Principal) -> _Seat:
        key = principal.tenant, principal.user
        seat = self._seats.get(key)
        if seat is None:
            manager = StreamableHTTPSessionManager(
                self._server, security_settings=self._transport, session_idle_timeout=self._idle_s, max_sessions=CONNECTIONS_A_USER,
                max_request_body_size=self._body_bytes,
            )  # fmt: skip
            seat = self._seats[key] = _Seat(manager)
            task = self._service.tasks.spawn(self._hold(key, seat), "mcp-user")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return seat

    async def _hold(self, key: tuple[str, str], seat: _Seat) -> None:
        """Until we stop, or until all that it holds has been idle for long enough to be over."""
        loop = asyncio.get_running_loop()
        seat.quiet_since = loop.time()
        try:
            async with seat.manager.run():
                seat.ready.set()
                while True:
                    try:
                        await asyncio.wait_for(seat.stop.wait(), self._idle_s)
                        return
                    except TimeoutError:
                        if not seat.asking and loop.time() - seat.quiet_since >= self._idle_s:
                            self._leave(key, seat)
                            return
        finally:
            self._leave(key, seat)
            seat.ready.set()  # nobody waits at it for ever

    def _leave(self, key: tuple[str, str], seat: _Seat) -> None:
        """Whoever asks from now on gets a new one."""
        if self._seats.get(key) is seat:
            del self._seats[key]

    async def close(self) -> None:
        """End what waits here; what runs in the sandboxes goes on."""
        self._service.closing = True
        for seat in self._seats.values():
            seat.stop.set()
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_S)
