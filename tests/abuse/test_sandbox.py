"""Every sandbox case of the list, on both runtimes: one attacked sandbox for all of them, and a neighbour that must not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.abuse import probes_host, probes_resources, probes_rights
from tests.abuse.cases import RUNTIMES, TIERS, names
from tests.abuse.world import LIMITS, PROBES, Host, World, planted
from tests.integration.sandbox_client import Engine, Sandbox, settings

__all__ = ["probes_host", "probes_resources", "probes_rights"]

found = settings()
pytestmark = pytest.mark.skipif(found is None, reason="needs SANDGLASS_TEST_DOCKER_HOST and SANDGLASS_TEST_IMAGE")


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with planted() as host:
        yield host


@pytest.fixture(scope="module", params=TIERS)
def tier(request: pytest.FixtureRequest) -> str:
    assert found is not None
    name: str = request.param
    if RUNTIMES[name] not in Engine(found[0]).request("GET", "/info")["Runtimes"]:
        pytest.skip(f"the engine has no {RUNTIMES[name]}")
    return name


@pytest.fixture(scope="module")
def pair(tier: str) -> Iterator[tuple[Sandbox, Sandbox]]:
    """The attacked one, and its neighbour."""
    assert found is not None
    made: list[Sandbox] = []
    try:
        for _ in range(2):
            made.append(Sandbox(Engine(found[0]), found[1], RUNTIMES[tier], limits=LIMITS))
            made[-1].start()
        made[1].execute("kept = 41")
        yield made[0], made[1]
    finally:
        for sandbox in made:
            sandbox.remove()


@pytest.fixture
def world(tier: str, pair: tuple[Sandbox, Sandbox], host: Host) -> Iterator[World]:
    assert found is not None
    engine, image = Engine(found[0]), found[1]
    made: list[Sandbox] = []

    def new(**arguments: Any) -> Sandbox:
        made.append(Sandbox(engine, image, RUNTIMES[tier], **arguments))
        return made[-1].start()

    world = World(engine, RUNTIMES[tier], pair[0], host, new)
    started: Callable[[Sandbox], str] = lambda box: str(box.inspect()["State"]["StartedAt"])  # noqa: E731
    before = started(world.box)
    try:
        yield world
        # what must hold whatever the case was
        assert world.box.inspect()["State"]["Running"] and started(world.box) == before
        assert world.box.call("stats")["ok"]
        assert pair[1].execute("kept + 1").result == "42"
    finally:
        for sandbox in made:
            sandbox.remove()


@pytest.mark.parametrize("name", names("sandbox"))
def test_contained(world: World, name: str) -> None:
    try:
        PROBES[name](world)
    except BaseException:
        if not world.box.ended:
            world.revive()  # the next case is another question
        raise
