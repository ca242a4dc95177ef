"""A session's life as one pure table: ``step(state, event, now) -> (state, commands)``.

``now`` and every time kept here is boot time in seconds (it goes on while the machine sleeps and never jumps). An event that
the table does not hold for the present state raises ``InvalidTransition`` and changes nothing. Results of commands come back
as events that name their sandbox; one that names another sandbox than the session's own is stale: it never changes the state
and only asks for that sandbox to be discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import InvalidTransition
from .model import EndReason, ExitReason, NoticeKind, SessionState
from .session_commands import (
    Command,
    Destroy,
    Discard,
    FailWork,
    Finish,
    KillUser,
    LoseVariables,
    ObtainSandbox,
    OpenForWork,
    Persist,
    RestartKernel,
    RestoreFiles,
    Tell,
)
from .session_events import (
    Activity,
    Busy,
    Destroyed,
    EndRequested,
    Event,
    Extended,
    FilesRestored,
    Idle,
    KernelDied,
    Persisted,
    PersistFailed,
    RecycleRequested,
    Released,
    RestartRequested,
    RetryRequested,
    SandboxEvent,
    SandboxGone,
    SandboxReady,
    StartFailed,
    TimerFired,
    UserKilled,
    Wanted,
)
from .session_state import Phase, Session, timers, to_tell

QUARANTINE_MAX_S = 3600.0
RETRY_S = 5.0
RETRY_MAX_S = 120.0

Result = tuple[Session, list[Command]]


# --- handlers ---------------------------------------------------------------------------------------------------------


def _lose(s: Session, reason: str) -> Result:
    return replace(s, generation=s.generation + 1), [LoseVariables(reason)]


def _drain(s: Session, now: float, reason: str, *, ending: bool = False, finish: bool = False) -> Result:
    """Begin to end the sandbox; with ``finish`` a running execution has its grace first."""
    s = replace(s, state=SessionState.DRAINING, reason=reason, ending=ending, drain_since=now, wanted=False)
    if finish and s.busy:
        return replace(s, phase=Phase.FINISHING), []
    return _kill(s)


def _kill(s: Session) -> Result:
    """The variables end here, and with them all work that was asked for while they lived; it wants no other sandbox."""
    s, lost = _lose(replace(s, phase=Phase.KILLING, wanted=False), s.reason)
    return s, [*lost, FailWork(ExitReason.SANDBOX_ENDED), KillUser(s.sandbox_id)]


def _destroy(s: Session) -> Result:
    return replace(s, state=SessionState.DRAINING, phase=Phase.DESTROYING, retry_at=None), [Destroy(s.sandbox_id)]


def _rest(s: Session) -> Session:
    """No sandbox any more."""
    return replace(
        s, state=SessionState.DORMANT, sandbox_id="", phase=None, busy=False, idle_since=None, claimed_at=None,
        drain_since=None, quarantined_at=None, retry_at=None, attempts=0, warned=frozenset(), extended_s=0.0,
    )  # fmt: skip


def _start(s: Session, e: Event, now: float) -> Result:
    return replace(s, state=SessionState.STARTING, wanted=False), [ObtainSandbox()]


def _nothing(s: Session, e: Event, now: float) -> Result:
    return s, []


def _want(s: Session, e: Event, now: float) -> Result:
    return replace(s, wanted=True), []


def _claimed(s: Session, e: SandboxReady, now: float) -> Result:
    if s.sandbox_id:
        return s, [Discard(e.sandbox_id)]
    return replace(s, sandbox_id=e.sandbox_id, claimed_at=now, warned=frozenset()), [RestoreFiles(e.sandbox_id)]


def _restored(s: Session, e: Event, now: float) -> Result:
    return replace(s, state=SessionState.ACTIVE, idle_since=now, busy=False), [Tell(NoticeKind.RESTORED), OpenForWork()]


def _start_failed(s: Session, e: StartFailed, now: float) -> Result:
    told: list[Command] = [FailWork(e.exit_reason, detail=e.detail), Tell(NoticeKind.START_FAILED, detail=e.detail)]
    if s.sandbox_id:
        # nothing of the user's ended with it: why the one before ended is still what counts
        s, more = _destroy(replace(s, ending=False))
        return s, told + more
    return _rest(s), told


def _stop_starting(s: Session, e: RecycleRequested | EndRequested, now: float) -> Result:
    ending = isinstance(e, EndRequested)
    if s.sandbox_id:
        s, commands = _destroy(replace(s, reason=e.reason, ending=ending, drain_since=now))
        return s, [FailWork(ExitReason.SANDBOX_ENDED), *commands]
    s = replace(_rest(s), reason=e.reason)
    told: list[Command] = [FailWork(ExitReason.SANDBOX_ENDED)]
    if ending:
        return replace(s, state=SessionState.ENDED), [*told, Tell(NoticeKind.ENDED, e.reason), Finish()]
    return s, told


def _gone_starting(s: Session, e: SandboxGone, now: float) -> Result:
    s, commands = _destroy(replace(s, reason=e.reason, ending=False))
    return s, [FailWork(ExitReason.SANDBOX_ENDED), Tell(NoticeKind.START_FAILED, e.reason), *commands]


def _died_starting(s: Session, e: KernelDied, now: float) -> Result:
    return _gone_starting(s, SandboxGone(e.sandbox_id, EndReason.CRASH), now)


def _busy(s: Session, e: Event, now: float) -> Result:
    idle_warnings = {w for w in s.warned if w.startswith("idle")}
    return replace(s, busy=True, idle_since=None, warned=s.warned - idle_warnings), []


def _idled(s: Session, now: float) -> Session:
    """Nothing runs. The idle timer begins at the edge: where nothing ran before, a restart or a death moves it no more than a poll."""
    return replace(s, busy=False, idle_since=now if s.busy else s.idle_since)


def _idle(s: Session, e: Event, now: float) -> Result:
    return _idled(s, now), []


def _activity(s: Session, e: Event, now: float) -> Result:
    if s.busy:
        return s, []
    return _idle(_busy(s, e, now)[0], e, now)


def _timer(s: Session, e: TimerFired, now: float) -> Result:
    due = timers(s).get(e.name)
    if due is None or now < due:
        return s, []  # it was moved, or fired early: what is armed is what counts
    if e.name == "idle":
        return _drain(s, now, EndReason.IDLE_TIMEOUT)
    if e.name == "max":
        return _drain(s, now, EndReason.MAX_LIFETIME, finish=True)
    return _warn(s, e.name, due, now)


def _warn(s: Session, name: str, due: float, now: float) -> Result:
    """Told once, or not at all when it is too late for it."""
    kind, left = to_tell(s, name, due, now)
    s = replace(s, warned=s.warned | {name})
    return s, [] if left is None else [Tell(*_WARNINGS[kind], left)]


_WARNINGS = {
    "idle": (NoticeKind.IDLE_WARNING, EndReason.IDLE_TIMEOUT),
    "max": (NoticeKind.MAX_WARNING, EndReason.MAX_LIFETIME),
}


def _extended(s: Session, e: Extended, now: float) -> Result:
    """The one exception to "the maximum is never moved". Warnings are due anew, but for those whose time would be over already."""
    s = replace(s, extended_s=s.extended_s + e.seconds, warned=frozenset(w for w in s.warned if not w.startswith("max")))
    over = {name for name, at in timers(s).items() if name.startswith("max_warn") and at <= now}
    return replace(s, warned=s.warned | over), [Tell(NoticeKind.EXTENDED, EndReason.ADMIN, e.seconds, e.text)]


def _recycle(s: Session, e: RecycleRequested, now: float) -> Result:
    return _drain(s, now, e.reason)


def _end(s: Session, e: EndRequested, now: float) -> Result:
    return _drain(s, now, e.reason, ending=True)


def _restart(s: Session, e: RestartRequested, now: float) -> Result:
    s, lost = _lose(s, "restart")
    return _idled(s, now), [
        *lost, FailWork(e.exit_reason), Tell(NoticeKind.KERNEL_RESTARTED, e.exit_reason), RestartKernel(s.sandbox_id),
    ]  # fmt: skip


def _kernel_died(s: Session, e: KernelDied, now: float) -> Result:
    s, lost = _lose(s, e.exit_reason)
    return _idled(s, now), [
        *lost, FailWork(e.exit_reason), Tell(NoticeKind.KERNEL_DIED, e.exit_reason), RestartKernel(s.sandbox_id),
    ]  # fmt: skip


_GONE_TO_EXIT = {EndReason.OUT_OF_MEMORY: ExitReason.MEMORY_LIMIT}


def _gone(s: Session, e: SandboxGone, now: float) -> Result:
    s, lost = _lose(replace(s, reason=e.reason, ending=False, busy=False, drain_since=now), e.reason)
    s, commands = _destroy(s)
    exit_reason = _GONE_TO_EXIT.get(e.reason, ExitReason.SANDBOX_ENDED)
    return s, [*lost, FailWork(exit_reason), Tell(NoticeKind.FILES_LOST, e.reason), *commands]


def _gone_draining(s: Session, e: SandboxGone, now: float) -> Result:
    if s.phase is Phase.DESTROYING:
        return s, []
    commands: list[Command] = []
    if s.phase is Phase.FINISHING:  # it was still at work: this is why it ended
        s, commands = _lose(replace(s, reason=e.reason, wanted=False, busy=False), e.reason)
        commands.append(FailWork(_GONE_TO_EXIT.get(e.reason, ExitReason.SANDBOX_ENDED)))
    s, more = _destroy(s)
    return s, [*commands, Tell(NoticeKind.FILES_LOST, e.reason), *more]


def _drain_idle(s: Session, e: Event, now: float) -> Result:
    s = replace(s, busy=False)
    return _kill(s) if s.phase is Phase.FINISHING else (s, [])


def _drain_timer(s: Session, e: TimerFired, now: float) -> Result:
    due = timers(s).get(e.name)
    return _kill(s) if e.name == "drain" and due is not None and now >= due else (s, [])


def _drain_recycle(s: Session, e: RecycleRequested, now: float) -> Result:
    """Whoever asks for the end does not wait for the grace of what runs."""
    return _kill(s) if s.phase is Phase.FINISHING else (s, [])


def _drain_restart(s: Session, e: RestartRequested, now: float) -> Result:
    """A fresh kernel is wanted: that of the next sandbox."""
    s, commands = _drain_recycle(s, RecycleRequested(), now)
    return replace(s, wanted=True), commands


def _drain_end(s: Session, e: EndRequested, now: float) -> Result:
    return _drain_recycle(_end_later(s, e, now)[0], RecycleRequested(e.reason), now)


def _drain_died(s: Session, e: KernelDied, now: float) -> Result:
    """In its grace a cell ends for the kernel's own reason, not for the maximum that would have cut it later."""
    if s.phase is not Phase.FINISHING:
        return s, []
    s, commands = _kill(replace(s, busy=False))
    return s, [FailWork(e.exit_reason), *commands]


