"""A real engine that is stopped, and killed, under running sandboxes (live-restore): an engine of this test's own, never a shared one."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.backends import hardening
from gateway.backends.docker import DockerRuntime
from gateway.domain.model import Profile
from gateway.errors import EngineUnavailable, SandglassError
from gateway.ports import ByteStream, SandboxSpec

ENGINE = Path(__file__).parents[2] / "deploy" / "engine"
HOST = os.environ.get("SANDGLASS_TEST_DOCKER_HOST", "")
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(not HOST or os.geteuid() != 0, reason="needs SANDGLASS_TEST_DOCKER_HOST and root, to start an engine of its own"),
]


async def engine(action: str, state: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        str(ENGINE), action, "--state", str(state), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    out, words = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, words.decode()
    return out.decode()


def shell_image() -> bytes:
    """This machine's shell and its libraries, as a tar that an engine can import."""
    shell = os.path.realpath("/bin/sh")
    libraries = re.findall(r"/[^ )]+", subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(shell, "bin/sh")
        for library in sorted(set(libraries)):
            tar.add(os.path.realpath(library), library.lstrip("/"))
    return data.getvalue()


@pytest.fixture
async def state() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sg-restart-"))
    # only runc is needed: this tells the script not to look for gVisor
    (folder / "engine").mkdir()
    (folder / "engine" / "runsc.none").write_text(os.uname().release + "\n")
    try:
        yield folder
    finally:
        await engine("stop", folder)
        shutil.rmtree(folder, ignore_errors=True)


async def echo(stream: ByteStream, line: bytes) -> None:
    stream.write(line + b"\n")
    got = b""
    async with asyncio.timeout(20):
        while line not in got:
            data = await stream.read()
            assert data
            got += data


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_sandboxes_outlive_the_engine(how: signal.Signals, state: Path) -> None:
    host = (await engine("start", state)).strip().splitlines()[-1].removeprefix("DOCKER_HOST=")
    runtime = DockerRuntime(host)
    image = shell_image()
    await runtime._slow.run(lambda client: client.import_image_from_data(image, repository="shell", tag="1"))
    name = uuid.uuid4().hex
    spec = SandboxSpec(name, "restart", Profile("container", "container", "runc"), "shell:1", 500_001, 500_002, 500_003)
    body = hardening.create_body(spec, await runtime.info())
    body["Entrypoint"] = ["/bin/sh", "-c", 'while read line; do echo "$line"; done']
    engine_id = await runtime._slow.run(lambda client: str(client.create_container_from_config(body, name)["Id"]))
    stream = await runtime.attach(engine_id)
    await runtime.start(engine_id)
    await echo(stream, b"before")
    events = runtime.events("restart", 0)
    assert (await anext(events)).action == "engine_up"

    pid = int(re.findall(r"pid (\d+)", await engine("status", state))[0])
    os.kill(pid, how)
    with contextlib.suppress(SandglassError):
        while await asyncio.wait_for(stream.read(), 30):
            pass
    with pytest.raises(EngineUnavailable):
        while True:  # a stopping engine answers a little longer
            await runtime.inspect(engine_id)
            await asyncio.sleep(0.05)
    await engine("start", state)

    facts = await runtime.inspect(engine_id)
    assert facts is not None
    assert facts.running
    async with asyncio.timeout(30):
        async for event in events:
            if event.action == "engine_up":
                break
    again = await runtime.attach(engine_id)
    await echo(again, b"after")
    await runtime.remove(engine_id)
    async with asyncio.timeout(30):
        seen = [event.action for event in [await anext(events), await anext(events)]]
    assert seen == ["die", "destroy"]
    assert await runtime.inspect(engine_id) is None
    await events.aclose()  # type: ignore[attr-defined]
    await again.close()
    await stream.close()
    await runtime.close()
