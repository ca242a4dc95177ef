"""Disabled users: what admins may do, and that everything of the user ends at once and stays ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from http_real import Real, real, session, until
from http_served import PATIENCE_S, assert_problem, closed_with, js
from tornado.httpclient import HTTPClientError

from gateway.errors import RecordsUnavailable

USERS = "/api/v1/admin/users"
LAST_CHUNK = b"\r\n0\r\n\r\n"


async def test_everything_of_the_user_ends_at_once(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, bob, boss = s.token("alice"), s.token("bob"), s.token("boss", "t1", "tenant_admin")
        mine, his = await session(s, alice), await session(s, bob)
        path = f"/api/v1/sessions/{mine}"
        done = await s.call("POST", f"{path}/executions?wait=10", alice, {"code": "set:df\nwrite:out/a.txt:kept"})
        assert js(done)["exit_reason"] == "ok"
        ticket = js(await s.call("POST", "/api/v1/tickets", alice, {"purpose": "login"}))["ticket"]
        cookie, _ = s.pages.redeem(js(await s.call("POST", "/api/v1/tickets", alice, {"purpose": "login"}))["ticket"], "login")
        assert (await s.call("GET", "/api/v1/me", cookie=cookie)).code == 200
        ws, other = await s.ws(mine, alice), await s.ws(his, bob)
        events, page = await s.stream(f"{path}/events", alice), await s.stream(f"{path}/events", cookie=cookie)
        await asyncio.wait_for(events.readuntil(b"event: session"), PATIENCE_S)
        await asyncio.wait_for(page.readuntil(b"event: session"), PATIENCE_S)
        waiting = await s.stream(f"{path}/executions/{js(done)['execution_id']}", alice)
        await asyncio.wait_for(waiting.readuntil(b"\r\n\r\n"), PATIENCE_S)
        running = js(await s.call("POST", f"{path}/executions", alice, {"code": "sleep:30"}))["execution_id"]
        waiting = await s.stream(f"{path}/executions/{running}?wait=60", alice)

        answer = await s.call("POST", f"{USERS}/alice/disable", boss, {"reason_text": "left"})
        assert answer.code == 200
        said = js(answer)
        assert (said["user"], said["tenant"], said["disabled"], said["by"], said["session_ids"]) == ("alice", "t1", True, "boss", [mine])

        assert await asyncio.wait_for(closed_with(ws), 1.0) == 4401
        for stream in (events, page):
            rest = await asyncio.wait_for(stream.readuntil(LAST_CHUNK), 1.0)
            assert b'"code":"unauthenticated"' in rest and b"bye" in rest
        assert await asyncio.wait_for(waiting.read(), 1.0) == b"", "a request that waits is cut off"
        for call in (
            s.call("GET", "/api/v1/me", alice), s.call("GET", "/api/v1/me", s.token("alice")), s.call("GET", f"{path}/files/out/a.txt", alice),
            s.call("GET", "/api/kernels", alice), s.call("POST", "/api/v1/sessions", alice, {}), s.call("GET", "/api/v1/me", cookie=cookie),
        ):  # fmt: skip
            assert_problem(await call, 401, "user_disabled")
        assert (await s.call("GET", f"/login?ticket={ticket}")).code == 401
        assert (await s.call("GET", "/", cookie=cookie)).code == 401
        with pytest.raises(HTTPClientError) as refused:
            await s.ws(mine, alice)
        assert refused.value.code == 401
        assert (await s.call("GET", "/api/v1/me", bob)).code == 200
        assert not other.close_code and s.rig.gateway.live[his].core.state == "active"

        await until(lambda: s.rig.gateway.live[mine].core.state == "dormant")
        assert s.rig.gateway.live[mine].core.reason == "admin"
        assert list(s.rig.store.objects.values()) == [b"kept"], "declared files are stored"
        [row] = [row for row in await s.rig.records.list_audit() if row.tag == "admin:user:disable"]
        assert (row.tenant, row.user, row.detail["by"], row.detail["text"]) == ("t1", "alice", "boss", "left")


async def test_it_survives_a_restart_and_can_be_taken_back(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await session(s, alice)
        cookie, _ = s.pages.redeem(s.pages.issue_ticket(s.pages.verify_cookie(cookie_of(s, alice)), "login")[0], "login")
        assert (await s.call("POST", f"{USERS}/alice/disable", boss, {})).code == 200
        await s.restart()
        assert_problem(await s.call("GET", "/api/v1/me", alice), 401, "user_disabled")
        assert_problem(await s.call("GET", "/api/v1/me", cookie=cookie), 401, "user_disabled")
        assert [u["user"] for u in js(await s.call("GET", "/api/v1/admin/disabled-users", boss))["users"]] == ["alice"]
        assert js(await s.call("POST", f"{USERS}/alice/enable", boss, {})) == {"user": "alice", "tenant": "t1", "disabled": False}
        assert_problem(await s.call("POST", f"{USERS}/alice/enable", boss, {}), 404, "not_found")
        for _ in range(2):
            assert (await s.call("GET", "/api/v1/me", alice)).code == 200
            assert_problem(await s.call("GET", "/api/v1/me", cookie=cookie), 401, "unauthenticated")
            assert js(await s.call("GET", "/api/v1/admin/disabled-users", boss)) == {"users": []}
            await s.restart()
        fresh = cookie_of(s, alice)
        assert (await s.call("GET", "/api/v1/me", cookie=fresh)).code == 200
        done = await s.call("POST", f"/api/v1/sessions/{mine}/executions?wait=10", alice, {"code": "print:x"})
        assert js(done)["exit_reason"] == "ok", "the session is still hers"


def cookie_of(s: Real, token: str) -> str:
    """A page session as a login link of this token's user makes it."""
    from gateway.auth import TokenVerifier

    return s.pages.sessions.issue(TokenVerifier.from_settings(s.auth, s.rig.clock).verify(token))


