"""The figures of a gateway on the fakes: counted once, under closed words, in Prometheus' format."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.backends.metrics import Metrics, catalog
from gateway.domain.model import EndReason, ExitReason, SessionState
from gateway.domain.quota import Quota, Scope
from gateway.errors import RecordsUnavailable, StoreUnavailable
from gateway.http.errors import STATUS
from gateway.service.tally import SAMPLE_S

from .harness import ALICE, Client, Rig, chunks, execute_request, rig, until

Shown = dict[tuple[str, frozenset[tuple[str, str]]], float]


def shown(metrics: Metrics) -> Shown:
    """``(name, labels) -> value``; the text must be what a Prometheus reads, and name nothing twice."""
    found: Shown = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


class Figures:
    def __init__(self, r: Rig) -> None:
        self.metrics = Metrics(r.gateway)

    def __call__(self, name: str, **labels: str) -> float:
        return shown(self.metrics).get((f"sandglass_{name}", frozenset(labels.items())), -1.0)


async def test_executions_are_counted_by_reason_and_source(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        f = Figures(r)
        assert f("executions_finished_total", source="rest", exit_reason="ok") == 0
        access = await r.session()
        for code in ("print:a", "print:b", "error:ValueError"):
            await r.run(access, code)
        await r.run(access, "sleep:30", timeout_s=0.2)
        client = Client()
        access.attach("ws:lab", client, after=None, jupyter=True)
        access.from_client("ws:lab", execute_request("print:c", "lab")[1])
        await until(lambda: client.messages("execute_reply"))
        await until(lambda: f("executions_open", state="running") == 0)
        for reason, count in (("ok", 2), ("code_error", 1), ("timeout", 1), ("interrupted", 0)):
            assert f("executions_finished_total", source="rest", exit_reason=reason) == count
        assert f("executions_finished_total", source="jupyter", exit_reason="ok") == 1
        assert f("execution_seconds_count", source="rest") == f("execution_wait_seconds_count", source="rest") == 4
        assert f("execution_seconds_bucket", source="rest", le="+Inf") == 4
        assert f("execution_seconds_bucket", source="rest", le="0.1") == 3
        assert 0.2 <= f("execution_seconds_sum", source="rest") < 5


async def test_queues_attachments_and_traffic(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        f = Figures(r)
        access = await r.session()
        slow = Client()
        slow.slow = True
        access.attach("ws:slow", slow, after=None, jupyter=True)
        access.attach("sse:1", Client(), after=None, jupyter=False)
        ids = [await access.execute(code) for code in ("sleep:0.4", "print:x", "print:y")]
        await until(lambda: f("executions_open", state="running") == 1)
        assert f("executions_open", state="queued") == 2
        assert f("attachments", kind="jupyter") == f("attachments", kind="events") == 1
        assert f("client_unflushed_bytes") == 100_000_000
        assert f("stream_queued_bytes") >= 0
        for execution_id in ids:
            assert await access.wait_execution(execution_id, 10)
        assert f("stream_received_bytes_total") > 1000 < f("stream_sent_bytes_total")
        slow.slow = False


async def test_recycles_starts_and_sessions(tmp_path: Path) -> None:
    async with rig(tmp_path, target=1) as r:
        f = Figures(r)
        await until(lambda: f("pool_warm", profile="container") == 1)
        assert f("pool_target", profile="container") == 1
        access = await r.session()
        assert f("sessions", state="active") == 1 and f("sessions", state="dormant") == 0
        assert f("pool_claims_total", profile="container", start="warm") == 1
        await r.run(access, "write:out/a.txt:one")
        access.recycle()
        await until(lambda: access.to_json()["state"] == "dormant")
        await r.run(access, "print:again")
        [fact] = [x for x in await r.runtime.list(await r.records.instance_id()) if x.sandbox_id == r.gateway.live[access.session_id].core.sandbox_id]
        r.runtime.exit(fact.engine_id, 137, oom_killed=True)
        await until(lambda: access.to_json()["state"] == "dormant")
        access.end()
        await until(lambda: not r.gateway.live)
        for reason, count in (("user", 1), ("out_of_memory", 1), ("idle_timeout", 0), ("unclaimed", 0)):
            assert f("sandboxes_ended_total", profile="container", reason=reason) == count
        assert f("sessions_created_total", profile="container") == f("sessions_ended_total", reason="user") == 1
        assert f("session_active_seconds_count", profile="container", opened="new") == 1
        assert f("session_active_seconds_count", profile="container", opened="again") == 1
        assert f("sandbox_start_seconds_count", profile="container", start="warm") >= 2
        assert f("files_seconds_count", step="persist") == 1 and f("files_seconds_count", step="restore") == 2
        assert f("sandboxes_claimed") == f("sandbox_removals_pending") == 0 and f("sandboxes_limit") == 50


async def test_failures_have_their_codes(tmp_path: Path) -> None:
    async with rig(tmp_path, target=1) as r:
        f = Figures(r)
        await until(lambda: f("pool_warm", profile="container") == 1)
        r.runtime.stop_engine()
        access = await r.gateway.create_session(ALICE)
        await until(lambda: f("pool_problem", profile="container", code="engine_unavailable") == 1)
        assert f("pool_failures_total", profile="container", during="fill", code="engine_unavailable") >= 1
        assert f("sandbox_start_failures_total", profile="container", start="warm", code="engine_unavailable") >= 1
        r.runtime.start_engine()
        await until(lambda: access.to_json()["state"] in ("active", "dormant"), 20)


async def test_what_is_kept_fails_and_recovers(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        f = Figures(r)
        access = await r.session()
        await access.write_file("a.csv", 3, chunks(b"a,b"), overwrite=False)
        await asyncio.sleep(1.3)  # the checkpoint
        assert f("files_seconds_count", step="checkpoint") == 1
        await r.run(access, "write:out/a.txt:two!")
        r.store.failing = StoreUnavailable("down")
        access.recycle()
        await until(lambda: access.to_json()["state"] == "quarantined")
        assert f("sessions", state="quarantined") == 1
        assert f("files_failures_total", step="persist", code="store_unavailable") >= 1 and f("store_errors_total") >= 1
        r.store.failing = None
        await until(lambda: access.to_json()["state"] == "dormant", 15)
        assert f("records_errors_total") == 0
        connection = r.records._db._open_connection()
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(RecordsUnavailable):
            await r.records.renew_lease("nobody", 0.0, 1.0)
        connection.execute("PRAGMA query_only = OFF")
        assert f("records_errors_total") == 1


async def test_two_gateways_in_one_process_have_figures_of_their_own(tmp_path: Path) -> None:
    async with rig(tmp_path / "a") as one, rig(tmp_path / "b") as two:
        f, g = Figures(one), Figures(two)
        await one.run(await one.session(), "print:x")
        assert f("sessions", state="active") == 1 and g("sessions", state="active") == 0
        assert g("executions_finished_total", source="rest", exit_reason="ok") == 0


async def test_everything_shown_is_in_the_catalog_and_says_no_names(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        access = await r.session()
        await r.run(access, "print:x")
        text = Metrics(r.gateway).text().decode()
        known = {name.removesuffix("_total"): (kind, set(labels)) for name, kind, labels, _ in catalog()}
        words = {*map(str, ExitReason), *map(str, EndReason), *map(str, SessionState), "container", "unclaimed", "warm", "cold", "jupyter",
                 "rest", "checkpoint", "persist", "restore", "new", "again", "events", "queued", "running", "claim", "fill", *STATUS,
                 *map(str, Quota), *map(str, Scope)}  # fmt: skip
        for family in text_string_to_metric_families(text):
            name = family.name if family.name in known else f"{family.name}_total"
            kind, labels = known[name]
            assert family.type == kind or family.type == "unknown", name
            for sample in family.samples:
                assert set(sample.labels) - {"le"} == labels, sample
                assert {v for k, v in sample.labels.items() if k not in ("le", "version")} <= words, sample
        for secret in ("alice", "t1", access.session_id):
            assert f'"{secret}"' not in text and access.session_id not in text


async def test_a_loop_that_is_held_up_shows_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        f, tally = Figures(r), r.gateway.world.tally
        r.tasks.spawn(tally.watch_loop(), "loop-lag")
        await asyncio.sleep(SAMPLE_S / 2)
        time.sleep(2 * SAMPLE_S)
        await until(lambda: tally.loop_lag.count)
        assert f("event_loop_lag_seconds_sum") > SAMPLE_S / 2
        assert f("event_loop_lag_seconds_bucket", le="0.1") == 0 < f("event_loop_lag_seconds_count")
        assert f("background_tasks") > 0 == f("task_failures_total")
