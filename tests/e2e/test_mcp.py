"""The MCP server against a real gateway and kernel: with the SDK's client in both eras of the protocol, over HTTP and over the proxy,
with another public client, and with bytes made by hand."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests
from e2e_gateway import ROOT, Gateway, command
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from gateway.config import Settings

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(300)"
ERAS = ("auto", "legacy")
Json = dict[str, Any]


@asynccontextmanager
async def client(
    gateway: Gateway, session: str, *, user: str = "alice", mode: str = "auto", token: str = "", **headers: str
) -> AsyncIterator[Client]:
    headers["Authorization"] = f"Bearer {token or gateway.token(user)}"
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(f"{gateway.url}/mcp?session={session}", http_client=http), mode=mode) as made:
            yield made


def told(result: CallToolResult, *, fails: bool = False) -> Json:
    assert result.is_error == fails, result
    structured: Json = result.structured_content
    assert structured["untrusted"] is True
    return structured


def text(result: CallToolResult) -> str:
    return str(result.content[0].text)  # type: ignore[union-attr]


async def run(using: Client, code: str, *, fails: bool = False, **arguments: Any) -> Json:
    return told(await using.call_tool("run_code", {"code": code, **arguments}), fails=fails)


async def ended(gateway: Gateway, using: Client) -> None:
    with contextlib.suppress(MCPError):
        await using.call_tool("end_session", {})


@pytest.mark.parametrize("mode", ERAS)
async def test_a_session_over_several_calls_and_connections(gateway: Gateway, mode: str) -> None:
    name = f"basic-{mode}"
    async with client(gateway, name, mode=mode) as using:
        assert len((await using.list_tools()).tools) == 13
        nothing = await using.call_tool("session_status", {})
        assert told(nothing)["session"] is None and "run_code makes one" in text(nothing)
        first = await run(using, "import sys\nx = 41\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
        assert (first["stdout"], first["stderr"]) == ("out\n", "err\n") and first["results"][-1]["data"]["text/plain"] == "42"
        session = first["session"]
        assert session["name"] == name and session["generation"] == 1 and session["max_deadline"] and session["state"] == "active"
        failed = await using.call_tool("run_code", {"code": "1/0"})
        assert told(failed, fails=True)["exit_reason"] == "code_error" and "ZeroDivisionError" in text(failed)
        timed = await run(using, "while True: pass", fails=True, timeout_s=0.5)
        assert timed["exit_reason"] == "timeout" and timed["session"]["generation"] == 1
        pictured = await using.call_tool(
            "run_code", {"code": f"import base64\nfrom IPython.display import Image, display\ndisplay(Image(base64.b64decode({PNG!r})))"}
        )
        assert [c.type for c in pictured.content] == ["text", "image"]
        assert base64.b64decode(pictured.content[1].data) == base64.b64decode(PNG)  # type: ignore[union-attr]
        long = await run(using, "print('x' * 3_000_000)", max_output_chars=1000)
        assert len(long["stdout"]) < 1200 and long["truncated"]
        variables = told(await using.call_tool("list_variables", {}))
        assert {"name": "x", "type": "int"}.items() <= variables["variables"][0].items()
    async with client(gateway, name, mode=mode) as again:
        found = await run(again, "x")
        assert found["session"]["session_id"] == session["session_id"] and found["results"][0]["data"]["text/plain"] == "41"
        assert told(await again.call_tool("keep_alive", {}))["session"]["state"] == "active"
        over = told(await again.call_tool("end_session", {}))
        assert over["session"]["state"] in ("draining", "ended")


async def test_progress_comes_while_the_cell_runs(gateway: Gateway) -> None:
    async with client(gateway, "progress") as using:
        await run(using, "pass")
        came: list[tuple[float, str]] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            came.append((done, message or ""))

        code = "import time\nfor n in range(4):\n    print('step', n, flush=True)\n    time.sleep(0.5)"
        result = await using.call_tool("run_code", {"code": code}, progress_callback=progress)
        assert told(result)["stdout"].count("step") == 4
        assert {"step 1", "step 2"} <= {m for _, m in came} and [d for d, _ in came] == sorted({d for d, _ in came})
        await ended(gateway, using)


async def _begun(using: Client, code: str = SLEEP) -> asyncio.Task[CallToolResult]:
    """A call whose cell has begun to run."""
    begun = asyncio.Event()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        if "begun" in (message or ""):
            begun.set()

    calling = asyncio.ensure_future(using.call_tool("run_code", {"code": code}, progress_callback=progress))
    await asyncio.wait_for(begun.wait(), 60)
    return calling


@pytest.mark.parametrize("mode", ERAS)
async def test_cancelling_a_call_interrupts_its_cell(gateway: Gateway, mode: str) -> None:
    async with client(gateway, f"cancel-{mode}", mode=mode) as using:
        session_id = (await run(using, "x = 1"))["session"]["session_id"]
        calling = await _begun(using)
        calling.cancel()
        began = time.monotonic()
        assert (await run(using, "x"))["results"][0]["data"]["text/plain"] == "1" and time.monotonic() - began < 60
        latest = told(await using.call_tool("session_status", {}))["executions"]
        assert [e["exit_reason"] for e in latest] == ["ok", "interrupted", "ok"]
        assert gateway.call("GET", f"/api/kernels/{session_id}", expect=200).json()["connections"] == 0
        await ended(gateway, using)


async def test_interrupting_from_another_connection(gateway: Gateway) -> None:
    async with client(gateway, "interrupt") as one, client(gateway, "interrupt") as two:
        calling = await _begun(one)
        await two.call_tool("interrupt", {})
        assert told(await asyncio.wait_for(calling, 60), fails=True)["exit_reason"] == "interrupted"
        await ended(gateway, two)


async def test_files_go_in_and_out(gateway: Gateway) -> None:
    async with client(gateway, "files") as using:
        up = told(await using.call_tool("upload", {"path": "data.csv", "text": "a,b\n1,2\n"}))["file"]
        assert up["path"] == "in/data.csv" and up["artifact_id"]
        again = told(await using.call_tool("upload", {"path": "data.csv", "text": "x"}), fails=True)
        assert again["error"]["code"] == "conflict" and again["session"]["generation"] == 1
        made = f"open('out/p.png', 'wb').write(__import__('base64').b64decode({PNG!r}))\nopen('b.bin', 'wb').write(bytes(range(256)))"
        await run(using, f"print(open('in/data.csv').read())\n{made}")
        declared = told(await using.call_tool("declare_files", {"patterns": ["*.bin"]}))
        assert declared["declarations"][0]["pattern"] == "*.bin"
        listed = told(await using.call_tool("list_files", {}))
        assert {f["path"]: f["declared"] for f in listed["files"]} == {"in/data.csv": True, "out/p.png": True, "b.bin": True}
        picture = await using.call_tool("download", {"path": "out/p.png"})
        assert picture.content[1].type == "image" and not told(picture)["more"]
        part = told(await using.call_tool("download", {"path": "in/data.csv", "offset": 2, "max_bytes": 3}))
        assert part["text"] == "b\n1" and part["more"] and part["url"].startswith(gateway.url)
        assert base64.b64decode(told(await using.call_tool("download", {"path": "b.bin"}))["base64"]) == bytes(range(256))
        for path, code in (("nope", "not_found"), ("../../etc/passwd", "path_refused")):
            assert told(await using.call_tool("download", {"path": path}), fails=True)["error"]["code"] == code
        await ended(gateway, using)


async def test_a_loss_is_told_to_a_connection_that_comes_back_and_mended(gateway: Gateway) -> None:
    async with client(gateway, "loss", **{"Sandglass-Client": "one"}) as using:
        await run(using, "df = 7")
        restarted = told(await using.call_tool("restart", {}))
        assert restarted["session"]["generation"] == 2 and restarted["session"]["lost_variables"] == ["df"]
        refused = told(await using.call_tool("run_code", {"code": "df", "expect_generation": 1}), fails=True)
        assert refused["error"]["code"] == "generation_mismatch" and refused["error"]["next_action"] == "rebuild"
    async with client(gateway, "loss", **{"Sandglass-Client": "two"}) as using:
        first = await using.call_tool("session_status", {})
        assert "df" in json.dumps([n for n in told(first)["notices"] if n["kind"] == "variables_lost"]) and "Notice (variables_lost)" in text(first)
        assert not [n for n in told(await using.call_tool("session_status", {}))["notices"] if n["kind"] == "variables_lost"]
        rebuilt = told(await using.call_tool("rebuild", {}))
        assert rebuilt["rebuild"]["state"] == "done" and rebuilt["rebuild"]["back"] == ["df"]
        assert (await run(using, "df"))["results"][0]["data"]["text/plain"] == "7"
        await using.call_tool("end_session", {})
        new = await run(using, "'df' in dir()")
        assert new["results"][0]["data"]["text/plain"] == "False" and new["notices"][0]["reason"] == "user"
        await ended(gateway, using)


async def test_what_is_somebody_elses_is_unknown(gateway: Gateway) -> None:
    async with client(gateway, "mine") as alice, client(gateway, "mine", user="bob") as bob:
        session_id = (await run(alice, "secret = 1"))["session"]["session_id"]
        for tool, more in (("run_code", {"code": "secret"}), ("session_status", {"execution_id": "x"}), ("end_session", {}), ("list_files", {})):
            error = told(await bob.call_tool(tool, {"session": session_id, **more}), fails=True)["error"]
            nobodys = session_id[:-1] + ("0" if session_id[-1] != "0" else "1")
            unknown = told(await bob.call_tool(tool, {"session": nobodys, **more}), fails=True)["error"]
            assert error["code"] == unknown["code"] == "not_found"
            assert error["detail"].replace(session_id, "ID") == unknown["detail"].replace(nobodys, "ID")
        assert told(await bob.call_tool("session_status", {}))["session"] is None
        await ended(gateway, alice)


async def test_a_narrow_token_does_only_what_it_says(gateway: Gateway) -> None:
    auth = Settings.from_env(gateway.environment).auth

    def token(*scopes: str) -> str:
        return auth.issue_dev_token("carol", "t1", ["user"], 600, time.time(), scopes)

    async with client(gateway, "narrow", token=token("execute", "sessions:write")) as using:
        blind = await using.call_tool("run_code", {"code": "print('seen')"})
        assert told(blind)["status"] == "ok" and "stdout" not in told(blind) and "seen" not in text(blind)
        for tool, arguments in (("list_files", {}), ("list_variables", {}), ("upload", {"path": "a", "text": ""})):
            assert told(await using.call_tool(tool, arguments), fails=True)["error"]["code"] == "forbidden"
    async with client(gateway, "narrow", token=token("results:read")) as using:
        assert told(await using.call_tool("run_code", {"code": "1"}), fails=True)["error"]["scope"] == "execute"
    async with client(gateway, "narrow", token=token("sessions:write")) as using:
        await ended(gateway, using)


def post(gateway: Gateway, body: Any, *, user: str = "alice", stream: bool = False, **headers: str) -> requests.Response:
    base = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "Authorization": f"Bearer {gateway.token(user)}"}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return requests.post(f"{gateway.url}/mcp?session=raw", data=data, headers=base | headers, stream=stream, timeout=60)


def initialized(gateway: Gateway) -> dict[str, str]:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    answer = post(gateway, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    assert answer.status_code == 200
    headers = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-06-18"}
    assert post(gateway, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers).status_code == 202
    return headers


def test_bad_input_gets_a_typed_answer(gateway: Gateway) -> None:
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer nonsense"}, {"Authorization": "", "Cookie": "sandglass_page=x"}):
        refused = post(gateway, {}, **headers)
        assert refused.status_code == 401 and refused.headers["Content-Type"] == "application/problem+json"
        assert refused.json()["code"] == "unauthenticated" and refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert requests.get(f"{gateway.url}/mcp?token={gateway.token()}", timeout=60).status_code == 401
    for headers in ({"Host": "evil.example.org"}, {"Origin": "http://evil.example.org"}):
        refused = post(gateway, {}, **headers)
        assert refused.status_code == 403 and refused.json()["code"] == "forbidden"
    assert requests.put(f"{gateway.url}/mcp", timeout=60).status_code in (401, 405)
    assert post(gateway, b"{").status_code == 400
    assert post(gateway, b"[" * 100_000).status_code == 400
    assert post(gateway, [{}]).status_code == 400
    assert post(gateway, b"x" * (5 * 1024**2)).status_code == 413
    assert post(gateway, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, Accept="text/html").status_code == 406
    assert post(gateway, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, **{"Mcp-Session-Id": "unknown"}).status_code == 404
    mine = initialized(gateway)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "session_status", "arguments": {}}}
    assert post(gateway, asked, user="bob", **mine).status_code == 404
    for params in ({"name": "no_such"}, {"name": 5}, {}):
        answer = post(gateway, asked | {"params": params}, **mine)
        assert '"error"' in answer.text and answer.status_code in (200, 400), answer.text
    wrong = post(gateway, asked | {"params": {"name": "run_code", "arguments": {"cod": "1"}}}, **mine)
    assert '"isError":true' in wrong.text and "bad_request" in wrong.text
    assert requests.delete(f"{gateway.url}/mcp", headers={"Authorization": f"Bearer {gateway.token()}", **mine}, timeout=60).status_code == 200
    assert post(gateway, asked, **mine).status_code == 404


def test_a_client_that_is_gone_leaves_a_cell_that_can_be_asked_for(gateway: Gateway) -> None:
    """In the older protocols a lost connection is no cancellation: the cell goes on, and its result is kept."""
    mine = initialized(gateway)

    def call(number: int, tool: str, arguments: Json, **more: Any) -> requests.Response:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
        return post(gateway, {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, **mine, **more)

    def structured(answer: requests.Response) -> Json:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        return dict(events[-1]["result"]["structuredContent"])

    call(1, "run_code", {"code": "pass"})
    code = "import time\nprint('begun', flush=True)\ntime.sleep(3)\nprint('done')"
    with call(2, "run_code", {"code": code}, stream=True) as answer:
        assert any(b"begun" in line for line in answer.iter_lines())
    status = structured(call(3, "session_status", {}))
    execution_id = status["queue"]["running"]
    assert execution_id
    late = structured(call(4, "session_status", {"execution_id": execution_id, "wait_s": 60}))
    assert late["status"] == "ok" and late["stdout"] == "begun\ndone\n"
    assert gateway.call("GET", f"/api/kernels/{status['session']['session_id']}", expect=200).json()["connections"] == 0
    call(5, "end_session", {})


def proxy(gateway: Gateway, name: str, **env: str) -> StdioServerParameters:
    program, *arguments = [*command(), "mcp", "--user", "alice", "--tenant", "t1", "--session", name]
    return StdioServerParameters(command=program, args=arguments, env=gateway.environment | env, cwd=str(ROOT))


@pytest.mark.parametrize("mode", ERAS)
async def test_the_proxy_on_standard_input_and_output(gateway: Gateway, mode: str) -> None:
    name = f"proxy-{mode}"
    async with Client(proxy(gateway, name), mode=mode) as using:
        assert len((await using.list_tools()).tools) == 13
        calling = await _begun(using)
        calling.cancel()
        assert (await run(using, "x = 5\nx"))["session"]["name"] == name
        latest = told(await using.call_tool("session_status", {}))["executions"]
        assert [e["exit_reason"] for e in latest] == ["interrupted", "ok"]
        with pytest.raises(MCPError):
            await using.call_tool("no_such", {})
    async with client(gateway, name) as direct:
        assert (await run(direct, "x"))["results"][0]["data"]["text/plain"] == "5"
        await ended(gateway, direct)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"SANDGLASS_URL": "http://127.0.0.1:1", "SANDGLASS_TOKEN": "x"}, "No gateway answers"),
        ({"SANDGLASS_TOKEN": "nonsense"}, "answers 401"),
        ({"SANDGLASS_URL": "http://127.0.0.1:1"}, "SANDGLASS_TOKEN must be"),
    ],
)
async def test_a_proxy_that_cannot_connect_says_why(gateway: Gateway, env: dict[str, str], says: str) -> None:
    parameters = proxy(gateway, "none", **env)
    process = await asyncio.create_subprocess_exec(
        parameters.command, *parameters.args, env=dict(os.environ) | dict(parameters.env or {}), cwd=ROOT, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2 and out == b"" and says in err.decode() and "Traceback" not in err.decode()


async def test_another_public_client(gateway: Gateway) -> None:
    from fastmcp import Client as FastClient
    from fastmcp.client.transports import StreamableHttpTransport

    transport = StreamableHttpTransport(f"{gateway.url}/mcp?session=fast", headers={"Authorization": f"Bearer {gateway.token()}"})
    async with FastClient(transport) as using:
        assert "run_code" in {tool.name for tool in await using.list_tools()}
        done = await using.call_tool("run_code", {"code": "print('hello')\n6 * 7"})
        assert done.structured_content["stdout"] == "hello\n" and "42" in done.content[0].text
        failed = await using.call_tool("run_code", {"code": "1/0"}, raise_on_error=False)
        assert failed.is_error and failed.structured_content["exit_reason"] == "code_error"
        assert (await using.call_tool("profiles", {})).structured_content["profiles"]
        await using.call_tool("end_session", {})


async def test_a_public_client_of_another_make(gateway: Gateway, web_packages: Path) -> None:
    """The protocol's TypeScript client, which shares no code with ours: tools, results, errors, progress, a call that is left."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    process = await asyncio.create_subprocess_exec(
        node, "web/clients/mcp.mjs", f"{gateway.url}/mcp?session=another-make", env=dict(os.environ, SANDGLASS_TOKEN=gateway.token()), cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()[-3000:]
    seen = json.loads(out)
    assert seen["server"] == "sandglass" and {"run_code", "rebuild", "end_session"} <= set(seen["tools"])
    assert seen["ran"]["structuredContent"]["stdout"] == "hello\n" and "42" in seen["ran"]["content"][0]["text"]
    assert seen["failed"]["isError"] and seen["failed"]["structuredContent"]["exit_reason"] == "code_error"
    assert any("step" in told for told in seen["progress"]) and seen["slow"]["structuredContent"]["exit_reason"] == "ok"
    assert seen["cancelled"] and seen["after"]["structuredContent"]["generation"] == 1, "the cell that was left was interrupted, and no more"
    assert seen["status"]["structuredContent"]["session"]["state"] == "active"


async def test_a_gateway_that_is_killed_is_found_again(start_gateway: Any) -> None:
    """The session is the user's, not the connection's: it and what ran in it are there under the next gateway."""
    running: Gateway = start_gateway()
    async with client(running, "kept") as using:
        await run(using, "x = 3")
        calling = await _begun(using, "import time\nprint('begun', flush=True)\ntime.sleep(4)\ny = 4\nprint('done')")
        execution_id = told(await using.call_tool("session_status", {}))["queue"]["running"]
        running.kill()
        with pytest.raises(Exception):  # whatever the client makes of a lost connection
            await calling
        running.start()
    async with client(running, "kept") as using:
        late = told(await using.call_tool("session_status", {"execution_id": execution_id, "wait_s": 60}))
        assert late["status"] == "ok" and late["stdout"].endswith("done\n")
        assert (await run(using, "x + y"))["results"][0]["data"]["text/plain"] == "7"
        await ended(running, using)
