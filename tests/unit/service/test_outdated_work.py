"""A gateway killed between a loss and the records of what ended with it: no work runs on variables that it was not meant for."""

from __future__ import annotations

import asyncio
import shutil
from copy import deepcopy
from pathlib import Path

import pytest

from gateway.backends.records import SqliteRecords
from gateway.errors import StoreUnavailable

from .harness import ALICE, rig, until


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("drained", [True, False])
async def test_work_of_a_generation_that_is_over_ends_with_it(tmp_path: Path, drained: bool, journal: bool) -> None:
    """``drained``: the sandbox is gone by then; else it waits in quarantine. ``journal``: it has what the clients were told."""
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "write:out/a.txt:one")
        asked = [await access.execute(code) for code in ("print:two\nsleep:60", "print:three")]
        await until(lambda: access.to_json()["queue"]["running"] == asked[0])
        await asyncio.sleep(0.4)
        rows = [deepcopy(await r.records.get_execution(e)) for e in asked]
        r.store.failing = None if drained else StoreUnavailable("down")
        access.recycle()
        await until(lambda: access.to_json()["state"] == ("dormant" if drained else "quarantined"))
        await asyncio.sleep(0.1)
        await r.kill()
        r.store.failing = None
        if not journal:
            shutil.rmtree(tmp_path / "journals" / access.session_id)
        records = SqliteRecords(tmp_path / "records.sqlite")
        await records.open()
        for row in rows:
            assert row is not None and row.state != "finished"
            await records.put_execution(row)  # as if the kill had come before these were written
        await records.close()
        again = await (await r.boot()).session(ALICE, access.session_id)
        for execution_id in asked:
            assert await again.wait_execution(execution_id, 5.0)
            done = await again.execution_json(execution_id)
            assert (done["exit_reason"], done["generation"]) == ("sandbox_ended", 1)
        await until(lambda: again.to_json()["state"] == "dormant", 15.0)
        assert not r.runtime.sandboxes, "nothing was opened for work that is over"
        result = await r.run(again, "print:hello")  # type: ignore[arg-type]
        assert (result["exit_reason"], result["generation"]) == ("ok", 2)
