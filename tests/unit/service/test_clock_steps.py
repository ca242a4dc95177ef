"""Deadlines over a restart of the gateway and a step of the wall clock by an hour either way; the clock moves by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.domain.pool import MAX_AGE_S
from gateway.domain.session_state import Phase

from .clock_rig import clock_rig as rig
from .harness import ALICE, until

HOUR = 3600.0
STEPS = pytest.mark.parametrize("step_s", [-HOUR, 0.0, HOUR])


@STEPS
@pytest.mark.parametrize("killed", [False, True])
async def test_the_idle_deadline_comes_when_it_is_due(tmp_path: Path, step_s: float, killed: bool) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.pass_(600.0)
        if killed:
            access = await r.again(access, step_s)
        else:
            r.clock.jump_wall(step_s)
            await r.pass_(10.0)
        assert r.core(access).idle_deadline - r.clock.boottime() == 590.0
        r.gateway.world.deadlines.run_due()
        await r.stays(access, "active")
        await r.pass_(589.0)
        await r.stays(access, "active")
        assert [n["kind"] for n in await access.notices()] == ["idle_warning"]
        await r.pass_(1.0)
        await until(lambda: access.to_json()["state"] == "dormant")
        assert access.to_json()["reason"] == "idle_timeout"


@STEPS
async def test_the_maximum_is_where_it_was(tmp_path: Path, step_s: float) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        claimed = r.core(access).claimed_at
        for _ in range(3):
            await r.pass_(1000.0)
            access.keep_alive()
            await r.gateway.live[access.session_id].released()
            access = await r.again(access, step_s)
            assert r.core(access).claimed_at == claimed
        await r.to_a_second_before_the_maximum(access)
        await r.stays(access, "active")
        await r.pass_(1.0)
        await until(lambda: access.to_json()["state"] == "dormant")
        assert access.to_json()["reason"] == "max_lifetime"


@STEPS
async def test_a_deadline_that_passed_while_no_gateway_ran_ends_it_at_once_without_a_late_warning(tmp_path: Path, step_s: float) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        access = await r.again(access, step_s, down_s=1300.0)
        await until(lambda: access.to_json()["state"] == "dormant")
        assert access.to_json()["reason"] == "idle_timeout"
        assert [n["kind"] for n in await access.notices()] == ["recycled"]


@STEPS
async def test_an_execution_has_its_time_limit_and_no_more(tmp_path: Path, step_s: float) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        execution = await access.execute("sleep:60", timeout_s=100.0)
        await until(lambda: access.to_json()["queue"]["running"])
        await asyncio.sleep(0.4)  # that it runs is recorded
        access = await r.again(access, step_s, down_s=10.0)
        await r.pass_(89.0)
        await asyncio.sleep(0.1)
        assert (await access.execution_json(execution))["state"] == "running"
        await r.pass_(1.0)
        await r.pass_(1.0)
        assert await access.wait_execution(execution, 10.0)
        done = await access.execution_json(execution)
        assert done["exit_reason"] == "timeout" and 100_000 <= done["duration_ms"] <= 110_000


@STEPS
async def test_a_drain_at_the_maximum_has_its_grace_over_a_restart(tmp_path: Path, step_s: float) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.to_a_second_before_the_maximum(access)
        execution = await access.execute("sleep:60")
        await until(lambda: access.to_json()["queue"]["running"])
        await r.pass_(1.0)
        assert r.core(access).phase is Phase.FINISHING
        await asyncio.sleep(0.4)
        access = await r.again(access, step_s, down_s=10.0)
        await r.pass_(19.0)
        await r.stays(access, "draining")
        assert r.core(access).phase is Phase.FINISHING
        await r.pass_(1.0)
        assert await access.wait_execution(execution, 10.0)
        assert (await access.execution_json(execution))["exit_reason"] == "sandbox_ended"
        await until(lambda: access.to_json()["state"] == "dormant")


@STEPS
async def test_warm_sandboxes_grow_old_by_time_that_passes(tmp_path: Path, step_s: float) -> None:
    async with rig(tmp_path, target=1) as r:
        pool = r.gateway.world.pool
        await until(lambda: pool.statistics()["warm"] == {"container": 1})
        [first] = r.runtime.sandboxes
        r.clock.jump_wall(step_s)
        pool.maintain()
        await asyncio.sleep(0.1)
        assert list(r.runtime.sandboxes) == [first], "a clock that is set retires nothing"
        await r.pass_(MAX_AGE_S + 1)
        pool.maintain()
        await until(lambda: first not in r.runtime.sandboxes and pool.statistics()["warm"] == {"container": 1})


async def test_the_machine_slept_past_every_deadline(tmp_path: Path) -> None:
    """Boot time leaps: the end comes once, and no warning says that there is still time."""
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.pass_(100_000.0)
        await until(lambda: access.to_json()["state"] == "dormant")
        assert [n["kind"] for n in await access.notices()] == ["recycled"]
        assert access.to_json()["generation"] == 2


@pytest.mark.parametrize(("step_s", "left"), [(0.0, 28_800 - 1000 - 60), (-HOUR, 28_800 - 1000), (HOUR, 0.0)])
async def test_a_reboot_where_the_engine_is_another_machine(tmp_path: Path, step_s: float, left: float) -> None:
    """The wall clock alone tells how long it took: put back, it gives no more than the time that nobody saw."""
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.pass_(1000.0)
        access.keep_alive()
        await r.gateway.live[access.session_id].released()
        await r.kill()
        r.clock.reboot(60.0)
        r.clock.jump_wall(step_s)
        again = await (await r.boot()).session(ALICE, access.session_id)
        if step_s > 0:  # by that clock it was idle for an hour
            await until(lambda: again.to_json()["state"] == "dormant")
            return
        assert again.to_json()["state"] == "active" and r.left(again) == pytest.approx(left)  # type: ignore[arg-type]
