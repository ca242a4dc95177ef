"""Bad input on the Jupyter surface: each a clear typed error, none a traceback, none takes another session with it."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
import requests
import websocket
from e2e_clients import Kernel
from e2e_gateway import Gateway

from gateway.protocol import jupyter

_UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def problem(response: requests.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text[:500]
    body: dict[str, Any] = response.json()
    assert body["code"] == body["reason"] == code and body["message"] == body["detail"]
    assert response.headers["Content-Type"] == "application/problem+json"
    assert "Traceback" not in response.text
    return body


def handshake(gateway: Gateway, path: str, **kwargs: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(websocket.WebSocketBadStatusException) as caught:
        websocket.create_connection(gateway.ws_url + path, timeout=20, suppress_origin="origin" not in kwargs, **kwargs)
    return caught.value.status_code, json.loads(caught.value.resp_body)


def test_tokens(gateway: Gateway) -> None:
    good = gateway.token("alice")
    head, payload, signature = good.split(".")
    for token in ("", "x", "a.b.c", f"{head}.{payload}.", f"{head}.{payload}.{signature[:-4]}AAAA", "x" * 30_000):
        response = requests.get(f"{gateway.url}/api/kernels", headers={"Authorization": f"Bearer {token}"}, timeout=20)
        problem(response, 401, "unauthenticated")
    problem(requests.get(f"{gateway.url}/api/kernels", timeout=20), 401, "unauthenticated")
    for scheme in ("Bearer", "bearer", "token", "Token"):
        headers = {"Authorization": f"{scheme} {good}"}
        assert requests.get(f"{gateway.url}/api/kernels", headers=headers, timeout=20).status_code == 200
    assert requests.get(f"{gateway.url}/api/kernels?token={good}", timeout=20).status_code == 200
    assert good not in gateway.tail(10_000_000) and signature not in gateway.tail(10_000_000)


def test_an_expired_token(gateway: Gateway) -> None:
    token = gateway.token("alice", ttl=1)
    deadline = time.monotonic() + 60  # clocks are given some leeway
    while requests.get(f"{gateway.url}/api/kernels?token={token}", timeout=20).status_code != 401:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert handshake(gateway, f"/api/kernels/none/channels?token={token}")[0] == 401


def test_handshakes(gateway: Gateway) -> None:
    token = gateway.token("alice")
    kernel = Kernel.start(gateway)
    try:
        path = f"/api/kernels/{kernel.kernel_id}/channels"
        assert handshake(gateway, path)[0] == 401
        assert handshake(gateway, f"{path}?token=wrong")[0] == 401
        status, body = handshake(gateway, f"/api/kernels/00000000-0000-4000-8000-000000000000/channels?token={token}")
        assert status == 404 and body["code"] == "not_found"
        foreign = handshake(gateway, f"{path}?token={gateway.token('bob')}")
        assert foreign == (status, body)
        assert handshake(gateway, f"{path}?token={token}", origin="http://evil.example")[0] == 403
        headers = _UPGRADE | {"Sec-WebSocket-Protocol": "other, and-another"}
        with requests.get(f"{gateway.url}{path}?token={token}", headers=headers, timeout=20, stream=True) as switched:
            assert switched.status_code == 101 and "Sec-WebSocket-Protocol" not in switched.headers
    finally:
        kernel.end()


def test_unknown_kernels_and_names(gateway: Gateway) -> None:
    problem(gateway.call("GET", "/api/kernels/nope"), 404, "not_found")
    problem(gateway.call("DELETE", "/api/kernels/nope"), 404, "not_found")
    problem(gateway.call("POST", "/api/kernels", {"name": "nope"}), 404, "not_found")
    problem(gateway.call("POST", "/api/kernels", b"{"), 400, "bad_request")
    problem(gateway.call("GET", "/api/kernelspecs/nope"), 404, "not_found")
    assert requests.get(f"{gateway.url}/hub/api", timeout=20).status_code == 404


def test_malformed_messages_take_nobody_with_them(gateway: Gateway) -> None:
    mine, other = Kernel.start(gateway), Kernel.start(gateway)
    try:
        neighbour, beside = other.connect("n"), mine.connect("beside")
        assert neighbour.run("print(1)") == "1\n"
        bad = mine.connect("bad", v1=False)
        header = jupyter.make_header("execute_request", "bad")
        deep = '{"a":' * 100_000 + "1" + "}" * 100_000
        for message in (
            "",
            "not json",
            "[1, 2]",
            json.dumps({"channel": "nope", "header": header, "content": {}}),
            json.dumps({"channel": "iopub", "header": header, "content": {}}),
            json.dumps({"channel": "shell", "header": {}, "content": {}}),
            json.dumps({"channel": "shell", "header": header | {"msg_id": "x" * 100_000}, "content": {}}),
            '{"channel":"shell","header":' + json.dumps(header) + ',"content":' + deep + "}",
        ):
            bad.ws.send(message)
        bad.ws.send_binary(b"\xff\xff\xff\xff" * 10)
        bad.ws.send_binary(b"\x00" * 100)
        assert bad.run("print('good')").endswith("good\n")
        v1 = mine.connect("v1")
        for data in (b"", b"\xff" * 64, (1 << 60).to_bytes(8, "little") * 8, b"\x06" + b"\x00" * 200):
            v1.ws.send_binary(data)
        v1.ws.send("text")
        assert v1.run("print('v1')").endswith("v1\n")
        for _ in range(30):
            bad.ws.send("not json")
        assert bad.close_code() == 4400
        assert beside.run("print('beside')").endswith("beside\n")
        assert neighbour.run("print(2)") == "2\n"
    finally:
        mine.end()
        other.end()


def test_an_execute_request_without_code_is_answered(gateway: Gateway) -> None:
    kernel = Kernel.start(gateway)
    try:
        s = kernel.connect("me")
        s.run("pass")
        msg_id = s.send("execute_request", {"silent": False})
        seen = s.finished(msg_id)
        reply = next(m for m in seen if m.msg_type == "execute_reply")
        assert reply.content["status"] == "error"
    finally:
        kernel.end()


def test_a_thousand_bad_attempts_leave_the_gateway_as_it_was(gateway: Gateway) -> None:
    assert gateway.process is not None
    token = gateway.token("alice")

    def descriptors() -> int:
        from pathlib import Path

        assert gateway.process is not None
        return len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir()))

    before = descriptors()
    for n in range(1000):
        path = f"/api/kernels/none-{n}/channels?token={token}&session_id={n}"
        assert requests.get(gateway.url + path, headers=_UPGRADE, timeout=20).status_code == 404
    time.sleep(1)
    assert descriptors() <= before + 5
    assert requests.get(f"{gateway.url}/healthz", timeout=20).status_code == 200


def test_a_token_that_expires_under_a_websocket(gateway: Gateway) -> None:
    """The socket closes with 4401, the running cell goes on, a fresh token gets the rest."""
    kernel = Kernel.start(gateway)
    try:
        kernel.connect("warm").run("import time")
        for ttl in (4, 20, 60):  # making a token starts a process, which takes its time on a busy machine
            token = gateway.token("alice", ttl=ttl)
            if _seconds_left(token) > 3:
                break
        s = kernel.connect("me", token=token)
        count = int(5 * (_seconds_left(token) + 6))
        msg_id = s.execute(f"for n in range({count}):\n    print(n, flush=True)\n    time.sleep(0.2)")
        s.until(lambda m: m.msg_type == "stream")
        assert s.close_code() == 4401
        fresh = kernel.connect("me")
        seen = fresh.finished(msg_id)
        # a number and its line's end may come in two messages
        printed = "".join(m.content["text"] for m in seen if m.msg_type == "stream" and m.parent == msg_id).split()
        assert printed and printed[-1] == str(count - 1), [(m.msg_type, m.content) for m in seen]
        assert [m.content["status"] for m in seen if m.msg_type == "execute_reply" and m.parent == msg_id] == ["ok"]
    finally:
        kernel.end()


def _seconds_left(token: str) -> float:
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return float(claims["exp"]) - time.time()


def test_quota_says_when_and_why(gateway: Gateway) -> None:
    made: list[Kernel] = []
    try:
        refused = None
        for _ in range(40):
            response = gateway.call("POST", "/api/kernels", {}, user="quentin")
            if response.status_code != 201:
                refused = response
                break
            made.append(Kernel(gateway, response.json()["id"], "quentin"))
        assert refused is not None
        body = problem(refused, 429, "quota_exceeded")
        assert int(refused.headers["Retry-After"]) >= 1 and body["detail"]
        assert gateway.call("POST", "/api/kernels", {}, user="rita", expect=201)
        Kernel(gateway, gateway.call("GET", "/api/kernels", user="rita").json()[0]["id"], "rita").end()
    finally:
        for kernel in made:
            kernel.end()
