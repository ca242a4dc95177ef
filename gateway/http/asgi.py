"""``/mcp``: hands requests to the MCP server, which speaks ASGI, and its answers back as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any

from tornado import iostream
from tornado.web import HTTPError

from ..errors import Unauthenticated
from ..service.api import GatewayFacade
from .base import Authenticated
from .deps import Deps
from .expiry import Expiry

log = logging.getLogger("sandglass.http")
STALL_S = 120.0
"""A client that takes nothing for so long is gone."""
_OURS = ("authorization", "cookie")
"""Checked here, and nobody else's affair."""
_CONNECTION = ("connection", "transfer-encoding")

Message = MutableMapping[str, Any]


class McpHandler(Authenticated):
    """One request of an ASGI application. Takes tokens in the header only: no page of ours calls this."""

    query_token_methods = ()

    def initialize(self, gateway: GatewayFacade, deps: Deps) -> None:
        super().initialize(gateway, deps)
        self._left = asyncio.Event()
        self._body_given = False

    async def prepare(self) -> None:
        await super().prepare()
        if self.by_cookie:
            raise Unauthenticated("A token is needed here: 'Authorization: Bearer TOKEN'.")

    async def get(self) -> None:
        await self._run()

    async def post(self) -> None:
        await self._run()

    async def delete(self) -> None:
        await self._run()

    async def _run(self) -> None:
        if self.deps.mcp is None:
            raise HTTPError(404)
        expiry = Expiry(self.deps.clock, self.caller.expires_at, self.cut_off)
        try:
            await self.deps.mcp(self._scope(), self._receive, self._send)
        finally:
            expiry.cancel()
        if not self._finished:  # the application gave up in the middle, or the client did
            if not self.gone and not self._headers_written:
                raise HTTPError(500)
            self.cut_off()

    def _scope(self) -> Message:
        request = self.request
        headers = [(name.lower(), value) for name, value in request.headers.get_all() if name.lower() not in _OURS]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "https" if self.deps.secure else "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "root_path": "",
            "query_string": request.query.encode(),
            "headers": [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers],
            "client": (request.remote_ip, 0),
            "server": None,
            "sandglass.principal": self.caller,
        }

    async def _receive(self) -> Message:
        """The body, which has come already; after it, word that the client has left."""
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": self.request.body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self.gone or self._finished:
            return  # word of it is on its way (``_receive``)
        if message["type"] == "http.response.start":
            self.set_status(message["status"])
            self.clear_header("Content-Type")
            for name, value in message.get("headers", ()):
                if name.decode("latin-1").lower() not in _CONNECTION:
                    self.set_header(name.decode("latin-1"), value.decode("latin-1"))
            return
        self.write(bytes(message.get("body", b"")))
        if not message.get("more_body"):
            self.finish()
            return
        try:
            await asyncio.wait_for(self.flush(), STALL_S)
        except (iostream.StreamClosedError, TimeoutError):
            log.debug("an MCP client takes no more")
            self.cut_off()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._left.set()

    def on_finish(self) -> None:
        self._left.set()
