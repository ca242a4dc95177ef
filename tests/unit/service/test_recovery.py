"""A gateway that is killed and started again, on fakes: sessions, running cells and output go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import RecordsUnavailable
from gateway.ports import AuditRow
from gateway.protocol import jupyter
from gateway.service.access import Access
from gateway.service.journal import EntryKind
from gateway.service.sandboxes import UID_BASE

from .harness import ALICE, Client, Rig, execute_request, rig, until


async def test_a_running_cell_survives_and_nothing_is_lost(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        page, lab = Client(), Client()
        access.attach("page", page, after=0, jupyter=False)
        attached = access.attach("ws:lab", lab, after=None, jupyter=True)
        lines = "\n".join(f"print:{n}\nsleep:0.02" for n in range(60))
        msg_id, body = execute_request(lines, "lab")
        access.from_client("ws:lab", body)
        await until(lambda: "10" in lab.text().split())
        attached.confirm(lab.entries[-3].index)
        last_seen = page.entries[-1].index
        await r.kill()
        await asyncio.sleep(0.3)
        gateway = await r.boot()
        again = await gateway.session(ALICE, access.session_id)
        page2, lab2 = Client(), Client()
        again.attach("page", page2, after=last_seen, jupyter=False)
        again.attach("ws:lab", lab2, after=None, jupyter=True)
        await until(lambda: lab2.messages("execute_reply"), 15)
        seen = [m for c in (page, page2) for m in c.messages("stream") if m.parent_id == msg_id]
        assert "".join(m.content["text"] for m in seen).split() == [str(n) for n in range(60)], "the event stream: each once, in order"
        ids = [m.msg_id for m in lab.messages("stream")] + [m.msg_id for m in lab2.messages("stream")]
        assert len(ids) - len(set(ids)) <= 3, "a Jupyter client: repeats only of what was in flight"
        unique = list(dict.fromkeys(ids))
        text = {m.msg_id: m.content["text"] for m in lab.messages("stream") + lab2.messages("stream")}
        assert "".join(text[i] for i in unique).split() == [str(n) for n in range(60)]
        view = again.to_json()
        assert (view["generation"], view["state"]) == (1, "active")
        [execution] = await again.list_executions()
        assert execution["exit_reason"] == "ok"


async def test_executions_that_waited_run_after_the_restart(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        first = await access.execute("sleep:0.6\nprint:first")
        second = await access.execute("print:second")
        await asyncio.sleep(0.2)
        await r.kill()
        again = await (await r.boot()).session(ALICE, access.session_id)
        for execution_id, text in ((first, "first"), (second, "second")):
            assert await again.wait_execution(execution_id, 10)
            assert (await again.execution_json(execution_id))["stdout"].strip() == text


@pytest.mark.parametrize("lives", [True, False])
async def test_what_is_asked_before_the_sessions_are_taken_up_goes_behind_what_waited(tmp_path: Path, lives: bool) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        if not lives:
            access.recycle()
            await until(lambda: access.to_json()["state"] == "dormant")
        first = await access.execute("sleep:0.6\nprint:first") if lives else ""
        second = await access.execute("print:second")
        await asyncio.sleep(0)
        await r.kill()
        again = await (await r.boot(adopt=False)).session(ALICE, access.session_id)
        third = await again.execute("print:third")
        await asyncio.sleep(0.1)
        assert (await again.execution_json(third))["state"] == "queued"
        await r.adoption.run()
        for execution_id in filter(None, (first, second, third)):
            assert await again.wait_execution(execution_id, 10)
        session = r.gateway.live[access.session_id]
        entries = session.journal.read(0, max_entries=1000)
        said = [m.content["text"] for e in entries if e.kind == EntryKind.MESSAGE and (m := jupyter.decode(bytes(e.body))).msg_type == "stream"]
        assert [text.strip() for text in said if text.strip() in ("first", "second", "third")] == ["first", "second", "third"][not lives :]
        instance = await r.records.instance_id()
        assert len(await r.runtime.list(instance)) == 1, "one sandbox, not two"


async def test_a_container_gone_meanwhile_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "set:df\nwrite:out/x.txt:kept")
        await asyncio.sleep(1.3)  # the checkpoint
        instance = await r.records.instance_id()
        await r.kill()
        [fact] = await r.runtime.list(instance)
        r.runtime.vanish(fact.engine_id)
        again = await (await r.boot()).session(ALICE, access.session_id)
        await until(lambda: again.to_json()["state"] == "dormant")
        assert again.to_json()["reason"] == "host_lost" and again.to_json()["generation"] == 2
        result = await r.run(again, "print:x")
        assert "out/x.txt" in result["stderr"]


@pytest.mark.parametrize("when", ["starting", "draining"])
async def test_a_kill_in_the_middle_of_a_start_or_drain(tmp_path: Path, when: str) -> None:
    async with rig(tmp_path) as r:
        access = await r.session() if when == "draining" else await r.gateway.create_session(ALICE)
        if when == "draining":
            await r.run(access, "write:out/a.txt:data")  # type: ignore[arg-type]
            access.recycle()
        await asyncio.sleep(0.001)
        await r.kill()
        again = await (await r.boot()).session(ALICE, access.session_id)
        await until(lambda: again.to_json()["state"] in ("dormant", "active"))
        result = await r.run(again, "print:x")  # type: ignore[arg-type]
        assert result["exit_reason"] == "ok"
        if when == "draining":
            assert "out/a.txt" in [f["path"] for f in (await again.list_files())["files"]]
        instance = await r.records.instance_id()
        await until(lambda: not r.gateway.world.sandboxes.removing)
        assert len(await r.runtime.list(instance)) == 1, "no orphan"


async def test_unknown_containers_of_this_instance_are_removed_others_not(tmp_path: Path) -> None:
    from gateway.ports import SandboxSpec

    async with rig(tmp_path) as r:
        profile = r.gateway.world.profiles["container"]
        instance = await r.records.instance_id()
        for owner in (instance, "somebody-else"):
            await r.runtime.create(SandboxSpec(f"stray-{owner}", owner, profile, profile.image, UID_BASE, UID_BASE + 1, UID_BASE + 2))
        await r.kill()
        await r.boot()
        await asyncio.sleep(0.1)
        assert not await r.runtime.list(instance)
        assert len(await r.runtime.list("somebody-else")) == 1


async def test_the_engine_goes_and_comes_back(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        execution_id = await access.execute("print:a\nsleep:0.8\nprint:b")
        await asyncio.sleep(0.2)
        r.runtime.stop_engine()
        await asyncio.sleep(0.3)
        r.runtime.start_engine()
        assert await access.wait_execution(execution_id, 15)
        result = await access.execution_json(execution_id)
        assert result["exit_reason"] == "ok" and result["stdout"].split() == ["a", "b"]


def reported_failed(monkeypatch: pytest.MonkeyPatch, r: Rig) -> Callable[[], None]:
    """The next session's record is written, and said not to be; nothing else is read or written until the returned call."""
    away, put = [True], r.records.put_session

    async def written(row: Any) -> None:
        await put(row)
        if away[0]:
            raise RecordsUnavailable("The disk is full.")

    get = r.records.get_session

    async def refused(session_id: str) -> Any:
        if away[0]:
            raise RecordsUnavailable("The disk is full.")
        return await get(session_id)

    monkeypatch.setattr(r.records, "put_session", written)
    monkeypatch.setattr(r.records, "get_session", refused)
    return lambda: away.__setitem__(0, False)


