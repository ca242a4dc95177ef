"""Many who wait for a sandbox at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.model import Principal
from gateway.errors import CapacityExhausted
from gateway.service.pool import COLD_AT_ONCE
from gateway.testing.runtime import FakeRuntime

from .harness import Rig, rig, until


def counted(runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many were being made at each creation, itself counted."""
    making, seen, create = 0, [], runtime.create

    async def create_counted(spec: object) -> str:
        nonlocal making
        making += 1
        seen.append(making)
        try:
            return await create(spec)  # type: ignore[arg-type]
        finally:
            making -= 1

    monkeypatch.setattr(runtime, "create", create_counted)
    return seen


async def ask(r: Rig, count: int) -> None:
    for n in range(count):
        await r.gateway.create_session(Principal(f"user{n}", "t1"))


async def test_they_are_made_a_few_at_a_time_and_everybody_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * COLD_AT_ONCE
    async with rig(tmp_path) as r:
        r.runtime.create_s = 0.02
        seen = counted(r.runtime, monkeypatch)
        await ask(r, count)
        await until(lambda: all(s.core.state == "active" for s in r.gateway.live.values()))
        assert (max(seen), len(seen), len(r.gateway.live)) == (COLD_AT_ONCE, count, count)
        assert len({s.core.sandbox_id for s in r.gateway.live.values()}) == count


async def test_one_that_cannot_be_made_holds_up_nobody_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        r.runtime.create_s = 0.02
        r.runtime.create_errors.extend(CapacityExhausted("no room") for _ in range(COLD_AT_ONCE))
        await ask(r, 2 * COLD_AT_ONCE)
        await until(lambda: sum(s.core.state == "active" for s in r.gateway.live.values()) == COLD_AT_ONCE)
        assert r.gateway.world.pool.live == COLD_AT_ONCE