def _killed(s: Session, e: Event, now: float) -> Result:
    if s.phase is not Phase.KILLING:
        return s, []
    return replace(s, phase=Phase.PERSISTING, busy=False), [Persist(s.sandbox_id)]


def _persisted(s: Session, e: Event, now: float) -> Result:
    return _destroy(s) if s.phase in (Phase.PERSISTING, None) else (s, [])


def _persist_failed(s: Session, e: Event, now: float) -> Result:
    if s.state is SessionState.DRAINING and s.phase is not Phase.PERSISTING:
        return s, []
    since = now if s.quarantined_at is None else s.quarantined_at
    if now - since >= QUARANTINE_MAX_S:
        s, commands = _destroy(s)
        return s, [Tell(NoticeKind.FILES_LOST, s.reason), *commands]
    told: list[Command] = [] if s.quarantined_at is not None else [Tell(NoticeKind.QUARANTINED, s.reason)]
    delay = min(RETRY_S * 2**s.attempts, RETRY_MAX_S)
    return replace(s, state=SessionState.QUARANTINED, phase=None, quarantined_at=since, retry_at=now + delay, attempts=s.attempts + 1), told


def _retry(s: Session, e: TimerFired, now: float) -> Result:
    if e.name != "persist" or s.retry_at is None or now < s.retry_at:
        return s, []
    return replace(s, retry_at=None), [Persist(s.sandbox_id)]


