"""``/mcp``'s bridge to ASGI: what the application is given, answers as they come, a client that leaves, errors before an answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from http_served import Served, served

from gateway.errors import Forbidden
from gateway.http import asgi

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream"), (b"x-one", b"1")]}
HEAD = b"POST /mcp?session=x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer alice\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class App:
    """Answers in two parts, the second when it is told to; remembers what it saw."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.scopes: list[Any] = []
        self.received: list[Any] = []
        self.left = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        self.received.append(await receive())
        await send(START)
        await send({"type": "http.response.body", "body": b"one\n", "more_body": True})
        waits = [asyncio.ensure_future(self.go.wait()), asyncio.ensure_future(receive())]
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if waits[1] in done:
            self.received.append(waits[1].result())
            self.left.set()
        for wait in waits:
            wait.cancel()
        await send({"type": "http.response.body", "body": b"two\n", "more_body": False})


@served()
async def test_an_answer_comes_as_it_is_made(s: Served) -> None:
    app = s.deps.mcp = App()
    reader, writer = await s.connect()
    writer.write(HEAD)
    head = (await asyncio.wait_for(reader.readuntil(b"one\n"), 20)).decode()
    assert "200 OK" in head and "X-One: 1" in head and "text/event-stream" in head and "nosniff" in head
    app.go.set()
    assert await asyncio.wait_for(reader.readuntil(b"two\n"), 20)
    scope = app.scopes[0]
    assert scope["sandglass.principal"].user == "alice" and scope["query_string"] == b"session=x" and scope["method"] == "POST"
    assert b"authorization" not in dict(scope["headers"]) and dict(scope["headers"])[b"host"] == b"h"
    assert app.received == [{"type": "http.request", "body": b"{}", "more_body": False}]


@served()
async def test_the_application_hears_when_its_client_leaves(s: Served) -> None:
    app = s.deps.mcp = App()
    reader, writer = await s.connect()
    writer.write(HEAD)
    await asyncio.wait_for(reader.readuntil(b"one\n"), 20)
    writer.close()
    await asyncio.wait_for(app.left.wait(), 20)
    assert app.received[-1] == {"type": "http.disconnect"}


@served()
async def test_a_client_that_takes_nothing_is_cut_off(s: Served) -> None:
    left = asyncio.Event()

    async def flood(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(START)
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * 1024**2, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    s.deps.mcp = flood
    before, asgi.STALL_S = asgi.STALL_S, 0.3
    try:
        _, writer = await s.connect()
        writer.write(HEAD)
        await asyncio.wait_for(left.wait(), 20)
    finally:
        asgi.STALL_S = before


@served()
async def test_who_may_not_ask_gets_a_problem(s: Served) -> None:
    assert (await s.call("POST", "/mcp", {})).code == 404  # no application is there

    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        raise Forbidden("Not from there.")

    s.deps.mcp = refuses
    for user, headers, path in ((None, {}, ""), (None, {"Cookie": "sandglass_page=alice"}, ""), (None, {}, "?token=alice")):
        answer = await s.call("GET", f"/mcp{path}", user=user, headers=headers)
        assert answer.code == 401 and answer.headers["Content-Type"] == "application/problem+json", answer.body
    answer = await s.call("POST", "/mcp", {})
    assert answer.code == 403 and json.loads(answer.body)["detail"] == "Not from there."

    async def silent(scope: Any, receive: Any, send: Any) -> None:
        return

    s.deps.mcp = silent
    answer = await s.call("DELETE", "/mcp")
    assert answer.code == 500 and json.loads(answer.body)["code"] == "platform_fault"
    assert (await s.call("PUT", "/mcp", {})).code == 405
