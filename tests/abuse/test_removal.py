"""A few rules taken out, for every commit; all of them: ``python -m tests.abuse.removal``. And the table in docs/ is whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.abuse.cases import RUNTIMES, TIERS
from tests.abuse.removal import DOCUMENT, attempt
from tests.abuse.removals import REMOVALS
from tests.abuse.world import Host, planted
from tests.integration.sandbox_client import Engine, settings

found = settings()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with planted() as host:
        yield host


@pytest.mark.skipif(found is None, reason="needs SANDGLASS_TEST_DOCKER_HOST and SANDGLASS_TEST_IMAGE")
@pytest.mark.parametrize("removal", [r for r in REMOVALS if r.ci], ids=lambda r: r.name.replace(" ", "_"))
@pytest.mark.parametrize("runtime", RUNTIMES.values())
def test_its_absence_is_noticed(host: Host, runtime: str, removal: object) -> None:
    assert found is not None
    engine = Engine(found[0])
    if runtime not in engine.request("GET", "/info")["Runtimes"]:
        pytest.skip(f"the engine has no {runtime}")
    rule = next(r for r in REMOVALS if r is removal)
    assert attempt(engine, found[1], runtime, host, rule, all_cases=False), f"nobody notices that {rule.name} is missing"


def test_the_table_has_every_rule_and_none_that_nobody_catches() -> None:
    """A row that says *not run* is one that is still to be made, and says so to its reader."""
    text = DOCUMENT.read_text()
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ") and "---" not in line}
    assert set(rows) - {"taken out"} == {r.name for r in REMOVALS}
    assert "**nothing**" not in text
    assert all(tier in rows["taken out"] for tier in TIERS)
