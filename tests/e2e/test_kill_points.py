"""The gateway killed with signal 9 at every step of claim, execute, upload, drain and destroy, on the real engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kill_real import every_point, ordeal, random_points

POINTS = every_point()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("half", range(2))
def test_nothing_is_lost_at_any_step(tmp_path: Path, half: int) -> None:
    victim = ordeal(tmp_path / "state", "container")
    points = POINTS[half::2]
    for point in points:
        victim.face(point)
    victim.finish()
    assert victim.deaths == len(points)


def test_nothing_is_lost_on_gvisor(tmp_path: Path) -> None:
    victim = ordeal(tmp_path / "state", "gvisor")
    for point in ("records.put_session 3 after", "engine.start 0 before", "writer.commit 1 before", "engine.remove 0 after"):
        victim.face(point)
    victim.finish()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("profile", ["container", "gvisor"])
def test_random_points(profile: str) -> None:
    """``make kill-points COUNT=1000`` tries so many of each; here only that it works."""
    assert random_points(int(os.environ.get("SANDGLASS_TEST_KILLS", "2")), profile) == 0
