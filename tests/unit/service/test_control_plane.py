"""What goes wrong between gateway and engine without a word: each is seen, tried again or given up, and nothing is left behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.domain.model import SandboxState
from gateway.errors import EngineUnavailable
from gateway.service import effects, sandboxes

from .harness import ALICE, rig, until
from .test_metrics import Figures


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "REMOVE_RETRY_S", (0.05,))


# ---------------------------------------------------------------- created, but not recorded


async def test_one_that_the_engine_made_without_an_answer_is_found_by_its_label_and_removed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        f = Figures(r)
        r.runtime.lost_answers.append(0.0)
        with pytest.raises(EngineUnavailable):
            await r.gateway.world.sandboxes.create(r.gateway.world.profiles["container"])
        await until(lambda: r.runtime.removed and not r.runtime.sandboxes)
        (spec,) = r.runtime.created
        row = await r.records.get_sandbox(spec.sandbox_id)
        assert row is not None and row.state == SandboxState.GONE
        assert f("sandbox_start_failures_total", profile="container", start="cold", code="engine_unavailable") == 1
        assert f("sandbox_removals_pending") == 0


async def test_one_that_the_engine_makes_after_everybody_has_looked_is_an_orphan_of_the_next_sweep(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.runtime.lost_answers.append(0.3)
        with pytest.raises(EngineUnavailable):
            await r.gateway.world.sandboxes.create(r.gateway.world.profiles["container"])
        await until(lambda: not r.gateway.world.sandboxes.removing)
        await until(lambda: r.runtime.sandboxes)
        await r.adoption.sweep()
        assert not r.runtime.sandboxes


async def test_a_user_whose_sandbox_was_lost_that_way_gets_another(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.runtime.lost_answers.append(0.0)
        access = await r.gateway.create_session(ALICE)
        await until(lambda: access.to_json()["state"] in ("active", "dormant"))
        assert (await r.run(access, "print:x"))["exit_reason"] == "ok"  # type: ignore[arg-type]
        await until(lambda: len(r.runtime.sandboxes) == 1)


# ---------------------------------------------------------------- ended, but not destroyed


async def test_a_removal_that_fails_is_counted_tried_again_and_survives_a_restart(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        f = Figures(r)
        access = await r.session()
        sandbox_id = r.gateway.live[access.session_id].core.sandbox_id
        r.runtime.remove_errors.extend(EngineUnavailable("the engine does not confirm that a sandbox is gone") for _ in range(10_000))
        access.recycle()
        await until(lambda: f("sandbox_removal_retries_total", code="engine_unavailable") >= 3)
        assert f("sandbox_removals_pending") == 1
        row = await r.records.get_sandbox(sandbox_id)
        assert row is not None and row.state == SandboxState.REMOVING
        assert access.to_json()["state"] == "draining", "nobody is told that it is gone"
        assert r.gateway.world.sandboxes._slots, "its uids are nobody else's"
        await r.kill()
        r.runtime.remove_errors.clear()
        again = await (await r.boot()).session(ALICE, access.session_id)
        await until(lambda: again.to_json()["state"] == "dormant" and not r.runtime.sandboxes)
        row = await r.records.get_sandbox(sandbox_id)
        assert row is not None and row.state == SandboxState.GONE


# ---------------------------------------------------------------- the timeout's signal is lost


@pytest.mark.parametrize("lost", [{"interrupt"}, {"interrupt", "restart_kernel"}])
async def test_a_limit_whose_signal_is_lost_is_carried_out_by_the_next_layer(tmp_path: Path, lost: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No interrupt arrives: the kernel is ended. No kernel's end arrives: the sandbox is. The word stays, the next cell runs."""
    monkeypatch.setattr(effects, "RESTART_S", 0.3)
    async with rig(tmp_path) as r:
        access = await r.session()
        sandbox_id = r.gateway.live[access.session_id].core.sandbox_id
        r.runtime.sandbox(sandbox_id).relay.deaf_to = set(lost)
        begun = time.monotonic()
        result = await r.run(access, "sleep:60", timeout_s=0.3)
        assert result["exit_reason"] == "timeout" and time.monotonic() - begun < 5
        assert access.to_json()["generation"] == 2
        if "restart_kernel" in lost:
            # what is asked for meanwhile is told that it never began
            assert (await r.run(access, "print:meanwhile"))["exit_reason"] == "sandbox_ended"
            await until(lambda: sandbox_id not in {s.spec.sandbox_id for s in r.runtime.sandboxes.values()})
        assert (await r.run(access, "print:next"))["stdout"].strip() == "next"


# ---------------------------------------------------------------- the engine hangs


async def test_an_engine_that_hangs_gives_typed_answers_in_time_and_takes_nothing_that_runs(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        r.runtime.hang()
        begun = time.monotonic()
        assert (await r.run(access, "print:on"))["exit_reason"] == "ok", "what runs needs no engine"
        _, health = await r.gateway.health()
        assert health["status"] != "ok" and health["checks"]["engine"] != "ok"
        with pytest.raises(EngineUnavailable):
            await r.gateway.create_session(ALICE)
        assert time.monotonic() - begun < 10
        access.recycle()
        r.runtime.hang(False)
        await until(lambda: access.to_json()["state"] == "dormant")
        assert (await r.run(access, "print:back"))["stdout"].strip() == "back"
        assert (await r.run(await r.session(), "print:new"))["stdout"].strip() == "new"
