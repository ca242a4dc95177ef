"""Bytes that mean harm: smuggled requests, injected headers and log lines, paths that lead elsewhere, clients that take their time."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from urllib.parse import quote

from http_served import PATIENCE_S, Served, assert_problem, js, served

from gateway.http.app import body_limit, make_app
from gateway.http.server import bind, serve
from gateway.logs import JsonFormatter, TextFormatter

HEAD = b"Host: x\r\nAuthorization: Bearer alice\r\n"


async def answered(s: Served, data: bytes) -> bytes:
    """What came before the server closed; a reset is a close with bytes unread, and may take the answer along."""
    try:
        return await s.raw(data)
    except ConnectionError:
        return b""


@served()
async def test_one_request_is_never_two(s: Served) -> None:
    inner = b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\n\r\n"
    for framing in (
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
        b"Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}" + inner,
        b"Content-Length: +2\r\n\r\n{}" + inner,
        b"Content-Length: 0x2\r\n\r\n{}" + inner,
        b"Content-Length: -1\r\n\r\n" + inner,
        b"Content-Length: 2_0\r\n\r\n{}" + inner,
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + inner,
        b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 70_000 + b"\r\n" + inner,
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + inner,
        b"X-Odd : 1\r\n\r\n" + inner,
        b"X-Nul: a\x00b\r\n\r\n" + inner,
    ):
        answer = await answered(s, b"POST /api/v1/sessions HTTP/1.1\r\nConnection: close\r\n" + HEAD + framing)
        assert answer.count(b"HTTP/1.1 ") <= 1, (framing[:60], answer)
        assert not answer or answer.split(b" ")[1] in (b"400", b"401", b"413"), (framing[:60], answer[:200])
    assert not s.gateway.held, "none of them was carried out"
    answer = await answered(s, b"GET /api/v1/me HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n")
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"431")
    assert (await s.call("GET", "/api/v1/me")).code == 200


@served()
async def test_no_header_can_be_added(s: Served) -> None:
    session = await s.session()
    name = 'a\r\nSet-Cookie: sandglass_page=evil\r\n\r\n<script>";\u202efdp.exe'
    path = f"in/{quote(name, safe='')}"
    session.files[f"in/{name}"] = b"data"
    answer = await s.call("GET", f"/api/v1/sessions/{session.session_id}/files/{path}")
    assert "Set-Cookie" not in answer.headers and len(answer.headers.get_list("Content-Disposition")) <= 1
    shown = answer.headers.get("Content-Disposition", "")
    assert "\u202e" not in shown and "%E2%80%AE" not in shown and not shown.count('"') % 2
    for target in ("/login?ticket=x%0d%0aSet-Cookie:%20a=b", "/api/kernels/x%0d%0aSet-Cookie:a", "/static/x%0d%0aLocation:%20http://evil.example"):
        answer = await s.call("GET", target)
        assert answer.code in (400, 401, 404) and "Set-Cookie" not in answer.headers and "Location" not in answer.headers
    # what a proxy or a browser says of who it is changes nothing
    odd = {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "Forwarded": "host=e"}
    made = js(await s.call("POST", "/api/v1/tickets", {"purpose": "login"}, headers=odd | {"Host": "evil.example"}))
    assert made["url"].startswith(s.url)


def test_a_log_line_is_one_line_whatever_is_asked_for() -> None:
    out = [io.StringIO(), io.StringIO()]
    handlers = [logging.StreamHandler(stream) for stream in out]
    handlers[0].setFormatter(JsonFormatter())
    handlers[1].setFormatter(TextFormatter())
    root = logging.getLogger("sandglass")
    level = root.level

    @served()
    async def run(s: Served) -> None:
        for path in ("/a%0a%0dERROR%20sandglass%20forged", "/%1b[2J%1b]0;title%07", "/%E2%80%AEevil", "/%00%ff", "/" + "a" * 9000):
            await s.call("GET", path, headers={"User-Agent": "a\tb", "Referer": "x"})
            await s.call("GET", path, user="mal\u00adlory" if path == "/%00%ff" else "alice")
        await s.raw(b"GET /\x1b[31mraw HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    root.setLevel(logging.DEBUG)
    for handler in handlers:
        root.addHandler(handler)
    try:
        run()
    finally:
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
    lines = out[0].getvalue().splitlines()
    assert len(lines) > 8 and all(json.loads(line)["at"] for line in lines)
    for line in out[1].getvalue().split("\n"):
        assert all(char.isprintable() for char in line) and len(line) < 5000, line[:200]
        assert not line.startswith("ERROR")


@served()
async def test_paths_lead_nowhere_else(s: Served) -> None:
    session = await s.session()
    root = f"/api/v1/sessions/{session.session_id}/files"
    for path in (
        "/static/..%2f..%2fpyproject.toml", "/static/%2e%2e%2fframe%2findex.html", "/static/..%5c..%5cx", "/static//etc/passwd",
        "/static/main.js%00.html", "/static/.hidden", "/%2e%2e/%2e%2e/etc/passwd", "/static/./../../x", f"{root}/../../../admin/sessions",
        "/api/kernels/..%2f..%2fv1%2fme", "/kernelspecs/..%2f..%2f/logo", "/api/v1/sessions/%2e%2e",
    ):  # fmt: skip
        for answer in (await s.call("GET", path), await s.call("GET", path, port=s.frame_port)):
            assert answer.code in (400, 403, 404), (path, answer.code)
            assert b"root:" not in answer.body and b"secret" not in answer.body and b"/tmp/" not in answer.body


@served()
async def test_clients_that_take_their_time_hold_up_nobody(s: Served) -> None:
    """A server of its own with short patience: a head that never ends, a body that stops, hundreds of silent connections."""
    sockets, port = bind("127.0.0.1", 0)
    server = serve(make_app(s.gateway, s.deps), sockets, body_limit(s.deps), idle_s=0.6, stall_s=0.6)
    opened = []
    try:
        for n in range(200):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if n % 2:
                writer.write(b"POST /api/kernels HTTP/1.1\r\n" + HEAD + b"Content-Length: 100\r\n\r\n{")
            else:
                writer.write(b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            opened.append((reader, writer))
        began = asyncio.get_running_loop().time()
        assert (await s.call("GET", "/api/v1/me", port=port)).code == 200
        assert asyncio.get_running_loop().time() - began < 5.0

        async def dribble(writer: asyncio.StreamWriter) -> None:
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)

        drip = asyncio.ensure_future(dribble(opened[0][1]))
        ends = await asyncio.wait_for(asyncio.gather(*(r.read() for r, _ in opened), return_exceptions=True), PATIENCE_S)
        assert all(isinstance(end, ConnectionError) or b" 200 " not in end for end in ends)
        drip.cancel()
        assert not s.gateway.held
    finally:
        for _, writer in opened:
            writer.close()
        server.stop()
        await server.close_all_connections()


@served(json_bytes=4096)
async def test_frames_and_bodies_that_announce_much_cost_nothing(s: Served) -> None:
    session = await s.session()
    reader, writer = await s.connect()
    writer.write(
        b"GET /api/kernels/" + session.session_id.encode() + b"/channels HTTP/1.1\r\n" + HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert b"101" in await asyncio.wait_for(reader.readline(), PATIENCE_S)
    writer.write(b"\x82\xff" + (1 << 62).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 1000)
    assert await asyncio.wait_for(reader.read(), PATIENCE_S) is not None, "closed, without waiting for the rest"
    for frame in (b"\xf2\x80\0\0\0\0", b"\x82\x05plain", b"\x89\xfe\x01\x00" + b"\0" * 260, b"\x83\x80\0\0\0\0"):
        reader, writer = await s.connect()
        writer.write(
            b"GET /api/kernels/" + session.session_id.encode() + b"/channels HTTP/1.1\r\n" + HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + frame
        )
        await asyncio.wait_for(reader.read(4096), PATIENCE_S)
        writer.close()
    assert_problem(await s.call("POST", "/api/v1/sessions", b"[" * 4000), 400, "bad_request")
    assert_problem(await s.call("POST", "/api/v1/sessions", b"x" * 5000), 413, "too_large")
    assert (await s.call("GET", "/api/v1/me")).code == 200


