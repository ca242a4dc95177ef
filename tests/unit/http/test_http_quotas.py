"""Quotas and traces over HTTP: the 429 and its words, what a user sees, what Jupyter clients get, and what admins may search."""

from __future__ import annotations

import json
from pathlib import Path

from http_real import Real, real, session
from http_served import assert_problem, js

from gateway.domain.quota import QuotaLimits
from gateway.protocol import jupyter

ADMIN = "/api/v1/admin/executions"
NONE = (0,) * 9


async def run(s: Real, session_id: str, token: str, code: str) -> str:
    response = await s.call("POST", f"/api/v1/sessions/{session_id}/executions?wait=10", token, {"code": code})
    assert response.code == 200, response.body
    return str(js(response)["execution_id"])


async def test_a_refusal_says_which_quota_and_when_it_is_free(tmp_path: Path) -> None:
    async with real(tmp_path, quotas=QuotaLimits(2, *NONE[1:])) as s:
        alice = s.token("alice")
        mine = await session(s, alice)
        await run(s, mine, alice, "print:1")
        await run(s, mine, alice, "print:2")
        refused = await s.call("POST", f"/api/v1/sessions/{mine}/executions", alice, {"code": "print:3"})
        body = assert_problem(refused, 429, "quota_exceeded")
        assert (body["quota"], body["scope"], body["limit"], body["next_action"]) == ("executions", "user", 2, "retry_after")
        assert 20 <= int(refused.headers["Retry-After"]) <= 30 and body["retry_after"] <= 30 and body["frees_at"]
        [shown] = [q for q in js(await s.call("GET", "/api/v1/me", alice))["quotas"] if q["quota"] == "executions"]
        assert (shown["used"], shown["limit"], shown["scope"], shown["period_s"]) == (2, 2, "user", 60.0) and shown["full_at"]
        others = js(await s.call("GET", "/api/v1/me", s.token("bob")))["quotas"]
        assert {q["quota"]: q["used"] for q in others}["executions"] == 0

        ws = await s.ws(mine, alice)
        header = jupyter.make_header("execute_request", "lab")
        await ws.write_message(jupyter.build("shell", header, {}, {}, {"code": "print:4", "silent": False}), binary=True)
        while True:
            raw = await ws.read_message()
            assert isinstance(raw, bytes), "the websocket stays open"
            message = jupyter.decode(raw)
            if message.msg_type == "execute_reply":
                break
        content = message.content
        assert message.parent_id == header["msg_id"] and content["ename"] == "quota_exceeded" and "2 executions a minute" in content["evalue"]
        assert content["sandglass"]["quota"] == "executions" and 0 < content["sandglass"]["retry_after"] <= 30


async def test_admins_search_the_traces_of_their_tenant(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice, carol = s.token("alice"), s.token("carol", "t2")
        boss, root = s.token("boss", "t1", "tenant_admin"), s.token("root", "t0", "admin")
        mine, foreign = await session(s, alice), await session(s, carol)
        good = await run(s, mine, alice, "print:planted-output")
        bad = await run(s, mine, alice, "error:KeyError")
        theirs = await run(s, foreign, carol, "print:b")

        async def ids(token: str, query: str = "") -> list[str]:
            found = js(await s.call("GET", f"{ADMIN}?{query}", token))["executions"]
            return [e["execution_id"] for e in found]

        assert await ids(boss) == [bad, good]
        assert await ids(root) == [theirs, bad, good]
        assert await ids(root, "tenant=t2") == [theirs] and await ids(root, "user=alice&reason=ok") == [good]
        assert await ids(boss, f"session={mine}&reason=code_error,timeout") == [bad] and await ids(boss, f"session={foreign}") == []
        whole = js(await s.call("GET", f"{ADMIN}?reason=ok", boss))["executions"][0]
        assert await ids(boss, f"since={whole['created_at'].replace('+', '%2B')}&reason=ok") == [good]
        assert await ids(boss, f"until={whole['created_at']}") == []
        assert (whole["tenant"], whole["user"], whole["session_id"], whole["state"], whole["exit_reason"]) == ("t1", "alice", mine, "finished", "ok")
        assert len(whole["code_sha256"]) == 64 and whole["network_policy"] == "none" and whole["output_bytes"] > 0
        assert "planted" not in json.dumps(whole)

        page = js(await s.call("GET", f"{ADMIN}?limit=1", boss))
        assert [e["execution_id"] for e in page["executions"]] == [bad]
        await run(s, mine, alice, "print:new")
        page = js(await s.call("GET", f"{ADMIN}?limit=1&cursor={page['next']}", boss))
        assert [e["execution_id"] for e in page["executions"]] == [good], "new ones move no page"

        assert_problem(await s.call("GET", ADMIN, alice), 403, "forbidden")
        assert_problem(await s.call("GET", f"{ADMIN}?tenant=t2", boss), 403, "forbidden")
        assert_problem(await s.call("GET", ADMIN, s.token("boss", "t1", "tenant_admin", scopes=("execute",))), 403, "forbidden")
        for query in ("reason=nonsense", "limit=0", "cursor=x", "since=yesterday", "until=-"):
            assert_problem(await s.call("GET", f"{ADMIN}?{query}", boss), 400, "bad_request")
