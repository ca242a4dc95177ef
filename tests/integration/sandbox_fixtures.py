"""Fixtures for tests that drive a real sandbox: ``SANDGLASS_TEST_DOCKER_HOST`` and ``SANDGLASS_TEST_IMAGE`` say where and which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.sandbox_client import Engine, Sandbox, settings

RUNTIMES = ("runc", "runsc")


@pytest.fixture(scope="session")
def engine() -> Engine:
    found = settings()
    if found is None:
        pytest.skip("needs SANDGLASS_TEST_DOCKER_HOST and SANDGLASS_TEST_IMAGE")
    return Engine(found[0])


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, engine: Engine) -> str:
    name: str = request.param
    if name not in engine.request("GET", "/info")["Runtimes"]:
        pytest.skip(f"the engine has no {name}")
    return name


@pytest.fixture
def new_sandbox(engine: Engine, runtime: str) -> Iterator[Callable[..., Sandbox]]:
    """Makes sandboxes (not started) that are removed after the test."""
    found = settings()
    assert found is not None
    made: list[Sandbox] = []

    def make(**arguments: Any) -> Sandbox:
        made.append(Sandbox(engine, found[1], runtime, **arguments))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.remove()


@pytest.fixture(scope="module")
def shared(engine: Engine, runtime: str) -> Iterator[Sandbox]:
    """One ready sandbox for a module's tests that leave it usable."""
    found = settings()
    assert found is not None
    sandbox = Sandbox(engine, found[1], runtime)
    try:
        yield sandbox.start()
    finally:
        sandbox.remove()
