"""Every figure of ``/metrics`` of our own, on one table: name, kind, labels, meaning, and where it is read.

``docs/metrics.md`` is made from this table. Labels have values from closed vocabularies or from the configuration, never a user,
tenant, session or execution. What is counted is there from the start, as zero, under the words to be expected: a first failure is a rise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from .. import __version__
from ..domain.model import EndReason, ExitReason, SessionState
from ..domain.quota import Quota, Scope
from ..errors import (
    CapacityExhausted,
    EngineUnavailable,
    ImageUnavailable,
    ProfileUnavailable,
    RecordsUnavailable,
    SandboxLost,
    StoreUnavailable,
)
from ..service.gateway import Gateway
from ..service.live import LiveSession
from ..service.pool import UNCLAIMED
from ..service.tally import Histogram, Words

STARTS = ("warm", "cold")
SOURCES = ("jupyter", "rest")
STEPS = ("checkpoint", "persist", "restore")
START_CODES = (EngineUnavailable.code, ImageUnavailable.code, ProfileUnavailable.code, SandboxLost.code)
KEEP_CODES = (StoreUnavailable.code, RecordsUnavailable.code, SandboxLost.code)
NONE: Words = ()
Values = Iterable[tuple[Words, float | Histogram]]


@dataclass(frozen=True, slots=True)
class Metric:
    """``name`` without the ``_total`` that a counter gets."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    read: Callable[[Gateway], Values]


def _one(read: Callable[[Gateway], float]) -> Callable[[Gateway], Values]:
    return lambda g: [(NONE, read(g))]


def _filled(counts: Counter[Words], *known: Iterable[str]) -> Values:
    """What was counted, and zero for whatever else these words allow."""
    return {**dict.fromkeys(product(*known), 0), **counts}.items()


def _pool(part: str) -> Callable[[Gateway], Values]:
    return lambda g: [((name,), value) for name, value in g.world.pool.statistics()[part].items()]


def _states(g: Gateway) -> Values:
    states = Counter[Words]((s.core.state,) for s in g.live.values())
    return _filled(states, SessionState)


def _open(g: Gateway) -> Values:
    runs = Counter[Words]((run.e.state,) for s in g.live.values() for run in s.runs.open.values())
    return _filled(runs, ("queued", "running"))


def _attachments(g: Gateway) -> Values:
    jupyter = sum(s.attachments.jupyter_count for s in g.live.values())
    return [(("jupyter",), jupyter), (("events",), sum(len(s.attachments) for s in g.live.values()) - jupyter)]


def _queued(s: LiveSession) -> int:
    return s.sandbox.link.queued_bytes if s.sandbox is not None else 0


