"""The drain at the maximum lifetime: what runs has its grace, what waits ends with its word, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.domain.model import EndReason
from gateway.domain.session_state import Phase
from gateway.service.access import Access

from .clock_rig import ClockRig
from .clock_rig import clock_rig as rig
from .harness import Client, chunks, execute_request, until


async def finishing(r: ClockRig, code: str, *more: str) -> tuple[Access, list[str]]:
    """A session whose maximum came while ``code`` ran and ``more`` waited."""
    access = await r.session()
    await r.to_a_second_before_the_maximum(access)
    asked = [await access.execute(c) for c in (code, *more)]
    await until(lambda: access.to_json()["queue"]["running"] == asked[0])
    await r.pass_(1.0)
    assert access.to_json()["state"] == "draining" and r.core(access).phase is Phase.FINISHING
    return access, asked


async def ended(access: Access, execution_id: str) -> tuple[str, str, str]:
    assert await access.wait_execution(execution_id, 10.0)
    done = await access.execution_json(execution_id)
    return done["exit_reason"], done["reason_text"], done["next_action"]


NOT_BEGUN = ("sandbox_ended", "It had not begun. The sandbox ended; its variables are lost.", "rebuild")
CUT = ("sandbox_ended", "The sandbox ended; its variables are lost.", "rebuild")


async def test_what_runs_may_finish_and_what_waited_never_begins(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access, (running, waiting) = await finishing(r, "print:a\nsleep:0.4\nwrite:out/late.txt:kept", "write:out/never.txt:x")
        late = await access.execute("write:out/never.txt:y")
        assert (await ended(access, running))[0] == "ok"
        assert await ended(access, waiting) == await ended(access, late) == NOT_BEGUN
        await until(lambda: access.to_json()["state"] == "dormant")
        await r.stays(access, "dormant")
        assert not r.runtime.sandboxes, "work that was ended opens no other sandbox"
        assert access.to_json()["reason"] == "max_lifetime" and access.to_json()["generation"] == 2
        assert [f["path"] for f in (await access.list_files())["files"]] == ["out/late.txt"], "what it wrote in its grace is kept"


async def test_a_kernel_that_dies_in_the_grace_is_named_as_the_cause(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access, (running, waiting) = await finishing(r, "print:a\nsleep:0.4\nwrite:out/late.txt:kept\ndie:11", "print:never")
        assert (await ended(access, running))[0] == "kernel_died", "not the maximum, which would have waited"
        assert (await ended(access, waiting))[:1] == ("kernel_died",)
        await until(lambda: access.to_json()["state"] == "dormant")
        assert (access.to_json()["reason"], access.to_json()["generation"]) == ("max_lifetime", 2)
        assert [f["path"] for f in (await access.list_files())["files"]] == ["out/late.txt"]


async def test_after_the_grace_what_runs_is_cut(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access, (running, waiting) = await finishing(r, "sleep:60", "print:never")
        await r.pass_(29.0)
        await r.stays(access, "draining")
        assert (await access.execution_json(running))["state"] == "running"
        await r.pass_(1.0)
        assert await ended(access, running) == CUT
        assert await ended(access, waiting) == NOT_BEGUN
        await until(lambda: access.to_json()["state"] == "dormant")


async def test_a_jupyter_clients_queue_is_answered_to_its_end(tmp_path: Path) -> None:
    """The kernel holds that queue: in the grace it goes on, and after it each that is left has an error, a reply and an idle."""
    async with rig(tmp_path) as r:
        access = await r.session()
        lab = Client()
        access.attach("ws:lab", lab, after=None, jupyter=True)
        await r.to_a_second_before_the_maximum(access)
        asked = [execute_request(code, "lab") for code in ("print:one\nsleep:0.3", "print:two\nsleep:60", "print:three")]
        for _, body in asked:
            access.from_client("ws:lab", body)
        await until(lambda: "one" in lab.text())
        await r.pass_(1.0)
        await until(lambda: "two" in lab.text())
        await r.pass_(30.0)
        await until(lambda: len(lab.messages("execute_reply")) == 3)
        replies = {m.parent_id: m.content for m in lab.messages("execute_reply")}
        assert [replies[msg_id]["status"] for msg_id, _ in asked] == ["ok", "error", "error"]
        assert [replies[msg_id].get("ename") for msg_id, _ in asked[1:]] == ["SandboxEnded", "SandboxEnded"]
        for msg_id, _ in asked:
            assert [m.content["execution_state"] for m in lab.messages("status") if m.parent_id == msg_id] == ["busy", "idle"]
        assert "three" not in lab.text()


async def test_work_that_comes_once_the_variables_are_gone_runs_in_the_next_sandbox(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access, (running,) = await finishing(r, "set:df\nsleep:60")
        r.runtime.remove_s = 0.3
        await r.pass_(30.0)
        await ended(access, running)
        later = await access.execute("print:hello")
        assert (await ended(access, later))[0] == "ok"
        result = await access.execution_json(later)
        assert result["generation"] == 2 and "lost" in result["stderr"]


async def test_an_upload_in_the_grace_waits_for_the_next_sandbox(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access, _ = await finishing(r, "sleep:60", "print:never")
        upload = asyncio.get_running_loop().create_task(access.write_file("data.csv", 3, chunks(b"a,b"), overwrite=False))
        await r.pass_(30.0)
        await asyncio.wait_for(upload, 10.0)
        assert access.to_json()["state"] == "active"
        assert [f["path"] for f in (await access.list_files())["files"]] == ["in/data.csv"]


@pytest.mark.parametrize("what", ["end", "recycle", "restart", "interrupt"])
async def test_whoever_asks_does_not_wait_for_the_grace(tmp_path: Path, what: str) -> None:
    """Not a second of boot time passes here."""
    async with rig(tmp_path) as r:
        access, (running,) = await finishing(r, "sleep:60")
        sandbox_id = r.core(access).sandbox_id
        if what == "end":
            r.gateway.live[access.session_id].effects.end(EndReason.ADMIN)
        elif what == "recycle":
            access.recycle()
        elif what == "interrupt":
            await access.interrupt()
        else:
            await access.restart()
        assert (await ended(access, running))[0] == ("interrupted" if what == "interrupt" else "sandbox_ended")
        after = {"end": "ended", "restart": "active"}.get(what, "dormant")
        await until(lambda: access.to_json()["state"] == after)
        await until(lambda: not r.gateway.world.sandboxes.removing)
        assert access.to_json()["reason"] == ("admin" if what == "end" else "max_lifetime"), "the session's own reason"
        row = await r.records.get_sandbox(sandbox_id)
        assert row is not None and row.reason == "max_lifetime", "and the sandbox's"
