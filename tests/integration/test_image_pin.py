"""The kernel image is pinned by digest: another one under its name stops the start, and makes no sandbox of a running gateway."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from gateway.backends.docker import DockerRuntime
from gateway.config import Settings
from gateway.errors import ImageChanged, ImageUnavailable
from gateway.main import Server
from tests.integration.docker_probe import HOST, IMAGE, spec_for

pytestmark = [pytest.mark.skipif(not HOST or not IMAGE, reason="needs SANDGLASS_TEST_DOCKER_HOST and _IMAGE")]
WRONG = "sha256:" + "0" * 64


@pytest.fixture
async def runtime() -> AsyncIterator[DockerRuntime]:
    made = DockerRuntime(HOST)
    yield made
    await made.close()


@pytest.fixture
def twin() -> Iterator[tuple[docker.APIClient, str]]:
    """A name for the kernel image that a test may move; and another image (the same layers, one more label) to move it to."""
    client = docker.APIClient(HOST, version="auto")
    name = f"sandglass-pin-test:{uuid.uuid4().hex[:8]}"
    client.tag(IMAGE, *name.split(":"))
    try:
        yield client, name
    finally:
        client.remove_image(name, force=True, noprune=True)
        client.close()


def move(client: docker.APIClient, name: str) -> None:
    """The name comes to mean another image: the kernel image with one more label, made from a container that never ran."""
    made = client.create_container(IMAGE, command=["true"])
    try:
        client.commit(made["Id"], *name.split(":"), conf={"Labels": {"sandglass.test": "moved"}})
    finally:
        client.remove_container(made["Id"], force=True)


async def test_a_name_that_comes_to_mean_another_image_makes_no_sandbox(runtime: DockerRuntime, twin: tuple[docker.APIClient, str]) -> None:
    client, name = twin
    pinned = await runtime.pin_image(name, "")
    assert pinned == await runtime.image_digest(IMAGE)
    spec = replace(spec_for("runc"), image=name)
    engine_id = await runtime.create(spec)
    await runtime.remove(engine_id)
    move(client, name)
    other = replace(spec_for("runc"), image=name)
    with pytest.raises(ImageChanged) as caught:
        await runtime.create(other)
    assert caught.value.code == "image_unavailable" and caught.value.extra["expected"] == pinned
    left = client.containers(all=True, filters={"name": f"sandglass-{other.sandbox_id}"})
    assert not left, "what was made of it is gone"
    with pytest.raises(ImageChanged):
        await runtime.pin_image(name, pinned)
    assert await runtime.pin_image(name, "") != pinned, "a new pin is a decision"


async def test_the_start_is_refused(tmp_path: Path) -> None:
    env = {"SANDGLASS_STATE": str(tmp_path), "SANDGLASS_PORT": "0", "SANDGLASS_POOL_TARGET": "0", "SANDGLASS_IMAGE_DIGEST": WRONG}
    settings = Settings.from_env(env)
    server = Server(settings, docker_host=HOST, image=IMAGE)
    try:
        with pytest.raises(ImageChanged):
            await server.start()
    finally:
        await server.stop(lambda line: None)


def test_the_command_says_so_and_ends(tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "DOCKER_HOST": HOST,
        "SANDGLASS_STATE": str(tmp_path), "SANDGLASS_PORT": "0",
        "SANDGLASS_IMAGE": IMAGE, "SANDGLASS_IMAGE_DIGEST": WRONG, "SANDGLASS_BOOTSTRAP_ENGINE": "no",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "gateway", "serve"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "pinned" in done.stderr and "docs/updating.md" in done.stderr and "Traceback" not in done.stderr
    assert "ready" not in done.stdout


async def test_a_missing_image_is_still_another_matter(runtime: DockerRuntime) -> None:
    with pytest.raises(ImageUnavailable) as caught:
        await runtime.pin_image("sandglass-no-such-image:1", WRONG)
    assert not isinstance(caught.value, ImageChanged)
