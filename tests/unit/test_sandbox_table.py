"""The sandbox's table: used once, and gone only when the engine says so; the service obeys it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from gateway.domain.model import SandboxState as S
from gateway.domain.sandbox import TABLE, SandboxEvent, step
from gateway.errors import InvalidTransition

from .service.harness import rig, until

USED = {S.CLAIMED, S.REMOVING, S.GONE}


@pytest.mark.parametrize(("state", "event"), [pair for pair in product(S, SandboxEvent) if pair not in TABLE])
def test_what_is_not_in_the_table_is_refused(state: S, event: SandboxEvent) -> None:
    with pytest.raises(InvalidTransition):
        step(state, event)


def test_a_used_one_is_never_given_again_whatever_happens() -> None:
    """Every way through the table, not a sample: it is small."""
    for start in USED:
        seen, todo = {start}, [start]
        while todo:
            at = todo.pop()
            assert (at, SandboxEvent.CLAIM) not in TABLE
            for (state, _), after in TABLE.items():
                if state is at and after not in seen:
                    seen.add(after)
                    todo.append(after)
        assert S.WARM not in seen


def test_one_is_gone_only_when_the_engine_confirms_it() -> None:
    assert {event for (state, event), after in TABLE.items() if after is S.GONE and state is not S.GONE} == {SandboxEvent.CONFIRMED_GONE}


async def test_the_service_refuses_to_claim_twice_and_to_attach_to_one_on_its_way_out(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        live = r.gateway.live[access.session_id]
        sandbox, sandboxes = live.sandbox, r.gateway.world.sandboxes
        assert sandbox is not None and sandbox.row.state == S.CLAIMED
        with pytest.raises(InvalidTransition):
            sandboxes.claim(sandbox)
        r.runtime.remove_s = 0.3
        access.recycle()
        await until(lambda: sandbox.row.state == S.REMOVING)
        with pytest.raises(InvalidTransition):
            await sandboxes.reattach(sandbox.row, live.profile, (0, 0, 0))
        await until(lambda: sandbox.row.state == S.GONE)
        assert not r.runtime.sandboxes


async def test_removing_one_that_is_gone_asks_nobody_and_leaves_its_uids_to_the_next(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        sandboxes = r.gateway.world.sandboxes
        row = r.gateway.live[access.session_id].sandbox.row  # type: ignore[union-attr]
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        slots = set(sandboxes._slots)
        sandboxes.occupy(row)  # another one has its uids now
        r.runtime.stop_engine()
        await asyncio.wait_for(sandboxes.destroy(replace(row)), 1.0)
        assert sandboxes._slots - slots, "the uids were not given free a second time"
        r.runtime.start_engine()


async def test_the_records_say_gone_only_after_the_engine(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        sandbox_id = r.gateway.live[access.session_id].core.sandbox_id
        r.runtime.remove_s = 0.2
        access.recycle()
        while sandbox_id in {s.spec.sandbox_id for s in r.runtime.sandboxes.values()}:
            row = await r.records.get_sandbox(sandbox_id)
            assert row is not None and row.state != S.GONE
            await asyncio.sleep(0.02)
        await until(lambda: access.to_json()["state"] == "dormant")
        row = await r.records.get_sandbox(sandbox_id)
        assert row is not None and row.state == S.GONE and row.ended_at is not None
