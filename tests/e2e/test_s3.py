"""Kept files in S3 with a real engine: stored, restored, and while the store fails or lies the sandbox waits for it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e_gateway import Gateway

from tests import s3_faults as faults
from tests import s3_world

FAULTS = {"container": (faults.answers(503, "SlowDown"), faults.keeps_half), "gvisor": (faults.drops,)}
WRITE = """
import os
os.makedirs('out', exist_ok=True)
open('out/big', 'wb').write(bytes(range(256)) * 60_000)
open('out/a.txt', 'w').write({text!r})
"""
READ = "import hashlib\nprint(open('out/a.txt').read(), hashlib.sha256(open('out/big', 'rb').read()).hexdigest())"
BIG = hashlib.sha256(bytes(range(256)) * 60_000).hexdigest()


@contextmanager
def faulty(upstream: str) -> Iterator[faults.Proxy]:
    """The proxy in front of the server, in a loop of its own."""
    loop, ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    made: list[faults.Proxy] = []

    async def serve() -> None:
        async with faults.proxy(upstream) as proxy:
            made.append(proxy)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield made[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.fixture
def bucket(start_gateway: Callable[..., Gateway], tmp_path: Path) -> Iterator[tuple[Gateway, faults.Proxy, s3_world.Bucket]]:
    with s3_world.serve() as server, faulty(server) as proxy:
        given = s3_world.settings(proxy.endpoint)
        secret = tmp_path / "secret"
        secret.write_bytes(given.secret_key)
        gateway = start_gateway(
            SANDGLASS_S3_ENDPOINT=proxy.endpoint, SANDGLASS_S3_BUCKET=given.bucket, SANDGLASS_S3_ACCESS_KEY="tester",
            SANDGLASS_S3_SECRET_KEY_FILE=str(secret), SANDGLASS_S3_SECURE="no", SANDGLASS_S3_CREATE_BUCKET="yes",
        )  # fmt: skip
        yield gateway, proxy, s3_world.Bucket(s3_world.settings(server, bucket=given.bucket))
        assert gateway.stop() == 0, gateway.tail()
        assert given.secret_key.decode() not in gateway.log.read_text()


@pytest.mark.parametrize("profile", FAULTS)
def test_files_go_to_the_bucket_and_wait_while_it_fails(bucket: tuple[Gateway, faults.Proxy, s3_world.Bucket], profile: str) -> None:
    gateway, proxy, inside = bucket
    if profile not in gateway.available():
        pytest.skip(f"the profile {profile} is not available here")
    session = gateway.call("POST", "/api/v1/sessions", {"profile": profile}, expect=201).json()["session_id"]
    root = f"/api/v1/sessions/{session}"

    def recycled(*states: str) -> None:
        gateway.call("POST", f"{root}/recycle")
        gateway.wait_state(session, *states)

    assert gateway.run_code(session, WRITE.format(text="first"))["exit_reason"] == "ok"
    recycled("dormant")
    assert len([key for key in inside.objects() if key.startswith("objects/artifacts/")]) == 2 and not inside.uploads()
    assert gateway.run_code(session, READ)["stdout"].split() == ["first", BIG]

    for fault in FAULTS[profile]:
        text = f"v{len(proxy.seen)}"
        for kind in ("put", "part", "begin", "complete"):
            proxy.fail(kind, fault)
        assert gateway.run_code(session, WRITE.format(text=text))["exit_reason"] == "ok"
        recycled("quarantined")
        held = gateway.call("GET", root).json()
        assert held["quarantine"]["attempts"] >= 1
        assert gateway.call("GET", f"{root}/files/out/a.txt", expect=200).content == text.encode(), "it can be fetched meanwhile"
        proxy.heal()
        admin = gateway.token("root", "t1", "admin")
        gateway.call("POST", f"/api/v1/admin/sessions/{session}/retry", {}, token=admin, expect=202)
        gateway.wait_state(session, "dormant")
        assert gateway.run_code(session, READ)["stdout"].split() == [text, BIG]
    for artifact in gateway.call("GET", f"{root}/artifacts").json()["artifacts"]:
        data = gateway.call("GET", f"/api/v1/artifacts/{artifact['artifact_id']}", expect=200).content
        assert hashlib.sha256(data).hexdigest() == artifact["sha256"]
    assert not inside.uploads(), "no half upload is left"


def test_an_object_that_is_altered_is_told(bucket: tuple[Gateway, faults.Proxy, s3_world.Bucket]) -> None:
    gateway, proxy, _ = bucket
    session = gateway.call("POST", "/api/v1/sessions", {"profile": "container"}, expect=201).json()["session_id"]
    assert gateway.run_code(session, WRITE.format(text="x"))["exit_reason"] == "ok"
    gateway.call("POST", f"/api/v1/sessions/{session}/recycle")
    gateway.wait_state(session, "dormant")
    proxy.fail("get", faults.flips)
    done = gateway.run_code(session, "import os; print(os.path.isdir('out') and os.listdir('out'))")
    assert (done["exit_reason"], done["stdout"].strip()) in (("ok", "[]"), ("ok", "False")), "only what is as it was stored comes back"
    notices = gateway.call("GET", f"/api/v1/sessions/{session}/notices").json()["notices"]
    [restored] = [n for n in notices if n["kind"] == "restored" and n["failed"]]
    assert sorted(f["path"] for f in restored["failed"]) == ["out/a.txt", "out/big"] and not restored["files"]
    proxy.heal()
    gateway.call("POST", f"/api/v1/sessions/{session}/recycle")
    gateway.wait_state(session, "dormant")
    assert gateway.run_code(session, READ)["stdout"].split() == ["x", BIG], "the stored versions are still there"
