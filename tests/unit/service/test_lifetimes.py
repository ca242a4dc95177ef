"""Lifetimes on the fakes, with real short timers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.errors import GenerationMismatch, NotFound, SessionEnded, StoreUnavailable
from gateway.service.journal import EntryKind

from .harness import ALICE, MALLORY, Client, chunks, execute_request, rig, sha256, until


async def test_the_scene_in_small(tmp_path: Path) -> None:
    """Declared file and variable; a warning that names it; a recycle; the file is back, the variable is told lost."""
    async with rig(tmp_path, idle_s=1.2, warn=(0.8,)) as r:
        access = await r.session()
        page, lab = Client(), Client()
        access.attach("page", page, after=0, jupyter=False)
        access.attach("ws:client", lab, after=None, jupyter=True)
        result = await r.run(access, "set:df\nwrite:out/report.xlsx:hello\nwrite:scratch.txt:gone")
        assert result["exit_reason"] == "ok"
        _, body = execute_request("print:seen")
        access.from_client("ws:client", body)
        await until(lambda: "seen" in lab.text())
        await until(lambda: access.to_json()["state"] == "dormant", 10)
        notices = {n["kind"]: n for n in await access.notices()}
        assert [v["name"] for v in notices["idle_warning"]["variables"]] == ["df"]
        assert notices["idle_warning"]["undeclared_files"] == ["scratch.txt"]
        assert notices["recycled"]["reason"] == "idle_timeout"
        assert notices["files_lost"]["files"] == ["scratch.txt"]
        view = access.to_json()
        assert view["generation"] == 2 and view["lost_because"] == "idle_timeout"
        assert "df" in lab.text() and "idle" in lab.text(), "a Jupyter client was warned"
        result = await r.run(access, "print:again")
        assert result["exit_reason"] == "ok" and result["generation"] == 2
        assert "df" in result["stderr"] and "out/report.xlsx" in result["stderr"] and result["stdout"].strip() == "again"
        files = {f["path"]: f for f in (await access.list_files())["files"]}
        assert files["out/report.xlsx"]["sha256"] == sha256(b"hello") and "scratch.txt" not in files
        assert b"".join([c async for c in access.read_file("out/report.xlsx")]) == b"hello"
        indexes = [e.index for e in page.entries]
        assert indexes == sorted(set(indexes)), "the event stream has everything once"


async def test_a_busy_session_does_not_idle_out(tmp_path: Path) -> None:
    async with rig(tmp_path, idle_s=0.4) as r:
        access = await r.session()
        result = await r.run(access, "sleep:1.2")
        assert result["exit_reason"] == "ok" and access.to_json()["generation"] == 1


async def test_keep_alive_moves_idle_but_attachments_do_not(tmp_path: Path) -> None:
    async with rig(tmp_path, idle_s=0.6) as r:
        access = await r.session()
        for _ in range(4):
            await asyncio.sleep(0.25)
            access.keep_alive()
        assert access.to_json()["state"] == "active"
        client = Client()
        access.attach("page", client, after=0, jupyter=False)
        await until(lambda: access.to_json()["state"] == "dormant", 3)


async def test_the_maximum_ends_a_busy_session_after_its_grace(tmp_path: Path) -> None:
    async with rig(tmp_path, max_s=0.8, idle_s=60) as r:
        access = await r.session()
        result = await r.run(access, "sleep:20")
        assert result["exit_reason"] == "sandbox_ended" and result["status"] == "lost"
        await until(lambda: access.to_json()["state"] == "dormant")
        assert access.to_json()["reason"] == "max_lifetime"


async def test_generations_are_refused_when_they_are_gone(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "set:x", expect_generation=1)
        await access.restart()
        with pytest.raises(GenerationMismatch) as refused:
            await access.execute("x", expect_generation=1)
        assert refused.value.extra["lost_variables"] == ["x"]
        assert (await r.run(access, "1", expect_generation=2))["exit_reason"] == "ok"


async def test_a_store_that_is_down_keeps_the_sandbox_and_tells(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "write:out/a.txt:one")
        await asyncio.sleep(1.3)  # the checkpoint
        await r.run(access, "write:out/a.txt:two!")
        r.store.failing = StoreUnavailable("down")
        access.recycle()
        await until(lambda: access.to_json()["state"] == "quarantined")
        r.store.failing = None
        await until(lambda: access.to_json()["state"] == "dormant", 15)
        assert {n["kind"] for n in await access.notices()} >= {"quarantined", "recycled"}
        assert b"".join([c async for c in access.read_file("out/a.txt")]) == b"two!"


async def test_ending_is_final_and_the_files_stay(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        client = Client()
        access.attach("ws:x", client, after=None, jupyter=True)
        await access.write_file("data.csv", 3, chunks(b"a,b"), overwrite=False)
        access.end()
        await until(lambda: client.code == "session_ended")
        with pytest.raises(SessionEnded):
            await r.gateway.session(ALICE, access.session_id)
        ended = await r.gateway.session(ALICE, access.session_id, ended=True)
        assert ended.to_json()["state"] == "ended" and ended.to_json()["reason"] == "user"
        assert [f["path"] for f in (await ended.list_files())["files"]] == ["in/data.csv"]
        assert not await r.runtime.list(await r.records.instance_id())


async def test_a_foreign_id_is_an_unknown_id(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        for session_id in (access.session_id, "00000000-0000-4000-8000-000000000000"):
            with pytest.raises(NotFound, match="no such session"):
                await r.gateway.session(MALLORY, session_id)


async def test_requests_while_dormant_are_answered_without_waking(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        client = Client()
        access.attach("ws:lab", client, after=None, jupyter=True)
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        from gateway.protocol import jupyter

        for kind in ("kernel_info_request", "complete_request"):
            header = jupyter.make_header(kind, "lab")
            access.from_client("ws:lab", jupyter.build("shell", header, {}, {}, {}))
        await until(lambda: client.messages("complete_reply"))
        assert client.messages("kernel_info_reply")[0].content["status"] == "ok"
        assert access.to_json()["state"] == "dormant"
        assert all(e.kind in EntryKind for e in client.entries)


async def test_a_stop_while_the_pool_makes_one_leaves_nothing_behind(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        pool = r.gateway.world.pool
        pool._target = 1
        r.runtime.create_s = 0.2
        pool.maintain()
        await asyncio.sleep(0.05)
        assert pool.statistics()["creating"] == {"container": 1}
        await pool.close()
        assert pool.statistics()["creating"] == {"container": 0}, "the process may end now"
        assert not r.runtime.sandboxes
