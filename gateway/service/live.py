"""One session as it lives in this gateway: its state machine's driver, its journal and its parts.

``dispatch`` is the mailbox: the state changes at once, in order; what follows from it (the row, then the commands) is carried
out in order by one task, so that nothing is done that would not be found in the records after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, replace
from typing import Any

from ..domain.audit import Tag
from ..domain.model import EndReason, Profile, SessionState, Variable
from ..domain.rebuild import Rebuild
from ..domain.session import step
from ..domain.session_commands import Command
from ..domain.session_events import Activity, Busy, Event, Idle, TimerFired, Wanted
from ..domain.session_state import Session, timers
from ..errors import InvalidTransition, RecordsUnavailable, Unavailable
from ..ports import AuditRow, NoticeRow, SessionRow
from .draining import Draining
from .effects import Effects
from .journal import Flag
from .journaled import Journaled
from .keeping import Keeper
from .mending import Mending
from .runs import Run, Runs
from .sandboxes import Sandbox
from .session_record import data_of
from .teller import Teller
from .telling import Telling
from .traffic import Traffic
from .transcript import Transcript
from .views import session_json
from .world import World

log = logging.getLogger("sandglass.session")
Json = dict[str, Any]
CHECKPOINT_AFTER_S = 1.0
RELEASE_AFTER_S = 2.0
NO_FLAGS = Flag(0)
TOLD_WAIT_S = 1.0
SAVE_AFTER_S = 0.3
ANNOUNCE_AFTER_S = 0.05
"""A cell's busy, variables and idle make one event when the cell is short: nobody can see more in that time."""


