"""Executions on the fakes: limits, order, death, many clients."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.model import Limits
from gateway.errors import BadRequest, EngineUnavailable, ImageUnavailable, NotFound, QuotaExceeded
from gateway.service.journal import EntryKind
from gateway.service.world import Caps

from .harness import ALICE, Client, chunks, execute_request, rig, sha256, until

QUICK = replace(Limits(), interrupt_grace_s=0.3, kill_grace_s=0.3)


async def test_timeout_interrupts(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        result = await r.run(access, "sleep:30", timeout_s=0.3)
        assert (result["exit_reason"], result["status"], result["generation"]) == ("timeout", "timeout", 1)
        assert access.to_json()["generation"] == 1


async def test_a_cell_that_ignores_the_interrupt_is_ended_with_its_kernel(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        result = await r.run(access, "hang", timeout_s=0.3)
        assert result["exit_reason"] == "timeout" and access.to_json()["generation"] == 2
        assert (await r.run(access, "print:alive"))["stdout"].strip() == "alive"


async def test_what_waits_behind_a_cancelled_cell_that_does_not_obey_lost_its_kernel(tmp_path: Path) -> None:
    async with rig(tmp_path, limits=QUICK) as r:
        access = await r.session()
        running, waiting = await access.execute("hang"), await access.execute("print:never")
        await until(lambda: r.gateway.live[access.session_id].runs.running)
        await access.cancel_execution(running)
        for execution_id, reason in ((running, "interrupted"), (waiting, "kernel_died")):
            assert await access.wait_execution(execution_id, 10)
            assert (await access.execution_json(execution_id))["exit_reason"] == reason
        assert (await r.run(access, "print:alive"))["stdout"].strip() == "alive"


async def test_what_waits_when_its_owner_restarts_the_kernel_is_interrupted(tmp_path: Path) -> None:
    async with rig(tmp_path, limits=QUICK) as r:
        access = await r.session()
        asked = [await access.execute("sleep:20"), await access.execute("print:never")]
        await until(lambda: r.gateway.live[access.session_id].runs.running)
        await access.restart()
        for execution_id in asked:
            assert await access.wait_execution(execution_id, 10)
            assert (await access.execution_json(execution_id))["exit_reason"] == "interrupted"


async def test_how_an_execution_went_can_be_read_when_its_session_has_ended(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        first = (await r.run(access, "print:hello"))["execution_id"]
        running = await access.execute("sleep:30")
        await until(lambda: r.gateway.live[access.session_id].runs.running)
        access.end()
        await until(lambda: access.session_id not in r.gateway.live)
        ended = await r.gateway.session(ALICE, access.session_id, ended=True)
        said = await ended.execution_json(first)
        assert (said["exit_reason"], said["session"]["state"], said["truncated"]["no_longer_kept"]) == ("ok", "ended", True)
        assert await ended.wait_execution(running, 10)
        said = await ended.execution_json(running)
        assert (said["state"], said["exit_reason"]) == ("finished", "sandbox_ended") and said["next_action"] and said["advice"]
        assert [e["execution_id"] for e in await ended.list_executions()] == [first, running]
        other = await r.session()
        strange = (await r.run(other, "print:x"))["execution_id"]
        with pytest.raises(NotFound):
            await ended.execution_json(strange)


async def test_the_output_budget_leaves_a_marker(tmp_path: Path) -> None:
    async with rig(tmp_path, limits=replace(QUICK, output_bytes=10_000)) as r:
        access = await r.session()
        result = await r.run(access, "flood:200000")
        assert result["exit_reason"] == "output_limit" and result["status"] == "ok"
        assert "output limit" in result["stderr"] and result["truncated"]["bytes_dropped"] > 0
        assert (await r.run(access, "print:after"))["exit_reason"] == "ok"


async def test_a_kernel_that_dies_finishes_what_ran_and_what_waited(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        first = await access.execute("sleep:0.2\ndie:11")
        second = await access.execute("print:never")
        for execution_id in (first, second):
            assert await access.wait_execution(execution_id, 10)
            assert (await access.execution_json(execution_id))["exit_reason"] == "kernel_died"
        view = access.to_json()
        assert view["generation"] == 2 and view["state"] == "active"
        assert (await r.run(access, "print:new"))["stdout"].strip() == "new"


async def test_memory_is_named_when_the_engine_says_so(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        session = r.gateway.live[access.session_id]
        execution_id = await access.execute("sleep:0.3\ndie:9")
        await until(lambda: session.runs.running)
        session.mending.oom.set()
        assert await access.wait_execution(execution_id, 10)
        assert (await access.execution_json(execution_id))["exit_reason"] == "memory_limit"


async def test_a_sandbox_that_dies_of_memory(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        execution_id = await access.execute("sleep:5")
        await until(lambda: r.gateway.live[access.session_id].runs.running)
        [fact] = await r.runtime.list(await r.records.instance_id())
        r.runtime.exit(fact.engine_id, 137, oom_killed=True)
        assert await access.wait_execution(execution_id, 10)
        assert (await access.execution_json(execution_id))["exit_reason"] == "memory_limit"
        await until(lambda: access.to_json()["state"] == "dormant")
        assert access.to_json()["reason"] == "out_of_memory"
        assert (await r.run(access, "print:back"))["stdout"].strip() == "back"


async def test_a_container_that_vanishes_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "set:df")
        [fact] = await r.runtime.list(await r.records.instance_id())
        r.runtime.vanish(fact.engine_id)
        await until(lambda: access.to_json()["state"] == "dormant")
        assert access.to_json()["reason"] == "host_lost"
        assert [v["name"] for v in access.to_json()["lost_variables"]] == ["df"]


async def test_a_hundred_at_once_keep_their_order_and_output(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.gateway.create_session(ALICE)
        client = Client()
        access.attach("ws:client", client, after=None, jupyter=True)
        for n in range(100):
            access.from_client("ws:client", execute_request(f"print:{n}")[1])
        await until(lambda: len(client.messages("execute_reply")) == 100)
        assert client.text().split() == [str(n) for n in range(100)]


async def test_replies_go_to_the_asker_and_output_to_all(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        one, two = Client(), Client()
        access.attach("ws:one", one, after=None, jupyter=True)
        access.attach("ws:two", two, after=None, jupyter=True)
        access.from_client("ws:one", execute_request("print:hi", "one")[1])
        await until(lambda: one.messages("execute_reply") and "hi" in two.text())
        assert not two.messages("execute_reply")


async def test_a_slow_client_holds_back_nobody_and_misses_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        slow, quick = Client(), Client()
        slow.slow = True
        access.attach("ws:slow", slow, after=None, jupyter=True)
        access.attach("ws:quick", quick, after=None, jupyter=True)
        for n in range(50):
            access.from_client("ws:quick", execute_request(f"print:{n}", "quick")[1])
        await until(lambda: len(quick.messages("execute_reply")) == 50)
        assert len(slow.entries) < 5
        slow.slow = False
        await until(lambda: slow.text() == quick.text())


async def test_a_reconnect_gets_what_it_missed_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        before, after, other = Client(), Client(), Client()
        attached = access.attach("ws:lab", before, after=None, jupyter=True)
        access.from_client("ws:lab", execute_request("print:one\nsleep:0.3\nprint:two", "lab")[1])
        await until(lambda: "one" in before.text())
        attached.confirm(before.entries[-1].index)
        attached.detach()
        await until(lambda: not r.gateway.live[access.session_id].runs.open)
        access.attach("ws:lab", after, after=None, jupyter=True)
        access.attach("ws:other", other, after=None, jupyter=True)
        await until(lambda: after.messages("execute_reply"))
        assert after.text().split() == ["two"] and not other.entries
        indexes = [e.index for e in before.entries + after.entries]
        assert indexes == sorted(set(indexes))


async def test_the_newer_of_two_with_one_key_wins(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        old, new = Client(), Client()
        access.attach("ws:same", old, after=None, jupyter=True)
        access.attach("ws:same", new, after=None, jupyter=True)
        assert old.code == "replaced"
        access.from_client("ws:same", execute_request("print:x", "same")[1])
        await until(lambda: new.messages("execute_reply"))


async def test_bad_messages_are_refused_and_hurt_nobody(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        good = execute_request("print:ok", "a")[1]
        for bad in (b"", b"x" * 100, good[:-10], execute_request("x")[1].replace(b"shell", b"iopub")):
            with pytest.raises(BadRequest):
                access.from_client("ws:a", bad)
        client = Client()
        access.attach("ws:a", client, after=None, jupyter=True)
        access.from_client("ws:a", good)
        await until(lambda: client.messages("execute_reply"))


async def test_the_queue_is_bounded_and_a_waiting_one_can_be_cancelled(tmp_path: Path) -> None:
    async with rig(tmp_path, caps=Caps(queued_executions=3)) as r:
        access = await r.session()
        running = await access.execute("sleep:1")
        waiting = await access.execute("print:a")
        last = await access.execute("print:b")
        with pytest.raises(QuotaExceeded) as full:
            await access.execute("print:c")
        assert (full.value.extra["quota"], full.value.extra["scope"], full.value.extra["limit"]) == ("queue", "session", 3)
        assert (await access.execution_json(last))["position"] == 2
        await access.cancel_execution(waiting)
        assert (await access.execution_json(waiting))["exit_reason"] == "interrupted"
        assert await access.wait_execution(last, 5) and await access.wait_execution(running, 5)
        assert (await access.execution_json(waiting))["stdout"] == ""


async def test_no_sandbox_to_be_had_is_told_and_nothing_hangs(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        r.runtime.stop_engine()
        result = await r.run(access, "print:x")
        assert result["exit_reason"] == "platform_fault" and access.to_json()["state"] == "dormant"
        r.runtime.start_engine()
        assert (await r.run(access, "print:x"))["exit_reason"] == "ok"


async def test_a_session_is_refused_at_once_while_the_engine_is_down_or_has_no_image(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.runtime.stop_engine()
        with pytest.raises(EngineUnavailable):
            await r.gateway.create_session(ALICE)
        r.runtime.start_engine()
        profiles = r.gateway.world.profiles
        profiles["container"] = replace(profiles["container"], image="sandglass-kernel:missing")
        with pytest.raises(ImageUnavailable):
            await r.gateway.create_session(ALICE)
        assert not r.gateway.live and not await r.records.list_sessions()


async def test_the_trace_of_an_execution(tmp_path: Path) -> None:
    """P34: who, what (as a hash), on what, with which files in and out; never the code or its output."""
    async with rig(tmp_path) as r:
        r.gateway.world.trace["container"] = {"image": "sha256:i", "lock": "l", "runtime": "fake 1"}
        access = await r.session()
        await access.write_file("sales.csv", 3, chunks(b"a,b"), overwrite=False)
        await asyncio.sleep(1.2)  # the checkpoint
        result = await r.run(access, "write:out/report.txt:planted-secret")
        await asyncio.sleep(1.4)
        row = await r.records.get_execution(result["execution_id"])
        assert row is not None
        trace = row.data["trace"]
        assert trace["inputs"] == [sha256(b"a,b")]
        assert trace["outputs"] == [{"sha256": sha256(b"planted-secret"), "size": 14}], "hashes, no names: these are the user's words"
        assert {"user", "tenant", "code_sha256", "image", "lock", "runtime", "profile", "network_policy", "exit_reason"} <= trace.keys()
        assert "planted-secret" not in str(row)


async def test_a_warm_pool_member_is_given_once(tmp_path: Path) -> None:
    async with rig(tmp_path, target=2) as r:
        await until(lambda: r.gateway.world.pool.statistics()["warm"]["container"] == 2)
        sessions = await asyncio.gather(*(r.session() for _ in range(4)))
        ids = {r.gateway.live[s.session_id].core.sandbox_id for s in sessions}
        assert len(ids) == 4
        await until(lambda: r.gateway.world.pool.statistics()["warm"]["container"] == 2)


async def test_an_execution_is_told_of_before_what_it_asks_for(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        asking, page = Client(), Client()
        access.attach("ws:a", asking, after=None, jupyter=True)
        access.attach("sse:b", page, after=None, jupyter=False)
        access.from_client("ws:a", execute_request("input:Who?", allow_stdin=True)[1])
        await until(lambda: any(e.kind == EntryKind.MESSAGE and b"input_request" in bytes(e.body) for e in page.entries))
        kinds = [
            "asked" if b"input_request" in bytes(e.body) else "told"
            for e in page.entries
            if b"input_request" in bytes(e.body) or (e.kind == EntryKind.STATE and b'"execution"' in bytes(e.body)[:30])
        ]
        assert kinds[:2] == ["told", "asked"], kinds
