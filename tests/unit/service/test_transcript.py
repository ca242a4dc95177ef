"""Transcripts on the fakes: what is kept by policy and within bounds, over kills and deletions; and rebuilds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from gateway.domain.model import ExecutionState, Principal
from gateway.domain.retention import DAY_S, Retention
from gateway.domain.transcript import Policy, Transcripts
from gateway.errors import Conflict, NotFound, SessionEnded, TooLarge, Unavailable
from gateway.ports import ExecutionRow
from gateway.service import transcript as writer
from gateway.service.access import Access
from gateway.service.sweeper import Sweeper
from gateway.service.world import Caps

from .harness import ALICE, MALLORY, Client, Rig, execute_request, rig, until

Json = dict[str, Any]


async def cells(access: Any, **how: Any) -> list[Json]:
    return list((await access.document.to_json(**how))["cells"])


async def notebook(access: Any) -> Json:
    value: Json = json.loads(b"".join([chunk async for chunk in access.document.notebook()]))
    nbformat.validate(value)
    return value


def on_disk(path: Path, word: str) -> list[str]:
    """Files of the gateway's state that hold this word."""
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file() and word.encode() in p.read_bytes())


async def recycled(access: Access) -> None:
    access.recycle()
    await until(lambda: access.to_json()["state"] == "dormant")


async def lost(r: Rig, *codes: str) -> Access:
    """A session that ran these cells, and whose sandbox ended then."""
    access = await r.session()
    for code in codes:
        await r.run(access, code)
    await recycled(access)
    return access


async def rebuilt(access: Access, cells: list[str] | None = None, **how: Any) -> Json:
    await access.start_rebuild(cells, **how)
    await until(lambda: access.rebuild_json()["state"] != "running")
    return access.rebuild_json()


# ---------------------------------------------------------------------- what is kept


async def test_every_cell_is_kept_as_it_was_whoever_asked_for_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        first = await r.run(access, "print:one\nvalue:41")
        await r.run(access, "print:two\nerror:KeyError")
        client = Client()
        access.attach("ws:lab", client, after=None, jupyter=True)
        for silent in (True, False):
            msg_id, body = execute_request(f"print:from jupyter {silent}", "lab", silent=silent)
            access.from_client("ws:lab", body)
            await until(lambda msg_id=msg_id: any(m.parent_id == msg_id for m in client.messages("execute_reply")))
        one, two, three = await cells(access)
        assert one["execution_id"] == first["execution_id"] and one["code"] == "print:one\nvalue:41" and one["generation"] == 1
        assert [o["output_type"] for o in one["outputs"]] == ["stream", "execute_result"]
        assert one["outputs"][1]["data"] == {"text/plain": "41"} and one["succeeded"]
        assert two["outputs"][-1]["ename"] == "KeyError" and (two["exit_reason"], two["succeeded"]) == ("code_error", False)
        assert (three["source"], three["outputs"][0]["text"]) == ("jupyter", "from jupyter False\n"), "what is silent is nobody's document"
        assert [c["code"] for c in await cells(access, outputs=False)] == [c["code"] for c in (one, two, three)]
        assert "outputs" not in (await cells(access, outputs=False))[0]
        page = await access.document.to_json(limit=2)
        assert len(page["cells"]) == 2 and len(await cells(access, after=page["next"])) == 1
        assert page["policy"] == "full" and page["held"]["cells"] == 3


