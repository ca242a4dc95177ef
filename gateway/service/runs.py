"""The executions of one session: recorded before they are forwarded, timed, counted, finished with a reason."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..domain import execution as ex
from ..domain.execution import Execution
from ..domain.model import EndReason, ExecutionState, ExitReason, SessionState
from ..domain.quota import Quota, Scope
from ..domain.session_events import Busy, Idle, RecycleRequested, RestartRequested
from ..errors import SandglassError
from ..ports import ExecutionRow
from . import values
from .anchors import ran_s, stamp
from .run_views import execution_json
from .traces import LOGGED, count, trace_of

if TYPE_CHECKING:
    from .live import LiveSession

log = logging.getLogger("sandglass.runs")
Json = dict[str, Any]
SAVE_AFTER_S = 0.3
SETTLE_AFTER_S = 0.005
"""What is to be done at an execution's end does not come between a client and its next request: it waits until that is on its way."""
QUEUE_RETRY_S = 5.0
ANNOUNCE_AFTER_S = 0.02
"""An execution is announced as it is by then: a short one only as finished."""
ANSWER_FIRST_S = 0.002
"""Whoever waits for an execution over REST gets its answer before it is recorded as finished; the journal has had its end all along."""


@dataclass(eq=False)
class Run:
    """An execution that is not finished. ``key``: whose replies these are; ``header``: the request's own."""

    e: Execution
    row: ExecutionRow
    key: str
    header: Json
    body: bytes
    timeout_s: float
    silent: bool = False
    code: str = ""
    """For the transcript; the body goes once it is forwarded."""
    forwarded: bool = False
    schema: Json | None = None
    """What its value must be."""
    values: int = 0
    """How many it has handed over."""
    stopping: bool = False
    """It was interrupted, and its grace runs."""
    killed: bool = False
    """The grace did not help: the kernel ends for its sake."""
    placed: str = ""
    """The sandbox that has its inputs."""
    output_bytes: int = 0
    output_messages: int = 0
    dropped_bytes: int = 0
    dropped_messages: int = 0
    save_timer: asyncio.TimerHandle | None = None
    announce_timer: asyncio.TimerHandle | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """It is finished: what it says will not change."""
    saved: asyncio.Event = field(default_factory=asyncio.Event)
    """And recorded so."""

    @property
    def rest(self) -> bool:
        return self.row.source == "rest"


