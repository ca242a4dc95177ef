"""Disposable sandboxes: one user's for a burst of files, never a second one's, bounded in number, gone after anything odd."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.errors import EngineUnavailable, Unavailable
from gateway.service import disposable
from gateway.service.disposable import Given, Job, WorkFailed, once

from .harness import Rig, rig, until

A, B, C = ("t1", "alice"), ("t1", "bob"), ("t2", "alice")


def job(code: str = "write:result:done", within_s: float = 5.0) -> Job:
    return Job(code, (Given("in/file", 4, once(b"data")),), "result", 100, within_s, lambda result: result == b"done")


def ids(r: Rig) -> set[str]:
    return set(r.runtime.sandboxes)


async def test_a_sandbox_is_kept_for_its_user_and_for_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        work = r.gateway.world.disposables
        with pytest.raises(Unavailable):
            await work.run(A, job())  # the engine serves no profile yet
        work.profile = "container"
        assert await asyncio.gather(*(work.run(A, job()) for _ in range(5))) == [b"done"] * 5
        alices = ids(r)
        assert len(alices) == 1 and r.gateway.world.pool.live == 0
        await work.run(B, job())
        await work.run(C, job())  # of another tenant, and the third: the one that waited longest for its user makes room
        await until(lambda: len(ids(r)) == 2 and not alices & ids(r))
        assert len(r.runtime.created) == 3
        monkeypatch.setattr(disposable, "MOST_JOBS", 3)
        for _ in range(2):
            await work.run(B, job())
        await until(lambda: len(ids(r)) == 1)
        await work.close()
        assert not ids(r) and work.count == 0


@pytest.mark.parametrize("code", ["error:ValueError", "die:11", "nothing", "hang", "write:result:odd"])
async def test_after_anything_odd_it_is_destroyed(tmp_path: Path, code: str) -> None:
    async with rig(tmp_path) as r:
        work = r.gateway.world.disposables
        work.profile = "container"
        await work.run(A, job())
        before = ids(r)
        with pytest.raises(WorkFailed):
            await work.run(A, job(code, within_s=0.5))
        await until(lambda: not before & ids(r))
        assert await work.run(A, job()) == b"done"


async def test_one_that_dies_while_it_is_kept_is_not_used_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        work = r.gateway.world.disposables
        work.profile = "container"
        await work.run(A, job())
        (sandbox,) = r.runtime.sandboxes.values()
        assert sandbox.relay.kernel is not None
        sandbox.relay.kernel.end_by_signal(9)
        await until(lambda: all(link.lost for link in work.links()))
        assert await work.run(A, job()) == b"done"
        (sandbox,) = [s for s in r.runtime.sandboxes.values() if s.engine_id != sandbox.engine_id]
        r.runtime.exit(sandbox.engine_id, 137)
        await until(lambda: all(link.lost for link in work.links()))
        assert await work.run(A, job()) == b"done"


async def test_there_are_no_more_than_allowed_and_who_waits_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        work = r.gateway.world.disposables
        work.profile = "container"
        slow = [asyncio.get_running_loop().create_task(work.run(owner, job("sleep:0.6\nwrite:result:done"))) for owner in (A, B)]
        await until(lambda: len(ids(r)) == 2)
        monkeypatch.setattr(disposable, "WAIT_S", 0.1)
        with pytest.raises(Unavailable):
            await work.run(C, job())
        monkeypatch.setattr(disposable, "WAIT_S", 5.0)
        assert await work.run(C, job()) == b"done"
        assert await asyncio.gather(*slow) == [b"done"] * 2
        assert work.count == 2
        r.runtime.create_errors.append(EngineUnavailable("away"))
        with pytest.raises(EngineUnavailable):
            await work.run(("t3", "x"), job())
        await until(lambda: len(ids(r)) == work.count)
