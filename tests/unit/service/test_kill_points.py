"""A thousand random points at which the gateway dies, or engine, records or store fail for a moment: afterwards all is right."""

from __future__ import annotations

from collections import Counter

import pytest

from .kill_points import run_trials

BLOCK = 250
STEPS = {
    "claim": ("engine.create", "engine.attach", "engine.start", "records.put_sandbox"),
    "execute": ("records.put_execution",),
    "drain": ("records.put_session", "records.add_notice"),
    "upload": ("store.writer", "writer.write", "writer.commit", "records.add_artifact"),
    "destroy": ("engine.remove",),
}


tried = Counter[str]()
"""Of all blocks."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(4))
async def test_nothing_is_lost_at_any_point(block: int) -> None:
    failed, points = await run_trials(range(block * BLOCK, (block + 1) * BLOCK))
    assert not failed, "\n".join(failed)
    assert points["not reached"] < BLOCK / 2
    for point, count in points.items():
        tried[point.partition(" ")[2]] += count


def test_points_of_every_step_were_among_them() -> None:
    if sum(tried.values()) < 4 * BLOCK:
        pytest.skip("not all of the blocks were run, or one of them failed")
    for step, names in STEPS.items():
        assert all(tried[name] for name in names), f"a point of {step} was not tried: {tried}"
