"""Executions over HTTP with the whole service behind: keys, bodies, event streams that resume, whole outputs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from http_real import Real, real, session
from http_served import PATIENCE_S, assert_problem, js
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse

from gateway.service.world import Caps
from tests.unit.service.harness import until

Event = tuple[int | None, str, dict[str, Any]]


async def read_events(reader: asyncio.StreamReader, stop: Any = lambda event: False) -> list[Event]:
    """Events of a raw HTTP answer, until its end or until ``stop`` says so. Chunk sizes are skipped over: they are lines of hex digits."""
    found: list[Event] = []
    number, kind = None, ""
    async with asyncio.timeout(PATIENCE_S):
        while line := await reader.readline():
            text = line.decode().rstrip("\r\n")
            if text.startswith("id: "):
                number = int(text[4:])
            elif text.startswith("event: "):
                kind = text[7:]
            elif text.startswith("data: "):
                found.append((number, kind, json.loads(text[6:])))
                number = None
                if stop(found[-1]):
                    break
            elif text == "0":
                break
    return found


async def post(s: Real, token: str, path: str, body: Any, *keys: str) -> HTTPResponse:
    request = HTTPRequest(f"http://127.0.0.1:{s.port}{path}", method="POST", body=json.dumps(body), request_timeout=PATIENCE_S)
    request.headers["Authorization"] = f"Bearer {token}"
    for key in keys:
        request.headers.add("Idempotency-Key", key)
    return await AsyncHTTPClient().fetch(request, raise_error=False)


async def test_keys_and_bodies(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        token = s.token("alice")
        path = f"/api/v1/sessions/{await session(s, token)}/executions"
        first = await post(s, token, f"{path}?wait=10", {"code": "print:x"}, "key 1")
        assert first.code == 200 and js(first)["stdout"] == "x\n"
        again = await post(s, token, path, {"code": "print:x", "timeout_s": None, "stop_on_error": False}, "key 1")
        assert again.code == 200 and js(again)["execution_id"] == js(first)["execution_id"]
        refused = assert_problem(await post(s, token, path, {"code": "print:y"}, "key 1"), 409, "conflict")
        assert refused["execution_id"] == js(first)["execution_id"]
        for keys in ([""], ["x" * 201], ["a", "b"], ["caf\xe9"]):
            assert_problem(await post(s, token, path, {"code": "print:x"}, *keys), 400, "bad_request")
        bodies: list[tuple[Any, str]] = [
            ({"code": "1", "cdoe": 1}, "Unknown key 'cdoe'"), ({"code": "1", "inputs": [{"artifact_id": "a"}]}, "inputs.0.path"),
            ({"code": "1", "inputs": [{"artifact_id": "a", "path": "b", "x": 1}]}, "inputs.0.x"), ({"code": "1",
        "max_output_bytes": -1}, "at least 0"),
            ({"code": "1", "result_schema": []}, "an object"), ({"code": "1", "result_schema": {"pattern": "x"}}, "pattern"),
            ({"code": "1", "timeout_s": True}, "a number"), ({"code": "1", "stop_on_error": 1}, "true or false"), ({}, "missing"),
            ({"code": "x" * (2**21 + 1)}, "at most"), ({"code": "1", "inputs": [{"artifact_id": "a", "path": "b"}] * 33}, "at most 32"),
        ]  # fmt: skip
        for body, says in bodies:
            problem = assert_problem(await post(s, token, path, body), 400, "bad_request")
            assert says in problem["detail"], problem
        assert (await post(s, token, path, {"code": "x" * 5 * 2**20})).code == 413
        assert_problem(await post(s, token, path, {"code": "1", "inputs": [{"artifact_id": "a", "path": "b"}]}), 404, "not_found")
        assert_problem(await post(s, token, path, {"code": "1", "inputs": [{"artifact_id": "a", "path": "out/b"}]}), 400, "path_refused")
        assert len(js(await s.call("GET", path, token))["executions"]) == 1, "what was refused left nothing behind"


async def test_an_execution_s_events_live_late_and_resumed(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        token = s.token("alice")
        path = f"/api/v1/sessions/{await session(s, token)}/executions"
        code = "import nonesuch\nprint:one\nsleep:0.2\nprint:two\nvalue:3\nerror:ValueError"
        execution_id = js(await post(s, token, path, {"code": code}))["execution_id"]
        beside = js(await post(s, token, path, {"code": "print:another"}))["execution_id"]
        live = await read_events(await s.stream(f"{path}/{execution_id}/events", token))
        kinds = [kind for _, kind, _ in live]
        assert kinds == ["warning", "started", "stdout", "stdout", "result", "error", "done"], live
        assert live[0][2]["code"] == "hint" and live[0][2]["kind"] == "import" and live[1][2]["execution_count"] == 1
        assert [data["text"] for _, kind, data in live if kind == "stdout"] == ["one\n", "two\n"] and live[2][2]["untrusted"] is True
        done = live[-1][2]["execution"]
        assert done["exit_reason"] == "code_error" and done["state"] == "finished"
        ids = [number for number, _, _ in live]
        assert all(isinstance(n, int) for n in ids) and ids == sorted(ids)  # type: ignore[type-var]
        await until(lambda: not s.rig.gateway.live[path.split("/")[4]].runs.open)
        late = await read_events(await s.stream(f"{path}/{execution_id}/events", token))
        assert late[:-1] == live[:-1] and late[-1][:2] == live[-1][:2]
        rest = await read_events(await s.stream(f"{path}/{execution_id}/events?after={ids[2]}", token))
        assert [e[0] for e in rest] == ids[3:]
        for behind in (ids[-1], 10**17):
            assert [e[1] for e in await read_events(await s.stream(f"{path}/{execution_id}/events?after={behind}", token))] == ["done"]
        assert [e[1] for e in await read_events(await s.stream(f"{path}/{beside}/events?after=0", token))] == ["started", "stdout", "done"]
        assert_problem(await s.call("GET", f"{path}/{execution_id}/events?after=x", token), 400, "bad_request")
        assert_problem(await s.call("GET", f"{path}/nonesuch/events", token), 404, "not_found")
        assert_problem(await s.call("GET", f"{path}/{execution_id}/events", s.token("bob")), 404, "not_found")
        assert_problem(await s.call("GET", f"{path}/{execution_id}/events", s.token("alice", scopes=("execute",))), 403, "forbidden")
        assert not len(s.rig.gateway.live[path.split("/")[4]].attachments), "a stream that has ended holds nothing"


@pytest.mark.parametrize("forgotten", [False, True])
async def test_what_is_not_kept_any_more_is_said_and_the_end_comes_all_the_same(tmp_path: Path, forgotten: bool) -> None:
    async with real(tmp_path, caps=Caps(journal_bytes=2**20)) as s:
        token = s.token("alice")
        session_id = await session(s, token)
        path = f"/api/v1/sessions/{session_id}/executions"
        first = js(await post(s, token, f"{path}?wait=20", {"code": "print:early\nflood:400000"}))["execution_id"]
        live = s.rig.gateway.live[session_id]
        if forgotten:  # nothing at all is left of it
            live.journal.drop_before(live.journal.cut())
        else:
            await post(s, token, f"{path}?wait=20", {"code": "flood:3000000"})
        assert live.journal.first_index > 1
        found = await read_events(await s.stream(f"{path}/{first}/events?after=1", token))
        assert found[-1][1] == "done" and found[-1][2]["execution"]["execution_id"] == first
        gaps = [data for _, kind, data in found if kind == "warning" and data.get("code") == "gap"]
        assert len(gaps) == 1 and gaps[0]["oldest"] > gaps[0]["after"]
        answer = js(await s.call("GET", f"{path}/{first}", token))
        assert answer["truncated"]["no_longer_kept"] is True


async def test_a_kernel_s_death_is_a_change_of_generation_before_the_end(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        token = s.token("alice")
        path = f"/api/v1/sessions/{await session(s, token)}/executions"
        await post(s, token, f"{path}?wait=10", {"code": "set:df"})
        execution_id = js(await post(s, token, path, {"code": "sleep:0.3\ndie:11"}))["execution_id"]
        found = await read_events(await s.stream(f"{path}/{execution_id}/events", token))
        assert [kind for _, kind, _ in found][-2:] == ["generation_changed", "done"]
        changed = found[-2][2]
        assert (changed["generation"], changed["next_action"], [v["name"] for v in changed["variables"]]) == (2, "rebuild", ["df"])
        assert found[-1][2]["execution"]["exit_reason"] == "kernel_died"


async def test_a_client_that_goes_mid_stream_leaves_nothing_behind(tmp_path: Path) -> None:
    async with real(tmp_path, caps=Caps(attachments=2)) as s:
        token = s.token("alice")
        session_id = await session(s, token)
        path = f"/api/v1/sessions/{session_id}/executions"
        execution_id = js(await post(s, token, path, {"code": "print:x\nsleep:30"}))["execution_id"]
        live = s.rig.gateway.live[session_id]
        for _ in range(6):
            reader = await s.stream(f"{path}/{execution_id}/events", token)
            await read_events(reader, lambda event: event[1] == "stdout")
            s.writers.pop().close()
            await until(lambda: not len(live.attachments))
        await s.call("DELETE", f"{path}/{execution_id}", token)
        assert (await read_events(await s.stream(f"{path}/{execution_id}/events", token)))[-1][2]["execution"]["exit_reason"] == "interrupted"


async def test_the_whole_output_is_a_download(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        token = s.token("alice")
        path = f"/api/v1/sessions/{await session(s, token)}/executions"
        found = js(await post(s, token, f"{path}?wait=20", {"code": "flood:300000\nprint:end", "max_output_bytes": 10}))
        assert len(found["stdout"]) == 10
        url = found["truncated"]["full_output_url"]
        got = await s.call("GET", f"{url}?stream=stdout", token)
        assert got.body == b"x" * 300_000 + b"end\n" and got.headers["Content-Disposition"].startswith("attachment;")
        assert got.headers["Content-Security-Policy"].startswith("sandbox")
        lines = (await s.call("GET", url, token)).body.splitlines()
        assert json.loads(lines[-1]) == {"type": "stdout", "text": "end\n", "untrusted": True}
        assert_problem(await s.call("GET", f"{url}?stream=x", token), 400, "bad_request")
        assert_problem(await s.call("GET", url, s.token("bob")), 404, "not_found")
