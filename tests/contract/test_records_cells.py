"""Transcripts, asked of every kind of records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.backends.records import SqliteRecords
from gateway.domain.retention import Rows
from gateway.domain.transcript import Cell
from gateway.errors import Conflict
from gateway.ports import AuditRow, ExecutionRow, Records, SessionRow
from gateway.testing.stores import MemoryRecords

pytestmark = pytest.mark.asyncio
SAID = AuditRow(50.0, "user:transcript:delete", "t1", "alice", "s1", {"by": "alice"})
OUTPUTS: list[dict[str, Any]] = [{"output_type": "stream", "name": "stdout", "text": "half \ud800 é"}]


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def records(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Records]:
    made: Records = MemoryRecords() if request.param == "memory" else SqliteRecords(tmp_path / "records.db")
    await made.open()
    for name, state, ended_at in (("s1", "dormant", None), ("s2", "active", None), ("over", "ended", 20.0)):
        await made.put_session(SessionRow(name, "t1", "alice", "n", "gvisor", state, 1, 1.0, 2.0, ended_at=ended_at, version=1))
    yield made
    await made.close()


def cell(name: str, session_id: str = "s1", **more: Any) -> Cell:
    values: dict[str, Any] = {
        "execution_id": name, "session_id": session_id, "generation": 1, "source": "rest", "exit_reason": "ok", "created_at": 1.0,
        "started_at": None, "finished_at": 2.0, "execution_count": None, "code_sha256": "c", "outputs_sha256": "o", "code_bytes": 10,
        "output_bytes": 50, "code": f"code of {name}", "outputs": OUTPUTS,
    }  # fmt: skip
    return Cell(**values | more)


async def put(records: Records, *cells: Cell, most_bytes: int = 10_000, most_cells: int = 100) -> None:
    for each in cells:
        await records.put_cell(each, most_bytes, most_cells)


async def names(records: Records, session_id: str = "s1") -> list[str]:
    return [c.execution_id for c in await records.list_cells(session_id)]


async def test_what_is_put_comes_back_in_order(records: Records) -> None:
    first, second = cell("b", left_out=7, execution_count=3, started_at=1.5), cell("a", code=None, outputs=[], output_bytes=0)
    await put(records, first, second, cell("c", "s2"))
    found = await records.list_cells("s1")
    assert [replace(c, place=0) for c in found] == [first, second]
    assert 0 < found[0].place < found[1].place
    assert await names(records, "s2") == ["c"] and await names(records, "over") == []
    assert [c.execution_id for c in await records.list_cells("s1", after=found[0].place)] == ["a"]
    assert [c.execution_id for c in await records.list_cells("s1", limit=1)] == ["b"]
    without = (await records.list_cells("s1", outputs=False))[0]
    assert (without.outputs, without.code, without.output_bytes) == ([], "code of b", 50)
    assert await records.count_cells("s1") == (2, 70) and await records.count_cells("over") == (0, 0)


async def test_a_cell_is_its_sessions_only(records: Records) -> None:
    await put(records, cell("a"))
    found = await records.get_cell("s1", "a")
    assert found is not None and found.code == "code of a"
    assert await records.get_cell("s2", "a") is None and await records.get_cell("s1", "b") is None
    with pytest.raises(Conflict):
        await put(records, cell("x", "nobody"))


async def test_the_same_execution_again_is_one_cell_in_its_place(records: Records) -> None:
    await put(records, cell("a"), cell("b"), cell("a", exit_reason="code_error"))
    assert [(c.execution_id, c.exit_reason) for c in await records.list_cells("s1")] == [("a", "code_error"), ("b", "ok")]


async def test_past_the_bound_old_outputs_go_first_then_old_cells(records: Records) -> None:
    bound = {"most_bytes": 130}
    await put(records, cell("a"), cell("b"), **bound)
    await put(records, cell("other", "s2"), **bound)
    await put(records, cell("c"), **bound)
    found = await records.list_cells("s1")
    assert [(c.execution_id, c.output_bytes, c.left_out, c.outputs) for c in found] == [
        ("a", 0, 50, []), ("b", 50, 0, OUTPUTS), ("c", 50, 0, OUTPUTS),
    ]  # fmt: skip
    assert [c.code for c in found] == ["code of a", "code of b", "code of c"], "code stays longer than output: it can be run again"
    await put(records, cell("d", code_bytes=115, output_bytes=0, outputs=[]), **bound)
    assert await names(records) == ["c", "d"]
    assert (await records.count_cells("s1"))[1] <= 130
    await put(records, cell("e", code_bytes=5000), **bound)
    assert await names(records) == ["e"], "the newest stays, whatever its size"
    assert await names(records, "s2") == ["other"]


async def test_past_the_number_the_oldest_cells_go(records: Records) -> None:
    await put(records, *(cell(f"{n}") for n in range(6)), most_cells=4)
    assert await names(records) == ["2", "3", "4", "5"]
    assert all(c.outputs for c in await records.list_cells("s1"))


async def test_deletion_is_said_once_and_is_one_sessions(records: Records) -> None:
    await put(records, cell("a"), cell("b"), cell("c", "s2"))
    assert await records.forget_cells("s1", SAID) == 2
    assert await records.forget_cells("s1", SAID) == 0
    assert await names(records) == [] and await names(records, "s2") == ["c"]
    assert [row.detail for row in await records.list_audit()] == [{"by": "alice", "count": 2}]
    await put(records, cell("a"))
    assert await names(records) == ["a"]


async def test_what_executions_quote_goes_with_the_cells(records: Records) -> None:
    quoted = {"files": [{"path": "salaries.csv"}], "hints": [{"detail": "x"}], "trace": {"cpu_s": 1.0}}
    for name, session_id in (("a", "s1"), ("c", "s2")):
        await records.put_execution(
            ExecutionRow(name, session_id, "t1", "alice", f"m-{name}", "rest", "finished", 1, "c", 1.0, exit_reason="ok", data=dict(quoted))
        )
    await put(records, cell("a"), cell("c", "s2"))
    await records.forget_cells("s1", SAID)
    mine, other = await records.get_execution("a"), await records.get_execution("c")
    assert mine is not None and mine.data == {"trace": {"cpu_s": 1.0}}
    assert other is not None and other.data == quoted


async def test_by_age_only_those_of_ended_sessions_go(records: Records) -> None:
    await put(records, cell("a"), cell("b", "over"))
    said = AuditRow(50.0, "retention:cell:delete", "", "")
    assert (await records.purge(Rows.CELLS, 19.0, 0, 10, said)).count == 0
    assert (await records.purge(Rows.SESSIONS, 99.0, 0, 10, said)).count == 0, "its transcript is left of it"
    assert (await records.purge(Rows.CELLS, 21.0, 0, 10, said)).count == 1
    assert await names(records) == ["a"] and await names(records, "over") == []
    assert (await records.purge(Rows.SESSIONS, 99.0, 0, 10, said)).sessions == ("over",)


async def test_what_was_deleted_is_not_in_the_file_either(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "records.db")
    await records.open()
    await records.put_session(SessionRow("s1", "t1", "alice", "n", "gvisor", "dormant", 1, 1.0, 2.0, version=1))
    await put(records, cell("a", code="planted-word " * 2000), cell("b", code="planted-word"), most_bytes=10**6)
    await records.forget_cells("s1", SAID)
    await records.close()
    assert [path.name for path in tmp_path.iterdir() if b"planted-word" in path.read_bytes()] == []


async def test_a_cell_costs_no_more_where_the_bound_is_reached(tmp_path: Path) -> None:
    """Steps of SQLite's machine: with thousands of cells held, each further one must not look at all of them."""
    records = SqliteRecords(tmp_path / "records.db")
    await records.open()
    await records.put_session(SessionRow("s1", "t1", "alice", "n", "gvisor", "dormant", 1, 1.0, 2.0, version=1))
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    async def cost(first: int, **bound: int) -> int:
        nonlocal steps
        await put(records, *(cell(f"{first + n}") for n in range(10)), **bound)  # comes down to the bound
        steps = 0
        await put(records, *(cell(f"{first + 10 + n}") for n in range(40)), **bound)
        return steps

    records._db._open_connection().set_progress_handler(step, 1)
    free = await cost(0, most_bytes=10**6, most_cells=10_000)
    await put(records, *(cell(f"{n}") for n in range(50, 1000)), most_bytes=10**6, most_cells=10_000)
    by_number = await cost(1000, most_bytes=10**6, most_cells=1000)
    by_outputs = await cost(1050, most_bytes=40_000, most_cells=10_000)
    held = await records.count_cells("s1")
    await records.close()
    assert held[1] <= 40_000
    assert by_number < 3 * free and by_outputs < 3 * free, (free, by_number, by_outputs)
