"""What only the records on a disk have: locks, damage, migrations, ``kill -9``."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.backends.records import SqliteRecords, make_owner
from gateway.backends.records_db import Database
from gateway.backends.records_executions import _where
from gateway.backends.records_lease import is_gone
from gateway.backends.records_schema import MIGRATIONS
from gateway.errors import BadRequest, RecordsUnavailable
from gateway.ports import ExecutionQuery, ExecutionRow, SessionRow

pytestmark = pytest.mark.asyncio


def session(session_id: str, version: int = 1) -> SessionRow:
    return SessionRow(session_id, "t", "u", "n", "p", "active", 1, 1.0, 1.0, version=version)


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


@pytest_asyncio.fixture
async def records(tmp_path: Path) -> AsyncIterator[SqliteRecords]:
    made = SqliteRecords(tmp_path / "records.db")
    await made.open()
    yield made
    await made.close()


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def test_files_are_private_and_what_was_written_stays(records: SqliteRecords, tmp_path: Path) -> None:
    await records.put_session(session("s"))
    assert modes(tmp_path) == {0o600}
    name = await records.instance_id()
    await records.close()
    await records.close()
    with pytest.raises(RecordsUnavailable):
        await records.get_session("s")
    await records.open()
    assert await records.instance_id() == name
    assert await records.get_session("s") is not None


async def test_a_lock_of_another_program_is_a_typed_error_soon(records: SqliteRecords, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "records.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begin = time.monotonic()
        with pytest.raises(RecordsUnavailable, match="locked"):
            await records.put_session(session("s"))
        with pytest.raises(RecordsUnavailable, match="locked"):
            await records.acquire_lease("a", 1.0, 1.0)
        assert time.monotonic() - begin < 10.0
        assert await records.get_session("s") is None
        other.execute("ROLLBACK")
    await records.put_session(session("s"))
    assert await records.acquire_lease("a", 1.0, 1.0) == 1


async def test_a_full_disk_is_a_typed_error_and_the_records_go_on(records: SqliteRecords) -> None:
    pages = records._db.one("PRAGMA page_count")[0]
    records._db.run(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(RecordsUnavailable, match="full"):
        for number in range(100):
            await records.put_session(SessionRow(str(number), "t", "u", "n" * 4000, "p", "active", 1, 1.0, 1.0))
    records._db.run("PRAGMA max_page_count = 1000000")
    await records.put_session(session("s"))
    assert await records.get_session("s") is not None


async def quiet(records: SqliteRecords) -> None:
    checkpoints = records._db._checkpoints
    assert checkpoints is not None
    for _ in range(1000):
        if not checkpoints._running:
            return
        await asyncio.sleep(0.01)


async def test_the_log_stays_small(records: SqliteRecords, tmp_path: Path) -> None:
    for version in range(1, 6000):
        await records.put_session(session("s", version))
        if version % 500 == 0:  # in a pause, however slow the disk, a checkpoint ends and lets the log begin anew
            await quiet(records)
    assert sizes(tmp_path)["records.db-wal"] < 16 * 1024**2


async def test_text_that_is_no_unicode_is_the_callers_fault(records: SqliteRecords) -> None:
    with pytest.raises(BadRequest):
        await records.put_session(session("\ud800"))
    with pytest.raises(BadRequest):
        await records.put_session(session("s", version=2**70))


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(content)
    with pytest.raises(RecordsUnavailable, match="damaged") as caught:
        await SqliteRecords(path).open()
    assert caught.value.retry_after is None
    assert path.read_bytes() == content


async def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    records = SqliteRecords(path)
    await records.open()
    for number in range(200):
        await records.put_session(session(f"s{number}"))
    await records.close()
    content = bytearray(path.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = os.urandom(200)
    path.write_bytes(content)
    with pytest.raises(RecordsUnavailable, match="damaged"):
        await SqliteRecords(path).open()


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordsUnavailable) as caught:
        await SqliteRecords(tmp_path / "file" / "records.db").open()
    assert str(tmp_path) not in caught.value.detail


ADDING = "CREATE TABLE more (id INTEGER PRIMARY KEY);\nALTER TABLE sessions ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'"


async def test_the_previous_release_goes_on_with_a_newer_file(tmp_path: Path) -> None:
    newer = Database(tmp_path / "records.db", (*MIGRATIONS, ADDING))
    newer.open()
    assert newer.one("PRAGMA user_version") == (len(MIGRATIONS) + 1,)
    newer.close()
    records = SqliteRecords(tmp_path / "records.db")
    await records.open()
    await records.put_session(session("s"))
    await records.put_session(session("s", version=2))
    assert await records.get_session("s") == session("s", version=2)
    await records.close()
    newer.open()
    assert newer.one("SELECT colour FROM sessions") == ("red",)
    newer.close()


async def test_a_newer_schema_that_says_so_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    newer = Database(path, (*MIGRATIONS, "DROP TABLE audit"), readable_since=len(MIGRATIONS) + 1)
    newer.open()
    newer.close()
    before = path.read_bytes()
    with pytest.raises(RecordsUnavailable, match=f"schema {len(MIGRATIONS) + 1}; this release knows {len(MIGRATIONS)}"):
        await SqliteRecords(path).open()
    assert path.read_bytes() == before


async def test_a_migration_happens_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    old = SqliteRecords(path)
    await old.open()
    await old.put_session(session("s"))
    await old.close()
    broken = Database(path, (*MIGRATIONS, ADDING + ";\nCREATE TABLE sessions (id)"))
    with pytest.raises(RecordsUnavailable):
        broken.open()
    good = Database(path, (*MIGRATIONS, ADDING))
    good.open()
    assert good.one("SELECT session_id, colour FROM sessions") == ("s", "red")
    good.close()


CHILD = """
import asyncio, os, sys
from pathlib import Path
from gateway.backends.records import SqliteRecords, make_owner
from gateway.ports import SessionRow

