"""Faults in the middle of a drain, on the real engine: it restarts, the container is gone, memory runs out."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from e2e_gateway import Gateway
from kill_real import MORTAL, containers_of
from own_engine import OwnEngine

Json = dict[str, Any]
WRITE = "import os\nos.makedirs('out', exist_ok=True)\nfor name in 'ab': open(f'out/{name}', 'w').write(name * 300_000)\nmodel = 1"
EAT = "x = bytearray(3 << 30)\nfor n in range(0, len(x), 4096): x[n] = 1"
READ = "import os\nprint(*(f'{name}:{os.path.getsize(path)}' for name in 'ab' if os.path.exists(path := f'out/{name}')))"


@contextlib.contextmanager
def halted_drain(gateway: Gateway, session: str) -> Iterator[None]:
    """A recycle, halted where the first file was read and is not stored yet; it goes on afterwards."""
    halt, halted = gateway.state / "halt", gateway.state / "halted"
    halt.write_text("writer.commit")
    try:
        gateway.call("POST", f"/api/v1/sessions/{session}/recycle", expect=202)
        deadline = time.monotonic() + 30
        while not halted.exists():
            assert time.monotonic() < deadline, gateway.tail()
            time.sleep(0.02)
        assert gateway.call("GET", f"/api/v1/sessions/{session}", expect=200).json()["state"] == "draining"
        yield
    finally:
        halt.unlink()


def opened(gateway: Gateway, profile: str, code: str) -> str:
    session: str = gateway.call("POST", "/api/v1/sessions", {"profile": profile}, expect=201).json()["session_id"]
    assert gateway.run_code(session, code)["exit_reason"] == "ok"
    return session


def stored(gateway: Gateway, session: str, path: str) -> None:
    """Wait for the checkpoint."""
    deadline = time.monotonic() + 20
    while path not in {a["path"] for a in gateway.call("GET", f"/api/v1/sessions/{session}/artifacts", expect=200).json()["artifacts"]}:
        assert time.monotonic() < deadline, "the checkpoint after an execution"
        time.sleep(0.1)


def nothing_left(gateway: Gateway) -> None:
    deadline = time.monotonic() + 30
    while containers_of(gateway):
        assert time.monotonic() < deadline, "a container is left in the engine"
        time.sleep(0.1)


def notices(gateway: Gateway, session: str) -> dict[str, Json]:
    found = gateway.call("GET", f"/api/v1/sessions/{session}/notices", expect=200).json()["notices"]
    return {n["kind"]: n for n in found}


@pytest.fixture(scope="module")
def own_engine() -> Iterator[OwnEngine]:
    if os.geteuid() != 0:
        pytest.skip("an engine of its own needs root")
    # outside pytest's folders: the path of its socket is limited
    with tempfile.TemporaryDirectory(prefix="sg-drain-", ignore_cleanup_errors=True) as folder:
        engine = OwnEngine(Path(folder) / "e")
        try:
            engine.start().take_image()
            yield engine
        finally:
            engine.end()


def test_the_engine_is_killed_and_comes_back(own_engine: OwnEngine, tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "state", {"DOCKER_HOST": own_engine.host, "SANDGLASS_POOL_TARGET": "0"}, program=MORTAL).start()
    try:
        session = opened(gateway, "container", WRITE)
        with halted_drain(gateway, session):
            own_engine.kill()
        time.sleep(1.0)  # the drain meets an engine that is away
        own_engine.start()
        view = gateway.wait_state(session, "dormant", timeout_s=90)
        assert (view["reason"], view["generation"]) == ("user", 2)
        assert "model" in [v["name"] for v in view["lost_variables"]]
        assert "files_lost" not in notices(gateway, session), "nothing was"
        nothing_left(gateway)
        assert gateway.run_code(session, READ)["stdout"].split() == ["a:300000", "b:300000"]
    finally:
        assert gateway.stop() == 0, gateway.tail()


def test_the_container_is_removed_behind_our_back(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "state", {"SANDGLASS_POOL_TARGET": "0"}, program=MORTAL).start()
    try:
        session = opened(gateway, "container", WRITE)
        stored(gateway, session, "out/b")
        gateway.run_code(session, "for name in 'ab': open(f'out/{name}', 'w').write(name * 400_000)")
        with halted_drain(gateway, session):
            engine = docker.APIClient(base_url=gateway.environment["DOCKER_HOST"], version="auto")
            for container in containers_of(gateway).values():
                engine.remove_container(container, force=True)
            engine.close()
        view = gateway.wait_state(session, "dormant")
        assert (view["reason"], view["generation"]) == ("user", 2), "its variables had ended before, at its owner's wish"
        lost = notices(gateway, session)["files_lost"]
        assert lost["reason"] == "host_lost" and "since they were last stored" in lost["text"]
        nothing_left(gateway)
        sizes = dict(item.split(":") for item in gateway.run_code(session, READ)["stdout"].split())
        assert sizes.keys() == {"a", "b"} and sizes["b"] == "300000", "what was stored is back, each file whole"
        assert sizes["a"] in ("300000", "400000")
    finally:
        assert gateway.stop() == 0, gateway.tail()


@pytest.mark.parametrize("profile", ["container", "gvisor"])
def test_memory_runs_out_in_the_grace_of_a_cell(start_gateway: Callable[..., Gateway], profile: str) -> None:
    """runc ends the kernel, gVisor the kernel or all of the sandbox: the word is the same, and what was stored is back."""
    gateway = start_gateway(
        SANDGLASS_MEMORY="768MiB", SANDGLASS_WORKSPACE="32MiB", SANDGLASS_INPUTS="32MiB", SANDGLASS_TMP="16MiB", SANDGLASS_SHM="16MiB",
        SANDGLASS_MAX_LIFETIME="10s", SANDGLASS_DRAIN_GRACE="60s", SANDGLASS_POOL_TARGET="0",
    )  # fmt: skip
    if profile not in gateway.available():
        pytest.skip(f"the profile {profile} is not available here")
    session = opened(gateway, profile, WRITE)
    stored(gateway, session, "out/b")
    code = f"import time\nwhile time.time() < {time.time() + 12}: time.sleep(0.1)\n" + EAT
    made = gateway.call("POST", f"/api/v1/sessions/{session}/executions", {"code": code}, expect=202).json()
    gateway.wait_state(session, "draining")
    view = gateway.wait_state(session, "dormant")
    done = gateway.call("GET", f"/api/v1/sessions/{session}/executions/{made['execution_id']}", expect=200).json()
    assert done["exit_reason"] == "memory_limit", done
    assert view["generation"] == 2
    assert view["reason"] in (("max_lifetime",) if profile == "container" else ("max_lifetime", "out_of_memory"))
    nothing_left(gateway)
    assert gateway.run_code(session, READ)["stdout"].split() == ["a:300000", "b:300000"]