async def test_a_gateway_that_was_killed_in_the_middle_ends_the_sandboxes_later(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        mine = await session(s, s.token("alice"))
        s.rig.gateway.users._end = lambda row: []  # type: ignore[method-assign]
        boss = s.token("boss", "t1", "tenant_admin")
        await s.call("POST", f"{USERS}/alice/disable", boss, {"sessions": "end"})
        assert s.rig.gateway.live[mine].core.state == "active"
        await s.restart()
        await until(lambda: mine not in s.rig.gateway.live)
        row = await s.rig.records.get_session(mine)
        assert row is not None and (row.state, row.reason) == ("ended", "admin")


async def test_what_began_before_opens_no_sandbox_any_more(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await session(s, alice)
        live = s.rig.gateway.live[mine]
        await s.call("POST", f"{USERS}/alice/disable", boss, {})
        await until(lambda: live.core.state == "dormant")
        live.want()
        await until(lambda: live.effects.start_error is not None)
        assert live.core.state == "dormant" and live.effects.start_error.code == "user_disabled"  # type: ignore[union-attr]


async def test_rights(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss, root = s.token("alice"), s.token("boss", "t1", "tenant_admin"), s.token("root", "t0", "admin")
        for action in ("disable", "enable", "end-sessions"):
            assert_problem(await s.call("POST", f"{USERS}/bob/{action}", alice, {}), 403, "forbidden")
            assert_problem(await s.call("POST", f"{USERS}/bob/{action}", boss, {"tenant": "t2"}), 403, "forbidden")
            agent = s.token("boss", "t1", "tenant_admin", scopes=("execute",))
            assert_problem(await s.call("POST", f"{USERS}/bob/{action}", agent, {}), 403, "forbidden")
            assert_problem(await s.call("POST", f"{USERS}/bob/{action}", "", {}), 401, "unauthenticated")
        assert_problem(await s.call("GET", "/api/v1/admin/disabled-users", alice), 403, "forbidden")
        assert_problem(await s.call("POST", f"{USERS}/boss/disable", boss, {}), 409, "conflict")
        for bad in ({"sessions": "burn"}, {"reason_text": 1}, {"nope": 1}, {"reason_text": "x" * 1001}):
            assert_problem(await s.call("POST", f"{USERS}/bob/disable", boss, bad), 400, "bad_request")
        assert_problem(await s.call("POST", f"{USERS}/%00/disable", boss, {}), 400, "bad_request")
        assert (await s.call("POST", f"{USERS}/bob/disable", root, {"tenant": "t2"})).code == 200
        assert (await s.call("GET", "/api/v1/me", s.token("bob"))).code == 200, "bob of t1 is another"
        assert_problem(await s.call("GET", "/api/v1/me", s.token("bob", "t2")), 401, "user_disabled")
        odd = "auth0%7Ceve%2Fx"
        assert js(await s.call("POST", f"{USERS}/{odd}/disable", boss, {}))["user"] == "auth0|eve/x"
        assert_problem(await s.call("GET", "/api/v1/me", s.token("auth0|eve/x")), 401, "user_disabled")
        for who, seen in ((boss, {"auth0|eve/x"}), (root, {"auth0|eve/x", "bob"}), (s.token("b2", "t2", "tenant_admin"), {"bob"})):
            assert {u["user"] for u in js(await s.call("GET", "/api/v1/admin/disabled-users", who))["users"]} == seen
        assert_problem(await s.call("POST", f"{USERS}/bob/enable", boss, {}), 404, "not_found")


async def test_with_the_records_down_nothing_is_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await session(s, alice)

        async def down(*args: object) -> None:
            raise RecordsUnavailable("locked")

        with monkeypatch.context() as locked:
            locked.setattr(s.rig.records, "disable_user", down)
            assert_problem(await s.call("POST", f"{USERS}/alice/disable", boss, {}), 503, "records_unavailable")
        assert (await s.call("GET", "/api/v1/me", alice)).code == 200
        assert s.rig.gateway.live[mine].core.state == "active"


async def test_end_all_sessions_of_a_user(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = {await session(s, alice), await session(s, alice)}
        his = await session(s, s.token("bob"))
        answer = await s.call("POST", f"{USERS}/alice/end-sessions", boss, {"reason_text": "tidy"})
        assert answer.code == 202 and set(js(answer)["session_ids"]) == mine
        await until(lambda: set(s.rig.gateway.live) == {his})
        assert (await s.call("GET", "/api/v1/me", alice)).code == 200
        assert js(await s.call("POST", f"{USERS}/alice/end-sessions", boss, {}))["session_ids"] == []
        told = js(await s.call("GET", f"/api/v1/sessions/{mine.pop()}/notices", alice))["notices"]
        assert any("tidy" in n["text"] for n in told)


async def test_logging_out_closes_what_the_page_has_open(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        mine = await session(s, alice)
        cookie, other = cookie_of(s, alice), cookie_of(s, alice)
        gone, stays = await s.stream(f"/api/v1/sessions/{mine}/events", cookie=cookie), await s.ws(mine, alice)
        await asyncio.wait_for(gone.readuntil(b"event: session"), PATIENCE_S)
        assert (await s.call("POST", "/logout", cookie=cookie)).code == 204
        assert b"unauthenticated" in await asyncio.wait_for(gone.readuntil(LAST_CHUNK), 1.0)
        assert not stays.close_code and (await s.call("GET", "/api/v1/me", cookie=other)).code == 200


async def test_artifacts_are_deleted_over_rest(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss, root = s.token("alice"), s.token("boss", "t1", "tenant_admin"), s.token("root", "t0", "admin")
        mine = await session(s, alice)
        path = f"/api/v1/sessions/{mine}"
        for name in "abc":
            await s.call("POST", f"{path}/executions?wait=10", alice, {"code": f"write:out/{name}:{name}"})
        await s.rig.stored(3)
        ids = [a["artifact_id"] for a in js(await s.call("GET", f"{path}/artifacts", alice))["artifacts"]]
        target = f"/api/v1/artifacts/{ids[0]}"
        reader = s.token("alice", "t1", scopes=("files:read",))
        assert_problem(await s.call("DELETE", target, reader), 403, "forbidden")
        for stranger in (s.token("bob"), s.token("alice", "t2"), s.token("b2", "t2", "tenant_admin")):
            assert_problem(await s.call("DELETE", target, stranger), 404, "not_found")
        assert (await s.call("GET", target, reader)).body == b"a"
        for who, artifact_id in zip((alice, boss, root), ids, strict=True):
            gone = f"/api/v1/artifacts/{artifact_id}"
            assert (await s.call("DELETE", gone, who)).code == 204
            for each in (alice, boss, root):
                assert_problem(await s.call("GET", gone, each), 404, "not_found")
                assert_problem(await s.call("DELETE", gone, each), 404, "not_found")
        await until(lambda: not s.rig.store.objects)
        assert js(await s.call("GET", f"{path}/artifacts", alice))["artifacts"] == []


async def test_admins_list_filter_and_page_sessions(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        boss, root = s.token("boss", "t1", "tenant_admin"), s.token("root", "t0", "admin")
        mine = [await session(s, s.token("alice")) for _ in range(3)]
        his, other = await session(s, s.token("bob")), await session(s, s.token("eve", "t2"))
        await s.call("DELETE", f"/api/v1/sessions/{mine[0]}", s.token("alice"))
        await until(lambda: mine[0] not in s.rig.gateway.live)

        async def listed(query: str, token: str = boss) -> list[str]:
            response = await s.call("GET", f"/api/v1/admin/sessions{query}", token)
            assert response.code == 200, response.body
            return [x["session_id"] for x in js(response)["sessions"]]

        assert await listed("") == [his, *reversed(mine)] and await listed("", root) == [other, his, *reversed(mine)]
        assert await listed("?user=alice&state=active,draining") == [mine[2], mine[1]]
        assert await listed("?state=ended&reason=user") == [mine[0]] and await listed("?reason=crash") == []
        assert await listed("?tenant=t2", root) == [other] and await listed("?tenant=t1") == [his, *reversed(mine)]
        assert_problem(await s.call("GET", "/api/v1/admin/sessions?tenant=t2", boss), 403, "forbidden")
        assert await listed("?since=2020-01-01T00:00:00Z&limit=1") == [his] and await listed("?since=2999-01-01") == []
        pages, link = [], "?limit=3"
        while link:
            answer = js(await s.call("GET", f"/api/v1/admin/sessions{link}", boss))
            pages += [x["session_id"] for x in answer["sessions"]]
            link = answer["next"] and f"?limit=3&cursor={answer['next']}"
        assert pages == [his, *reversed(mine)]
        odd = ("cursor=!", "cursor=W10", "cursor=Wzdd", "cursor=%C3%A9")
        for bad in ("state=nope", "reason=x", "since=yesterday", "limit=0", "limit=1001", "limit=x", *odd):
            assert_problem(await s.call("GET", f"/api/v1/admin/sessions?{bad}", boss), 400, "bad_request")

        one = js(await s.call("GET", f"/api/v1/admin/sessions/{mine[0]}", boss))
        assert one["state"] == "ended" and [(h["state"], h["reason"]) for h in one["history"]] == [("gone", "user")]
        assert js(await s.call("GET", f"/api/v1/admin/sessions/{mine[1]}", root))["history"][0]["state"] == "claimed"
        assert_problem(await s.call("GET", f"/api/v1/admin/sessions/{other}", boss), 404, "not_found")
        assert_problem(await s.call("GET", f"/api/v1/admin/sessions/{mine[0]}", s.token("alice")), 403, "forbidden")