async def test_what_waited_when_everything_was_lost_is_kept_too(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        first = await access.execute("print:before\nsleep:0.3\ndie:11")
        await access.execute("print:never ran")
        assert await access.wait_execution(first, 10)
        died, waited = await cells(access)
        assert (died["exit_reason"], waited["exit_reason"]) == ("kernel_died", "kernel_died")
        assert died["outputs"][0]["text"] == "before\n" and waited["code"] == "print:never ran"


async def test_the_order_is_that_of_their_ends_however_long_each_takes_to_gather(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        s = r.gateway.live[access.session_id]
        for code in ("print:x\n" * 2000, "set:a", "print:y\n" * 500, "set:b"):
            access.from_client("ws:lab", execute_request(code, "lab")[1])
        await until(lambda: not s.runs.open, 30)
        assert [c["code"][:7] for c in await cells(access)] == ["print:x", "set:a", "print:y", "set:b"]


async def test_output_is_bounded_for_a_cell_and_in_all(tmp_path: Path) -> None:
    async with rig(tmp_path, caps=Caps(cell_bytes=20_000, transcript_bytes=50_000)) as r:
        access = await r.session()
        for _ in range(4):
            await r.run(access, "flood:300000\nerror:ValueError")
        found = await cells(access)
        sizes = [c["output_bytes"] for c in found]
        assert sizes[0] == sizes[1] == 0 and 20_000 <= sizes[3] < 21_000
        assert [o["output_type"] for o in found[3]["outputs"]] == ["stream", "error"], "what went wrong is kept whatever was printed"
        assert all(c["code"] and c["left_out_bytes"] > 250_000 for c in found)
        assert (await access.document.to_json())["held"]["bytes"] <= 50_000
        assert (await notebook(access))["cells"][0]["metadata"]["sandglass"]["output_bytes_left_out"] > 250_000


async def test_a_long_flood_is_gathered_in_short_turns(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "print:x\n" * 3000)
        longest, stopped = 0.0, asyncio.Event()

        async def watch() -> None:
            nonlocal longest
            loop = asyncio.get_running_loop()
            while not stopped.is_set():
                before = loop.time()
                await asyncio.sleep(0)
                longest = max(longest, loop.time() - before)

        task = r.tasks.spawn(watch(), "watch")
        s = r.gateway.live[access.session_id]
        [row] = await r.records.list_executions(access.session_id)
        out = await writer.gather(s.journal, row.msg_id, 0, s.journal.last_index, 10**6)
        stopped.set()
        await task
        assert out.finished() == [{"output_type": "stream", "name": "stdout", "text": "x\n" * 3000}]
        assert longest < 0.25, longest


async def test_of_many_cells_asked_for_at_once_each_looks_at_its_own_output_only(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        s = r.gateway.live[access.session_id]
        looked, read = 0, s.journal.read

        def counting(after: int, **how: Any) -> Any:
            nonlocal looked
            found = read(after, **how)
            looked += len(found)
            return found

        s.journal.read = counting  # type: ignore[method-assign]
        for number in range(200):
            access.from_client("ws:lab", execute_request(f"print:{number}", "lab")[1])
        await until(lambda: not s.runs.open, 30)
        found = await cells(access)
        assert [c["outputs"][0]["text"] for c in found] == [f"{n}\n" for n in range(200)]
        assert looked < 200 * 30, looked


@pytest.mark.parametrize("policy", [Policy.HASH, Policy.OFF])
async def test_a_policy_keeps_less_for_its_tenant_alone(tmp_path: Path, policy: Policy) -> None:
    async with rig(tmp_path) as r:
        r.gateway.world.transcripts = Transcripts(Policy.FULL, {"t1": policy})
        access, other = await r.session(), await r.session(MALLORY)
        for each in (access, other):
            await r.run(each, "print:planted-text")
        assert (await access.document.to_json())["policy"] == policy
        assert [c["code"] for c in await cells(other)] == ["print:planted-text"]
        found = await cells(access)
        if policy is Policy.OFF:
            assert found == []
            with pytest.raises(Conflict):
                await notebook(access)
        else:
            [one] = found
            assert (one["code"], one["outputs"], one["exit_reason"]) == (None, [], "ok")
            assert one["code_sha256"] == (await cells(other))[0]["code_sha256"] and len(one["outputs_sha256"]) == 64
            assert "planted-text" not in json.dumps(found)
            assert (await notebook(access))["cells"][0]["cell_type"] == "markdown"
        await recycled(access)
        with pytest.raises(Conflict, match="keeps no code" if policy is Policy.OFF else "nothing|no code"):
            await access.start_rebuild(None)


# ---------------------------------------------------------------------- kills, deletions, ends


class Stuck:
    """Records that never take a finished execution: where a kill comes between its cell and its row."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    async def put_execution(self, row: ExecutionRow) -> None:
        if row.state == ExecutionState.FINISHED:
            await asyncio.Event().wait()
        await self._records.put_execution(row)


async def test_a_kill_between_a_cell_and_its_row_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "print:first")
        r.gateway.world.records = Stuck(r.records)  # type: ignore[assignment]
        execution_id = await access.execute("print:second")
        while (await r.records.count_cells(access.session_id))[0] < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(Unavailable):
            writer.SETTLE_S, kept = 0.05, writer.SETTLE_S
            try:
                await access.document.to_json()
            finally:
                writer.SETTLE_S = kept
        await r.kill()
        again = await (await r.boot()).session(ALICE, access.session_id)
        assert await again.wait_execution(execution_id, 10)
        assert [(c["code"], c["exit_reason"]) for c in await cells(again)] == [("print:first", "ok"), ("print:second", "ok")]


async def test_a_cell_that_ran_over_a_kill_is_whole(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        execution_id = await access.execute("print:before\nsleep:0.8\nprint:after")
        await asyncio.sleep(0.3)
        await r.kill()
        again = await (await r.boot()).session(ALICE, access.session_id)
        assert await again.wait_execution(execution_id, 10)
        [cell] = await cells(again)
        assert cell["code"] == "print:before\nsleep:0.8\nprint:after" and cell["outputs"][0]["text"] == "before\nafter\n"


async def test_deletion_leaves_nothing_on_disk_and_is_recorded(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access, other = await r.session(), await r.session()
        await r.run(access, "print:planted-one")
        await r.run(other, "print:of-another-session")
        assert on_disk(tmp_path, "planted-one")
        await access.document.delete("alice")
        assert await cells(access) == [] and len(await cells(other)) == 1
        assert not any(name.startswith("journals") for name in on_disk(tmp_path, "planted-one"))
        [row] = [row for row in await r.records.list_audit() if row.tag == "user:transcript:delete"]
        assert (row.user, row.session_id, row.detail) == ("alice", access.session_id, {"by": "alice", "count": 1})
        result = await r.run(access, "print:goes on")
        assert result["stdout"] == "goes on\n" and [c["code"] for c in await cells(access)] == ["print:goes on"]
        client = Client()
        access.attach("page", client, after=0, jupyter=False)
        await until(lambda: "goes on" in client.text())
        assert client.gaps and "planted-one" not in client.text()
    assert on_disk(tmp_path, "planted-one") == []
    assert on_disk(tmp_path, "of-another-session") != []


async def test_what_runs_keeps_its_output_and_the_journal_goes_after_it_also_over_a_kill(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "print:planted-early")
        execution_id = await access.execute("print:planted-running\nsleep:1\nprint:done")
        await asyncio.sleep(0.3)
        await access.document.delete("alice")
        assert any(name.startswith("journals") for name in on_disk(tmp_path, "planted-early")), "what runs is still to be told from there"
        await r.gateway.live[access.session_id].released()
        await r.kill()
        again = await (await r.boot()).session(ALICE, access.session_id)
        assert await again.wait_execution(execution_id, 10)
        assert [c["outputs"][0]["text"] for c in await cells(again)] == ["planted-running\ndone\n"]
        await until(lambda: not any(name.startswith("journals") for name in on_disk(tmp_path, "planted-early")))
        assert (await r.run(again, "print:next"))["stdout"] == "next\n"
        async with asyncio.timeout(5):
            while (row := await r.records.get_session(access.session_id)) is None or row.data["forget_before"]:
                await asyncio.sleep(0.02)


async def test_an_ended_session_keeps_it_until_its_time_or_its_owner_says(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        owned: list[Any] = []
        for name in ("planted-a", "planted-b"):
            access = await r.session()
            await r.run(access, f"print:{name}")
            access.end()
            await until(lambda access=access: access.session_id not in r.gateway.live)
            owned.append(await r.gateway.session(ALICE, access.session_id, ended=True))
        for each in owned:
            assert len(await cells(each)) == 1 and (await notebook(each))["cells"][0]["outputs"]
            with pytest.raises(SessionEnded):
                await each.start_rebuild(None)
        await owned[0].document.delete("alice")
        assert await cells(owned[0]) == [] and not (tmp_path / "journals" / owned[0].session_id).exists()
        await Sweeper(r.gateway).sweep()
        assert len(await cells(owned[1])) == 1
        r.gateway.world.retention = Retention(transcripts_s=-2 * DAY_S)
        await Sweeper(r.gateway).sweep()
        assert await cells(owned[1]) == []
        assert "retention:cell:delete" in [row.tag for row in await r.records.list_audit()]


async def test_foreign_and_unknown_ids_answer_alike(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        mine, theirs = await r.session(), await r.session(MALLORY)
        foreign = (await r.run(theirs, "set:x"))["execution_id"]
        await r.run(mine, "set:y")
        for principal in (MALLORY, Principal("bob", "t1"), Principal("boss", "t1", frozenset({"tenant_admin"}))):
            with pytest.raises(NotFound):
                await r.gateway.session(principal, mine.session_id, ended=True)
        told = []
        for execution_id in (foreign, "f" * 24):
            with pytest.raises(NotFound) as caught:
                await mine.start_rebuild([execution_id])
            told.append(caught.value.detail)
        assert told[0] == told[1]


# ---------------------------------------------------------------------- rebuilds


async def test_what_succeeded_before_the_loss_runs_again_and_the_variables_are_back(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await lost(r, "set:a", "error:Oops", "set:b\nprint:b is here")
        client = Client()
        access.attach("page", client, after=None, jupyter=False)
        result = await rebuilt(access)
        assert (result["state"], result["done"], result["total"], result["stopped_at"]) == ("done", 2, 2, None)
        assert (result["lost_variables"], result["back"], result["missing"]) == (["a", "b"], ["a", "b"], [])
        assert [c["exit_reason"] for c in result["cells"]] == ["ok", "ok"]
        ran = await cells(access)
        assert [(c["code"], c["generation"]) for c in ran[3:]] == [("set:a", 2), ("set:b\nprint:b is here", 2)]
        assert [c["cell"] for c in result["cells"]] == [ran[0]["execution_id"], ran[2]["execution_id"]]
        assert [c["execution_id"] for c in result["cells"]] == [c["execution_id"] for c in ran[3:]]
        events = [json.loads(e.body) for e in client.entries if e.kind == 3]
        states = [(e["rebuild"]["state"], e["rebuild"]["done"]) for e in events if e["type"] == "rebuild"]
        assert states[0] == ("running", 0) and states[-1] == ("done", 2) and ("running", 1) in states
        sources = [c["cell_type"] for c in (await notebook(access))["cells"]]
        assert sources == ["code", "code", "code", "markdown", "code", "code"]


async def test_it_stops_at_the_first_error_and_says_what_is_missing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await lost(r, "set:a", "error:Oops", "set:b")
        every = [c["execution_id"] for c in await cells(access)]
        result = await rebuilt(access, [every[2], every[1], every[0]])
        assert (result["state"], result["done"], result["total"]) == ("stopped", 2, 3)
        assert result["stopped_at"]["cell"] == every[1] and result["stopped_at"]["exit_reason"] == "code_error"
        assert (result["back"], result["missing"]) == (["a"], ["b"])
        assert [c["exit_reason"] for c in result["cells"]] == ["ok", "code_error", None], "in the order of the first time"
        assert len(await cells(access)) == 5
        assert (await rebuilt(access, [every[2]]))["state"] == "done"


async def test_a_loss_in_the_middle_stops_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await lost(r, "set:a\nsleep:0.3", "set:b")
        await access.start_rebuild(None)
        await until(lambda: access.to_json()["busy"])
        await recycled(access)
        await until(lambda: access.rebuild_json()["state"] == "stopped")
        assert access.rebuild_json()["stopped_at"]["exit_reason"] == "sandbox_ended" and access.rebuild_json()["back"] == []
        result = await rebuilt(access, [c["execution_id"] for c in (await cells(access))[:2]])
        assert (result["state"], result["back"]) == ("done", ["a", "b"]), "what the first loss took is still what is missing"


async def test_one_at_a_time_and_a_person_can_stop_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        with pytest.raises(NotFound):
            access.rebuild_json()
        with pytest.raises(Conflict):
            await access.start_rebuild(None)
        await r.run(access, "set:a\nsleep:0.5")
        await r.run(access, "set:b")
        await recycled(access)
        await access.start_rebuild(None)
        with pytest.raises(Conflict):
            await access.start_rebuild(None)
        await until(lambda: access.rebuild_json()["cells"][0]["execution_id"])
        own = asyncio.ensure_future(r.run(access, "print:my own"))
        await until(lambda: access.to_json()["busy"])
        access.stop_rebuild()
        assert (await own)["stdout"].endswith("my own\n")
        result = access.rebuild_json()
        assert (result["state"], result["detail"]) == ("stopped", "It was stopped.") and result["cells"][1]["execution_id"] is None
        access.stop_rebuild()


async def test_a_rebuild_cut_by_a_restart_is_told_and_not_run_twice(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await lost(r, "set:a", "set:b\nsleep:0.6", "set:c")
        await access.start_rebuild(None)
        await until(lambda: access.rebuild_json()["done"] == 1 and access.to_json()["busy"])
        await r.gateway.live[access.session_id].released()
        await r.kill()
        again = await (await r.boot()).session(ALICE, access.session_id)
        assert isinstance(again, Access)
        client = Client()
        again.attach("page", client, after=0, jupyter=False)
        result = again.rebuild_json()
        assert result["state"] == "cut" and "restarted" in result["detail"] and result["cells"][2]["execution_id"] is None
        await until(lambda: not again.to_json()["busy"])
        await until(lambda: any(b'"cut"' in e.body for e in client.entries if e.kind == 3))
        assert [c["code"] for c in await cells(again)] == ["set:a", "set:b\nsleep:0.6", "set:c", "set:a", "set:b\nsleep:0.6"]
        assert (await rebuilt(again, [result["cells"][2]["cell"]]))["back"] == ["a", "b", "c"]


async def test_a_deleted_transcript_ends_it_and_too_many_cells_are_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        for _ in range(2):
            await r.run(access, "set:a\nsleep:0.3")
        await recycled(access)
        await access.start_rebuild(None)
        await until(lambda: access.to_json()["busy"])
        await access.document.delete("alice")
        await until(lambda: access.rebuild_json()["state"] == "stopped")
        assert "deleted" in access.rebuild_json()["detail"]
        for _ in range(201):
            await r.run(access, "")
        await recycled(access)
        with pytest.raises(TooLarge):
            await access.start_rebuild(None)
