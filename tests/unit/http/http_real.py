"""The whole gateway on fakes (``tests/unit/service/harness.py``) behind a real server, with real tokens and page sessions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from http_served import PATIENCE_S, js
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gateway.auth import AuthSettings, KeptRevocations, Pages, TokenVerifier
from gateway.http.app import body_limit, make_app
from gateway.http.deps import Deps, HttpLimits
from gateway.http.server import bind, serve
from gateway.protocol import jupyter

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.unit.service.harness import Rig, rig, until

SECRET = b"a test secret of thirty-two bytes and more"


class Real:
    """``start`` wires what ``main`` wires; ``restart`` kills the gateway and starts another on the same records."""

    def __init__(self, r: Rig, http: HttpLimits | None = None) -> None:
        self.rig = r
        self.limits = http or HttpLimits()
        self.auth = AuthSettings(secret=SECRET)
        self.sockets: list[WebSocketClientConnection] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        gateway = self.rig.gateway
        kept = KeptRevocations(self.rig.records, self.rig.tasks.spawn)
        revocations = await kept.load()
        for row in await gateway.users.load():
            revocations.user_changed(row)
        gateway.users.listeners.append(revocations.user_changed)
        clock = self.rig.clock
        verifier = TokenVerifier.from_settings(self.auth, clock, revocations=revocations)
        self.pages = Pages(SECRET, clock, revocations=revocations)
        deps = self.deps = Deps(verifier, self.pages, clock, limits=self.limits, tasks=self.rig.tasks, recorded=kept.recorded)
        revocations.listeners.append(deps.presence.revoked)
        bound, self.port = bind("127.0.0.1", 0)
        deps.url = f"http://127.0.0.1:{self.port}"
        self.app = make_app(gateway, deps)
        self.server = serve(self.app, bound, body_limit(deps))

    async def stop(self) -> None:
        for ws in self.sockets:
            ws.close()
        for writer in self.writers:
            writer.close()
        self.server.stop()
        for session in self.rig.gateway.live.values():
            session.attachments.close_all("shutdown")
        await asyncio.wait_for(self.server.close_all_connections(), PATIENCE_S)

    async def restart(self) -> None:
        await self.stop()
        await self.rig.kill()
        await self.rig.boot()
        await self.start()
        self.rig.gateway.users.enforce()

    def token(self, user: str, tenant: str = "t1", *roles: str, scopes: tuple[str, ...] = ()) -> str:
        return self.auth.issue_dev_token(user, tenant, roles or ("user",), 3600.0, self.rig.clock.now(), scopes)

    async def call(
        self, method: str, path: str, token: str = "", body: Any = None, *, cookie: str = "", more: dict[str, str] | None = None
    ) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if cookie:
            headers |= {"Cookie": f"sandglass_page={cookie}", "Origin": f"http://127.0.0.1:{self.port}"}
        headers |= more or {}
        request = HTTPRequest(
            f"http://127.0.0.1:{self.port}{path}", method=method, headers=headers, body=None if body is None else json.dumps(body),
            allow_nonstandard_methods=True, follow_redirects=False, request_timeout=PATIENCE_S,
        )  # fmt: skip
        return await AsyncHTTPClient().fetch(request, raise_error=False)

    async def ws(self, session_id: str, token: str) -> WebSocketClientConnection:
        url = f"ws://127.0.0.1:{self.port}/api/kernels/{session_id}/channels?token={token}"
        ws = await websocket_connect(HTTPRequest(url), subprotocols=[jupyter.V1_PROTOCOL])
        self.sockets.append(ws)
        return ws

    async def stream(self, path: str, token: str = "", *, cookie: str = "") -> asyncio.StreamReader:
        """An answer that goes on: its bytes as they come."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        who = f"Authorization: Bearer {token}" if token else f"Cookie: sandglass_page={cookie}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{who}\r\n\r\n".encode())
        await writer.drain()
        return reader


@asynccontextmanager
async def real(path: Path, *, http: HttpLimits | None = None, **more: Any) -> AsyncIterator[Real]:
    async with rig(path, **more) as r:
        made = Real(r, http)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


async def session(s: Real, token: str) -> str:
    """Start one, and wait until it is active; its id."""
    response = await s.call("POST", "/api/v1/sessions", token, {})
    assert response.code == 201, response.body
    session_id = str(js(response)["session_id"])
    await until(lambda: s.rig.gateway.live[session_id].core.state == "active")
    return session_id