P, ENDS = "profile", (*EndReason, UNCLAIMED)
# fmt: off
TABLE: tuple[Metric, ...] = (
    Metric("sandglass_build_info", "gauge", ("version",), "1; the version of the gateway", lambda g: [((__version__,), 1)]),
    Metric("sandglass_adopted", "gauge", (), "1 once the sandboxes of an earlier gateway are taken up, which needs an engine that answers",
           _one(lambda g: g.adopted.is_set())),
    Metric("sandglass_profile_available", "gauge", (P,), "1 if sessions of this profile can be had",
           lambda g: [((name,), name not in g.problems) for name in g.world.profiles]),
    # pool
    Metric("sandglass_pool_warm", "gauge", (P,), "warm sandboxes, ready to be claimed", _pool("warm")),
    Metric("sandglass_pool_creating", "gauge", (P,), "sandboxes being made for the pool", _pool("creating")),
    Metric("sandglass_pool_target", "gauge", (P,), "how many warm ones are to be kept",
           lambda g: [((name,), g.world.pool.target(name)) for name in g.world.profiles]),
    Metric("sandglass_pool_claims", "counter", (P, "start"), "sandboxes given to sessions: warm from the pool, or cold, made for the occasion",
           lambda g: _filled(g.world.tally.claims, g.world.profiles, STARTS)),
    Metric("sandglass_pool_failures", "counter", (P, "during", "code"), "claims without a sandbox, and fills of the pool that failed",
           lambda g: _filled(g.world.tally.pool_failures, g.world.profiles, ("claim", "fill"), (*START_CODES, CapacityExhausted.code))),
    Metric("sandglass_pool_problem", "gauge", (P, "code"), "1 while the last fill of the pool failed, with its error code",
           lambda g: [((name, code), 1) for name, code in g.world.pool.last_problem.items()]),
    # sandboxes
    Metric("sandglass_sandboxes_claimed", "gauge", (), "sandboxes of sessions, until the engine confirms that they are gone",
           _one(lambda g: g.world.pool.live)),
    Metric("sandglass_sandboxes_limit", "gauge", (), "the most sandboxes of this gateway, warm ones included", _one(lambda g: g.world.pool.max_live)),
    Metric("sandglass_sandboxes_disposable", "gauge", (), "sandboxes of no session in which files are looked into; those kept for the next file, too",
           _one(lambda g: g.world.disposables.count)),
    Metric("sandglass_sandbox_start_seconds", "histogram", (P, "start"),
           "making a sandbox until its kernel is ready: warm ones for the pool, cold ones while somebody waits",
           lambda g: g.world.tally.start_seconds.items()),
    Metric("sandglass_sandbox_start_failures", "counter", (P, "start", "code"), "sandboxes that could not be made",
           lambda g: _filled(g.world.tally.start_failures, g.world.profiles, STARTS, START_CODES)),
    Metric("sandglass_sandboxes_ended", "counter", (P, "reason"),
           "sandboxes ended, by end reason (recycles and losses); `unclaimed`: no session had it",
           lambda g: _filled(g.world.tally.sandboxes_ended, g.world.profiles, ENDS)),
    Metric("sandglass_sandbox_removals_pending", "gauge", (), "sandboxes whose removal the engine has not confirmed",
           _one(lambda g: g.world.sandboxes.removing)),
    Metric("sandglass_sandbox_removal_retries", "counter", ("code",), "removals that failed and are tried again",
           lambda g: _filled(g.world.tally.removal_retries, (EngineUnavailable.code, RecordsUnavailable.code))),
    Metric("sandglass_sandboxes_cpu_sustained", "gauge", (), "sandboxes near their processor cap for longer than SANDGLASS_CPU_SUSTAINED",
           _one(lambda g: sum(1 for s in g.live.values() if s.cpu_sustained is not None))),
    Metric("sandglass_cpu_sustained", "counter", (), "times that a sandbox came to be so", _one(lambda g: g.world.tally.cpu_sustained)),
    # sessions
    Metric("sandglass_sessions", "gauge", ("state",), "sessions by state; `ended` is a moment", _states),
    Metric("sandglass_sessions_created", "counter", (P,), "sessions created", lambda g: _filled(g.world.tally.sessions_created, g.world.profiles)),
    Metric("sandglass_sessions_ended", "counter", ("reason",), "sessions over for good, by the last end reason",
           lambda g: _filled(g.world.tally.sessions_ended, EndReason)),
    Metric("sandglass_session_active_seconds", "histogram", (P, "opened"),
           "from the request of a session (`new`), or the work that woke it (`again`), until it is active",
           lambda g: g.world.tally.active_seconds.items()),
    Metric("sandglass_attachments", "gauge", ("kind",), "clients that are attached: Jupyter websockets, event streams", _attachments),
    # executions
    Metric("sandglass_executions_open", "gauge", ("state",), "executions that are not finished", _open),
    Metric("sandglass_executions_finished", "counter", ("source", "exit_reason"), "executions finished (docs/exit-reasons.md)",
           lambda g: _filled(g.world.tally.executions, SOURCES, ExitReason)),
    Metric("sandglass_execution_seconds", "histogram", ("source",), "from the kernel's start of an execution to its end",
           lambda g: g.world.tally.execution_seconds.items()),
    Metric("sandglass_execution_wait_seconds", "histogram", ("source",), "from the request of an execution until the kernel starts it",
           lambda g: g.world.tally.execution_wait_seconds.items()),
    # quotas
    Metric("sandglass_quota_refusals", "counter", ("quota", "scope"), "requests refused by a quota of a user, a tenant or a session",
           lambda g: _filled(g.world.tally.quota_refusals, Quota, Scope)),
    Metric("sandglass_quota_buckets", "gauge", (), "users and tenants whose use of the last minute or hour is remembered, each quota by itself",
           _one(lambda g: g.world.quotas.keys)),
    # traffic
    Metric("sandglass_stream_received_bytes", "counter", (), "read from the sandboxes' streams", _one(lambda g: g.world.tally.stream_in)),
    Metric("sandglass_stream_sent_bytes", "counter", (), "written to the sandboxes' streams", _one(lambda g: g.world.tally.stream_out)),
    Metric("sandglass_stream_queued_bytes", "gauge", (), "on their way into sandboxes: not taken by the engine, or not acknowledged by the relay",
           _one(lambda g: sum(map(_queued, g.live.values())))),
    Metric("sandglass_websocket_received_bytes", "counter", (), "messages from websockets", _one(lambda g: g.world.tally.websocket_in)),
    Metric("sandglass_websocket_sent_bytes", "counter", (), "frames to websockets", _one(lambda g: g.world.tally.websocket_out)),
    Metric("sandglass_event_stream_sent_bytes", "counter", (), "server-sent events", _one(lambda g: g.world.tally.events_out)),
    Metric("sandglass_client_unflushed_bytes", "gauge", (), "handed to connections of clients and not taken by them yet",
           _one(lambda g: sum(s.attachments.unflushed_bytes for s in g.live.values()))),
    # what is kept
    Metric("sandglass_files_seconds", "histogram", ("step",),
           "keeping declared files: a `checkpoint` after executions, `persist` at the end of a sandbox, `restore` into the next",
           lambda g: g.world.tally.file_seconds.items()),
    Metric("sandglass_files_failures", "counter", ("step", "code"), "checkpoints, persists and restores that failed; a persist is tried again",
           lambda g: _filled(g.world.tally.file_failures, STEPS, KEEP_CODES)),
    Metric("sandglass_records_errors", "counter", (), "statements that the records did not serve", _one(lambda g: g.world.records.errors)),
    Metric("sandglass_store_errors", "counter", (), "calls that the object store did not serve", _one(lambda g: g.world.store.errors)),
    # the process
    Metric("sandglass_event_loop_lag_seconds", "histogram", (), "how late the event loop runs what is due, looked at four times a second",
           lambda g: [(NONE, g.world.tally.loop_lag)]),
    Metric("sandglass_deadline_late_seconds", "histogram", (), "how late warnings, ends of sandboxes and time limits fire (a machine that slept too)",
           lambda g: [(NONE, g.world.tally.deadline_late)]),
    Metric("sandglass_background_tasks", "gauge", (), "tasks that run", _one(lambda g: len(g.world.tasks))),
    Metric("sandglass_task_failures", "counter", (), "tasks that failed: each is a defect, with its traceback in the log",
           _one(lambda g: g.world.tasks.failures)),
    Metric("sandglass_deadlines", "gauge", (), "timers that are armed", _one(lambda g: len(g.world.deadlines))),
)
# fmt: on
