"""P11 and P12 for real: the gateway is killed with signal 9 in the middle of a printing cell, and another takes up everything."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest
import requests
from e2e_clients import Kernel
from e2e_gateway import DOCKER_HOST, Gateway

PROFILES = ("container", "gvisor")
LINES = 1500
PRINTING = f"import time\nfor n in range({LINES}):\n    print(n, flush=True)\n    time.sleep(0.002)"
Json = dict[str, Any]


class Stream(threading.Thread):
    """Reads the event stream over every break, resuming by the last id, and keeps what it got."""

    def __init__(self, gateway: Gateway, session_id: str) -> None:
        super().__init__(daemon=True)
        self.gateway, self.session_id = gateway, session_id
        self.events: list[tuple[int, Json]] = []
        self.last = 0
        self.stopped = False

    def run(self) -> None:
        while not self.stopped:
            try:
                self._read()
            except (requests.RequestException, OSError, ValueError):
                time.sleep(0.2)

    def _read(self) -> None:
        url = f"{self.gateway.url}/api/v1/sessions/{self.session_id}/events?after={self.last}"
        headers = {"Authorization": f"Bearer {self.gateway.token()}"}
        number = 0
        with requests.get(url, headers=headers, stream=True, timeout=60) as answer:
            for line in answer.iter_lines(chunk_size=1):
                if self.stopped:
                    return
                if line.startswith(b"id:"):
                    number = int(line[3:])
                elif line.startswith(b"data:"):
                    if number:
                        self.events.append((number, json.loads(line[5:])))
                        self.last = number
                    number = 0

    def text_of(self, msg_id: str) -> str:
        found = [e for _, e in self.events if e["type"] == "message" and e["parent_msg_id"] == msg_id and e["msg_type"] == "stream"]
        return "".join(e["content"]["text"] for e in found)


@pytest.fixture(params=PROFILES)
def restartable(request: pytest.FixtureRequest, start_gateway: Callable[..., Gateway], tmp_path: Path) -> tuple[Gateway, str]:
    # the port stays, so that clients find the next gateway at the same address
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gateway = start_gateway(SANDGLASS_PORT=str(port))
    if request.param not in gateway.available():
        pytest.skip(f"the profile {request.param} is not available here")
    return gateway, request.param


def test_kill_9_in_the_middle_of_a_printing_cell(restartable: tuple[Gateway, str]) -> None:
    gateway, profile = restartable
    kernel = Kernel.start(gateway, profile)
    lab = kernel.connect("lab")
    lab.run("df = 41")
    stream = Stream(gateway, kernel.kernel_id)
    stream.start()
    msg_id = lab.execute(PRINTING)
    before: list[tuple[str, str]] = []
    while len(before) < 200:
        m = lab.next()
        if m.msg_type == "stream":
            before.append((m.header["msg_id"], m.content["text"]))
    gateway.kill()
    # what had reached this client's socket before the kill still counts as received
    try:
        while True:
            m = lab.next(1.0)
            if m.msg_type == "stream":
                before.append((m.header["msg_id"], m.content["text"]))
    except Exception as closed:
        assert type(closed).__name__.startswith("WebSocket") or isinstance(closed, OSError), closed
    time.sleep(1.0)
    gateway.start()

    again = kernel.connect("lab")
    after = [(m.header["msg_id"], m.content["text"]) for m in again.finished(msg_id, 120) if m.msg_type == "stream"]
    repeats = {i for i, _ in before} & {i for i, _ in after}
    unique = dict(before + after)
    assert "".join(unique.values()).split() == [str(n) for n in range(LINES)], "every message, in order"
    assert len(repeats) <= 200, f"{len(repeats)} repeats: more than what was in flight"
    print(f"{profile}: {len(before)} messages before the kill, {len(after)} after, {len(repeats)} came twice")

    deadline = time.monotonic() + 60
    while len(stream.text_of(msg_id).split()) < LINES and time.monotonic() < deadline:
        time.sleep(0.1)
    stream.stopped = True
    assert stream.text_of(msg_id).split() == [str(n) for n in range(LINES)], "the event stream has every message once"
    numbers = [n for n, _ in stream.events]
    assert numbers == sorted(set(numbers))
    assert again.run("print(df + 1)").strip() == "42", "variables survived the gateway"
    session = gateway.call("GET", f"/api/v1/sessions/{kernel.kernel_id}", expect=200).json()
    assert (session["generation"], session["state"]) == (1, "active")


def test_a_removed_container_is_told_and_strays_are_removed(restartable: tuple[Gateway, str]) -> None:
    gateway, profile = restartable
    engine = docker.APIClient(base_url=DOCKER_HOST, version="auto")
    kernel = Kernel.start(gateway, profile)
    lab = kernel.connect("lab")
    lab.run("import os\nos.makedirs('out', exist_ok=True)\nopen('out/kept.txt', 'w').write('kept')\nmodel = 1")
    deadline = time.monotonic() + 20
    while not gateway.call("GET", f"/api/v1/sessions/{kernel.kernel_id}/artifacts").json()["artifacts"]:
        assert time.monotonic() < deadline, "the checkpoint after an execution"
        time.sleep(0.1)
    ours = {c["Id"]: c["Labels"] for c in engine.containers(all=True, filters={"label": "sandglass.instance"})}
    admin = gateway.call("GET", "/api/v1/admin/sessions", token=gateway.token("root", "t1", "admin"), expect=200).json()
    [mine] = [s for s in admin["sessions"] if s["session_id"] == kernel.kernel_id]
    [container] = [i for i, labels in ours.items() if labels["sandglass.sandbox"] == mine["sandbox_id"]]
    instance = ours[container]["sandglass.instance"]
    gateway.kill()
    engine.remove_container(container, force=True)
    gateway.start()
    session = gateway.wait_state(kernel.kernel_id, "dormant")
    assert session["reason"] == "host_lost" and session["generation"] == 2
    assert "model" in [v["name"] for v in session["lost_variables"]]
    done = gateway.run_code(kernel.kernel_id, "print(open('out/kept.txt').read())")
    assert done["stdout"].strip() == "kept" and "model" in done["stderr"] and "out/kept.txt" in done["stderr"]
    assert gateway.stop() == 0, gateway.tail()
    left = engine.containers(all=True, filters={"label": f"sandglass.instance={instance}"})
    assert not left, "nothing of this gateway is left in the engine"
    assert not (gateway.state / "run.json").exists()
