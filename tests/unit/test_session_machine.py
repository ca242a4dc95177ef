"""The session's table: the scripts that matter. (What holds under every order of events: ``test_lives.py``.)"""

from __future__ import annotations

import pytest

from gateway.domain import session as m
from gateway.domain import session_commands as co
from gateway.domain import session_events as ev
from gateway.domain import session_state as state_of
from gateway.domain.model import EndReason, ExitReason, Lifetimes, NoticeKind, SessionState
from gateway.errors import InvalidTransition

LIFE = Lifetimes(idle_s=20.0, max_s=100.0, warn_before_s=(30.0, 5.0), drain_grace_s=3.0)
S = SessionState


def run(script: list[tuple[float, ev.Event]], state: state_of.Session | None = None) -> tuple[state_of.Session, list[co.Command]]:
    state = state or state_of.Session(LIFE)
    commands: list[co.Command] = []
    for now, event in script:
        state, more = m.step(state, event, now)
        commands += more
    return state, commands


def active(at: float = 0.0) -> state_of.Session:
    state, _ = run([(at, ev.Wanted()), (at, ev.SandboxReady("a")), (at, ev.FilesRestored("a"))])
    assert state.state is S.ACTIVE
    return state


def kinds(commands: list[co.Command]) -> list[str]:
    return [type(c).__name__ for c in commands]


def test_a_new_session_starts_restores_and_opens() -> None:
    state, commands = run([(0, ev.Wanted()), (1, ev.SandboxReady("a")), (2, ev.FilesRestored("a"))])
    assert kinds(commands) == ["ObtainSandbox", "RestoreFiles", "Tell", "OpenForWork"]
    assert (state.state, state.idle_deadline, state.max_deadline) == (S.ACTIVE, 22, 101)


def test_idle_counts_from_the_end_of_the_last_execution() -> None:
    state, _ = run([(1, ev.Busy())], active())
    assert "idle" not in state_of.timers(state)
    state, _ = run([(50, ev.Idle())], state)
    assert state_of.timers(state)["idle"] == 70


def test_a_lead_longer_than_the_timer_becomes_half_of_it() -> None:
    assert state_of.leads(20.0, (30.0, 5.0)) == (10.0, 5.0)
    assert state_of.leads(20.0, (30.0, 60.0)) == (10.0,)


def test_activity_moves_idle_and_never_the_maximum() -> None:
    before = active()
    after, _ = run([(15, ev.Activity())], before)
    assert after.idle_deadline == 35 and after.max_deadline == before.max_deadline


def test_an_early_or_stale_timer_does_nothing() -> None:
    state = active()
    again, commands = run([(19.9, ev.TimerFired("idle")), (19.9, ev.TimerFired("nonsense"))], state)
    assert again == state and not commands


def test_warnings_come_once_and_again_after_activity() -> None:
    state, commands = run([(10, ev.TimerFired("idle_warn:10")), (10, ev.TimerFired("idle_warn:10"))], active())
    assert [c for c in commands if isinstance(c, co.Tell)] == [co.Tell(NoticeKind.IDLE_WARNING, EndReason.IDLE_TIMEOUT, 10.0)]
    state, _ = run([(12, ev.Busy()), (13, ev.Idle())], state)
    assert state_of.timers(state)["idle_warn:10"] == 23


def test_a_recycle_kills_persists_destroys_and_rests() -> None:
    state, commands = run([(20, ev.TimerFired("idle")), (21, ev.UserKilled("a")), (22, ev.Persisted("a")), (23, ev.Destroyed("a"))], active())
    assert kinds(commands) == ["LoseVariables", "FailWork", "KillUser", "Persist", "Destroy", "Tell"]
    assert (state.state, state.generation, state.reason, state.sandbox_id) == (S.DORMANT, 2, EndReason.IDLE_TIMEOUT, "")


def test_at_the_maximum_a_running_execution_has_its_grace() -> None:
    state, commands = run([(99, ev.Busy()), (100, ev.TimerFired("max"))], active())
    assert (state.state, state.phase, commands) == (S.DRAINING, state_of.Phase.FINISHING, [])
    waited, _ = run([(102, ev.Idle())], state)
    assert waited.phase is state_of.Phase.KILLING
    forced, _ = run([(103, ev.TimerFired("drain"))], state)
    assert forced.phase is state_of.Phase.KILLING


def test_work_that_arrives_in_a_drain_opens_the_next_sandbox() -> None:
    state, commands = run(
        [(20, ev.TimerFired("idle")), (20, ev.Wanted()), (21, ev.UserKilled("a")), (22, ev.Persisted("a")), (23, ev.Destroyed("a"))], active()
    )
    assert state.state is S.STARTING and kinds(commands)[-1] == "ObtainSandbox"