def _retry_now(s: Session, e: Event, now: float) -> Result:
    return (s, []) if s.retry_at is None else (replace(s, retry_at=None), [Persist(s.sandbox_id)])


def _released(s: Session, e: Released, now: float) -> Result:
    s, commands = _destroy(s)
    return s, [Tell(NoticeKind.FILES_LOST, EndReason.ADMIN, detail=e.text), *commands]


def _destroyed(s: Session, e: Event, now: float) -> Result:
    if s.phase is not Phase.DESTROYING:
        return s, []
    ending, end_reason, wanted = s.ending, s.end_reason, s.wanted
    # a start that failed ended nothing that anybody had
    told: list[Command] = [Tell(NoticeKind.RECYCLED, s.reason)] if s.drain_since is not None else []
    s = replace(_rest(s), ending=False, end_reason="", wanted=False)
    if ending:
        s = replace(s, state=SessionState.ENDED, reason=end_reason or s.reason)
        return s, [FailWork(ExitReason.SANDBOX_ENDED), Tell(NoticeKind.ENDED, s.reason), Finish()]
    if wanted:
        s, more = _start(s, e, 0.0)
        return s, told + more
    return s, told


def _end_later(s: Session, e: EndRequested, now: float) -> Result:
    """The sandbox keeps the reason for which it ends; the session has its own."""
    return (s, []) if s.ending else (replace(s, ending=True, end_reason=e.reason), [])


