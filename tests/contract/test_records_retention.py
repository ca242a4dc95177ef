"""What the sweeper and the list of disabled users ask of every kind of records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.backends.records import SqliteRecords
from gateway.backends.records_db import Database
from gateway.backends.records_schema import MIGRATIONS
from gateway.domain.model import Artifact
from gateway.domain.retention import Rows, StoredPath, Version
from gateway.ports import (
    AuditQuery,
    AuditRow,
    DeclarationRow,
    DisabledRow,
    ExecutionRow,
    NoticeRow,
    Purged,
    Records,
    RevocationRow,
    SandboxRow,
    SessionRow,
)
from gateway.testing.stores import MemoryRecords

pytestmark = pytest.mark.asyncio
SAID = AuditRow(50.0, "retention:x:delete", "t1", "alice", "", {"k": 1})


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def records(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Records]:
    made: Records = MemoryRecords() if request.param == "memory" else SqliteRecords(tmp_path / "records.db")
    await made.open()
    for name in ("s1", "s2"):
        await made.put_session(session(name))
    await made.put_session(session("over", state="ended", ended_at=20.0))
    yield made
    await made.close()


def session(session_id: str, **more: object) -> SessionRow:
    row = SessionRow(session_id, "t1", "alice", "n", "gvisor", "dormant", 1, 1.0, 2.0, version=1)
    return replace(row, **more)  # type: ignore[arg-type]


def artifact(artifact_id: str, path: str, session_id: str = "s1", at: float = 7.0) -> Artifact:
    return Artifact(artifact_id, session_id, "t1", "alice", path, "d" * 64, 10, "text/csv", 2, at)


async def said(records: Records) -> list[dict[str, object]]:
    return [row.detail for row in await records.list_audit()]


async def test_notes(records: Records) -> None:
    assert await records.get_note("clock") is None
    await records.put_note("clock", {"wall": 1.5, "claim": None})
    await records.put_note("clock", {"wall": 2.5, "claim": None})
    assert await records.get_note("clock") == {"wall": 2.5, "claim": None}


async def test_paths_come_page_by_page_with_their_versions(records: Records) -> None:
    for artifact_id, path, at in (("1", "out/b", 1.0), ("2", "out/a", 2.0), ("3", "out/b", 3.0)):
        await records.add_artifact(artifact(artifact_id, path, at=at))
    await records.drop_artifact_path("s1", "out/b", 4.0)
    await records.add_artifact(artifact("9", "out/a", "over"))
    first = await records.stored_paths(("", ""), 2)
    assert first == [
        StoredPath("over", "t1", "alice", "out/a", 20.0, (Version("9", 10, 7.0),)),
        StoredPath("s1", "t1", "alice", "out/a", None, (Version("2", 10, 2.0),)),
    ]
    marked = Version("", 0, 4.0)
    b = StoredPath("s1", "t1", "alice", "out/b", None, (Version("1", 10, 1.0), Version("3", 10, 3.0), marked))
    assert await records.stored_paths(("s1", "out/a"), 2) == [b]
    assert await records.stored_paths(("s1", "out/b"), 2) == []
    assert await records.doom_artifacts(["1", "3"], 5.0, SAID) == 2
    assert await records.stored_paths(("s1", "out/a"), 2) == [replace(b, versions=(marked,))], "a page is never empty before the end"


async def test_what_is_doomed_is_nobodys_until_its_row_goes(records: Records) -> None:
    for artifact_id in ("1", "2"):
        await records.add_artifact(artifact(artifact_id, "out/a"))
    assert await records.doom_artifacts(["1", "unknown"], 9.0, SAID) == 1
    assert await records.doom_artifacts(["1"], 9.0, SAID) == 0
    assert await said(records) == [{"k": 1}], "said once"
    assert await records.get_artifact("1") is None
    assert [a.artifact_id for a in await records.list_artifacts("s1", latest_only=False)] == ["2"]
    await records.doom_artifacts(["2"], 9.0, SAID)
    assert await records.list_artifacts("s1") == []
    [(place, first), (_, second)] = await records.doomed_artifacts(0, 10)
    assert (first, second) == (artifact("1", "out/a"), artifact("2", "out/a"))
    assert [a for _, a in await records.doomed_artifacts(place, 10)] == [second]
    assert await records.unknown_objects({"artifacts/x/1": "1", "artifacts/x/7": "7"}) == ["artifacts/x/7"], "a doomed one has a row"
    await records.forget_artifact("1")
    await records.forget_artifact("never")
    assert [a.artifact_id for _, a in await records.doomed_artifacts(0, 10)] == ["2"]


async def test_a_row_that_is_not_doomed_is_not_forgotten(records: Records) -> None:
    await records.add_artifact(artifact("1", "out/a"))
    await records.forget_artifact("1")
    assert await records.get_artifact("1") is not None


async def test_marks_go_once_nothing_is_stored(records: Records) -> None:
    await records.add_artifact(artifact("1", "out/a"))
    await records.drop_artifact_path("s1", "out/a", 8.0)
    await records.drop_marks("s1", "out/a")
    assert await records.list_artifacts("s1") == [], "the mark still says that it was deleted"
    await records.doom_artifacts(["1"], 9.0, SAID)
    await records.drop_marks("s1", "out/a")
    await records.forget_artifact("1")
    assert len(await records.stored_paths(("", ""), 9)) == 1
    await records.drop_marks("s1", "out/a")
    assert await records.stored_paths(("", ""), 9) == []


async def purge_all(records: Records, rows: Rows, before: float, limit: int = 2) -> int:
    count, after = 0, 0
    for _ in range(50):
        done = await records.purge(rows, before, after, limit, SAID)
        count += done.count
        if done.next is None:
            return count
        after = done.next
    raise AssertionError("it never ends")


async def test_executions_that_are_over(records: Records) -> None:
    def row(number: int, session_id: str = "s1", state: str = "finished", finished: float | None = 10.0) -> ExecutionRow:
        return ExecutionRow(
            f"x{number}", session_id, "t1", "alice", "m", "rest", state, 1, "c" * 64, 5.0, finished_at=finished
        )  # fmt: skip

    await records.put_execution(row(0, state="running", finished=None))
    for number in range(1, 6):
        await records.put_execution(row(number))
    await records.put_execution(row(6, finished=30.0))
    await records.put_execution(row(7, "over", "running", None))
    assert await purge_all(records, Rows.EXECUTIONS, 4.0) == 0
    assert await said(records) == []
    assert await purge_all(records, Rows.EXECUTIONS, 10.0) == 6
    assert [e.execution_id for e in await records.list_executions("s1")] == ["x0", "x6"]
    assert await records.list_executions("over") == []
    counts = [detail["count"] for detail in await said(records)]
    assert sum(counts) == 6 and all(detail["k"] == 1 for detail in await said(records))  # type: ignore[arg-type]


async def test_notices_that_were_told(records: Records) -> None:
    for session_id, at, delivered in (("s1", 1.0, False), ("s1", 2.0, True), ("s1", 9.0, True), ("over", 3.0, False)):
        await records.add_notice(NoticeRow(session_id, "k", 1, at, {}, delivered=delivered))
    assert await purge_all(records, Rows.NOTICES, 5.0) == 2
    assert [row.at for row in await records.list_notices("s1")] == [1.0, 9.0]
    assert await records.list_notices("over") == []
    assert await records.add_notice(NoticeRow("s1", "k", 1, 10.0, {})) == 5, "numbers are never used again"


async def test_sandboxes_and_then_sessions(records: Records) -> None:
    made = (("a", "over", "gone", 15.0), ("b", "s1", "gone", 3.0), ("c", "s1", "claimed", None), ("d", "", "gone", 4.0))
    for name, session_id, state, ended in made:
        await records.put_sandbox(SandboxRow(name, "e", session_id, "p", state, 1, 2, "m", 1, 1.0, ended_at=ended))
    assert await purge_all(records, Rows.SANDBOXES, 5.0) == 2
    assert [row.sandbox_id for row in await records.list_sandboxes(live_only=False)] == ["a", "c"]
    await records.put_declaration(DeclarationRow("over", "a", True, "user", 1.0))
    await records.add_artifact(artifact("1", "out/a", "over"))
    assert await purge_all(records, Rows.SESSIONS, 25.0) == 0, "a kept file of it is there"
    await records.doom_artifacts(["1"], 9.0, SAID)
    assert await purge_all(records, Rows.SESSIONS, 25.0) == 0, "its object is there"
    await records.forget_artifact("1")
    assert await purge_all(records, Rows.SESSIONS, 19.0) == 0
    assert await records.purge(Rows.SESSIONS, 20.0, 0, 10, SAID) == Purged(1, None, ("over",))
    assert {row.session_id for row in await records.list_sessions()} == {"s1", "s2"}
    assert await records.list_declarations("over") == []
    assert (await said(records))[0] == {"k": 1, "count": 1, "ids": ["over"]}


async def test_the_audit_goes_by_its_own_age(records: Records) -> None:
    for at in (1.0, 2.0, 3.0, 9.0, 2.5):
        await records.add_audit(AuditRow(at, "user:session:create", "t1", "alice"))
    assert await purge_all(records, Rows.AUDIT, 5.0) == 4
    assert [row.at for row in await records.list_audit() if row.tag.startswith("user")] == [9.0]


async def test_objects_without_a_row(records: Records) -> None:
    await records.note_orphans(["a", "b"], 5.0)
    await records.note_orphans(["b", "c"], 9.0)
    assert await records.orphans(5.0, 10) == ["a", "b"]
    await records.forget_orphan("a", SAID)
    await records.forget_orphan("a", SAID)
    await records.forget_orphan("b", None)
    assert await records.orphans(99.0, 10) == ["c"] and len(await said(records)) == 1


async def test_disabled_users(records: Records) -> None:
    row = DisabledRow("t1", "alice", 5.0, "root", "why", "end")
    await records.disable_user(row, SAID)
    await records.disable_user(replace(row, user="bob", at=6.0), SAID)
    assert [found.user for found in await records.list_disabled()] == ["bob", "alice"]
    assert (await records.list_disabled())[1] == row
    assert not await records.enable_user("t2", "alice", 7.0, SAID)
    assert await records.enable_user("t1", "alice", 7.0, SAID)
    assert not await records.enable_user("t1", "alice", 8.0, SAID)
    assert [found.user for found in await records.list_disabled()] == ["bob"]
    assert (await records.list_disabled(enabled_too=True))[1] == replace(row, enabled_at=7.0)
    assert len(await said(records)) == 3
    await records.forget_enabled(6.9)
    assert len(await records.list_disabled(enabled_too=True)) == 2
    await records.forget_enabled(7.0)
    assert [found.user for found in await records.list_disabled(enabled_too=True)] == ["bob"]
    await records.disable_user(replace(row, user="bob", at=8.0), SAID)
    assert (await records.list_disabled())[0].at == 8.0


async def test_records_of_the_first_schema_are_migrated(tmp_path: Path) -> None:
    old = Database(tmp_path / "records.db", MIGRATIONS[:1])
    old.open()
    old.run("INSERT INTO sessions VALUES ('s', 't', 'u', 'n', 'p', 'active', 1, 1.0, 1.0, '', '', NULL, NULL, NULL, '{}', 1)")
    old.run("INSERT INTO artifacts VALUES (1, 'a', 's', 't', 'u', 'out/a', 'd', 1, 'm', 1, 1.0, '', 0)")
    old.close()
    made = SqliteRecords(tmp_path / "records.db")
    await made.open()
    assert [a.artifact_id for a in await made.list_artifacts("s")] == ["a"]
    assert await made.doom_artifacts(["a"], 2.0, SAID) == 1
    assert await made.list_disabled() == []
    await made.close()
    old.open()  # the release before goes on with the newer file
    old.run("INSERT INTO artifacts (artifact_id, session_id, tenant, user, path, sha256, size, mime, generation, created_at, execution_id)"
            " VALUES ('b', 's', 't', 'u', 'out/a', 'd', 1, 'm', 1, 1.0, '')")  # fmt: skip
    old.close()


async def test_revocations(records: Records) -> None:
    token, user = RevocationRow("jti", "", "", 5.0, 100.0), RevocationRow("", "t1", "alice", 6.0, 200.0)
    for row in (user, token, replace(user, at=7.0), token):
        await records.put_revocation(row)
    assert await records.list_revocations() == [token, replace(user, at=7.0)]
    await records.forget_revocations(99.0)
    assert len(await records.list_revocations()) == 2
    await records.forget_revocations(100.0)
    assert await records.list_revocations() == [replace(user, at=7.0)]


async def test_the_audit_is_searched_page_by_page(records: Records) -> None:
    tags = ("admin:session:end", "admin:session:extend", "user:session:end")
    rows = [AuditRow(float(i), tags[i % 3], f"t{i % 2}", "ab"[i % 4 > 1], f"s{i}") for i in range(12)]
    for row in rows:
        await records.add_audit(row)

    async def found(**wanted: object) -> list[float]:
        at: list[float] = []
        behind: int | None = None
        while True:
            page, behind = await records.find_audit(AuditQuery(behind=behind, limit=2, **wanted))  # type: ignore[arg-type]
            assert len(page) <= 2
            at += [row.at for row in page]
            if behind is None:
                return at

    def right(keep: object) -> list[float]:
        return [row.at for row in reversed(rows) if keep(row)]  # type: ignore[operator]

    assert await found() == right(lambda r: True)
    assert await found(tenant="t1") == right(lambda r: r.tenant == "t1")
    assert await found(user="b", since=4.0) == right(lambda r: r.user == "b" and r.at >= 4)
    assert await found(session_id="s7") == [7.0]
    assert await found(tag="admin:session:") == right(lambda r: r.tag.startswith("admin:session:"))
    assert await found(tag="admin:session:end") == right(lambda r: r.tag == "admin:session:end")
    assert await found(tag="admin:session") == [] and await found(tag="%") == []


async def test_a_search_looks_at_so_many_entries_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.backends.records_audit.LOOK_AT", 5)
    records = SqliteRecords(tmp_path / "records.db")
    await records.open()
    for i in range(12):
        await records.add_audit(AuditRow(float(i), "rare" if i == 1 else "common", "t1", "alice"))
    pages, behind = [], None
    while True:
        page, behind = await records.find_audit(AuditQuery(tag="rare", behind=behind))
        pages.append([row.at for row in page])
        if behind is None:
            break
    assert pages == [[], [], [1.0]]
    await records.close()
