"""What every kind of records does, the fake and the real one alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.backends.records import SqliteRecords
from gateway.backends.records_lease import is_gone, make_owner
from gateway.domain.model import Artifact, ExecutionState, SandboxState, SessionState
from gateway.errors import Conflict
from gateway.ports import AuditRow, DeclarationRow, ExecutionQuery, ExecutionRow, NoticeRow, Records, SandboxRow, SessionQuery, SessionRow
from gateway.testing.stores import MemoryRecords

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def records(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Records]:
    made = MemoryRecords(is_gone) if request.param == "memory" else SqliteRecords(tmp_path / "state" / "records.db")
    await made.open()
    yield made
    await made.close()


def session(session_id: str = "s1", **more: object) -> SessionRow:
    row = SessionRow(session_id, "t1", "alice", "analysis", "gvisor", SessionState.ACTIVE, 1, 100.0, 101.5, version=1)
    return replace(row, **more)  # type: ignore[arg-type]


def sandbox(sandbox_id: str = "b1", **more: object) -> SandboxRow:
    row = SandboxRow(sandbox_id, "e1", "", "gvisor", SandboxState.WARM, 70001, 70002, "ab" * 32, 3, 100.0)
    return replace(row, **more)  # type: ignore[arg-type]


def execution(execution_id: str = "x1", session_id: str = "s1", **more: object) -> ExecutionRow:
    row = ExecutionRow(execution_id, session_id, "t1", "alice", "m1", "rest", ExecutionState.QUEUED, 1, "c" * 64, 5.0)
    return replace(row, **more)  # type: ignore[arg-type]


def artifact(artifact_id: str, path: str = "out/a", session_id: str = "s1") -> Artifact:
    return Artifact(artifact_id, session_id, "t1", "alice", path, "d" * 64, 2**40, "text/csv", 2, 7.5, "x1")


async def test_the_instance_has_one_name(records: Records) -> None:
    name = await records.instance_id()
    assert name
    assert await records.instance_id() == name


async def test_one_lease_at_a_time_with_growing_epochs(records: Records) -> None:
    first = await records.acquire_lease("a", 100.0, 10.0)
    assert await records.acquire_lease("a", 101.0, 10.0) == first + 1
    with pytest.raises(Conflict) as caught:
        await records.acquire_lease("b", 105.0, 10.0)
    assert caught.value.retry_after == pytest.approx(6.0)
    assert not await records.renew_lease("b", 105.0, 10.0)
    assert await records.renew_lease("a", 105.0, 10.0)
    with pytest.raises(Conflict):
        await records.acquire_lease("b", 114.0, 10.0)
    assert await records.acquire_lease("b", 115.0, 10.0) == first + 2
    assert not await records.renew_lease("a", 115.0, 10.0)
    await records.release_lease("a")
    with pytest.raises(Conflict):
        await records.acquire_lease("a", 116.0, 10.0)
    await records.release_lease("b")
    assert not await records.renew_lease("b", 116.0, 10.0)
    assert await records.acquire_lease("a", 116.0, 10.0) == first + 3


async def test_a_lease_that_ran_out_may_be_renewed_while_nobody_took_it(records: Records) -> None:
    await records.acquire_lease("a", 100.0, 10.0)
    assert await records.renew_lease("a", 200.0, 10.0)
    with pytest.raises(Conflict):
        await records.acquire_lease("b", 205.0, 10.0)


async def test_a_dead_owners_lease_is_free_at_once(records: Records) -> None:
    alive, dead = make_owner("boot"), make_owner("boot", 2**22 + 1)
    await records.acquire_lease(dead, 100.0, 60.0)
    await records.acquire_lease(alive, 101.0, 60.0)
    with pytest.raises(Conflict):
        await records.acquire_lease(make_owner("boot"), 102.0, 60.0)


async def test_a_session_comes_back_whole(records: Records) -> None:
    row = session(
        name="Analyse «é» 报告",
        idle_deadline=1.5,
        max_deadline=2.5,
        ended_at=3.5,
        reason="user",
        sandbox_id="b1",
        data={"a": [1, 2.5, None, True, {"b": "\ud800 é"}], "": {}},
    )
    await records.put_session(row)
    found = await records.get_session("s1")
    assert found == row
    assert found is not None
    assert type(found.state) is str
    found.data["a"] = "changed"
    assert await records.get_session("s1") == row
    assert await records.get_session("s2") is None


async def test_an_older_version_never_replaces_a_newer_one(records: Records) -> None:
    await records.put_session(session(version=3, name="third"))
    await records.put_session(session(version=3, name="third again"))
    with pytest.raises(Conflict):
        await records.put_session(session(version=2, name="second"))
    await records.put_session(session(version=5, name="fifth"))
    found = await records.get_session("s1")
    assert found is not None
    assert (found.name, found.version) == ("fifth", 5)


async def test_lists_of_sessions(records: Records) -> None:
    for number, (tenant, user, state) in enumerate(
        [("t1", "alice", "active"), ("t1", "bob", "ended"), ("t2", "alice", "dormant"), ("t1", "alice", "ended")]
    ):
        row = session(f"s{number}", tenant=tenant, user=user, state=state, created_at=100.0 + number)
        await records.put_session(row)

    async def ids(**filters: object) -> list[str]:
        return [row.session_id for row in await records.list_sessions(**filters)]  # type: ignore[arg-type]

    assert await ids() == ["s3", "s2", "s1", "s0"]
    assert await ids(tenant="t1") == ["s3", "s1", "s0"]
    assert await ids(tenant="t1", user="alice") == ["s3", "s0"]
    assert await ids(user="alice", live_only=True) == ["s2", "s0"]
    assert await ids(live_only=True) == ["s2", "s0"]
    assert await ids(limit=2, offset=1) == ["s2", "s1"]
    assert await ids(tenant="nobody") == []


async def test_sessions_are_found_page_by_page(records: Records) -> None:
    for number in range(6):
        await records.put_session(
            session(
                f"s{number}",
                tenant="t1" if number < 4 else "t2",
                user="alice" if number % 2 else "bob",
                state="ended" if number in (1, 2) else "dormant",
                reason="user" if number == 1 else "admin",
                created_at=100.0 + number // 2,
                last_activity=100.0 + number // 2,
                ended_at=500.0 if number == 1 else None,
            )
        )

    async def ids(**wanted: object) -> list[str]:
        return [row.session_id for row in await records.find_sessions(SessionQuery(**wanted))]  # type: ignore[arg-type]

    assert await ids() == ["s4", "s5", "s2", "s3", "s0", "s1"]
    assert await ids(tenant="t1", user="alice") == ["s3", "s1"]
    assert await ids(states=("ended",)) == ["s2", "s1"]
    assert await ids(states=("ended", "dormant"), reasons=("user", "crash")) == ["s1"]
    assert await ids(since=102.0) == ["s4", "s5", "s1"]
    pages: list[str] = []
    behind = None
    while found := await records.find_sessions(SessionQuery(behind=behind, limit=1)):
        pages += [row.session_id for row in found]
        behind = (found[-1].created_at, found[-1].session_id)
        await records.put_session(session(f"new{len(pages)}", created_at=200.0 + len(pages)))
    assert pages == ["s4", "s5", "s2", "s3", "s0", "s1"], "new ones move no page"


async def test_sandboxes(records: Records) -> None:
    await records.put_session(session())
    row = sandbox(data={"digest": "sha256:1"})
    await records.put_sandbox(row)
    assert await records.get_sandbox("b1") == row
    claimed = replace(row, session_id="s1", state=SandboxState.CLAIMED, claimed_at=101.0, engine_id="e2")
    await records.put_sandbox(claimed)
    assert await records.get_sandbox("b1") == claimed
    await records.put_sandbox(sandbox("b2", created_at=99.0))
    gone = sandbox("b3", state=SandboxState.GONE, session_id="s1", ended_at=9.0, reason="crash")
    await records.put_sandbox(gone)
    assert [found.sandbox_id for found in await records.list_sandboxes()] == ["b2", "b1"]
    assert [found.sandbox_id for found in await records.list_sandboxes(live_only=False)] == ["b2", "b1", "b3"]
    assert await records.list_sandboxes(session_id="s1") == [claimed]
    assert await records.list_sandboxes(session_id="s1", live_only=False) == [claimed, gone]
    assert await records.get_sandbox("b9") is None


async def test_executions(records: Records) -> None:
    await records.put_session(session())
    await records.put_session(session("s2"))
    for number in range(5):
        await records.put_execution(execution(f"x{number}", created_at=5.0))
    await records.put_execution(execution("other", "s2"))
    done = execution("x1", state=ExecutionState.FINISHED, exit_reason="ok", started_at=6.0, finished_at=7.0, data={"n": 1})
    await records.put_execution(done)
    assert await records.get_execution("x1") == done
    assert await records.get_execution("x9") is None

    async def ids(**filters: object) -> list[str]:
        return [row.execution_id for row in await records.list_executions("s1", **filters)]  # type: ignore[arg-type]

    assert await ids() == ["x0", "x1", "x2", "x3", "x4"]
    assert await ids(limit=2) == ["x3", "x4"]
    assert await ids(unfinished_only=True) == ["x0", "x2", "x3", "x4"]
    assert await ids(unfinished_only=True, limit=3) == ["x2", "x3", "x4"]


async def test_notices(records: Records) -> None:
    for session_id in ("s1", "s2"):
        await records.put_session(session(session_id))
    ids = [await records.add_notice(NoticeRow("s1", f"k{n}", 1, 5.0 + n, {"text": "é", "n": n})) for n in range(4)]
    other = await records.add_notice(NoticeRow("s2", "k", 1, 5.0, {}))
    assert ids == sorted(set(ids))
    await records.mark_delivered("s1", [ids[0], ids[2], other, 10**6])
    await records.mark_delivered("s1", [])
    rows = await records.list_notices("s1")
    assert [(row.notice_id, row.kind, row.delivered) for row in rows] == [
        (ids[0], "k0", True),
        (ids[1], "k1", False),
        (ids[2], "k2", True),
        (ids[3], "k3", False),
    ]
    assert rows[1] == NoticeRow("s1", "k1", 1, 6.0, {"text": "é", "n": 1}, ids[1], False)
    assert [row.kind for row in await records.list_notices("s1", undelivered_only=True)] == ["k1", "k3"]
    assert [row.kind for row in await records.list_notices("s1", limit=2)] == ["k2", "k3"]
    assert [row.delivered for row in await records.list_notices("s2")] == [False]


async def test_declarations(records: Records) -> None:
    await records.put_session(session())
    for number, pattern in enumerate(["out/**", "a.csv", "b"]):
        await records.put_declaration(DeclarationRow("s1", pattern, True, "user", 10.0 - number))
    await records.put_declaration(DeclarationRow("s1", "b", False, "code", 20.0))
    rows = await records.list_declarations("s1")
    assert [(row.pattern, row.keep, row.source) for row in rows] == [
        ("a.csv", True, "user"),
        ("out/**", True, "user"),
        ("b", False, "code"),
    ]
    assert await records.delete_declaration("s1", "b")
    assert not await records.delete_declaration("s1", "b")
    assert not await records.delete_declaration("s2", "a.csv")
    assert len(await records.list_declarations("s1")) == 2


async def test_artifacts_are_versions_of_paths(records: Records) -> None:
    await records.put_session(session())
    await records.put_session(session("s2"))
    for artifact_id, path in (("1", "out/b"), ("2", "out/a"), ("3", "out/b"), ("4", "out/é")):
        await records.add_artifact(artifact(artifact_id, path))
    await records.add_artifact(artifact("9", "out/a", "s2"))
    assert await records.get_artifact("1") == artifact("1", "out/b")
    assert [a.artifact_id for a in await records.list_artifacts("s1")] == ["2", "3", "4"]
    assert [a.artifact_id for a in await records.list_artifacts("s1", latest_only=False)] == ["1", "2", "3", "4"]
    await records.drop_artifact_path("s1", "out/b", 8.0)
    await records.drop_artifact_path("s1", "never was", 8.0)
    assert [a.artifact_id for a in await records.list_artifacts("s1")] == ["2", "4"]
    assert [a.artifact_id for a in await records.list_artifacts("s1", latest_only=False)] == ["1", "2", "3", "4"]
    assert await records.get_artifact("3") == artifact("3", "out/b")
    await records.add_artifact(artifact("5", "out/b"))
    assert [a.artifact_id for a in await records.list_artifacts("s1")] == ["2", "5", "4"]
    assert [a.artifact_id for a in await records.list_artifacts("s2")] == ["9"]
    assert await records.get_artifact("") is None
    await records.judge_artifact("5", "image/png", "type_mismatch")
    await records.judge_artifact("unknown", "image/png", "ok")
    judged = replace(artifact("5", "out/b"), mime="image/png", verdict="type_mismatch")
    assert await records.get_artifact("5") == judged and judged in await records.list_artifacts("s1")
    assert [a.verdict for a in await records.list_artifacts("s1", latest_only=False)] == ["", "", "", "", "type_mismatch"]
    with pytest.raises(Conflict):
        await records.add_artifact(artifact("5", "out/c"))


async def test_audit(records: Records) -> None:
    for number in range(4):
        await records.add_audit(AuditRow(float(number), "user:session:create", f"t{number % 2}", "alice", f"s{number // 2}", {"n": number}))
    assert [row.detail["n"] for row in await records.list_audit()] == [3, 2, 1, 0]
    assert [row.detail["n"] for row in await records.list_audit(tenant="t1")] == [3, 1]
    assert [row.detail["n"] for row in await records.list_audit(session_id="s0", limit=1)] == [1]
    assert (await records.list_audit(limit=1))[0] == AuditRow(3.0, "user:session:create", "t1", "alice", "s1", {"n": 3})


async def test_rows_of_a_session_that_is_not_there_are_refused(records: Records) -> None:
    for attempt in (
        records.put_sandbox(sandbox(session_id="s9")),
        records.put_execution(execution(session_id="s9")),
        records.add_notice(NoticeRow("s9", "k", 1, 1.0, {})),
        records.put_declaration(DeclarationRow("s9", "a", True, "user", 1.0)),
        records.add_artifact(artifact("1", session_id="s9")),
        records.drop_artifact_path("s9", "a", 1.0),
    ):
        with pytest.raises(Conflict):
            await attempt


async def test_executions_of_everybody_are_searched_page_by_page(records: Records) -> None:
    for name in ("s0", "s1", "s2"):
        await records.put_session(session(name))
    words = ("ok", "timeout", "", "code_error")
    rows = [
        execution(f"x{i}", f"s{i % 3}", tenant=f"t{i % 2}", user="ab"[i % 4 > 1], exit_reason=words[i % 4], created_at=100.0 + i, data={"n": i})
        for i in range(14)
    ]  # fmt: skip
    for row in rows:
        await records.put_execution(row)
    await records.put_execution(replace(rows[5], exit_reason="ok"))
    rows[5].exit_reason = "ok"

    async def found(**wanted: object) -> list[str]:
        ids: list[str] = []
        behind: int | None = None
        while True:
            page, behind = await records.find_executions(ExecutionQuery(behind=behind, limit=2, **wanted))  # type: ignore[arg-type]
            assert len(page) <= 2 and all(row in rows for row in page)
            ids += [row.execution_id for row in page]
            if behind is None:
                return ids

    def right(keep: object) -> list[str]:
        return [row.execution_id for row in reversed(rows) if keep(row)]  # type: ignore[operator]

    assert await found() == right(lambda r: True)
    assert await found(tenant="t1") == right(lambda r: r.tenant == "t1")
    assert await found(tenant="t1", user="b") == right(lambda r: r.tenant == "t1" and r.user == "b") != []
    assert await found(session_id="s2", tenant="t0") == right(lambda r: r.session_id == "s2" and r.tenant == "t0") != []
    assert await found(reasons=("timeout", "code_error")) == right(lambda r: r.exit_reason in ("timeout", "code_error"))
    assert await found(since=104.0, until=109.0) == ["x8", "x7", "x6", "x5", "x4"]
    assert await found(since=104.0, until=109.0, reasons=("ok",)) == ["x8", "x5", "x4"]
    assert await found(since=1.0, until=100.0) == [] and await found(since=114.0) == [] and await found(user="nobody") == []
    assert await found(until=1e12, since=113.0) == ["x13"]
