"""A sandbox whose own process speaks to the gateway out of turn: it ends with the right word, and nobody else notices.

User code cannot get there (``forged_frames``); so root of the host, which can, writes into the relay's standard output in its place.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.protocol.frames import Kind, Lane, Outbox, encode_json
from tests.e2e.e2e_gateway import DOCKER_HOST, IMAGE, Gateway
from tests.integration.sandbox_client import Engine

pytestmark = [
    pytest.mark.skipif(not DOCKER_HOST or not IMAGE, reason="needs SANDGLASS_TEST_DOCKER_HOST and SANDGLASS_TEST_IMAGE"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root reaches the relay's standard output"),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(tmp_path_factory.mktemp("frames")).start()
    yield running
    assert running.stop() == 0, running.tail()


def relay_of(engine: Engine, sandbox_id: str) -> tuple[str, int]:
    """The container, and its relay's process on this machine."""
    (row,) = engine.request("GET", f'/containers/json?filters={{"label":["sandglass.sandbox={sandbox_id}"]}}')
    found = engine.request("GET", f"/containers/{row['Id']}/json")
    uid = next(item.partition("=")[2] for item in found["Config"]["Env"] if item.startswith("SANDGLASS_RELAY_UID="))
    init = str(found["State"]["Pid"])
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status") as file:
                    status = dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
            except OSError:
                continue
            if status["PPid"].strip() == init and status["Uid"].split()[0] == uid:
                return str(row["Id"]), int(name)
    pytest.skip("the engine runs on another machine")


def out_of_turn() -> bytes:
    """A number that leaves a gap: something was taken out of the stream, or put into it."""
    outbox = Outbox(1 << 20)
    outbox.resume_numbers([1_000_000, 1_000_000, 1_000_000])
    outbox.put(Kind.EVENT, Lane.KERNEL, encode_json({"event": "ready"}))
    return bytes(outbox.next_frames())


ATTACKS = {
    "garbage": b"this is no frame at all " * 400,
    "a length past all bounds": b"SG" + struct.pack("<BBBBHIIQ", 1, 4, 1, 0, 0xFFFF, 1, 1, 2**40) + bytes(4096),
    "a number out of turn": out_of_turn(),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_a_sandbox_that_breaks_the_protocol_ends_alone(gateway: Gateway, what: str) -> None:
    engine = Engine(DOCKER_HOST)
    session, neighbour = (
        gateway.call("POST", "/api/v1/sessions", {"profile": "container"}, user=user, expect=201).json()["session_id"] for user in ("alice", "bob")
    )
    path = f"/api/v1/sessions/{neighbour}/executions?wait=60"
    try:
        gateway.run_code(session, "kept = 1")
        gateway.call("POST", path, {"code": "kept = 41"}, user="bob", expect=200)
        admin = gateway.token("root", role="admin")
        view: Any = gateway.call("GET", f"/api/v1/admin/sessions/{session}", token=admin, expect=200).json()
        container, relay = relay_of(engine, view["sandbox_id"])
        running = gateway.call("POST", f"/api/v1/sessions/{session}/executions", {"code": "import time; time.sleep(60)"}, expect=202).json()
        with open(f"/proc/{relay}/fd/1", "wb", buffering=0) as out:
            out.write(ATTACKS[what])
        found = gateway.wait_state(session, "dormant", timeout_s=30)
        assert found["reason"] == "protocol_violation", found
        done = gateway.call("GET", f"/api/v1/sessions/{session}/executions/{running['execution_id']}", expect=200).json()
        assert (done["state"], done["exit_reason"]) == ("finished", "sandbox_ended"), done
        # nothing of it is left, and the next sandbox is a clean one
        deadline = time.monotonic() + 30
        while engine.request("GET", f'/containers/json?all=1&filters={{"id":["{container}"]}}'):
            assert time.monotonic() < deadline, "its container is still there"
            time.sleep(0.1)
        assert gateway.run_code(session, "print('kept' in globals())")["stdout"].strip() == "False"
        beside = gateway.call("POST", path, {"code": "print(kept + 1)"}, user="bob", expect=200).json()
        assert (beside["stdout"].strip(), beside["generation"]) == ("42", 1)
    finally:
        for user, one in (("alice", session), ("bob", neighbour)):
            gateway.call("DELETE", f"/api/v1/sessions/{one}", user=user)
