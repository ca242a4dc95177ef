"""Every gateway case of the list, on both tiers of one gateway: the word, a neighbour that does not notice, the gateway's memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.abuse import attacks_files
from tests.abuse.attacks import ATTACKS
from tests.abuse.cases import TIERS, names
from tests.abuse.through import SETTINGS, Attack, Memory
from tests.e2e.e2e_gateway import DOCKER_HOST, IMAGE, Gateway

__all__ = ["attacks_files"]
pytestmark = pytest.mark.skipif(not DOCKER_HOST or not IMAGE, reason="needs SANDGLASS_TEST_DOCKER_HOST and SANDGLASS_TEST_IMAGE")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(tmp_path_factory.mktemp("abused"), SETTINGS).start()
    yield running
    assert running.stop() == 0, running.tail()


@pytest.fixture(scope="module", params=TIERS)
def attack(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[tuple[Attack, str]]:
    """The attacker, and the neighbour's session."""
    tier: str = request.param
    if tier not in gateway.available():
        pytest.skip(f"the profile {tier} is not available here")
    attacker = Attack(gateway, tier)
    neighbour = gateway.call("POST", "/api/v1/sessions", {"profile": tier}, user="bob", expect=201).json()["session_id"]
    path = f"/api/v1/sessions/{neighbour}/executions?wait=60"
    gateway.call("POST", path, {"code": "kept = 41"}, user="bob", expect=200)
    # both once, so that what a first session costs is no growth
    attacker.run("print('x' * 1000)")
    yield attacker, path
    attacker.end()
    gateway.call("DELETE", f"/api/v1/sessions/{neighbour}", user="bob")


@pytest.mark.parametrize("name", names("gateway"))
def test_contained(attack: tuple[Attack, str], gateway: Gateway, name: str) -> None:
    attacker, neighbour = attack
    assert gateway.process is not None
    with Memory(gateway) as memory:
        ATTACKS[name](attacker)
        beside = gateway.call("POST", neighbour, {"code": "print(kept + 1)"}, user="bob", expect=200).json()
    assert (beside["exit_reason"], beside["stdout"].strip(), beside["generation"]) == ("ok", "42", 1), beside
    memory.check()
    assert gateway.process.poll() is None
    assert gateway.call("GET", "/readyz").status_code == 200
    assert "Traceback (most recent call last)" not in gateway.tail(200_000), gateway.tail(200_000).rpartition("Traceback")[2][:3000]
