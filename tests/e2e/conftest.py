"""A gateway for the whole run, others with settings of their own, and a kernel on each profile that is available."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from e2e_clients import Kernel
from e2e_gateway import DOCKER_HOST, IMAGE, ROOT, Gateway

WEB = ROOT / "web"
PROFILES = ("container", "gvisor")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not (DOCKER_HOST and IMAGE):
            item.add_marker(pytest.mark.skip(reason="needs SANDGLASS_TEST_DOCKER_HOST and SANDGLASS_TEST_IMAGE"))


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway with default settings and a pool, shared; tests use sessions of their own."""
    running = Gateway(tmp_path_factory.mktemp("gateway"), {"SANDGLASS_POOL_TARGET": "1"}).start()
    yield running
    assert running.stop() == 0, running.tail()


@pytest.fixture(scope="session")
def web_packages() -> Path:
    """``web/node_modules``, installed from its lock when something of it is not there."""
    modules = WEB / "node_modules"
    wanted = json.loads((WEB / "package.json").read_text())["devDependencies"]
    if not all((modules / name).is_dir() for name in wanted):
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("the page's development packages are not installed and there is no npm")
        done = subprocess.run([npm, "ci", "--ignore-scripts"], cwd=WEB, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            pytest.skip(f"the page's development packages cannot be installed: {done.stderr[-300:]}")
    return modules


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Starts gateways with settings of their own: ``start_gateway(SANDGLASS_IDLE_TIMEOUT="5")``."""
    started: list[Gateway] = []

    def start(**env: str) -> Gateway:
        running = Gateway(tmp_path / f"state{len(started)}", env)
        started.append(running)
        return running.start()

    yield start
    for running in started:
        if running.process is not None and running.process.poll() is None:
            running.stop()


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest, gateway: Gateway) -> str:
    """Each profile in turn; skipped when this engine does not offer it."""
    name: str = request.param
    if name not in gateway.available():
        pytest.skip(f"the profile {name} is not available here")
    return name


@pytest.fixture
def kernel(gateway: Gateway, profile: str) -> Iterator[Kernel]:
    """A session of alice's on this profile, ended afterwards."""
    made = Kernel.start(gateway, profile)
    yield made
    made.end()
