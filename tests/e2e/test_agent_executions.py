"""The agent surface's executions on real kernels."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests
from e2e_clients import Kernel
from e2e_gateway import Gateway

Event = tuple[int | None, str, dict[str, Any]]


@pytest.fixture
def session(kernel: Kernel) -> str:
    return kernel.kernel_id


def events(gateway: Gateway, path: str, **headers: str) -> list[Event]:
    """All of an execution's event stream, to its end."""
    found: list[Event] = []
    with requests.get(gateway.url + path, headers={"Authorization": f"Bearer {gateway.token()}", **headers}, stream=True, timeout=60) as answer:
        assert answer.status_code == 200 and answer.headers["Content-Type"] == "text/event-stream"
        number, kind = None, ""
        for line in answer.iter_lines(chunk_size=65536):
            name, _, rest = line.decode().partition(": ")
            if name == "id":
                number = int(rest)
            elif name == "event":
                kind = rest
            elif name == "data":
                found.append((number, kind, json.loads(rest)))
                number = None
    return found


def test_a_multi_step_session_of_an_agent(gateway: Gateway, session: str) -> None:
    path = f"/api/v1/sessions/{session}/executions"
    schema = {"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"], "additionalProperties": False}
    made = gateway.call("PUT", f"/api/v1/sessions/{session}/files/source.csv", b"a,b\n1,2\n3,4\n", expect=201).json()
    inputs = [{"artifact_id": made["artifact_id"], "path": "in/step/table.csv"}]
    code = "import pandas as pd, sandglass\ndf = pd.read_csv('in/step/table.csv')\ndf.to_csv('out.csv')\nsandglass.result({'rows': len(df)})\ndf"
    first = gateway.run_code(session, code, inputs=inputs, result_schema=schema)
    assert first["exit_reason"] == "ok" and first["value"] == {"rows": 2} and first["results"][-1]["is_main_result"], first
    assert first["untrusted"] is True and first["hints"] == [] and first["truncated"] is None
    assert [(f["path"], f["declared"]) for f in first["files"]] == [("out.csv", False)]
    assert gateway.run_code(session, "open('in/step/table.csv', 'a')")["exit_reason"] == "code_error", "an input is read-only"
    wrong = gateway.run_code(session, "import sandglass; sandglass.result({'rows': 'two'})", result_schema=schema)
    assert wrong["exit_reason"] == "artifact_rejected" and wrong["rejected"]["path"] == "$.rows"
    foreign = gateway.call("POST", "/api/v1/sessions", {}, user="bob", expect=201).json()["session_id"]
    theirs = gateway.call("POST", f"/api/v1/sessions/{foreign}/executions", {"code": "1", "inputs": inputs}, user="bob")
    assert (theirs.status_code, theirs.json()["code"]) == (404, "not_found")
    gateway.call("DELETE", f"/api/v1/sessions/{foreign}", user="bob")
    broken = gateway.run_code(session, "import torch\nx = (1")
    assert broken["exit_reason"] == "syntax_error" and broken["hints"][0]["kind"] == "syntax" and broken["hints"][0]["line"] == 2
    missing = gateway.run_code(session, "import torch")
    assert missing["exit_reason"] == "dependency_missing" and missing["hints"][0]["module"] == "torch"
    failed = gateway.run_code(session, "df['nonesuch']")
    assert any(frame.startswith("[pandas: ") for frame in failed["error"]["traceback"]), failed["error"]
    assert "\x1b" not in "".join(failed["error"]["traceback"]) and "site-packages" not in "".join(failed["error"]["traceback"])
    order = [gateway.call("POST", path, {"code": f"import time; time.sleep(0.3); print({n})"}, expect=202).json() for n in range(4)]
    assert [e["position"] for e in order][1:] == sorted(e["position"] for e in order)[1:] and order[3]["position"] >= 1
    done = [gateway.call("GET", f"{path}/{e['execution_id']}?wait=60").json() for e in order]
    assert [e["stdout"] for e in done] == [f"{n}\n" for n in range(4)]
    begun = [e["started_at"] for e in done]
    assert begun == sorted(begun)


def test_events_of_many_small_prints_come_once_and_resume_anywhere(gateway: Gateway, session: str) -> None:
    path = f"/api/v1/sessions/{session}/executions"
    n = 3000
    execution_id = gateway.call("POST", path, {"code": f"for n in range({n}): print(n, flush=True)\n'last'"}, expect=202).json()["execution_id"]
    live = events(gateway, f"{path}/{execution_id}/events")
    assert "".join(d["text"] for _, kind, d in live if kind == "stdout").split() == [str(i) for i in range(n)]
    assert [kind for _, kind, _ in live if kind != "stdout"] == ["started", "result", "done"]
    ids = [i for i, _, _ in live]
    late = events(gateway, f"{path}/{execution_id}/events")
    assert [(i, k) for i, k, _ in late] == [(i, k) for i, k, _ in live]
    middle = ids[len(ids) // 2]
    rest = events(gateway, f"{path}/{execution_id}/events", **{"Last-Event-ID": str(middle)})
    assert [i for i, _, _ in rest] == ids[len(ids) // 2 + 1 :]


def test_a_key_survives_the_gateway_and_nothing_runs_twice(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(SANDGLASS_OUTPUT="200000")
    session = gateway.call("POST", "/api/v1/sessions", {"profile": "container"}, expect=201).json()["session_id"]
    path = f"/api/v1/sessions/{session}/executions"
    gateway.run_code(session, "runs = 0")
    body = {"code": "import time; runs += 1; time.sleep(3); print(runs); print('x' * 150_000)", "max_output_bytes": 1000}
    key = {"Idempotency-Key": "step-1"}
    first = gateway.call("POST", path, body, headers=key, expect=202).json()["execution_id"]
    deadline = time.monotonic() + 30
    while gateway.call("GET", f"{path}/{first}").json()["state"] != "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    gateway.kill()
    gateway.start()
    gateway.wait_state(session, "active")
    again = gateway.call("POST", f"{path}?wait=60", body, headers=key, expect=200).json()
    assert again["execution_id"] == first and again["stdout"].startswith("1\n") and again["exit_reason"] == "ok", again
    assert gateway.call("POST", path, {**body, "code": "pass"}, headers=key, expect=409).json()["code"] == "conflict"
    assert gateway.run_code(session, "print(runs)")["stdout"] == "1\n"
    whole = gateway.call("GET", again["truncated"]["full_output_url"] + "?stream=stdout", expect=200).text
    assert whole == "1\n" + "x" * 150_000 + "\n"
    flooded = gateway.run_code(session, "print('x' * 1_000_000)")
    assert flooded["exit_reason"] == "output_limit" and flooded["truncated"]["bytes_dropped"] > 0
    seen = events(gateway, f"{path}/{first}/events")
    assert seen[0][1] == "started" and seen[-1][1] == "done"
