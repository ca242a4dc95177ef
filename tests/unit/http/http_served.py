"""A real server on a loopback port, with real clients, for the length of one test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from http_fake import FakeGateway, FakePages, FakeSession, FakeTokens
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gateway.clock import SystemClock
from gateway.http.app import body_limit, make_app, make_frame_app
from gateway.http.deps import Deps, HttpLimits
from gateway.http.server import bind, serve
from gateway.protocol import jupyter
from gateway.service.tasks import Tasks

PATIENCE_S = 20.0
Json = dict[str, Any]


@dataclass
class Served:
    """``call`` and ``ws`` speak as ``alice`` unless told otherwise."""

    gateway: FakeGateway
    deps: Deps
    pages: FakePages
    port: int
    frame_port: int
    sockets: list[WebSocketClientConnection] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "alice",
        headers: dict[str, str] | None = None,
        port: int | None = None,
    ) -> HTTPResponse:
        sent = dict(headers or {})
        if user is not None:
            sent.setdefault("Authorization", f"Bearer {user}")
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = HTTPRequest(
            f"http://127.0.0.1:{port or self.port}{path}",
            method=method,
            headers=sent,
            body=data,
            allow_nonstandard_methods=True,
            follow_redirects=False,
            request_timeout=PATIENCE_S,
        )
        return await AsyncHTTPClient().fetch(request, raise_error=False)

    async def session(self, user: str = "alice") -> FakeSession:
        response = await self.call("POST", "/api/v1/sessions", {}, user=user)
        assert response.code == 201, response.body
        return self.gateway.held[json.loads(response.body)["session_id"]]

    async def ws(
        self,
        kernel_id: str,
        *,
        query: str = "token=alice",
        v1: bool = True,
        headers: dict[str, str] | None = None,
        offered: list[str] | None = None,
    ) -> WebSocketClientConnection:
        request = HTTPRequest(
            f"ws://127.0.0.1:{self.port}/api/kernels/{kernel_id}/channels?{query}", headers=headers or {}
        )
        protocols = offered if offered is not None else [jupyter.V1_PROTOCOL] if v1 else None
        ws = await websocket_connect(request, subprotocols=protocols, max_message_size=256 * 1024**2)
        self.sockets.append(ws)
        return ws

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A plain connection, closed at the end of the test."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def raw(self, data: bytes) -> bytes:
        """Send bytes as they are and read what comes back until the server closes."""
        reader, writer = await self.connect()
        writer.write(data)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), PATIENCE_S)

    async def close(self) -> None:
        for ws in self.sockets:
            ws.close()
        for writer in self.writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(writer.wait_closed(), PATIENCE_S)


def served(
    *,
    attachment_limit: int = 8,
    journal_bytes: int = 64 * 1024**2,
    patience_s: float = 3 * PATIENCE_S,
    **limits: Any,
) -> Callable[[Callable[[Served], Awaitable[None]]], Callable[[], None]]:
    """Turns ``async def test(s: Served)`` into a test with a server of its own. ``limits``: those of ``HttpLimits``."""

    def wrap(test: Callable[[Served], Awaitable[None]]) -> Callable[[], None]:
        async def run() -> None:
            with tempfile.TemporaryDirectory() as scratch:
                await asyncio.wait_for(_within(Path(scratch)), patience_s)

        async def _within(scratch: Path) -> None:
            tasks = Tasks()
            gateway = FakeGateway(scratch / "journals", tasks)
            gateway.attachment_limit = attachment_limit
            gateway.journal_bytes = journal_bytes
            web = scratch / "web"
            for part in ("host", "frame"):
                (web / part).mkdir(parents=True)
                (web / part / "index.html").write_text(f"<!doctype html><title>{part}</title>")
                (web / part / "main.js").write_text("export {}")
                (web / part / ".hidden").write_text("secret")
            pages = FakePages()
            deps = Deps(FakeTokens(), pages, SystemClock(), web_dir=web, limits=HttpLimits(**limits), tasks=tasks)
            sockets, port = bind("127.0.0.1", 0)
            frame_sockets, frame_port = bind("127.0.0.1", 0)
            deps.url, deps.frame_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{frame_port}"
            servers = [
                serve(make_app(gateway, deps), sockets, body_limit(deps)),
                serve(make_frame_app(gateway, deps), frame_sockets, body_limit(deps)),
            ]
            s = Served(gateway, deps, pages, port, frame_port)
            try:
                await test(s)
                assert tasks.failures == 0
            finally:
                await s.close()
                for server in servers:
                    server.stop()
                for session in gateway.held.values():
                    session.attachments.close_all("shutdown")
                await tasks.close()
                for server in servers:
                    await asyncio.wait_for(server.close_all_connections(), PATIENCE_S)

        def outer() -> None:
            asyncio.run(run())

        outer.__name__ = test.__name__
        outer.__doc__ = test.__doc__
        return outer

    return wrap


def js(response: HTTPResponse) -> Any:
    return json.loads(response.body)


def assert_problem(response: HTTPResponse, status: int, code: str) -> Json:
    """The one shape of an error; returns its body."""
    assert response.code == status, (response.code, response.body)
    assert response.headers["Content-Type"] == "application/problem+json"
    body: Json = json.loads(response.body)
    assert body["code"] == body["reason"] == code, body
    assert body["message"] == body["detail"] and body["status"] == status
    assert b"Traceback" not in response.body and b"<html" not in response.body.lower()
    assert "Server" not in response.headers
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    return body


def request(msg_type: str, content: Json | None = None, *, channel: str = "shell", msg_id: str = "") -> bytes:
    """A v1 message as a client sends it."""
    return jupyter.build(channel, jupyter.make_header(msg_type, "client", msg_id=msg_id), {}, {}, content or {})


async def next_message(ws: WebSocketClientConnection) -> jupyter.KernelMessage:
    """The next v1 message."""
    data = await asyncio.wait_for(ws.read_message(), PATIENCE_S)
    assert isinstance(data, bytes), (data, ws.close_code)
    return jupyter.decode(data)


async def closed_with(ws: WebSocketClientConnection) -> int | None:
    """Read until the server closes; its code."""
    while await asyncio.wait_for(ws.read_message(), PATIENCE_S) is not None:
        pass
    return ws.close_code
