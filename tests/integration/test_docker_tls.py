"""An engine over TCP with TLS and client certificates: a small TLS door in front of the real engine's socket."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.backends import hardening
from gateway.backends.docker import DockerRuntime
from gateway.backends.docker_stream import EngineTls
from gateway.domain.model import Profile
from gateway.errors import EngineUnavailable
from gateway.ports import SandboxSpec

HOST = os.environ.get("SANDGLASS_TEST_DOCKER_HOST", "")
IMAGE = os.environ.get("SANDGLASS_TEST_IMAGE", "")
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(not HOST.startswith("unix://") or not IMAGE, reason="needs SANDGLASS_TEST_DOCKER_HOST (unix://...) and _IMAGE"),
]
ECHO = "import os\nwhile d := os.read(0, 65536):\n    while d: d = d[os.write(1, d):]"


def certificates(folder: Path) -> EngineTls:
    """A self-made authority and one certificate for both ends."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test-ca")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "one.csr", "-subj", "/CN=localhost")
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl(
        "x509", "-req", "-in", "one.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "cert.pem", "-days", "2", "-extfile", "ext"
    )
    return EngineTls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[tuple[str, EngineTls]]:
    tls = certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tls.ca))
    context.load_cert_chain(str(tls.cert), str(tls.key))
    context.verify_mode = ssl.CERT_REQUIRED
    tasks: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(HOST.removeprefix("unix://"))
        writers.update((writer, back))
        for source, sink in ((reader, back), (there, writer)):
            tasks.add(asyncio.get_running_loop().create_task(pump(source, sink)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield f"tcp://localhost:{server.sockets[0].getsockname()[1]}", tls
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        writer.close()
    await asyncio.sleep(0.05)


async def test_calls_attach_and_events_over_tls(door: tuple[str, EngineTls]) -> None:
    url, tls = door
    runtime = DockerRuntime(url, tls=tls)
    name = uuid.uuid4().hex
    spec = SandboxSpec(name, f"tls-{name}", Profile("container", "container", "runc"), IMAGE, 510_001, 510_002, 510_003)
    body = hardening.create_body(spec, await runtime.info())
    body["Entrypoint"] = ["python3", "-u", "-c", ECHO]
    engine_id = await runtime._slow.run(lambda client: str(client.create_container_from_config(body, name)["Id"]))
    try:
        stream = await runtime.attach(engine_id)
        await runtime.start(engine_id)
        sent, got = os.urandom(4 << 20), bytearray()

        async def send() -> None:
            for at in range(0, len(sent), 65536):
                stream.write(sent[at : at + 65536])
                await stream.drain()

        sending = asyncio.ensure_future(send())
        async with asyncio.timeout(60):
            while len(got) < len(sent):
                got += await stream.read()
        await sending
        assert bytes(got) == sent
        await stream.close()
    finally:
        await runtime.remove(engine_id)
    events = runtime.events(spec.instance, time.time() - 120)
    async with asyncio.timeout(20):
        assert [(await anext(events)).action for _ in range(3)] == ["engine_up", "die", "destroy"]
    await events.aclose()  # type: ignore[attr-defined]
    await runtime.close()


async def test_an_engine_that_cannot_prove_who_it_is_gets_nothing(door: tuple[str, EngineTls], tmp_path: Path) -> None:
    url, tls = door
    (tmp_path / "other").mkdir()
    other = certificates(tmp_path / "other")
    for wrong in (replace(tls, ca=other.ca), replace(tls, cert=other.cert, key=other.key), None):
        runtime = DockerRuntime(url, tls=wrong, quick_s=3.0)
        with pytest.raises(EngineUnavailable):
            await runtime.info()
        with pytest.raises(EngineUnavailable):
            await runtime.attach("0" * 64)
        await runtime.close()