def _end_now(s: Session, e: EndRequested, now: float) -> Result:
    return replace(s, state=SessionState.ENDED, reason=e.reason), [Tell(NoticeKind.ENDED, e.reason), Finish()]


_S = SessionState
Handler = Callable[..., Result]

TABLE: dict[tuple[SessionState, type[Event]], Handler] = {
    (_S.NEW, Wanted): _start,
    (_S.NEW, EndRequested): _end_now,
    (_S.STARTING, Wanted): _nothing,
    (_S.STARTING, Activity): _nothing,
    (_S.STARTING, RestartRequested): _nothing,
    (_S.STARTING, SandboxReady): _claimed,
    (_S.STARTING, FilesRestored): _restored,
    (_S.STARTING, StartFailed): _start_failed,
    (_S.STARTING, RecycleRequested): _stop_starting,
    (_S.STARTING, EndRequested): _stop_starting,
    (_S.STARTING, SandboxGone): _gone_starting,
    (_S.STARTING, KernelDied): _died_starting,
    (_S.STARTING, TimerFired): _nothing,
    (_S.ACTIVE, Wanted): _nothing,
    (_S.ACTIVE, Busy): _busy,
    (_S.ACTIVE, Idle): _idle,
    (_S.ACTIVE, Activity): _activity,
    (_S.ACTIVE, TimerFired): _timer,
    (_S.ACTIVE, Extended): _extended,
    (_S.ACTIVE, RecycleRequested): _recycle,
    (_S.ACTIVE, EndRequested): _end,
    (_S.ACTIVE, RestartRequested): _restart,
    (_S.ACTIVE, KernelDied): _kernel_died,
    (_S.ACTIVE, SandboxGone): _gone,
    (_S.DRAINING, Wanted): _want,
    (_S.DRAINING, Busy): _nothing,
    (_S.DRAINING, Idle): _drain_idle,
    (_S.DRAINING, Activity): _nothing,
    (_S.DRAINING, TimerFired): _drain_timer,
    (_S.DRAINING, RecycleRequested): _drain_recycle,
    (_S.DRAINING, RestartRequested): _drain_restart,
    (_S.DRAINING, EndRequested): _drain_end,
    (_S.DRAINING, KernelDied): _drain_died,
    (_S.DRAINING, SandboxGone): _gone_draining,
    (_S.DRAINING, UserKilled): _killed,
    (_S.DRAINING, Persisted): _persisted,
    (_S.DRAINING, PersistFailed): _persist_failed,
    (_S.DRAINING, Destroyed): _destroyed,
    (_S.QUARANTINED, Wanted): _want,
    (_S.QUARANTINED, Activity): _nothing,
    (_S.QUARANTINED, RecycleRequested): _nothing,
    (_S.QUARANTINED, RestartRequested): _want,
    (_S.QUARANTINED, EndRequested): _end_later,
    (_S.QUARANTINED, TimerFired): _retry,
    (_S.QUARANTINED, RetryRequested): _retry_now,
    (_S.QUARANTINED, Released): _released,
    (_S.QUARANTINED, Persisted): _persisted,
    (_S.QUARANTINED, PersistFailed): _persist_failed,
    (_S.QUARANTINED, SandboxGone): _gone_draining,
    (_S.QUARANTINED, KernelDied): _nothing,
    (_S.DORMANT, Wanted): _start,
    (_S.DORMANT, RestartRequested): _start,
    (_S.DORMANT, RecycleRequested): _nothing,
    (_S.DORMANT, Activity): _nothing,
    (_S.DORMANT, TimerFired): _nothing,
    (_S.DORMANT, EndRequested): _end_now,
    (_S.ENDED, TimerFired): _nothing,
    (_S.ENDED, EndRequested): _nothing,
}


def step(s: Session, event: Event, now: float) -> Result:
    """The next state and what is to be done. ``now``: boot time, seconds. Raises ``InvalidTransition``."""
    if isinstance(event, SandboxReady):
        if s.state is not SessionState.STARTING:
            return s, [Discard(event.sandbox_id)]
    elif (isinstance(event, SandboxEvent) and event.sandbox_id != s.sandbox_id) or (
        isinstance(event, StartFailed) and s.state is not SessionState.STARTING
    ):
        return s, []
    handler = TABLE.get((s.state, type(event)))
    if handler is None:
        raise InvalidTransition(f"{type(event).__name__} is not possible while the session is {s.state}")
    result: Result = handler(s, event, now)
    return result