async def main():
    records = SqliteRecords(Path(sys.argv[1]))
    await records.open()
    await records.acquire_lease(make_owner("boot"), 1000.0, 3600.0)
    for number in range(10**9):
        await records.put_session(SessionRow(f"s{number}", "t", "u", "n", "p", "active", 1, 1.0, 1.0))
        print(number, flush=True)

asyncio.run(main())
"""


def write_until_killed(path: Path) -> int:
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = -1
        for line in child.stdout:
            told = int(line)
            if told >= 300:
                break
        child.send_signal(signal.SIGKILL)
        return max([told, *(int(line) for line in child.stdout if line.endswith("\n"))])


async def test_kill_9_loses_nothing_and_holds_no_lease(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    told = await asyncio.to_thread(write_until_killed, path)
    records = SqliteRecords(path)
    await records.open()
    assert len(await records.list_sessions(limit=10**6)) - (told + 1) in (0, 1)
    assert await records.acquire_lease(make_owner("boot"), 1001.0, 60.0) == 2
    await records.close()


async def test_whether_an_owner_is_gone() -> None:
    asking = make_owner("boot")
    boot, space, pid, started, nonce = asking.split("/")

    def other(boot: str = boot, space: str = space, pid: str = pid, started: str = started) -> str:
        return "/".join((boot, space, pid, started, nonce))

    assert not is_gone(other(), asking)
    assert is_gone(other(pid=str(2**22 + 1)), asking)
    assert is_gone(other(started="1"), asking)
    assert not is_gone(other(started=""), asking)
    dead = {"pid": str(2**22 + 1)}
    assert not is_gone(other(boot="another boot", **dead), asking)
    assert not is_gone(other(space="another container", **dead), asking)
    assert not is_gone(other(boot="unknown", **dead), make_owner("unknown"))
    for odd in ("", "somebody", "a/b/c/d", "a/b/-1/d/e"):
        assert not is_gone(odd, asking)
        assert not is_gone(other(**dead), odd)


async def test_a_search_for_executions_reads_so_many_rows_at_a_time_through_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.backends.records_executions.LOOK_AT", 5)
    records = SqliteRecords(tmp_path / "records.db")
    await records.open()
    await records.put_session(SessionRow("s1", "t1", "alice", "", "gvisor", "active", 1, 1.0, 1.0))
    for i in range(12):
        reason = "timeout" if i == 1 else "ok"
        await records.put_execution(ExecutionRow(f"x{i}", "s1", "t1", "alice", "m", "rest", "finished", 1, "c", float(i), exit_reason=reason))
    pages, behind = [], None
    while True:
        page, behind = await records.find_executions(ExecutionQuery(tenant="t1", user="alice", reasons=("timeout",), behind=behind))
        pages.append([row.execution_id for row in page])
        if behind is None:
            break
    assert pages == [[], [], ["x1"]]
    for query, index in (
        (ExecutionQuery(tenant="t1", user="alice"), "executions_owner"), (ExecutionQuery(session_id="s1", tenant="t1"), "executions_session"),
        (ExecutionQuery(tenant="t1"), "INTEGER PRIMARY KEY"), (ExecutionQuery(), "INTEGER PRIMARY KEY"),
    ):  # fmt: skip
        clause, given = _where(query)
        plan = str(records._db.all(f"EXPLAIN QUERY PLAN SELECT seq FROM executions {clause} AND seq BETWEEN 1 AND 9 ORDER BY seq DESC", given))
        assert index in plan and "TEMP B-TREE" not in plan, plan
    await records.close()
