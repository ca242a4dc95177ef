"""Every route of the table: nobody, strangers, a user on admin paths, a page of another origin. New routes are covered as they come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from http_real import Real, real, session
from http_served import js
from test_http_users import cookie_of
from tornado.httpclient import HTTPResponse
from tornado.web import RequestHandler

PUBLIC = {"/login", "/logout", "/healthz", "/readyz", "/static/(.+)", "/api/v1/openapi.json"}
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
UNKNOWN = "00000000-0000-4000-8000-000000000000"
BODIES: dict[str, Any] = {
    "/executions": {"code": "1"},
    "/stdin": {"execution_id": "e", "value": "v"},
    "/declarations": {"pattern": "out/x.txt", "keep": True},
    "/extend": {"seconds": 1, "reason_text": "r"},
    "/release": {"confirm": True, "reason_text": "r"},
}
BODIES |= {end: {"reason_text": "r"} for end in ("/end", "/disable", "/end-sessions")}
QUERIES = {"/declarations": "?pattern=out/**"}


def routes(s: Real) -> Iterator[tuple[str, str]]:
    """``(method, pattern)`` of everything that is served."""
    stub = RequestHandler._unimplemented_method
    for rule in s.app.wildcard_router.rules:
        pattern = rule.matcher.regex.pattern.rstrip("$").replace("/?", "")  # type: ignore[attr-defined]
        for method in RequestHandler.SUPPORTED_METHODS:
            if getattr(rule.target, method.lower(), stub) is not stub and method not in ("HEAD", "OPTIONS"):
                yield method, pattern


def filled(pattern: str, *ids: str) -> str:
    """The pattern with its groups replaced, the last id again where there are more."""
    left = list(ids)
    return re.sub(r"\([^()]*\)", lambda _: left.pop(0) if len(left) > 1 else left[0], pattern)


async def ask(s: Real, method: str, pattern: str, ids: tuple[str, ...], token: str = "", **more: Any) -> HTTPResponse:
    end = pattern[pattern.rfind("/") :]
    body = BODIES.get(end, {}) if method in CHANGING else None
    answer = await s.call(method, filled(pattern, *ids) + (QUERIES.get(end, "") if method == "DELETE" else ""), token, body, **more)
    where = (method, pattern)
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"], where
    assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["X-Frame-Options"] == "DENY", where
    assert "Server" not in answer.headers and b"Traceback" not in answer.body and b"/gateway/" not in answer.body, where
    return answer


async def test_nobody_and_pages_of_other_origins_get_nothing(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        ids = (await session(s, alice), "x")
        cookie = cookie_of(s, alice)
        seen = 0
        for method, pattern in list(routes(s)):
            if pattern in PUBLIC:
                continue
            seen += 1
            for more in ({}, {"more": {"Authorization": "Bearer a.b.c"}}, {"more": {"Cookie": "sandglass_page=x"}}):
                answer = await ask(s, method, pattern, ids, **more)
                assert answer.code == 401, (method, pattern, answer.code, answer.body)
            if method in CHANGING:
                for origin in ("null", "http://evil.example", f"http://127.0.0.1:{s.port + 1}"):
                    answer = await ask(s, method, pattern, ids, cookie=cookie, more={"Origin": origin})
                    assert answer.code == 403, (method, pattern, answer.code, answer.body)
        assert seen > 50
        assert js(await s.call("GET", f"/api/v1/sessions/{ids[0]}", alice))["state"] == "active"
        # a websocket brings the cookie with it, and needs the same origin, though it is a GET
        channels = f"/api/kernels/{ids[0]}/channels"
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        for origin in ("null", "http://evil.example", f"http://127.0.0.1:{s.port + 1}", f"https://127.0.0.1:{s.port}.evil.example"):
            answer = await s.call("GET", channels, cookie=cookie, more=upgrade | {"Origin": origin})
            assert answer.code == 403, origin


async def test_an_id_of_somebody_else_answers_like_none_at_all(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        mine = await session(s, alice)
        path = f"/api/v1/sessions/{mine}"
        run = js(await s.call("POST", f"{path}/executions?wait=10", alice, {"code": "write:out/a.txt:hello"}))["execution_id"]
        await s.rig.stored(1)
        (artifact,) = (a["artifact_id"] for a in js(await s.call("GET", f"{path}/artifacts", alice))["artifacts"])
        notebook = js(await s.call("POST", "/api/sessions", alice, {"path": "a.ipynb", "name": "", "type": "notebook", "kernel": {}}))["id"]
        before = js(await s.call("GET", path, alice))
        strangers = [s.token("bob"), s.token("alice", "t2"), s.token("boss", "t2", "tenant_admin")]
        seen = 0
        for method, pattern in list(routes(s)):
            if "{1,128}" not in pattern:
                continue
            kind = artifact if "/artifacts/" in pattern else notebook if pattern.startswith("/api/sessions/") else mine
            for token in strangers[2:] if "/admin/" in pattern else strangers:
                foreign = await ask(s, method, pattern, (kind, run if "/executions/" in pattern else "out/a.txt"), token)
                unknown = await ask(s, method, pattern, (UNKNOWN, run if "/executions/" in pattern else "out/a.txt"), token)
                assert foreign.code == unknown.code == 404, (method, pattern, foreign.code, foreign.body, unknown.code, unknown.body)
                assert foreign.body.replace(kind.encode(), b"ID") == unknown.body.replace(UNKNOWN.encode(), b"ID"), (method, pattern)
                seen += 1
        assert seen > 80
        # another execution's id under one's own session
        bobs = await session(s, strangers[0])
        for method in ("GET", "DELETE"):
            assert (await s.call(method, f"/api/v1/sessions/{bobs}/executions/{run}", strangers[0])).code == 404
        assert (await s.call("POST", f"/api/v1/sessions/{bobs}/rebuild", strangers[0], {"cells": [run]})).code == 404
        after = js(await s.call("GET", path, alice))
        for deadline in ("idle_deadline", "max_deadline"):  # told by the wall's clock, read anew each time: the last digit may differ
            ends = [datetime.fromisoformat(view.pop(deadline)) for view in (before, after)]
            assert abs(ends[1] - ends[0]).total_seconds() < 0.01, "what strangers do is no activity of the session"
        assert {**before, "server_time": 0, "last_event": 0} == {**after, "server_time": 0, "last_event": 0}
        assert (await s.call("GET", f"/api/v1/artifacts/{artifact}", alice)).body == b"hello"


async def test_admin_paths_are_for_admins(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        ids = (await session(s, alice), "x")
        others = [s.token("bob"), s.token("bob", "t1", "administrator", "Admin", "root"), s.token("boss", "t1", "tenant_admin", scopes=("execute",))]
        admin = [(method, pattern) for method, pattern in routes(s) if "/admin/" in pattern]
        assert len(admin) > 8
        for method, pattern in admin:
            for token in (alice, *others):
                answer = await ask(s, method, pattern, ids, token)
                assert (answer.code, js(answer)["code"]) == (403, "forbidden"), (method, pattern, answer.body)
        assert (await s.call("GET", "/metrics", others[0])).code == 403
        # an admin of a tenant names another tenant
        boss = s.token("boss", "t2", "tenant_admin")
        for path in ("/api/v1/admin/sessions?tenant=t1", "/api/v1/admin/audit?tenant=t1"):
            assert (await s.call("GET", path, boss)).code == 403
        for act in ("disable", "enable", "end-sessions"):
            answer = await s.call("POST", f"/api/v1/admin/users/alice/{act}", boss, {"tenant": "t1", **BODIES.get(f"/{act}", {})})
            assert answer.code in (403, 404), (act, answer.body)
        assert js(await s.call("GET", f"/api/v1/sessions/{ids[0]}", alice))["state"] == "active"
