"""What admins see of sessions and do to them: extend within policy, try again to store, give up; who may, and what is recorded."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from http_real import Real, real, session, until
from http_served import assert_problem, js

from gateway.errors import RecordsUnavailable, StoreUnavailable
from gateway.ports import AuditRow
from gateway.service.world import Caps

ADMIN = "/api/v1/admin"


async def quarantined(s: Real, token: str) -> str:
    """A session whose sandbox holds a declared and an undeclared file that the store does not take."""
    session_id = await session(s, token)
    path = f"/api/v1/sessions/{session_id}"
    s.rig.store.failing = StoreUnavailable("The bucket is away.")
    done = await s.call("POST", f"{path}/executions?wait=10", token, {"code": "set:df\nwrite:out/a.txt:kept\nwrite:draft.txt:hello"})
    assert js(done)["exit_reason"] == "ok"
    assert (await s.call("POST", f"{path}/recycle", token, {})).code == 202
    await until(lambda: s.rig.gateway.live[session_id].core.state == "quarantined")
    return session_id


def when(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def audited(s: Real, tag: str) -> list[dict[str, Any]]:
    return [row.detail | {"tenant": row.tenant, "user": row.user} for row in await s.rig.records.list_audit() if row.tag == tag]


async def test_a_quarantined_session_is_seen_and_its_files_can_be_fetched(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await quarantined(s, alice)
        [listed] = js(await s.call("GET", f"{ADMIN}/sessions?state=quarantined", boss))["sessions"]
        state = listed["quarantine"]
        assert (state["why"], state["attempts"]) == ("The bucket is away.", 1)
        assert 0 < when(state["next_retry"]) - when(state["since"]) <= 6 and when(state["gives_up_at"]) - when(state["since"]) == pytest.approx(3600)
        one = js(await s.call("GET", f"{ADMIN}/sessions/{mine}", boss))
        assert one["would_lose"] == {"files": [{"path": "out/a.txt", "size": 4}], "undeclared": [{"path": "draft.txt", "size": 5}], "more": 0}
        assert "quarantined" in [n["kind"] for n in one["notices"]]

        files = js(await s.call("GET", f"/api/v1/sessions/{mine}/files", alice))
        assert files["live"] and {f["path"]: (f["declared"], f["stored"]) for f in files["files"]} == {
            "out/a.txt": (True, False), "draft.txt": (False, False),
        }  # fmt: skip
        for path, body in (("out/a.txt", b"kept"), ("draft.txt", b"hello")):
            assert (await s.call("GET", f"/api/v1/sessions/{mine}/files/{path}", alice)).body == body
        assert_problem(await s.call("GET", f"/api/v1/sessions/{mine}/files/out/a.txt", boss), 404, "not_found")


async def test_a_quarantine_goes_on_after_a_restart_of_the_gateway(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await quarantined(s, alice)
        before = js(await s.call("GET", f"{ADMIN}/sessions/{mine}", boss))["quarantine"]
        await s.rig.gateway.live[mine].released()
        await s.restart()
        one = js(await s.call("GET", f"{ADMIN}/sessions/{mine}", boss))
        assert one["state"] == "quarantined" and one["quarantine"]["why"] == "The bucket is away."
        assert when(one["quarantine"]["since"]) == pytest.approx(when(before["since"]), abs=0.5), "it is not put off by that"
        assert [f["path"] for f in one["would_lose"]["files"]] == ["out/a.txt"]
        assert (await s.call("GET", f"/api/v1/sessions/{mine}/files/draft.txt", alice)).body == b"hello"
        s.rig.store.failing = None
        assert (await s.call("POST", f"{ADMIN}/sessions/{mine}/retry", boss, {})).code == 202
        await until(lambda: s.rig.gateway.live[mine].core.state == "dormant", 3.0)
        assert list(s.rig.store.objects.values()) == [b"kept"]


async def test_a_retry_stores_at_once_what_the_store_takes_again(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await quarantined(s, alice)
        live = s.rig.gateway.live[mine]
        assert (await s.call("POST", f"{ADMIN}/sessions/{mine}/retry", boss, {})).code == 202
        await until(lambda: live.core.attempts == 2)
        s.rig.store.failing = None
        assert (await s.call("POST", f"{ADMIN}/sessions/{mine}/retry", boss, {"reason_text": "mended"})).code == 202
        await until(lambda: live.core.state == "dormant", 3.0)
        assert list(s.rig.store.objects.values()) == [b"kept"]
        assert [d["text"] for d in await audited(s, "admin:session:retry")] == ["mended", ""]
        assert_problem(await s.call("POST", f"{ADMIN}/sessions/{mine}/retry", boss, {}), 409, "invalid_transition")
        assert len(await audited(s, "admin:session:retry")) == 2, "what did not happen is not recorded"


async def test_a_release_gives_up_and_tells_what_is_lost(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await quarantined(s, alice)
        target = f"{ADMIN}/sessions/{mine}/release"
        for bad in ({}, {"confirm": True}, {"confirm": True, "reason_text": " "}, {"reason_text": "x"}, {"confirm": 1, "reason_text": "x"}):
            assert_problem(await s.call("POST", target, boss, bad), 400, "bad_request")
        assert s.rig.gateway.live[mine].core.state == "quarantined"
        response = await s.call("POST", target, boss, {"confirm": True, "reason_text": "the bucket is lost"})
        assert response.code == 202, response.body
        await until(lambda: s.rig.gateway.live[mine].core.state == "dormant")
        assert await s.rig.runtime.list(await s.rig.records.instance_id()) == []
        notices = js(await s.call("GET", f"/api/v1/sessions/{mine}/notices", alice))["notices"]
        [lost] = [n for n in notices if n["kind"] == "files_lost"]
        assert lost["reason"] == "admin" and lost["files"] == ["out/a.txt", "draft.txt"] and "the bucket is lost" in lost["text"]
        [recycled] = [n for n in notices if n["kind"] == "recycled"]
        assert recycled["reason"] == "user", "why the sandbox ended stays true"
        [said] = await audited(s, "admin:session:release")
        assert (said["by"], said["text"], said["files"], said["tenant"], said["user"]) == ("boss", "the bucket is lost", 2, "t1", "alice")
        s.rig.store.failing = None
        done = js(await s.call("POST", f"/api/v1/sessions/{mine}/executions?wait=10", alice, {"code": "print:x"}))
        assert "gave up what could not be stored" in done["stderr"]


async def test_an_extension_within_policy(tmp_path: Path) -> None:
    async with real(tmp_path, max_s=600.0, caps=Caps(extension_s=100.0)) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await session(s, alice)
        before = js(await s.call("GET", f"{ADMIN}/sessions/{mine}", boss))
        assert (before["extended_s"], before["extension_left_s"]) == (0.0, 100.0)
        target = f"{ADMIN}/sessions/{mine}/extend"
        answer = await s.call("POST", target, boss, {"seconds": 60, "reason_text": "report is due"})
        assert answer.code == 200, answer.body
        after = js(answer)
        assert after["extended_s"] == 60.0 and when(after["max_deadline"]) - when(before["max_deadline"]) == pytest.approx(60, abs=0.1)
        problem = assert_problem(await s.call("POST", target, boss, {"seconds": 41, "reason_text": "more"}), 403, "forbidden")
        assert problem["extension_left_s"] == 40.0
        for bad in ({"seconds": 1}, {"reason_text": "x"}, {"seconds": 0, "reason_text": "x"}, {"seconds": -5, "reason_text": "x"},
                    {"seconds": 1, "reason_text": "  "}, {"seconds": "1", "reason_text": "x"}):  # fmt: skip
            assert_problem(await s.call("POST", target, boss, bad), 400, "bad_request")
        live = s.rig.gateway.live[mine]
        await live.teller.done()
        [told] = [n for n in js(await s.call("GET", f"/api/v1/sessions/{mine}/notices", alice))["notices"] if n["kind"] == "extended"]
        assert (
            "1 min (report is due)" in told["text"]
            and told["seconds"] == 60
            and when(told["deadline"]) == pytest.approx(when(after["max_deadline"]), abs=0.1)
        )
        [said] = await audited(s, "admin:session:extend")
        assert (said["by"], said["seconds"], said["text"]) == ("boss", 60, "report is due")
        await live.released()
        await s.restart()
        again = js(await s.call("GET", f"{ADMIN}/sessions/{mine}", boss))
        assert (again["extended_s"], again["extension_left_s"]) == (60.0, 40.0)
        assert when(again["max_deadline"]) == pytest.approx(when(after["max_deadline"]), abs=0.5)

        await s.call("POST", f"/api/v1/sessions/{mine}/recycle", alice, {})
        await until(lambda: s.rig.gateway.live[mine].core.state == "dormant")
        assert_problem(await s.call("POST", target, boss, {"seconds": 1, "reason_text": "x"}), 409, "invalid_transition")


async def test_an_extended_sandbox_lives_past_its_maximum_and_then_ends(tmp_path: Path) -> None:
    async with real(tmp_path, max_s=1.0, warn=(0.4,)) as s:
        alice, boss = s.token("alice"), s.token("boss", "t1", "tenant_admin")
        mine = await session(s, alice)
        live = s.rig.gateway.live[mine]
        await until(lambda: live.telling.warnings)
        assert (await s.call("POST", f"{ADMIN}/sessions/{mine}/extend", boss, {"seconds": 1.0, "reason_text": "x"})).code == 200
        await until(lambda: not live.telling.warnings)
        old = live.core.claimed_at + 1.0
        await until(lambda: live.telling.warnings, 3.0)
        assert s.rig.clock.boottime() > old and live.core.state == "active"
        await until(lambda: live.core.state == "dormant", 5.0)
        assert live.core.reason == "max_lifetime" and s.rig.clock.boottime() >= old + 1.0


async def test_two_extensions_at_once_do_not_exceed_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with real(tmp_path, caps=Caps(extension_s=100.0)) as s:
        boss = s.token("boss", "t1", "tenant_admin")
        mine = await session(s, s.token("alice"))
        add = s.rig.records.add_audit

        async def slow(row: AuditRow) -> None:
            await asyncio.sleep(0.05)
            await add(row)

        monkeypatch.setattr(s.rig.records, "add_audit", slow)
        body = {"seconds": 60, "reason_text": "x"}
        answers = await asyncio.gather(*(s.call("POST", f"{ADMIN}/sessions/{mine}/extend", boss, body) for _ in range(2)))
        assert sorted(a.code for a in answers) == [200, 403]
        assert s.rig.gateway.live[mine].core.extended_s == 60.0


async def test_policy_may_refuse_every_extension(tmp_path: Path) -> None:
    async with real(tmp_path, caps=Caps(extension_s=0.0)) as s:
        root = s.token("root", "t0", "admin")
        mine = await session(s, s.token("alice"))
        answer = await s.call("POST", f"{ADMIN}/sessions/{mine}/extend", root, {"seconds": 1, "reason_text": "x"})
        assert "no extension" in assert_problem(answer, 403, "forbidden")["detail"]


async def test_rights(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        mine = await session(s, alice)
        extend = {"seconds": 1, "reason_text": "x"}
        acts = (("extend", extend), ("retry", {}), ("release", {"confirm": True, "reason_text": "x"}), ("end", {}))
        for act, body in acts:
            target = f"{ADMIN}/sessions/{mine}/{act}"
            assert_problem(await s.call("POST", target, "", body), 401, "unauthenticated")
            assert_problem(await s.call("POST", target, alice, body), 403, "forbidden")
            agent = s.token("boss", "t1", "tenant_admin", scopes=("execute", "sessions:write"))
            assert_problem(await s.call("POST", target, agent, body), 403, "forbidden")
            assert_problem(await s.call("POST", target, s.token("b2", "t2", "tenant_admin"), body), 404, "not_found")
            assert_problem(await s.call("POST", f"{ADMIN}/sessions/nope/{act}", s.token("root", "t0", "admin"), body), 404, "not_found")
        reader = s.token("boss", "t1", "tenant_admin", scopes=("files:read",))
        for path in ("/sessions", f"/sessions/{mine}", "/audit", "/disabled-users"):
            assert_problem(await s.call("GET", f"{ADMIN}{path}", reader), 403, "forbidden")
        assert (await s.call("POST", f"{ADMIN}/sessions/{mine}/extend", s.token("root", "t0", "admin"), extend)).code == 200
        await s.call("DELETE", f"/api/v1/sessions/{mine}", alice)
        await until(lambda: mine not in s.rig.gateway.live)
        for act, body in acts:
            assert_problem(await s.call("POST", f"{ADMIN}/sessions/{mine}/{act}", s.token("root", "t0", "admin"), body), 410, "session_ended")


async def test_what_cannot_be_recorded_does_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with real(tmp_path) as s:
        boss = s.token("boss", "t1", "tenant_admin")
        mine = await session(s, s.token("alice"))

        async def down(*args: object) -> None:
            raise RecordsUnavailable("locked")

        with monkeypatch.context() as locked:
            locked.setattr(s.rig.records, "add_audit", down)
            answer = await s.call("POST", f"{ADMIN}/sessions/{mine}/extend", boss, {"seconds": 9, "reason_text": "x"})
            assert_problem(answer, 503, "records_unavailable")
        assert s.rig.gateway.live[mine].core.extended_s == 0.0


async def test_the_audit_is_filtered_and_paged(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        boss, root = s.token("boss", "t1", "tenant_admin"), s.token("root", "t0", "admin")
        mine, other = await session(s, s.token("alice")), await session(s, s.token("eve", "t2"))
        for _ in range(3):
            await s.call("POST", f"{ADMIN}/sessions/{mine}/extend", boss, {"seconds": 1, "reason_text": "x"})

        async def found(query: str, token: str = root) -> list[tuple[str, str]]:
            response = await s.call("GET", f"{ADMIN}/audit{query}", token)
            assert response.code == 200, response.body
            return [(r["tag"], r["user"]) for r in js(response)["audit"]]

        assert await found("?tag=admin:") == [("admin:session:extend", "alice")] * 3 == await found("?tag=admin:", boss)
        assert await found("?user=eve") == [("rest:session:create", "eve")] and await found("?user=eve", boss) == []
        assert await found(f"?session={other}") == [("rest:session:create", "eve")]
        assert_problem(await s.call("GET", f"{ADMIN}/audit?tenant=t2", boss), 403, "forbidden")
        whole = await found("?tenant=t1")
        pages, link = [], "?tenant=t1&limit=3"
        while link:
            answer = js(await s.call("GET", f"{ADMIN}/audit{link}", root))
            pages += [(r["tag"], r["user"]) for r in answer["audit"]]
            link = answer["next"] and f"?tenant=t1&limit=3&cursor={answer['next']}"
        assert pages == whole and len(whole) == 4
        for bad in ("cursor=x", "cursor=-1", "limit=0", "since=soon"):
            assert_problem(await s.call("GET", f"{ADMIN}/audit?{bad}", root), 400, "bad_request")


async def test_resources_are_asked_for_seldom_and_waited_for_shortly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with real(tmp_path) as s:
        boss = s.token("boss", "t1", "tenant_admin")
        ids = {await session(s, s.token("alice")) for _ in range(3)}
        asked, real_stats, hang = [], s.rig.runtime.stats, asyncio.Event()

        async def stats(engine_id: str) -> dict[str, float]:
            asked.append(engine_id)
            if len(asked) == 3:
                await hang.wait()
            return await real_stats(engine_id)

        monkeypatch.setattr(s.rig.runtime, "stats", stats)
        begun = asyncio.get_running_loop().time()
        first = {x["session_id"]: x["resources"] for x in js(await s.call("GET", f"{ADMIN}/sessions", boss))["sessions"]}
        assert asyncio.get_running_loop().time() - begun < 3.0
        assert set(first) == ids and sorted(bool(r) for r in first.values()) == [False, True, True]
        for used in first.values():
            assert not used or {"memory_bytes", "cpu_s", "pids", "as_of"} == set(used)
        hang.set()
        await asyncio.sleep(0.05)
        second = js(await s.call("GET", f"{ADMIN}/sessions", boss))["sessions"]
        assert all(x["resources"] for x in second) and len(asked) == 3


async def test_what_was_logged_out_stays_so_after_a_restart(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        ticket = js(await s.call("POST", "/api/v1/tickets", alice, {"purpose": "login"}))["ticket"]
        other = js(await s.call("POST", "/api/v1/tickets", alice, {"purpose": "login"}))["ticket"]
        cookie, stays = s.pages.redeem(ticket, "login")[0], s.pages.redeem(other, "login")[0]
        assert (await s.call("POST", "/logout", cookie=cookie)).code == 204
        for _ in range(2):
            assert_problem(await s.call("GET", "/api/v1/me", cookie=cookie), 401, "unauthenticated")
            assert (await s.call("GET", "/api/v1/me", cookie=stays)).code == 200
            await s.restart()


async def test_a_log_out_while_the_records_are_locked_is_recorded_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with real(tmp_path) as s:
        ticket = js(await s.call("POST", "/api/v1/tickets", s.token("alice"), {"purpose": "login"}))["ticket"]
        cookie = s.pages.redeem(ticket, "login")[0]

        async def locked(*args: object) -> None:
            raise RecordsUnavailable("locked")

        with monkeypatch.context() as down:
            down.setattr(s.rig.records, "put_revocation", locked)
            assert (await s.call("POST", "/logout", cookie=cookie)).code == 204
            assert_problem(await s.call("GET", "/api/v1/me", cookie=cookie), 401, "unauthenticated")
            assert await s.rig.records.list_revocations() == []
        async with asyncio.timeout(10):
            while not await s.rig.records.list_revocations():
                await asyncio.sleep(0.01)
