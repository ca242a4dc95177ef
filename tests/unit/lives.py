"""A small world around the pure tables: sessions, an engine and a pool that do everything in any order, late, twice and wrongly.

It plays the service: commands wait until something carries them out, with any outcome; results come again later; the pool offers any
sandbox, used ones too; time leaps; the wall clock is set; the gateway is killed and takes its sessions up from their records. After
each step the promises of the product are checked, by a ledger of its own and not by what the tables say.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gateway.domain import sandbox as sandbox_table
from gateway.domain import session as session_table
from gateway.domain import session_commands as co
from gateway.domain import session_events as ev
from gateway.domain.model import EndReason, ExitReason, Lifetimes, NoticeKind, SandboxState, SessionState
from gateway.domain.sandbox import SandboxEvent
from gateway.domain.session_state import Phase, Session, timers
from gateway.errors import InvalidTransition
from gateway.jsonio import dumps
from gateway.ports import SessionRow
from gateway.service.session_record import core_of, data_of
from gateway.testing.clock import ManualClock

LIFE = Lifetimes(idle_s=20.0, max_s=100.0, warn_before_s=(30.0, 5.0), drain_grace_s=3.0)
S = SessionState
HOUR = 3600.0
SESSIONS = ("anna", "ben")
ASKED = (
    *[ev.Wanted()] * 3, *[ev.Busy()] * 3, *[ev.Idle()] * 2, ev.Activity(), ev.RestartRequested(), ev.RestartRequested(ExitReason.TIMEOUT),
    ev.RecycleRequested(EndReason.USER), ev.RecycleRequested(EndReason.UPGRADE), ev.Extended(7.0), ev.Released("no use"), ev.RetryRequested(),
)  # fmt: skip
OUTCOMES = (*["ok"] * 5, "fail", "fail", "lost")
TIMERS = ("idle", "max", "drain", "persist", "idle_warn:10", "max_warn:30", "max_warn:5", "nonsense")
DEATHS = (EndReason.CRASH, EndReason.OUT_OF_MEMORY, ExitReason.KERNEL_DIED, ExitReason.MEMORY_LIMIT)
SPANS = (*[0.5] * 6, *[2.0] * 3, 3.0, 5.0, 15.0, 20.0, 90.0, 5 * HOUR)
"""A leap, too: the machine slept."""
WHAT = {
    "carry_out": 40, "ask": 30, "pass_time": 10, "die": 3, "repeat": 4, "fire_what_is_not_due": 4, "fill_pool": 3, "kill_gateway": 4, "end": 0.7,
    "rest": 0.5,
}  # fmt: skip
"""With weights that let a session live long enough to have something to lose."""
DONE_AT_ONCE = (co.Tell, co.FailWork, co.LoseVariables, co.Finish, co.RestartKernel)


@dataclass
class Box:
    """A sandbox as it really is. ``stored``: everything declared in it is in the store; ``told_lost``: what is not has been told."""

    state: SandboxState = SandboxState.CREATING
    owner: str = ""
    claims: int = 0
    claimed_at: float = 0.0
    extended_s: float = 0.0
    worked: bool = False
    killed: bool = False
    stored: bool = False
    told_lost: bool = False

    def take(self, event: SandboxEvent) -> None:
        self.state = sandbox_table.step(self.state, event)


@dataclass
class Life:
    """A session, and what its user knows of it. ``holds``: variables may be there."""

    name: str
    core: Session = field(default_factory=lambda: Session(LIFE))
    todo: list[co.Command] = field(default_factory=list)
    holds: bool = False
    losses: int = 0
    told: Counter[str] = field(default_factory=Counter)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.boxes: dict[str, Box] = {}
        self.lives = [Life(name) for name in SESSIONS]
        self.past: list[ev.SandboxEvent] = []
        self.seen: Counter[tuple[str, str]] = Counter()
        """How often each event met each state."""

    # --- a step, and what must be true of it --------------------------------------------------------------------------

    def step(self, life: Life, event: ev.Event) -> bool:
        """False when the table refused it."""
        before, now = life.core, self.clock.boottime()
        self.seen[before.state, type(event).__name__] += 1
        if isinstance(event, ev.SandboxEvent):
            self.past.append(event)
        try:
            life.core, commands = session_table.step(before, event, now)
        except InvalidTransition:
            assert life.core is before, "an illegal event changes nothing"
            return False
        if isinstance(event, ev.Extended):
            self.boxes[before.sandbox_id].extended_s += event.seconds
        self._check_owner(life, before, event, commands)
        self._check_losses(life, before, event, commands)
        self._check_ends(life, before, event, commands)
        life.todo += [c for c in commands if not isinstance(c, DONE_AT_ONCE)]
        if not isinstance(event, ev.TimerFired):
            self.fire_due(life)  # a restore may have taken longer than the session had
        return True

    def fire_due(self, life: Life) -> None:
        """All that is due, in order, as ``Deadlines`` does it."""
        for _ in range(50):
            due = sorted((at, name) for name, at in timers(life.core).items() if at <= self.clock.boottime())
            if not due:
                return
            self.step(life, ev.TimerFired(due[0][1]))
        raise AssertionError("a timer that fires is settled")

    def _check_owner(self, life: Life, before: Session, event: ev.Event, commands: list[co.Command]) -> None:
        core = life.core
        if isinstance(event, ev.SandboxEvent) and not isinstance(event, ev.SandboxReady) and event.sandbox_id != before.sandbox_id:
            assert core is before and not commands, "a stale result changes nothing"
        if core.sandbox_id and core.sandbox_id != before.sandbox_id:
            assert not before.sandbox_id, "never two sandboxes of a session"
            assert isinstance(event, ev.SandboxReady) and event.sandbox_id == core.sandbox_id
            assert core.claimed_at == self.clock.boottime()
        if before.state is S.ENDED:
            assert core == before and all(isinstance(c, co.Discard) for c in commands), "an end is final"

    def _check_losses(self, life: Life, before: Session, event: ev.Event, commands: list[co.Command]) -> None:
        core = life.core
        losses = [c for c in commands if isinstance(c, co.LoseVariables)]
        assert core.generation - before.generation == len(losses) <= 1, "the generation grows at a loss and only then"
        if losses:
            assert life.holds, "nothing is lost twice, or before it was there"
            assert any(isinstance(c, co.FailWork) for c in commands), "no work goes on without the state that it was meant for"
            life.holds, life.losses = False, life.losses + 1
        if any(isinstance(c, co.RestartKernel | co.KillUser | co.Destroy | co.Persist) for c in commands):
            assert not life.holds, "what ends variables says so"
        if isinstance(event, ev.KernelDied | ev.SandboxGone) and event.sandbox_id == before.sandbox_id and before.state is S.ACTIVE:
            assert losses, "a death is a loss"
        if any(isinstance(c, co.OpenForWork | co.RestartKernel) for c in commands):
            life.holds = True
            box = self.boxes[core.sandbox_id]
            box.worked, box.stored = True, False

    def _check_ends(self, life: Life, before: Session, event: ev.Event, commands: list[co.Command]) -> None:
        box = self.boxes.get(before.sandbox_id)
        for command in commands:
            if isinstance(command, co.Tell):
                life.told[command.kind] += 1
                if command.kind is NoticeKind.FILES_LOST and box is not None:
                    box.told_lost = True
                if command.kind in (NoticeKind.IDLE_WARNING, NoticeKind.MAX_WARNING):
                    assert command.lead_s > 0, "no warning of what is over"
        for command in commands:
            if isinstance(command, co.Persist):
                assert box is not None and box.killed, "nothing of the user's runs while files are stored"
            elif isinstance(command, co.Destroy):
                assert box is not None and (not box.worked or box.stored or box.told_lost), "never destroyed before it is stored, or told"

    # --- what may happen: each with three numbers that choose, however large they are ---------------------------------

    def happen(self, what: str, a: int, b: int, c: int) -> None:
        getattr(self, what)(self.lives[a % len(self.lives)], b, c)
        self.check()

    def ask(self, life: Life, b: int, c: int) -> None:
        self.step(life, ASKED[b % len(ASKED)])

    def end(self, life: Life, b: int, c: int) -> None:
        self.step(life, ev.EndRequested(EndReason.ADMIN))

    def pass_time(self, life: Life, b: int, c: int) -> None:
        self.advance(SPANS[b % len(SPANS)])

    def fire_what_is_not_due(self, life: Life, b: int, c: int) -> None:
        """All that is due has fired: this one was moved, or is of another time."""
        before, timer = life.core, TIMERS[b % len(TIMERS)]
        if life.core.state is not S.NEW and timers(life.core).get(timer, self.clock.boottime() + 1) > self.clock.boottime():
            self.step(life, ev.TimerFired(timer))
            assert life.core == before, "a timer that was moved is not believed"

    def carry_out(self, life: Life, b: int, c: int) -> None:
        if life.todo:
            offered = sorted(self.boxes)[c % len(self.boxes)] if self.boxes else ""
            self.do(life, life.todo.pop(b % len(life.todo)), OUTCOMES[c % len(OUTCOMES)], offered)

    def repeat(self, life: Life, b: int, c: int) -> None:
        """A result comes again: late, and to anybody whose sandbox it is not. (To its own it comes once: the link sees to that.)"""
        event = self.past[b % len(self.past)] if self.past else None
        if event is not None and event.sandbox_id != life.core.sandbox_id and not isinstance(event, ev.SandboxReady):
            self.step(life, event)

    def die(self, life: Life, b: int, c: int) -> None:
        how = DEATHS[b % len(DEATHS)]
        if life.core.sandbox_id:
            died = ev.SandboxGone if isinstance(how, EndReason) else ev.KernelDied
            self.step(life, died(life.core.sandbox_id, how))  # type: ignore[arg-type]

    def fill_pool(self, life: Life, b: int, c: int) -> None:
        box = self.boxes[f"box{len(self.boxes)}"] = Box()
        box.take(SandboxEvent.READY)

    def kill_gateway(self, life: Life, b: int, c: int) -> None:
        """What was under way is given again, as ``service/adoption.py`` does it; the clock was set meanwhile."""
        rows = [self._record(one) for one in self.lives]
        self.clock.jump_wall((0.0, -HOUR, HOUR)[b % 3])
        for one, row in zip(self.lives, rows, strict=True):
            before, one.core = one.core, core_of(row, self.clock, None)
            assert one.core == before, "a session comes back as it was"
            for command in one.todo:
                if isinstance(command, co.Discard):
                    self.remove(command.sandbox_id)
            one.todo = self._given_again(one)

    def rest(self, life: Life, b: int, c: int) -> None:
        """However it came here: with an engine and a store that work all comes to rest, and nothing is left over."""
        for _ in range(100):
            busy = [one for one in self.lives if one.todo]
            for one in busy:
                self.do(one, one.todo.pop(0))
            if not busy:
                if all(one.core.state in (S.NEW, S.DORMANT, S.ENDED) for one in self.lives):
                    break
                self.advance(session_table.RETRY_MAX_S)
        else:
            raise AssertionError("all comes to rest")
        assert {box.state for box in self.boxes.values()} <= {SandboxState.WARM, SandboxState.GONE}, "nothing is left over"

    # --- how the world does it ----------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for life in self.lives:
            self.fire_due(life)

    def do(self, life: Life, command: co.Command, outcome: str = "ok", offered: str = "") -> None:
        match command:
            case co.ObtainSandbox():
                self.obtain(life, outcome, offered)
            case co.Discard(sandbox_id=sandbox_id):
                self.remove(sandbox_id)
            case co.Destroy(sandbox_id=sandbox_id):
                self.remove(sandbox_id)
                self.step(life, ev.Destroyed(sandbox_id))
            case co.RestoreFiles(sandbox_id=sandbox_id):
                failed = ev.StartFailed() if outcome == "fail" else ev.SandboxGone(sandbox_id)
                self.step(life, ev.FilesRestored(sandbox_id) if outcome == "ok" else failed)
            case co.KillUser(sandbox_id=sandbox_id) if outcome == "ok":
                self.boxes[sandbox_id].killed = True
                self.step(life, ev.UserKilled(sandbox_id))
            case co.Persist(sandbox_id=sandbox_id) if outcome == "ok":
                self.boxes[sandbox_id].stored = True
                self.step(life, ev.Persisted(sandbox_id))
            case co.Persist(sandbox_id=sandbox_id) if outcome == "fail":
                self.step(life, ev.PersistFailed(sandbox_id))
            case co.KillUser(sandbox_id=sandbox_id) | co.Persist(sandbox_id=sandbox_id):
                self.step(life, ev.SandboxGone(sandbox_id))

    def obtain(self, life: Life, outcome: str, offered: str) -> None:
        """A confused pool offers whatever it knows; only the table stands between a used one and the next user."""
        if outcome == "fail":
            self.step(life, ev.StartFailed(ExitReason.CAPACITY_EXHAUSTED))
            return
        sandbox_id = offered or f"box{len(self.boxes)}"
        box = self.boxes.setdefault(sandbox_id, Box())
        try:
            if box.state is SandboxState.CREATING:
                box.take(SandboxEvent.READY)
            box.take(SandboxEvent.CLAIM)
        except InvalidTransition:
            self.obtain(life, outcome, "")
            return
        box.claims, box.owner, box.claimed_at = box.claims + 1, life.name, self.clock.boottime()
        self.step(life, ev.SandboxReady(sandbox_id))

    def remove(self, sandbox_id: str) -> None:
        box = self.boxes[sandbox_id]
        box.take(SandboxEvent.REMOVE)
        box.take(SandboxEvent.CONFIRMED_GONE)

    def _record(self, life: Life) -> SessionRow:
        core = life.core
        row = SessionRow("s", "t", "u", "", "p", core.state, core.generation, 0.0, 0.0, core.reason, core.sandbox_id)
        row.data = json.loads(dumps(data_of(core, self.clock)))
        return row

    def _given_again(self, life: Life) -> list[co.Command]:
        core = life.core
        if core.state is S.STARTING:
            if core.sandbox_id:
                self.remove(core.sandbox_id)
                life.core = Session(core.lifetimes, S.STARTING, core.generation)
            return [co.ObtainSandbox()]
        if core.state is S.QUARANTINED and core.retry_at is None:
            return [co.Persist(core.sandbox_id)]
        by_phase: dict[Phase | None, Any] = {Phase.KILLING: co.KillUser, Phase.PERSISTING: co.Persist, Phase.DESTROYING: co.Destroy}
        again = by_phase.get(core.phase) if core.state is S.DRAINING else None
        return [again(core.sandbox_id)] if again is not None else []

    # --- what is always true ------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.never_a_used_one_claimed()
        self.never_two_live_sandboxes_of_a_session_and_none_forgotten()
        self.the_maximum_never_moves()
        self.nothing_runs_past_its_time()
        self.the_generation_counts_the_losses()

    def never_a_used_one_claimed(self) -> None:
        assert all(box.claims <= 1 for box in self.boxes.values()), "a sandbox is given once"

    def never_two_live_sandboxes_of_a_session_and_none_forgotten(self) -> None:
        for life in self.lives:
            on_its_way_out = {c.sandbox_id for c in life.todo if isinstance(c, co.Discard)}
            claimed = {i for i, box in self.boxes.items() if box.owner == life.name and box.state is SandboxState.CLAIMED} - on_its_way_out
            assert claimed <= {life.core.sandbox_id}, "one at most, and it is known"

    def the_maximum_never_moves(self) -> None:
        for life in self.lives:
            core = life.core
            if core.sandbox_id:
                box = self.boxes[core.sandbox_id]
                assert core.max_deadline == box.claimed_at + LIFE.max_s + box.extended_s, "the maximum never moves by itself"
            else:
                assert core.max_deadline is None

    def nothing_runs_past_its_time(self) -> None:
        now = self.clock.boottime()
        for life in self.lives:
            core = life.core
            if core.state is S.ACTIVE:
                assert core.max_deadline is not None and now < core.max_deadline, "not past the maximum"
                assert core.busy or (core.idle_deadline is not None and now < core.idle_deadline), "not past the idle timeout"
            if core.phase is Phase.FINISHING:
                assert core.drain_since is not None and now < core.drain_since + LIFE.drain_grace_s, "not past the grace"

    def the_generation_counts_the_losses(self) -> None:
        for life in self.lives:
            assert life.core.generation == 1 + life.losses, "the generation counts the losses"
            alive = life.core.state is S.ACTIVE or life.core.phase is Phase.FINISHING
            assert life.holds == alive, "what ends variables says so"