def test_a_store_that_is_down_quarantines_and_retries() -> None:
    state, commands = run([(20, ev.TimerFired("idle")), (21, ev.UserKilled("a")), (22, ev.PersistFailed("a"))], active())
    assert state.state is S.QUARANTINED and co.Tell(NoticeKind.QUARANTINED, EndReason.IDLE_TIMEOUT) in commands
    at = state_of.timers(state)["persist"]
    state, commands = run([(at, ev.TimerFired("persist")), (at, ev.PersistFailed("a"))], state)
    assert kinds(commands) == ["Persist"] and state_of.timers(state)["persist"] > at + m.RETRY_S
    state, commands = run([(at + 100, ev.TimerFired("persist")), (at + 100, ev.Persisted("a")), (at + 101, ev.Destroyed("a"))], state)
    assert state.state is S.DORMANT and kinds(commands)[:2] == ["Persist", "Destroy"]


def test_quarantine_ends_and_says_what_is_lost() -> None:
    state, _ = run([(20, ev.TimerFired("idle")), (21, ev.UserKilled("a")), (22, ev.PersistFailed("a"))], active())
    state, commands = run([(22 + m.QUARANTINE_MAX_S, ev.PersistFailed("a"))], state)
    assert kinds(commands) == ["Tell", "Destroy"] and commands[0] == co.Tell(NoticeKind.FILES_LOST, EndReason.IDLE_TIMEOUT)
    assert state.phase is state_of.Phase.DESTROYING


def test_a_dead_kernel_is_a_new_generation_in_the_same_sandbox() -> None:
    state, commands = run([(1, ev.Busy()), (2, ev.KernelDied("a", ExitReason.MEMORY_LIMIT))], active())
    assert (state.generation, state.state, state.busy, state.max_deadline) == (2, S.ACTIVE, False, 100)
    assert kinds(commands) == ["LoseVariables", "FailWork", "Tell", "RestartKernel"]


def test_a_restart_or_a_death_of_an_idle_kernel_moves_no_timer() -> None:
    """Code that lets its kernel die now and then would keep a sandbox alive."""
    for event in (ev.RestartRequested(), ev.KernelDied("a")):
        state, _ = run([(15, event)], active())
        assert state_of.timers(state)["idle"] == 20
        state, _ = run([(14, ev.Busy()), (15, event)], active())
        assert state_of.timers(state)["idle"] == 35, "the edge from busy to idle does"


def test_a_late_warning_says_how_long_is_left_and_the_nearest_speaks_for_the_others() -> None:
    def told(now: float) -> list[float]:
        _, commands = run([(now, ev.TimerFired("idle_warn:10")), (now, ev.TimerFired("idle_warn:5"))], active())
        return [c.lead_s for c in commands if isinstance(c, co.Tell)]

    assert [told(now) for now in (10, 10.5, 12, 15, 17, 19.5, 20, 5000)] == [[10], [10], [8], [5], [3], [0.5], [], []]


def test_the_end_that_is_asked_for_in_a_drain_has_its_own_reason() -> None:
    state, _ = run([(20, ev.TimerFired("idle")), (21, ev.EndRequested(EndReason.ADMIN)), (21, ev.EndRequested(EndReason.USER))], active())
    assert state.reason == EndReason.IDLE_TIMEOUT, "the sandbox's"
    state, commands = run([(22, ev.UserKilled("a")), (23, ev.Persisted("a")), (24, ev.Destroyed("a"))], state)
    assert (state.state, state.reason) == (S.ENDED, EndReason.ADMIN) and co.Tell(NoticeKind.ENDED, EndReason.ADMIN) in commands


@pytest.mark.parametrize("event", [ev.RecycleRequested(), ev.EndRequested(), ev.RestartRequested()])
def test_whoever_asks_for_an_end_does_not_wait_for_the_grace_of_what_runs(event: ev.Event) -> None:
    state, commands = run([(99, ev.Busy()), (100, ev.TimerFired("max")), (101, event)], active())
    assert state.phase is state_of.Phase.KILLING and kinds(commands) == ["LoseVariables", "FailWork", "KillUser"]
    assert state.wanted is isinstance(event, ev.RestartRequested)


def test_work_that_came_in_the_grace_ends_with_it_and_wants_nothing() -> None:
    script = [(99, ev.Busy()), (100, ev.TimerFired("max")), (101, ev.Wanted()), (103, ev.TimerFired("drain"))]
    state, commands = run([*script, (104, ev.UserKilled("a")), (105, ev.Persisted("a")), (106, ev.Destroyed("a"))], active())
    assert state.state is S.DORMANT and co.FailWork(ExitReason.SANDBOX_ENDED) in commands


