"""Download links over HTTP, with real tokens and page sessions on the whole service."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from http_real import Real, real
from http_served import assert_problem, js
from test_http_users import cookie_of, session, until


async def artifacts(s: Real, token: str, session_id: str) -> dict[str, str]:
    """Path -> id of what is stored, once it is."""
    path = f"/api/v1/sessions/{session_id}"
    await s.call("POST", f"{path}/executions?wait=10", token, {"code": "write:out/a.txt:hello"})
    await s.call("POST", f"{path}/executions?wait=10", token, {"code": "write:out/b.zip:PK\x03\x04"})
    await s.rig.stored(2)
    return {a["path"]: a["artifact_id"] for a in js(await s.call("GET", f"{path}/artifacts", token))["artifacts"]}


async def link(s: Real, artifact_id: str, token: str = "", *, cookie: str = "") -> str:
    answer = await s.call("POST", f"/api/v1/artifacts/{artifact_id}/link", token, {}, cookie=cookie)
    assert answer.code == 201, answer.body
    url = urlsplit(js(answer)["url"])
    assert url.netloc == f"127.0.0.1:{s.port}" and js(answer)["expires_at"].endswith("Z")
    return f"{url.path}?{url.query}"


async def test_a_link_serves_its_user(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with real(tmp_path) as s:
        alice, bob, boss = s.token("alice"), s.token("bob"), s.token("boss", "t1", "tenant_admin")
        ids = await artifacts(s, alice, await session(s, alice))
        target = f"/api/v1/artifacts/{ids['out/a.txt']}"
        url = await link(s, ids["out/a.txt"], alice)
        for answer in (await s.call("GET", url, alice), await s.call("GET", url, cookie=cookie_of(s, alice))):
            assert (answer.code, answer.body) == (200, b"hello")
            assert answer.headers["Content-Disposition"].startswith('attachment; filename="a.txt"')
            assert answer.headers["Cache-Control"] == "no-store" and answer.headers["Referrer-Policy"] == "no-referrer"
        assert_problem(await s.call("GET", url), 401, "unauthenticated")
        for other in (bob, boss, s.token("alice", "t2"), s.token("root", "t0", "admin")):
            assert_problem(await s.call("GET", url, other), 404, "not_found")
            assert_problem(await s.call("POST", f"{target}/link", other, {}), 404, "not_found")
        assert_problem(await s.call("POST", f"{target}/link", s.token("alice", scopes=("execute",)), {}), 403, "forbidden")
        assert (await s.call("GET", url, s.token("alice", scopes=("execute",)))).code == 403
        assert_problem(await s.call("POST", f"{target}/link", alice, {"ttl": 1}), 400, "bad_request")
        assert_problem(await s.call("POST", f"/api/v1/artifacts/{ids['out/b.zip']}/link", alice, {}), 422, "artifact_rejected")
        for bad in (f"{target}/download", f"{target}/download?link=x", f"{target}/download?link={alice}", url[:-10], url + "&link="):
            assert_problem(await s.call("GET", bad, alice), 404, "not_found")
        moved = url.replace(ids["out/a.txt"], ids["out/b.zip"])
        assert_problem(await s.call("GET", moved, alice), 404, "not_found")
        signed = url.partition("link=")[2]
        assert signed not in caplog.text and not any(signed in str(record.__dict__) for record in caplog.records)


async def test_a_link_dies_with_the_artifact(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        mine = await session(s, alice)
        ids = await artifacts(s, alice, mine)
        url = await link(s, ids["out/a.txt"], alice)
        await s.call("DELETE", f"/api/v1/sessions/{mine}", alice)
        await until(lambda: mine not in s.rig.gateway.live)
        assert (await s.call("GET", url, alice)).body == b"hello", "a session that ended keeps its files"
        assert (await s.call("DELETE", f"/api/v1/artifacts/{ids['out/a.txt']}", alice)).code == 204
        assert_problem(await s.call("GET", url, alice), 404, "not_found")
        await until(lambda: len(s.rig.store.objects) == 1)
        assert_problem(await s.call("GET", url, alice), 404, "not_found")
        assert_problem(await s.call("POST", f"/api/v1/artifacts/{ids['out/a.txt']}/link", alice, {}), 404, "not_found")


async def test_a_link_dies_at_logout_and_when_its_user_is_disabled(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        ids = await artifacts(s, alice, await session(s, alice))
        page, other = cookie_of(s, alice), cookie_of(s, alice)
        of_page, of_other = await link(s, ids["out/a.txt"], cookie=page), await link(s, ids["out/a.txt"], cookie=other)
        assert (await s.call("GET", of_page, cookie=page)).code == 200
        assert (await s.call("POST", "/logout", cookie=page)).code == 204
        assert_problem(await s.call("GET", of_page, cookie=page), 401, "unauthenticated")
        for still in ({"token": alice}, {"cookie": other}):
            assert_problem(await s.call("GET", of_page, **still), 404, "not_found")
            assert (await s.call("GET", of_other, **still)).code == 200
        of_token = await link(s, ids["out/a.txt"], alice)
        await s.call("POST", "/api/v1/admin/users/alice/disable", boss, {"reason_text": "left"})
        for url in (of_other, of_token):
            assert_problem(await s.call("GET", url, alice), 401, "user_disabled")
        await s.call("POST", "/api/v1/admin/users/alice/enable", boss, {})
        await asyncio.sleep(0.002)
        for url in (of_other, of_token):
            assert_problem(await s.call("GET", url, alice), 404, "not_found")
        assert (await s.call("GET", await link(s, ids["out/a.txt"], alice), alice)).code == 200


async def test_a_restart_forgets_links(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        ids = await artifacts(s, alice, await session(s, alice))
        url = await link(s, ids["out/a.txt"], alice)
        await s.restart()
        assert_problem(await s.call("GET", url, alice), 404, "not_found")
        assert (await s.call("GET", await link(s, ids["out/a.txt"], alice), alice)).body == b"hello"
