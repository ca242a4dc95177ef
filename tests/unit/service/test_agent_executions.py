"""What an agent may ask of an execution, on the fakes: keys, inputs, values, budgets, order, and what it is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.model import Principal
from gateway.errors import BadRequest, Conflict, GenerationMismatch, NotFound, PathRefused, QuotaExceeded
from gateway.protocol import jupyter
from gateway.service.access import Access
from gateway.service.journal import EntryKind
from gateway.service.world import Caps

from .harness import ALICE, MALLORY, Rig, chunks, rig, sha256, until


async def forwarded(r: Rig, access: Access) -> list[str]:
    """The codes that went to the kernel, in order."""
    entries = r.gateway.live[access.session_id].journal.read(0, max_entries=5000)
    said = [jupyter.decode(bytes(e.body)) for e in entries if e.kind is EntryKind.MESSAGE]
    return [m.content["code"] for m in said if m.msg_type == "execute_input"]


async def test_the_same_key_is_the_same_execution_whatever_happens_between(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        first = await access.execute("sleep:0.4\nprint:once", idempotency_key="k", max_output_bytes=100)
        again, at_once = await asyncio.gather(*(access.execute("sleep:0.4\nprint:once", idempotency_key="k", max_output_bytes=100) for _ in range(2)))
        assert first == again == at_once
        for other in ({"code": "print:other"}, {"code": "sleep:0.4\nprint:once", "max_output_bytes": 99}):
            with pytest.raises(Conflict) as refused:
                await access.execute(other.pop("code"), idempotency_key="k", **{"max_output_bytes": 100, **other})  # type: ignore[arg-type]
            assert refused.value.extra["execution_id"] == first
        await until(lambda: r.gateway.live[access.session_id].runs.running)
        await r.kill()
        mine = await (await r.boot()).session(ALICE, access.session_id)
        assert isinstance(mine, Access)
        assert await mine.execute("sleep:0.4\nprint:once", idempotency_key="k", max_output_bytes=100) == first
        assert await mine.wait_execution(first, 10)
        assert await mine.execute("sleep:0.4\nprint:once", idempotency_key="k", max_output_bytes=100) == first
        with pytest.raises(Conflict):
            await mine.execute("print:other", idempotency_key="k")
        assert (await mine.execution_json(first))["stdout"] == "once\n"
        assert await forwarded(r, mine) == ["sleep:0.4\nprint:once"], "it ran once"
        other_session = await r.session()
        assert await other_session.execute("print:x", idempotency_key="k") != first, "a key belongs to its session"


async def test_a_refusal_uses_no_key_and_a_replay_needs_neither_room_nor_generation(tmp_path: Path) -> None:
    async with rig(tmp_path, caps=Caps(queued_executions=1)) as r:
        access = await r.session()
        await access.execute("sleep:0.3", idempotency_key="a")
        with pytest.raises(QuotaExceeded):
            await access.execute("print:b", idempotency_key="b")
        assert await access.execute("sleep:0.3", idempotency_key="a")
        await until(lambda: not r.gateway.live[access.session_id].runs.open)
        kept = await access.execute("print:b", idempotency_key="b", expect_generation=1)
        assert await access.wait_execution(kept, 5)
        await access.restart()
        assert await access.execute("print:b", idempotency_key="b", expect_generation=1) == kept
        with pytest.raises(GenerationMismatch) as refused:
            await access.execute("print:b", idempotency_key="c", expect_generation=1)
        extra = refused.value.extra
        assert extra["generation"] == 2 and extra["next_action"] == "rebuild" and extra["rebuild"]["path"].endswith("/rebuild")
        assert {"lost_variables", "kept_files", "lost_because"} <= extra.keys()


async def test_inputs_are_there_before_the_run_and_stand_in_the_trace(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        made = await source.write_file("data.csv", 5, chunks(b"a,b\n1"), overwrite=False)
        access = await r.session()
        result = await r.run(access, "print:x", inputs=[(made["artifact_id"], "two.csv")])
        assert result["exit_reason"] == "ok" and result["inputs"][0]["path"] == "in/two.csv"
        assert b"".join([c async for c in access.read_file("in/two.csv")]) == b"a,b\n1"
        row = await r.records.get_execution(result["execution_id"])
        assert row is not None and row.data["trace"]["inputs"] == [sha256(b"a,b\n1")]
        assert [g["artifact_id"] for g in row.data["trace"]["given"]] == [made["artifact_id"]]
        bad: list[tuple[Any, type[Exception]]] = [
            ([("nonesuch", "x.csv")], NotFound), ([(made["artifact_id"], "out/x.csv")], PathRefused), ([(made["artifact_id"], "../x")], PathRefused),
            ([(made["artifact_id"], "x.csv")] * 2, BadRequest),
        ]  # fmt: skip
        for inputs, error in bad:
            with pytest.raises(error):
                await access.execute("print:x", inputs=inputs)
        for stranger in (MALLORY, Principal("bob", "t1")):
            theirs = await r.session(stranger)
            with pytest.raises(NotFound):
                await theirs.execute("print:x", inputs=[(made["artifact_id"], "x.csv")])
        # an input that goes between asking and running ends the execution without a run
        first = await access.execute("sleep:0.4")
        waiting = await access.execute("print:never", inputs=[(made["artifact_id"], "late.csv")])
        await r.gateway.delete_artifact(ALICE, made["artifact_id"])
        assert await access.wait_execution(waiting, 10) and await access.wait_execution(first, 1)
        told = await access.execution_json(waiting)
        assert told["exit_reason"] == "artifact_rejected" and "deleted" in told["reason_text"]
        assert "print:never" not in await forwarded(r, access)
        assert (await r.run(access, "print:next"))["exit_reason"] == "ok"


async def test_a_value_is_checked_against_the_schema_also_after_a_restart(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with rig(tmp_path) as r:
        access = await r.session()
        result = await r.run(access, 'result:{"n": 1}\nresult:{"n": 2}', result_schema=schema)
        assert result["exit_reason"] == "ok" and result["value"] == {"n": 2}
        assert (await r.run(access, "result:[1]"))["value"] == [1], "without a schema any value comes back"
        assert "value" not in await r.run(access, "print:x")
        wrong = await r.run(access, 'result:{"n": "planted-secret"}', result_schema=schema)
        assert (wrong["exit_reason"], wrong["status"], wrong["next_action"]) == ("artifact_rejected", "error", "fix_code")
        assert wrong["rejected"]["path"] == "$.n" and "value" not in wrong
        assert "planted-secret" not in str(await r.records.get_execution(wrong["execution_id"]))
        none = await r.run(access, "print:x", result_schema=schema)
        assert none["exit_reason"] == "artifact_rejected" and "sandglass.result" in none["rejected"]["problem"]
        failed = await r.run(access, "error:ValueError", result_schema=schema)
        assert failed["exit_reason"] == "code_error", "what the code raised is the better word"
        with pytest.raises(BadRequest):
            await access.execute("print:x", result_schema={"pattern": "x"})
        execution_id = await access.execute('result:{"n": []}\nsleep:0.6', result_schema=schema)
        await until(lambda: r.gateway.live[access.session_id].runs.running)
        await asyncio.sleep(0.1)
        await r.kill()
        again = await (await r.boot()).session(ALICE, access.session_id)
        assert await again.wait_execution(execution_id, 10)
        assert (await again.execution_json(execution_id))["rejected"]["path"] == "$.n"


async def test_calls_without_end_are_no_way_around_the_output_limit(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        result = await r.run(access, "\n".join(f"result:{json.dumps('x' * 1000)}" for _ in range(40)) + "\nresult:1")
        assert result["value"] == 1
        row = await r.records.get_execution(result["execution_id"])
        assert row is not None and row.data["output"]["messages"] == 41 - 16


async def test_a_budget_cuts_the_answer_and_the_rest_is_a_download(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        code = "print:first\nvalue:" + "v" * 3000 + "\nflood:40000\nerror:ValueError"
        result = await r.run(access, code, max_output_bytes=1000)
        assert result["exit_reason"] == "code_error" and result["error"]["name"] == "ValueError", "the error is told whatever was left out"
        assert len(result["stdout"]) == 1000 and result["stdout"].startswith("first\n") and result["results"] == []
        cut = result["truncated"]
        assert cut["stdout"] and cut["results"] and cut["bytes_left_out"] > 39_000 and cut["bytes_dropped"] == 0
        assert cut["full_output_url"].endswith(f"/executions/{result['execution_id']}/output")
        whole = b"".join([c async for c in access.output(result["execution_id"], "stdout")])
        assert whole == b"first\n" + b"x" * 40_000
        lines = [json.loads(line) for line in b"".join([c async for c in access.output(result["execution_id"])]).splitlines()]
        assert [line["type"] for line in lines[:2]] == ["stdout", "result"] and lines[-1]["type"] == "error" and all(x["untrusted"] for x in lines)
        assert (await r.run(access, "print:abc", max_output_bytes=0))["truncated"]["stdout"] is True
        assert (await r.run(access, "print:abc"))["truncated"] is None
        with pytest.raises(NotFound):
            await anext(access.output("nonesuch"))


async def test_stop_on_error_stops_what_waits_over_rest_and_nothing_else(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        going_on = [await access.execute(code) for code in ("error:ValueError", "print:b")]
        failing = await access.execute("sleep:0.1\nerror:ValueError", stop_on_error=True)
        stopped = [await access.execute(f"print:{n}") for n in range(2)]
        reasons = []
        for execution_id in (*going_on, failing, *stopped):
            assert await access.wait_execution(execution_id, 10)
            reasons.append((await access.execution_json(execution_id))["exit_reason"])
        assert reasons == ["code_error", "ok", "code_error", "interrupted", "interrupted"]
        assert failing in (await access.execution_json(stopped[0]))["reason_text"]
        assert (await r.run(access, "print:later", stop_on_error=True))["exit_reason"] == "ok"


async def test_cancelled_twice_is_cancelled_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        running = await access.execute("hang")
        waiting = await access.execute("print:never")
        await until(lambda: r.gateway.live[access.session_id].runs.running)
        for _ in range(8):  # asking again and again does not put off the kernel's end
            await access.cancel_execution(running)
            await access.cancel_execution(waiting)
            await asyncio.sleep(0.08)
        assert await access.wait_execution(running, 1)
        assert [(await access.execution_json(e))["exit_reason"] for e in (running, waiting)] == ["interrupted", "interrupted"]
        assert access.to_json()["generation"] == 2
        await access.cancel_execution(running)
        assert "print:never" not in await forwarded(r, access)


async def test_files_that_an_execution_made_are_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        result = await r.run(access, "write:out/report.txt:hello")  # the fake's file times are no clock: found once it is stored
        await asyncio.sleep(1.3)  # the checkpoint
        [file] = (await access.execution_json(result["execution_id"]))["files"]
        assert file["sha256"] == sha256(b"hello") and file["mime"]
        assert (await r.run(access, "pass"))["files"] == []


async def test_hints_come_with_the_execution(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        result = await r.run(access, "import nonesuch")
        assert [h["kind"] for h in result["hints"]] == ["import"] and result["untrusted"] is True
        assert (await access.list_executions())[-1]["hints"] == result["hints"]