@pytest.mark.parametrize("event", [ev.UserKilled("old"), ev.Persisted("old"), ev.Destroyed("old"), ev.KernelDied("old"), ev.SandboxGone("old")])
def test_a_stale_result_changes_nothing(event: ev.Event) -> None:
    state = active()
    assert m.step(state, event, 5.0) == (state, [])


def test_a_sandbox_that_comes_too_late_is_discarded() -> None:
    state = active()
    assert m.step(state, ev.SandboxReady("b"), 5.0) == (state, [co.Discard("b")])


def test_an_illegal_event_raises_and_changes_nothing() -> None:
    with pytest.raises(InvalidTransition):
        m.step(state_of.Session(LIFE), ev.Idle(), 0.0)


def test_the_end_while_starting_needs_no_sandbox() -> None:
    state, commands = run([(0, ev.Wanted()), (1, ev.EndRequested())])
    assert state.state is S.ENDED and kinds(commands)[-1] == "Finish"
    assert m.step(state, ev.SandboxReady("a"), 2.0) == (state, [co.Discard("a")])


def quarantined(at: float = 22.0) -> m.Session:
    state, _ = run([(20, ev.TimerFired("idle")), (21, ev.UserKilled("a")), (at, ev.PersistFailed("a"))], active())
    return state


def test_an_extension_moves_the_maximum_and_nothing_else_and_warns_anew() -> None:
    before, _ = run([(70, ev.TimerFired("max_warn:30")), (71, ev.Busy())], active())
    after, commands = run([(80, ev.Extended(50.0, "a report is due"))], before)
    assert commands == [co.Tell(NoticeKind.EXTENDED, EndReason.ADMIN, 50.0, "a report is due")]
    assert (after.max_deadline, after.generation, after.busy, after.idle_deadline) == (150, 1, True, before.idle_deadline)
    armed = m.timers(after)
    assert (armed["max"], armed["max_warn:30"], armed["max_warn:5"]) == (150, 120, 145)
    assert run([(100, ev.TimerFired("max"))], after) == (after, []), "the old maximum ends nothing"


def test_a_short_extension_does_not_warn_of_what_is_over() -> None:
    after, commands = run([(90, ev.Extended(1.0)), (90, ev.TimerFired("max_warn:30"))], active())
    assert [c for c in commands if isinstance(c, co.Tell) and c.kind is NoticeKind.MAX_WARNING] == []
    assert {n for n in m.timers(after) if n.startswith("max")} == {"max", "max_warn:5"}


def test_the_next_sandbox_has_the_usual_maximum() -> None:
    state, _ = run(
        [(1, ev.Extended(50.0)), (2, ev.RecycleRequested()), (3, ev.UserKilled("a")), (4, ev.Persisted("a")), (5, ev.Destroyed("a")),
         (10, ev.Wanted()), (11, ev.SandboxReady("b")), (12, ev.FilesRestored("b"))], active()
    )  # fmt: skip
    assert state.max_deadline == 111


@pytest.mark.parametrize("event", [ev.Extended(1.0), ev.Released("x"), ev.RetryRequested()])
def test_acts_of_admins_need_the_state_that_they_are_for(event: ev.Event) -> None:
    for state in (m.Session(LIFE), run([(20, ev.TimerFired("idle"))], active())[0], quarantined(), active()):
        if (state.state, type(event)) in m.TABLE:
            continue
        with pytest.raises(InvalidTransition):
            m.step(state, event, 50.0)
    assert {s for s, kind in m.TABLE if kind is type(event)} == {S.ACTIVE if isinstance(event, ev.Extended) else S.QUARANTINED}


def test_a_release_destroys_and_tells_while_a_try_is_under_way_too() -> None:
    state, commands = run([(23, ev.RetryRequested()), (23, ev.RetryRequested())], quarantined())
    assert kinds(commands) == ["Persist"] and "persist" not in m.timers(state)
    state, commands = run([(24, ev.Released("no use"))], state)
    assert commands == [co.Tell(NoticeKind.FILES_LOST, EndReason.ADMIN, detail="no use"), co.Destroy("a")]
    for late in (ev.Persisted("a"), ev.PersistFailed("a"), ev.TimerFired("persist")):
        assert run([(25, late)], state) == (state, [])
    state, commands = run([(26, ev.Destroyed("a"))], state)
    assert (state.state, state.reason) == (S.DORMANT, EndReason.IDLE_TIMEOUT)