class Runs:
    """Keeps those that are not finished; the others are in the records."""

    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self.open: dict[str, Run] = {}
        """By msg_id, in the order in which they were asked for."""
        self.recent: OrderedDict[str, str] = OrderedDict()
        """msg_id -> execution id of the latest ones, finished or not."""
        self._closing: dict[str, Run] = {}
        """By execution id: finished, and not yet in the records as such."""
        self._settle_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._last_failure = ""

    # --- asking -------------------------------------------------------------------------------------------------------

    def add(
        self, msg_id: str, header: Json, body: bytes, code: str, *, key: str, source: str, silent: bool, timeout_s: float,
        execution_id: str = "", about: Json | None = None, schema: Json | None = None,
    ) -> Run:  # fmt: skip
        """Take an execution on. ``about``: more for its record. Raises QuotaExceeded."""
        caps = self._s.world.caps
        cap = caps.queued_executions if source == "rest" else caps.jupyter_queue
        if sum(1 for r in self.open.values() if r.row.source == source) >= cap:
            said = f"{cap} executions of this session wait already."
            raise self._s.world.quotas.refusal(Quota.QUEUE, Scope.SESSION, cap, QUEUE_RETRY_S, said)
        self._s.world.quotas.execution(self._s.row.tenant, self._s.row.user)
        row = ExecutionRow(
            execution_id=execution_id or secrets.token_hex(12), session_id=self._s.session_id, tenant=self._s.row.tenant, user=self._s.row.user,
            msg_id=msg_id, source=source, state=ExecutionState.QUEUED, generation=self._s.core.generation,
            code_sha256=hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest(),
            created_at=round(self._s.world.clock.now(), 6),  # as it is shown, so that it can be searched for
            data={"key": key, "timeout_s": timeout_s, "silent": silent, "first": self._s.journal.last_index, **(about or {})},
        )  # fmt: skip
        run = Run(Execution(row.execution_id, msg_id), row, key, header, body, timeout_s, silent, code, schema=schema)
        self._s.write_request(body, msg_id)  # what the journal does not take is not taken on
        self.know(run)
        if row.data.get("hints"):
            self._announce(run)  # they are worth most before it runs
        elif not silent:
            run.announce_timer = asyncio.get_running_loop().call_later(ANNOUNCE_AFTER_S, self._announce, run)
        return run

    def know(self, run: Run) -> None:
        self.open[run.e.msg_id] = run
        self.recent[run.e.msg_id] = run.row.execution_id
        if len(self.recent) > 512:
            self.recent.popitem(last=False)

    def get(self, msg_id: str) -> Run | None:
        return self.open.get(msg_id)

    def by_id(self, execution_id: str) -> Run | None:
        closing = self._closing.get(execution_id)
        return closing or next((r for r in self.open.values() if r.row.execution_id == execution_id), None)

    @property
    def running(self) -> Run | None:
        return next((r for r in self.open.values() if r.e.state is ExecutionState.RUNNING), None)

    @property
    def at_the_kernel(self) -> Run | None:
        """The one that an interrupt meets: it runs, or was sent and the kernel has not yet said so."""
        return self.running or next((r for r in self.open.values() if r.forwarded), None)

    def position(self, run: Run) -> int | None:
        """How many go before it; None once it runs."""
        if run.e.state is not ExecutionState.QUEUED:
            return None
        return list(self.open.values()).index(run)

    # --- forwarding ---------------------------------------------------------------------------------------------------

    def next_to_forward(self) -> Run | None:
        """Jupyter's own go at once (the kernel has the queue); one asked for over REST waits until nothing else runs."""
        for run in self.open.values():
            if run.forwarded:
                if run.rest:
                    return None
                continue
            if run.rest and any(r.forwarded for r in self.open.values()):
                return None
            return run
        return None

    async def forward(self, run: Run, send: Callable[[bytes], int], next_number: Callable[[], int]) -> None:
        """Record it, then send it. Its lane number is recorded with it, so that a later gateway knows whether it arrived."""
        run.row.sandbox_id = self._s.core.sandbox_id
        run.row.generation = self._s.core.generation
        run.row.data["sent"] = stamp(self._s.world.clock)
        if not self._s.ran:
            run.row.data["opens"] = True  # whoever asked for it is told what was lost before
        number = -1
        while number != next_number():  # another message may take it while the row is written
            number = run.row.data["number"] = next_number()
            await self._save(run)
        if run.e.state is ExecutionState.FINISHED or self._s.core.state is not SessionState.ACTIVE:
            return  # it was cancelled, or the sandbox went, while the row was written
        was_busy = any(r.forwarded for r in self.open.values())
        run.forwarded = self._s.ran = True
        send(run.body)
        run.body = b""
        if self._settle_timer is not None:
            asyncio.get_running_loop().call_soon(self.settle)
        if not was_busy:
            self._s.telling.clear_warnings(idle_only=True)
            self._s.dispatch(Busy())

    # --- what the kernel says -----------------------------------------------------------------------------------------

    def started(self, run: Run) -> None:
        if run.e.state is not ExecutionState.QUEUED:
            return
        run.e = ex.started(run.e)
        run.row.started_at, run.row.data["began"] = self._s.world.clock.now(), stamp(self._s.world.clock)
        run.row.data["output_after"] = self._s.journal.last_index
        run.row.state = run.e.state
        self.limit(run, run.timeout_s)
        # a short one is recorded when it is finished; after a crash the journal tells that it had begun
        run.save_timer = asyncio.get_running_loop().call_later(SAVE_AFTER_S, self._save_running, run)
        if not run.silent and run.announce_timer is None:
            self._announce(run)

    def _save_running(self, run: Run) -> None:
        if run.e.state is ExecutionState.RUNNING:
            self._s.spawn(self._save(run), "save-run")

    def replied(self, run: Run, status: str, ename: str, count: int | None) -> None:
        self.started(run)
        run.e = ex.replied(run.e, status, ename)
        if count is not None:
            run.row.data["execution_count"] = count
        self._maybe_finish(run)

    def idled(self, run: Run) -> None:
        run.e = ex.idled(run.e)
        self._maybe_finish(run)

    def evidence(self, run: Run, mro: tuple[str, ...], errno: int | None) -> None:
        """What the kernel's hook says of the exception."""
        run.e = replace(run.e, mro=mro, errno=errno)

    def count_output(self, run: Run, size: int) -> bool:
        """True while this much more output is within the execution's budget."""
        limits = self._s.profile.limits
        over = run.output_bytes + size > limits.output_bytes or run.output_messages >= limits.output_messages
        if over or run.dropped_messages:
            self.dropped(run, size, 1)
            return False
        run.output_bytes += size
        run.output_messages += 1
        return True

    def dropped(self, run: Run, size: int, messages: int) -> None:
        run.dropped_bytes += size
        run.dropped_messages += messages
        run.e = replace(run.e, truncated=True)

    # --- limits and stops ---------------------------------------------------------------------------------------------

    def impose(self, run: Run, reason: ExitReason) -> None:
        run.e = ex.imposed(run.e, reason)

    def limit(self, run: Run, left_s: float) -> None:
        """Its time runs out after so many seconds."""
        self._arm(run, left_s, lambda: self._timed_out(run, ExitReason.TIMEOUT))

    def _arm(self, run: Run, delay_s: float, call: Callable[[], None]) -> None:
        self._s.world.deadlines.after((self._s.session_id, "run", run.row.execution_id), delay_s, call)

    def _timed_out(self, run: Run, reason: ExitReason) -> None:
        """Interrupt first; the kernel's end if that does not help; the sandbox's end if that does not."""
        if self._over(run) or run.stopping:  # asked for again, the grace does not begin anew
            return
        run.stopping = True
        self.impose(run, reason)
        self._s.spawn(self._s.interrupt_kernel(), "interrupt")
        self._arm(run, self._s.profile.limits.interrupt_grace_s, lambda: self._kill(run, reason))

    def limit_reached(self, run: Run, reason: ExitReason) -> None:
        """A limit that is measured elsewhere (processor time) is reached."""
        self._timed_out(run, reason)

    def _over(self, run: Run) -> bool:
        return run.e.complete or self.open.get(run.e.msg_id) is not run

    def _kill(self, run: Run, reason: ExitReason) -> None:
        if not self._over(run) and self._s.core.state is SessionState.ACTIVE:
            run.killed = True
            self._s.dispatch(RestartRequested(reason))

    def cancel(self, run: Run) -> None:
        """Never run it if it waits; interrupt it, and after the grace end the kernel, if it runs."""
        if not run.forwarded:
            self.impose(run, ExitReason.INTERRUPTED)
            self._s.traffic.tell_failed(run, ExitReason.INTERRUPTED)
            self.finish(run, ExitReason.INTERRUPTED)
        else:
            self._timed_out(run, ExitReason.INTERRUPTED)

    def fail_all(self, reason: ExitReason, detail: str = "") -> None:
        """Every open execution ends here. One that a limit hit keeps its own word; the others lost their kernel."""
        self.settle()
        # a limit's word is of the one that it hit; so is the word of a cancelled one that did not obey
        ones_own = reason in (ExitReason.TIMEOUT, ExitReason.CPU_LIMIT) or any(r.killed and r.e.imposed is reason for r in self.open.values())
        others = ExitReason.KERNEL_DIED if ones_own else reason
        for run in list(self.open.values()):
            own = reason if run.e.state is ExecutionState.RUNNING else others
            if not run.forwarded and reason is ExitReason.MEMORY_LIMIT:
                own = ExitReason.KERNEL_DIED
            if detail:
                run.row.data["detail"] = detail
            own = run.e.imposed or own
            if not detail and not run.forwarded:
                run.row.data["detail"] = f"It had not begun. {ex.SENTENCES[own]}"
            self._s.traffic.tell_failed(run, own)
            self.finish(run, own)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _maybe_finish(self, run: Run) -> None:
        if not run.e.complete:
            return
        loop = asyncio.get_running_loop()
        if run.rest:
            loop.call_soon(self.settle)  # somebody may wait for it; the messages go to the sockets first all the same
        elif self._settle_timer is None:
            self._settle_timer = loop.call_later(SETTLE_AFTER_S, self.settle)

    def settle(self) -> None:
        """Finish what is complete. Whoever shows executions calls this first."""
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None
        for run in [run for run in self.open.values() if run.e.complete]:
            self.finish(run, None)

    def finish(self, run: Run, forced: ExitReason | None) -> None:
        if self.open.pop(run.e.msg_id, None) is None:
            return
        if run.save_timer is not None:
            run.save_timer.cancel()
        self._closing[run.row.execution_id] = run
        if forced is None and run.e.reply == "ok" and (found := values.judge(self._s, run)) is not None:
            run.e = replace(run.e, rejected=True)
            values.reject(run, found)
        run.e = ex.finished(run.e, forced)
        assert run.e.exit_reason is not None
        world, row = self._s.world, run.row
        world.deadlines.disarm((self._s.session_id, "run", row.execution_id))
        if row.started_at is not None:
            row.data["took_s"] = ran_s(row, world.clock)
        row.state, row.exit_reason, row.finished_at = run.e.state, run.e.exit_reason, world.clock.now()
        row.data["last"] = self._s.journal.last_index
        if run.dropped_messages:
            row.data["truncated"] = {"bytes_dropped": run.dropped_bytes, "messages_dropped": run.dropped_messages}
        row.data["output"] = {"bytes": run.output_bytes, "messages": run.output_messages}
        row.data["trace"] = trace_of(self._s, run)
        self._count_failures(row.exit_reason)
        count(world.tally, row)
        world.quotas.output(row.tenant, row.user, run.output_bytes)
        action = ex.next_action(run.e.exit_reason, self._failures)
        row.data["next_action"] = action
        log.info("execution", extra={"execution": row.execution_id, "session": row.session_id, **{name: row.data["trace"][name] for name in LOGGED}})
        self._s.spawn(self._saved(run), "save-run")
        run.done.set()
        if not run.silent:
            self._announce(run)
        if forced is None and run.row.data.get("stop_on_error") and ex.status(run.e.exit_reason) != "ok":
            self._stop_waiting(run)
        if run.forwarded and not any(r.forwarded for r in self.open.values()) and self._s.core.busy:
            self._s.dispatch(Idle())
        self._s.traffic.kick()
        self._s.execution_finished(run)

    def _stop_waiting(self, failed: Run) -> None:
        """What waits behind it over REST is not run, as its sender wished."""
        for run in [r for r in self.open.values() if r.rest and not r.forwarded]:
            run.row.data["detail"] = f"It had not begun: the execution {failed.row.execution_id} before it failed, with stop_on_error."
            self.cancel(run)

    async def produced(self, execution_id: str, artifacts: list[Json]) -> None:
        """Add what an execution left behind to its trace, once it is stored."""
        row = await self._s.world.records.get_execution(execution_id)
        if row is not None and "trace" in row.data:
            row.data["trace"]["outputs"] = artifacts
            await self._s.world.records.put_execution(row)
            log.info("execution stored files", extra={"execution": execution_id, "session": row.session_id, "outputs": artifacts})

    async def _saved(self, run: Run) -> None:
        try:
            if run.rest:
                await asyncio.sleep(ANSWER_FIRST_S)
            await self._s.transcript.keep(run)
            await self._save(run)
        finally:
            self._closing.pop(run.row.execution_id, None)
            run.saved.set()

    async def closed(self) -> None:
        """Wait until everything that has finished is recorded."""
        for run in list(self._closing.values()):
            await run.saved.wait()

    def busy_but(self, ending: Run | None) -> bool:
        """Whether anything is open, or not yet recorded, beside this one."""
        return bool(self.open) or any(run is not ending for run in self._closing.values())

    async def record(self, run: Run) -> None:
        """Make it durable before it is promised to anybody; one that goes to the kernel at once is recorded there."""
        await asyncio.sleep(0)
        if not run.forwarded:
            await self._save(run)

    async def _save(self, run: Run) -> None:
        await self._s.insist(lambda: self._s.world.records.put_execution(run.row))

    def _count_failures(self, reason: str) -> None:
        if reason == ExitReason.OK:
            self._failures = 0
        else:
            self._failures = self._failures + 1 if reason == self._last_failure else 1
        self._last_failure = reason

    def reject(self, run: Run, reason: ExitReason = ExitReason.PLATFORM_FAULT) -> None:
        """It cannot be sent at all (too long for the stream, or without what it needs)."""
        self._s.traffic.tell_failed(run, reason)
        self.finish(run, reason)

    # --- telling ------------------------------------------------------------------------------------------------------

    def announce_now(self, run: Run) -> None:
        """Where that waits still for a short one's end."""
        if run.announce_timer is not None:
            self._announce(run)

    def _announce(self, run: Run) -> None:
        if run.announce_timer is not None:
            run.announce_timer.cancel()
            run.announce_timer = None
        self._s.write_state({"type": "execution", "execution": execution_json(self._s, run.row, run)})

    def sandbox_hangs(self, error: SandglassError) -> None:
        """The kill did not work either: the sandbox itself ends."""
        log.warning("a sandbox does not obey", extra={"session": self._s.session_id, "why": error.code})
        self._s.dispatch(RecycleRequested(EndReason.CRASH))
