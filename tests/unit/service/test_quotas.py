"""Quotas on the whole service: who is refused, what is said, and that it goes on again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.model import Limits, Principal
from gateway.domain.quota import QuotaLimits
from gateway.errors import QuotaExceeded, TooLarge

from .harness import ALICE, Client, chunks, execute_request, rig, until

BOB = Principal("bob", "t1")
CAROL = Principal("carol", "t2")
NONE = QuotaLimits(0, 0, 0, 0, 0, 0, 0, 0, 0)


async def test_executions_a_minute_of_a_user_over_both_surfaces(tmp_path: Path) -> None:
    async with rig(tmp_path, quotas=replace(NONE, user_executions=3)) as r:
        access, other = await r.session(), await r.session(BOB)
        for n in range(2):
            assert (await r.run(access, f"print:{n}"))["exit_reason"] == "ok"
        client = Client()
        access.attach("ws:c", client, after=None, jupyter=True)
        access.from_client("ws:c", execute_request("print:third")[1])
        await until(lambda: client.messages("execute_reply"))
        with pytest.raises(QuotaExceeded) as refused:
            await access.execute("print:fourth")
        extra = refused.value.extra
        assert (extra["quota"], extra["scope"], extra["limit"], extra["period_s"]) == ("executions", "user", 3, 60.0)
        assert 10 < (refused.value.retry_after or 0) <= 20 and extra["frees_at"].endswith("Z")
        assert "3 executions a minute" in refused.value.detail
        with pytest.raises(QuotaExceeded):
            access.from_client("ws:c", execute_request("print:fifth")[1])
        assert len(await access.list_executions()) == 3 and not r.gateway.live[access.session_id].runs.open, "nothing was taken on"
        assert (await r.run(other, "print:b"))["exit_reason"] == "ok", "another user is not touched"
        assert r.gateway.world.tally.quota_refusals["executions", "user"] == 2


async def test_a_tenant_has_its_own_limit(tmp_path: Path) -> None:
    async with rig(tmp_path, quotas=replace(NONE, tenant_executions=2)) as r:
        alice, bob, carol = [await r.session(p) for p in (ALICE, BOB, CAROL)]
        await r.run(alice, "print:a")
        await r.run(bob, "print:b")
        for access in (alice, bob):
            with pytest.raises(QuotaExceeded) as refused:
                await access.execute("print:c")
            assert refused.value.extra["scope"] == "tenant"
        assert (await r.run(carol, "print:c"))["exit_reason"] == "ok"


async def test_output_is_charged_when_it_is_known_and_outlasts_a_restart(tmp_path: Path) -> None:
    limits = replace(Limits(), interrupt_grace_s=0.3, kill_grace_s=0.3)
    async with rig(tmp_path, limits=limits, quotas=replace(NONE, user_output_bytes=50_000)) as r:
        access = await r.session()
        assert (await r.run(access, "flood:120000"))["exit_reason"] == "ok"
        with pytest.raises(QuotaExceeded) as refused:
            await access.execute("print:x")
        assert refused.value.extra["quota"] == "output_bytes" and 600 < (refused.value.retry_after or 0) < 3700
        [shown] = [q for q in r.gateway.usage(ALICE) if q["quota"] == "output_bytes"]
        assert shown["used"] > shown["limit"] == 50_000 and shown["full_at"]
        await r.gateway.world.quotas.save(r.records)
        await r.kill()
        await r.boot()
        again = await r.gateway.session(ALICE, access.session_id)
        with pytest.raises(QuotaExceeded):
            await again.execute("print:x")


async def test_uploads_are_refused_before_their_first_byte(tmp_path: Path) -> None:
    async with rig(tmp_path, quotas=replace(NONE, user_upload_bytes=1000, tenant_upload_bytes=1500)) as r:
        access, other = await r.session(), await r.session(BOB)
        await access.write_file("a.txt", 900, chunks(b"a" * 900), overwrite=False)
        read = []

        async def never() -> object:
            read.append(1)
            yield b"b" * 200

        with pytest.raises(QuotaExceeded) as refused:
            await access.write_file("b.txt", 200, never(), overwrite=False)  # type: ignore[arg-type]
        assert refused.value.extra["quota"] == "upload_bytes" and not read
        with pytest.raises(TooLarge):
            await access.write_file("c.txt", 1001, never(), overwrite=False)  # type: ignore[arg-type]
        with pytest.raises(QuotaExceeded) as refused:
            await other.write_file("d.txt", 700, never(), overwrite=False)  # type: ignore[arg-type]
        assert refused.value.extra["scope"] == "tenant"
        await other.write_file("e.txt", 500, chunks(b"e" * 500), overwrite=False)


async def test_what_runs_and_waits_at_once_in_all_sessions(tmp_path: Path) -> None:
    async with rig(tmp_path, quotas=replace(NONE, user_open_executions=2)) as r:
        one, two = await r.session(), await r.session()
        first, second = await one.execute("sleep:0.4"), await two.execute("sleep:0.4")
        with pytest.raises(QuotaExceeded) as refused:
            await one.execute("print:x")
        assert refused.value.extra["quota"] == "open_executions" and "frees_at" not in refused.value.extra
        assert {q["quota"]: (q["used"], q["limit"]) for q in r.gateway.usage(ALICE)}["open_executions"] == (2, 2)
        assert await one.wait_execution(first, 5) and await two.wait_execution(second, 5)
        assert (await r.run(one, "print:x"))["exit_reason"] == "ok"


async def test_sandboxes_of_a_tenant(tmp_path: Path) -> None:
    async with rig(tmp_path, quotas=replace(NONE, tenant_sandboxes=1)) as r:
        access = await r.session()
        with pytest.raises(QuotaExceeded) as refused:
            await r.gateway.create_session(BOB)
        assert (refused.value.extra["quota"], refused.value.extra["scope"]) == ("sandboxes", "tenant")
        assert refused.value.retry_after
        await r.session(CAROL)
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        bob = await r.session(BOB)
        done = await r.run(access, "print:x")
        assert done["exit_reason"] == "capacity_exhausted" and done["next_action"] == "retry_after" and done["advice"]["retry_after_s"] > 0
        assert "sandboxes" in done["reason_text"]
        bob.recycle()
        await until(lambda: bob.to_json()["state"] == "dormant")
        assert (await r.run(access, "print:x"))["exit_reason"] == "ok"