@pytest.mark.parametrize("recovers", [True, False])
async def test_a_session_whose_creation_failed_opens_no_sandbox_though_it_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recovers: bool
) -> None:
    async with rig(tmp_path) as r:
        back = reported_failed(monkeypatch, r)
        with pytest.raises(RecordsUnavailable):
            await r.gateway.create_session(ALICE)
        assert not r.gateway.live
        if recovers:
            back()
            async with asyncio.timeout(10):
                while await r.records.list_sessions(live_only=True):
                    await asyncio.sleep(0.02)
        await r.kill()
        gateway = await r.boot()
        await asyncio.sleep(0.2)
        assert not r.runtime.created, "nobody asked for a sandbox"
        assert [s.core.state for s in gateway.live.values()] == ([] if recovers else ["dormant"])
        for session in list(gateway.live.values()):
            found = await gateway.session(ALICE, session.session_id)
            assert isinstance(found, Access)
            assert (await r.run(found, "print:here"))["stdout"] == "here\n", "whoever finds it can use it"
            found.end()
            await until(lambda: not gateway.live)


async def test_what_its_owner_does_to_a_session_stands_in_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await access.restart()
        add, failures = r.records.add_audit, [RecordsUnavailable("locked")] * 2

        async def fails_first(row: Any) -> None:
            if failures:
                raise failures.pop()
            await add(row)

        monkeypatch.setattr(r.records, "add_audit", fails_first)
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        await r.run(access, "1")
        restart, over = (
            jupyter.build("control", jupyter.make_header("shutdown_request", "client"), {}, {}, {"restart": again}) for again in (True, False)
        )
        access.attach("ws:lab", Client(), after=None, jupyter=True)
        generation = access.to_json()["generation"]
        access.from_client("ws:lab", restart)
        await until(lambda: access.to_json()["generation"] == generation + 1 and access.to_json()["state"] == "active")
        access.from_client("ws:lab", over)
        await until(lambda: not r.gateway.live)
        rows: list[AuditRow] = []
        async with asyncio.timeout(10):
            while len(rows) < 4:
                await asyncio.sleep(0.02)
                rows = [row for row in await r.records.list_audit(session_id=access.session_id) if row.tag.startswith("user:")]
        assert sorted(row.tag for row in rows) == ["user:session:end", "user:session:recycle", "user:session:restart", "user:session:restart"]
        assert all((row.tenant, row.user, row.detail) == ("t1", "alice", {"reason": "user", "by": "alice"}) for row in rows)
