"""Outputs that look like secrets: marked or held by policy, on REST, event stream, Jupyter websocket and transcript alike."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from http_real import Real, real, session
from http_served import PATIENCE_S, js, request

from gateway.domain.sensitive import Screens, SensitiveSettings
from gateway.protocol import jupyter

SECRET = "AKIAIOSFODNN7EXAMPLE"
CELLS = {"print": f"print:{SECRET}", "value": f"value:key {SECRET}"}


def set_policy(s: Real, handling: str, patterns: str = "") -> None:
    s.deps.screens = s.rig.gateway.world.screens = Screens(SensitiveSettings(handling, patterns))


def texts_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return str(content.get("text", "")) + json.dumps(content.get("data", {})) if message["msg_type"] in ("stream", "execute_result") else ""


async def events(reader: asyncio.StreamReader, kind: str) -> dict[str, Any]:
    """The next message of that kind from an event stream."""
    while True:
        line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
        if line.startswith(b"data: "):
            data = json.loads(line[6:])
            if data.get("msg_type") == kind:
                return dict(data)


async def from_socket(s: Real, mine: str, token: str, code: str, kind: str) -> str:
    ws = await s.ws(mine, token)
    await ws.write_message(request("execute_request", {"code": code, "silent": False}), binary=True)
    while True:
        data = await asyncio.wait_for(ws.read_message(), PATIENCE_S)
        assert isinstance(data, bytes), data
        message = jupyter.decode(data)
        if message.msg_type == kind:
            ws.close()
            return json.dumps(message.content)


@pytest.mark.parametrize("handling", ["off", "mark", "hold"])
async def test_a_result_is_marked_or_held_on_every_surface(tmp_path: Path, handling: str) -> None:
    async with real(tmp_path) as s:
        set_policy(s, handling)
        alice = s.token("alice")
        mine = await session(s, alice)
        path = f"/api/v1/sessions/{mine}"
        stream = await s.stream(f"{path}/events", alice)
        for name, code in CELLS.items():
            kind, where = ("stream", "stdout") if name == "print" else ("execute_result", "results[0]")
            told = js(await s.call("POST", f"{path}/executions?wait=10", alice, {"code": code}))
            shown = told["stdout"] + json.dumps(told["results"])
            assert (SECRET in shown) == (handling != "hold"), shown
            marks = [{"where": where, "kinds": ["api_key"], "held": handling == "hold"}]
            assert told["sensitive"] == ([] if handling == "off" else marks)
            event = await events(stream, kind)
            assert (SECRET in texts_of(event)) == (handling != "hold")
            assert event.get("sensitive") == (None if handling == "off" else ["api_key"])
            assert (SECRET in await from_socket(s, mine, alice, code, kind)) == (handling != "hold")
            await events(stream, kind)
        kept = js(await s.call("GET", f"{path}/transcript", alice))["cells"]
        assert len(kept) == 4 and all((SECRET in json.dumps(cell["outputs"])) == (handling != "hold") for cell in kept)
        notebook = js(await s.call("GET", f"{path}/notebook", alice))
        outputs = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert (SECRET in json.dumps(outputs)) == (handling != "hold")
        plain = js(await s.call("POST", f"{path}/executions?wait=10", alice, {"code": "print:plain"}))
        assert plain["stdout"] == "plain\n" and plain["sensitive"] == []


@pytest.mark.parametrize("handling", ["off", "mark", "hold"])
async def test_so_it_is_where_one_execution_is_read(tmp_path: Path, handling: str) -> None:
    """Its whole output, as lines and as one stream, its events, and the value that it hands over."""
    async with real(tmp_path) as s:
        set_policy(s, handling)
        alice = s.token("alice")
        path = f"/api/v1/sessions/{await session(s, alice)}/executions"
        code = f"print:{SECRET}\nvalue:key {SECRET}\nresult:" + json.dumps({"key": SECRET})
        told = js(await s.call("POST", f"{path}?wait=10", alice, {"code": code, "result_schema": {"type": "object"}}))
        assert told["exit_reason"] == "ok" and "value" in told, told
        marks = [m["where"] for m in told["sensitive"]]
        assert marks == ([] if handling == "off" else ["stdout", "results[0]", "value"])
        one = f"{path}/{told['execution_id']}"
        whole = (await s.call("GET", f"{one}/output", alice)).body.decode()
        stream = (await s.call("GET", f"{one}/output?stream=stdout", alice)).body.decode()
        reader = await s.stream(f"{one}/events", alice)
        seen = ""
        while "event: done" not in seen:
            seen += (await asyncio.wait_for(reader.readline(), PATIENCE_S)).decode()
        for shown in (json.dumps(told), whole, stream, seen):
            assert (SECRET in shown) == (handling != "hold"), shown
        assert ("sensitive" in whole, '"sensitive"' in seen) == ((handling != "off",) * 2)


async def test_a_tenants_own_patterns_are_its_own(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        set_policy(s, "hold", "t2 project Bluebird-[0-9]+\n")
        for tenant, held in (("t1", False), ("t2", True)):
            token = s.token("alice", tenant)
            mine = await session(s, token)
            told = js(await s.call("POST", f"/api/v1/sessions/{mine}/executions?wait=10", token, {"code": "print:Bluebird-7"}))
            assert ("Bluebird" in told["stdout"]) != held and bool(told["sensitive"]) == held


async def test_what_an_agent_reads_moves_no_cursor_and_shows_no_path(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        alice = s.token("alice")
        mine = await session(s, alice)
        path = f"/api/v1/sessions/{mine}/executions?wait=10"
        told = js(await s.call("POST", path, alice, {"code": "print:\x1b[2J\x1b]0;evil\x07gpj.\u202eexe\nvalue:\x1b[31mred\x1b[0m\u2066"}))
        assert told["stdout"] == "gpj.\\u202eexe\n" and told["results"][0]["data"]["text/plain"] == "red\\u2066"
        told = js(await s.call("POST", path, alice, {"code": "error:KeyError"}))
        assert told["error"]["folded"] == ["KeyError: raised by the script"] and told["error"]["name"] == "KeyError"