class LiveSession(Journaled):
    """Everything about one session that is not ENDED for longer than a moment."""

    def __init__(self, world: World, row: SessionRow, core: Session, profile: Profile, on_end: Callable[[LiveSession], None]) -> None:
        super().__init__(row.session_id, world)
        self.row = row
        self.core = core
        self.profile = profile
        self.keeper = Keeper(
            world.records, world.store, world.clock,
            session_id=row.session_id, tenant=row.tenant, user=row.user, limits=world.keep,
            judge=world.inspector.judge_soon,
        )  # fmt: skip
        self.runs = Runs(self)
        self.transcript = Transcript(self)
        self.rebuild: Rebuild | None = None
        self.traffic = Traffic(self)
        self.telling = Telling(self)
        self.cpu_sustained: dict[str, Any] | None = None
        """How much and since when, where its sandbox uses much processor time for long (``fairness``)."""
        self.teller = Teller(self)
        self.effects = Effects(self)
        self.mending = Mending(self)
        self.draining = Draining(self)
        self.sandbox: Sandbox | None = None
        self.kernel_ready = False
        self.ran = False
        self.variables: list[Variable] = []
        self.variables_more = 0
        self.variables_at: float | None = None
        self.lost_variables: list[Variable] = []
        self.lost_because = ""
        self.restored: list[Json] = []
        self.kernel_info: Json = {}
        self.store_problem = ""
        """Why the last try to store what a quarantined sandbox holds failed."""
        self.changed = asyncio.Event()
        self.taken_up = asyncio.Event()
        """Not set while a session of an earlier gateway is being compared with the engine: until then no work begins."""
        self.taken_up.set()
        self._on_end = on_end
        self._armed: dict[str, float] = {}
        self._effects: deque[tuple[SessionRow, list[Command]]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._mail: deque[Event] = deque()
        self._stepping = False
        self.asked_at: float | None = None
        """Boot time of the request that a sandbox starts for."""
        self._announcing = False
        self._announce_timer: asyncio.TimerHandle | None = None
        self._save_timer: asyncio.TimerHandle | None = None

    # --- the mailbox --------------------------------------------------------------------------------------------------

    def dispatch(self, event: Event) -> None:
        """Take an event. Raises InvalidTransition when the state does not admit it (nothing changed)."""
        if self._stepping:
            self._mail.append(event)
            return
        self._stepping = True
        try:
            self._step(event)
        finally:
            while self._mail:
                # these came from within; nobody waits for their refusal
                try:
                    self._step(self._mail.popleft())
                except InvalidTransition as error:
                    log.debug("not taken", extra={"session": self.session_id, "why": error.detail})
            self._stepping = False

    def _step(self, event: Event) -> None:
        before = self.core
        self.core, commands = step(self.core, event, self.world.clock.boottime())
        if self.core == before and not commands:
            return
        log.debug("step", extra={"session": self.session_id, "event": type(event).__name__, "state": self.core.state})
        self._sync_timers()
        if self.core.state is not before.state:
            self._time_start(before)
        if commands or self.core.state is not before.state:
            later = [c for c in commands if not self.effects.at_once(c)]
            self._effects.append((self.snapshot(), later))
            if self._pump is None:
                self._pump = self.spawn(self._carry_out(), f"session-{self.session_id[:8]}")
        else:
            self.save_soon()
        if self.core.state is before.state and isinstance(event, Busy | Idle):
            self.announce_soon()
        else:
            self.announce()
        if self.core.state is SessionState.DORMANT and before.state is not SessionState.DORMANT:
            # thousands may sleep, and a descriptor each would be all that a process may have
            self.world.deadlines.after((self.session_id, "release"), RELEASE_AFTER_S, self._release)
        self.wake()

    def _release(self) -> None:
        if self.core.state is SessionState.DORMANT:
            self.journal.release()

    def _time_start(self, before: Session) -> None:
        """From the request (or the work that woke a dormant session) until it is active."""
        state, now = self.core.state, self.world.clock.boottime()
        if state is SessionState.STARTING:
            self.asked_at = now if self.asked_at is None else self.asked_at
        elif state in (SessionState.ACTIVE, SessionState.DORMANT, SessionState.ENDED):
            asked, self.asked_at = self.asked_at, None
            if asked is not None and state is SessionState.ACTIVE:
                opened = "new" if self.core.generation == 1 else "again"
                self.world.tally.active_seconds[self.profile.name, opened].observe(now - asked)

    def wake(self) -> None:
        """Whoever waits for a change looks again."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def _carry_out(self) -> None:
        try:
            while self._effects:
                row, commands = self._effects.popleft()
                await self.insist(lambda row=row: self.world.records.put_session(row))  # type: ignore[misc]
                for command in commands:
                    self.effects.carry_out(command)
        finally:
            self._pump = None
            if self._effects:
                self._pump = self.spawn(self._carry_out(), f"session-{self.session_id[:8]}")

    async def insist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write to the records; while they are locked or the disk is full, try again for as long as it takes."""
        delay = 0.05
        while True:
            try:
                await write()
                return
            except RecordsUnavailable as error:
                log.error("records cannot be written, will try again", extra={"session": self.session_id, "why": error.detail})
                await asyncio.sleep(delay)
                delay = min(delay * 2, 5.0)

    def _sync_timers(self) -> None:
        wanted = timers(self.core)
        for name in self._armed.keys() - wanted.keys():
            self.world.deadlines.disarm((self.session_id, name))
        for name, at in wanted.items():
            if self._armed.get(name) != at:
                self.world.deadlines.arm((self.session_id, name), at, lambda name=name: self._fired(name))  # type: ignore[misc]
        self._armed = wanted

    def take_timers(self) -> None:
        """Arm what the state wants (after the session was loaded)."""
        self._armed = {}
        self._sync_timers()

    def sync_busy(self) -> None:
        """Make the state agree with what runs (after the session was loaded)."""
        running = any(run.forwarded for run in self.runs.open.values())
        if running != self.core.busy:
            self.dispatch(Busy() if running else Idle())

    def _fired(self, name: str) -> None:
        self._armed.pop(name, None)
        self.dispatch(TimerFired(name))
        self._sync_timers()

    def want(self) -> None:
        """Work waits: forward it, or open a sandbox for it."""
        if not self.taken_up.is_set():
            return  # whoever takes it up looks at what waits
        if self.core.state is SessionState.ACTIVE:
            self.traffic.kick()
        else:
            self.dispatch(Wanted())

    async def when_taken_up(self, timeout_s: float) -> None:
        """Raises Unavailable."""
        try:
            await asyncio.wait_for(self.taken_up.wait(), timeout_s)
        except TimeoutError:
            raise Unavailable("The session is being taken up after a restart of the gateway.", retry_after=5.0) from None

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self.world.tasks.spawn(coro, name)

    @property
    def ready(self) -> bool:
        """Executions may be forwarded now."""
        sandbox = self.sandbox
        able = self.core.state is SessionState.ACTIVE and self.kernel_ready and sandbox is not None and sandbox.link.lost is None
        return able and self.taken_up.is_set()

    # --- the record ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> SessionRow:
        """The row as of now. Boot-time anchors go with the wall time at which they were written (ARCHITECTURE 4)."""
        core, clock, row = self.core, self.world.clock, self.row
        boot, now = clock.boottime(), clock.now()

        def wall(at: float | None) -> float | None:
            return None if at is None else now + (at - boot)

        row.state, row.generation, row.reason, row.sandbox_id = core.state, core.generation, core.reason, core.sandbox_id
        row.idle_deadline, row.max_deadline = wall(core.idle_deadline), wall(core.max_deadline)
        row.version += 1
        row.data = {
            **data_of(core, clock),
            "variables": [asdict(v) for v in self.variables], "variables_at": self.variables_at,
            "lost": [asdict(v) for v in self.lost_variables], "lost_because": self.lost_because, "restored": self.restored,
            "kernel_info": self.kernel_info, "ran": self.ran, "over_life": self.over_life, "store_problem": self.store_problem,
            "forget_before": self.transcript.forget_before, "rebuild": self.rebuild.to_row() if self.rebuild else None,
        }  # fmt: skip
        return replace(row)

    def save_soon(self) -> None:
        """Record a change of facts (busy, variables), once for all of the next moment: after a crash they are found out anew."""
        if self._save_timer is None:
            self._save_timer = asyncio.get_running_loop().call_later(SAVE_AFTER_S, self._save_now)

    def _save_now(self) -> None:
        self._save_timer = None
        if not self.ended.is_set():
            self.save()

    def save(self) -> None:
        """Record a change that is no step of the state machine."""
        self._effects.append((self.snapshot(), []))
        if self._pump is None:
            self._pump = self.spawn(self._carry_out(), f"session-{self.session_id[:8]}")

    # --- telling the page ---------------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Tell the page what changed, once for all changes of this turn of the loop."""
        if not self._announcing and not self.ended.is_set():
            self._announcing = True
            asyncio.get_running_loop().call_soon(self._announce)

    def announce_soon(self) -> None:
        """The same for what changes with every cell: once for all changes of ``ANNOUNCE_AFTER_S``."""
        if self._announce_timer is None and not self._announcing:
            self._announce_timer = asyncio.get_running_loop().call_later(ANNOUNCE_AFTER_S, self._announce)

    def _announce(self) -> None:
        self._announcing = False
        if self._announce_timer is not None:
            self._announce_timer.cancel()
            self._announce_timer = None
        if not self.ended.is_set():
            self.write_state({"type": "session", "session": self.to_json()})

    # --- facts --------------------------------------------------------------------------------------------------------

    def set_variables(self, variables: list[Variable], more: int) -> None:
        self.variables, self.variables_more, self.variables_at = variables, more, self.world.clock.now()
        self.save_soon()
        self.announce_soon()

    def lose_variables(self, reason: str) -> None:
        if self.variables or self.ran or reason == "restart":
            # else this life lost nothing: what the one before it lost is what is missing still
            self.lost_variables, self.lost_because = self.variables, reason
        self.variables, self.variables_more, self.variables_at = [], 0, None
        self.restored = []
        self.kernel_ready = False
        if self.sandbox is not None:
            self.over_life = self.sandbox.life

    def take_told_first(self) -> str:
        return self.telling.take_told_first()

    def keep_from_code(self, patterns: list[str]) -> None:
        self.spawn(self.effects.keep_from_code(patterns), "keep")

    async def interrupt_kernel(self) -> None:
        await self.effects.interrupt_kernel()

    def execution_finished(self, run: Run) -> None:
        """Look for changed declared files once it has been quiet for a moment."""
        self.row.last_activity = self.world.clock.now()
        if run.forwarded and self.core.state is SessionState.ACTIVE:
            self.checkpoint_soon(run.row.execution_id)

    def checkpoint_soon(self, execution_id: str) -> None:
        """Store changed declared files when it has been quiet for a moment; several reasons in a row make one."""

        def begin() -> None:
            self.spawn(self.effects.checkpoint(execution_id), "checkpoint")

        self.world.deadlines.after((self.session_id, "checkpoint"), CHECKPOINT_AFTER_S, begin)

    def activity(self) -> None:
        """An upload, a declaration or a keep-alive: the idle timer starts anew, and its warnings are settled."""
        self.dispatch(Activity())
        self.row.last_activity = self.world.clock.now()
        self.save()  # unlike busy and variables, no later gateway would find this out
        self.telling.clear_warnings(idle_only=True)
        self.announce()

    def audit_soon(self, tag: Tag, by: str = "") -> None:
        """An act of its owner's: it happens whether the records take it now or not, and stands in the audit as soon as they do."""
        detail = {"reason": EndReason.USER, "by": by or self.row.user}
        row = AuditRow(self.world.clock.now(), tag, self.row.tenant, self.row.user, self.session_id, detail)
        self.spawn(self.insist(lambda: self.world.records.add_audit(row)), "audit")

    def forget(self) -> None:
        """It could not be recorded, so there never was such a session; a record that stands although the write failed is ended."""
        self.ended.set()
        self.journal.close()
        self._on_end(self)
        now = self.world.clock.now()
        row = replace(self.snapshot(), state=SessionState.ENDED, ended_at=now)

        async def end() -> None:
            if await self.world.records.get_session(self.session_id) is not None:
                await self.world.records.put_session(row)

        self.spawn(self.insist(end), "forget")

    def finish(self) -> None:
        """The session is over: everything that listens is told, nothing is left armed."""
        self.announce()
        self._announce()
        self.ended.set()
        self.world.tally.sessions_ended[(self.core.reason,)] += 1
        for name in self._armed:
            self.world.deadlines.disarm((self.session_id, name))
        for name in ("checkpoint", "release"):
            self.world.deadlines.disarm((self.session_id, name))
        self.attachments.close_all("session_ended")
        self.journal.close()
        self._on_end(self)

    async def told(self) -> None:
        """Wait until everything that this state has to tell is recorded, a moment at most: who sees the state finds the notice."""
        if self._pump is not None:
            await asyncio.wait([self._pump], timeout=TOLD_WAIT_S)
        await self.teller.done(TOLD_WAIT_S)

    async def released(self) -> None:
        """Wait until everything that follows from the steps so far is carried out."""
        while self._pump is not None:
            await asyncio.wait([self._pump])

    def to_json(self) -> Json:
        return session_json(self)

    # --- what executions and traffic call by name ---------------------------------------------------------------------

    async def interrupt(self) -> None:
        await self.effects.interrupt()

    async def restart(self) -> None:
        await self.effects.restart()

    def end(self, by: str = "") -> None:
        """At its owner's wish."""
        self.effects.end()
        self.audit_soon(Tag.USER_SESSION_END, by)

    def notice_row(self, kind: str, body: Json) -> NoticeRow:
        return NoticeRow(self.session_id, kind, self.core.generation, self.world.clock.now(), body)
