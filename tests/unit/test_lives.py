"""The promises of the lifetimes under any order of events; and that each check of them can fail: defects are put in, and found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gateway.domain import anchor, sandbox, session
from gateway.domain import session_commands as co
from gateway.domain import session_events as ev
from gateway.domain.model import ExitReason, NoticeKind, SandboxState, SessionState
from gateway.domain.sandbox import SandboxEvent
from gateway.domain.session_state import Phase as Drain
from gateway.domain.session_state import Session

from .lives import WHAT, World

S = SessionState
WALKS = 1000
PICKS = st.integers(0, 2**20)


class Lives(RuleBasedStateMachine):
    """Hypothesis chooses, and makes what it finds as small as it can."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(what=st.sampled_from(list(WHAT)), a=PICKS, b=PICKS, c=PICKS)
    def happen(self, what: str, a: int, b: int, c: int) -> None:
        self.world.happen(what, a, b, c)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


def walk(seed: int, steps: int = 120) -> World:
    """Longer ways than Hypothesis goes, with the weights of ``WHAT``; the same for the same seed."""
    rng, world = random.Random(seed), World()
    for what in rng.choices(list(WHAT), list(WHAT.values()), k=steps):
        world.happen(what, rng.randrange(2**20), rng.randrange(2**20), rng.randrange(2**20))
    world.rest(world.lives[0], 0, 0)
    return world


def search() -> None:
    for seed in range(WALKS):
        walk(seed)


def test_long_walks_keep_every_promise_and_come_everywhere() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(WALKS):
        seen += walk(seed).seen
    missed = {(state, event.__name__) for state, event in session.TABLE} - set(seen)
    assert not missed, "every entry of the table was tried"
    assert all(seen[state, event.__name__] >= 10 for state, event in session.TABLE), "and more than by chance"


Handler = Callable[[Session, Any, float], session.Result]


def changed(state: SessionState, event: type[ev.Event], change: Callable[[Session, session.Result, float], session.Result]) -> Any:
    """The table with one handler's result changed."""
    right: Handler = session.TABLE[state, event]

    def wrong(s: Session, e: Any, now: float) -> session.Result:
        return change(s, right(s, e, now), now)

    return session.TABLE, (state, event), wrong


def without(*kinds: type[co.Command]) -> Callable[[Session, session.Result, float], session.Result]:
    return lambda s, result, now: (result[0], [c for c in result[1] if not isinstance(c, kinds)])


def _takes_any(s: Session, result: session.Result, now: float) -> session.Result:
    if not s.sandbox_id:
        return result
    taken = result[1][0].sandbox_id  # type: ignore[attr-defined]
    return replace(s, sandbox_id=taken, claimed_at=now), [co.RestoreFiles(taken)]


def _destroys(s: Session, result: session.Result, now: float) -> session.Result:
    return replace(s, state=S.DRAINING, phase=Drain.DESTROYING, retry_at=None), [co.Destroy(s.sandbox_id)]


def _moves_the_maximum(s: Session, result: session.Result, now: float) -> session.Result:
    return replace(result[0], claimed_at=now), result[1]


def _loses_again(s: Session, result: session.Result, now: float) -> session.Result:
    if result[0] is s:
        return result
    return replace(result[0], generation=s.generation + 1), [co.LoseVariables("again"), *result[1]]


def _counts(s: Session, result: session.Result, now: float) -> session.Result:
    return replace(result[0], generation=s.generation + 1), result[1]


def _nothing(s: Session, result: session.Result, now: float) -> session.Result:
    return s, []


def _believes_any_timer(s: Session, result: session.Result, now: float) -> session.Result:
    return session._drain(s, now, "idle_timeout", finish=True)


def _stores_at_once(s: Session, result: session.Result, now: float) -> session.Result:
    lost = replace(s, state=S.DRAINING, phase=Drain.PERSISTING, drain_since=now, busy=False, generation=s.generation + 1)
    return lost, [co.LoseVariables("user"), co.FailWork(ExitReason.SANDBOX_ENDED), co.Persist(s.sandbox_id)]


def _begins_again(s: Session, result: session.Result, now: float) -> session.Result:
    return replace(s, state=S.STARTING), [co.ObtainSandbox()]


def _always_warns(s: Session, result: session.Result, now: float) -> session.Result:
    after, commands = result
    if after.state is S.ACTIVE and after.warned != s.warned and not commands:
        return after, [co.Tell(NoticeKind.IDLE_WARNING, "idle_timeout", 0.0)]
    return result


_B, _E = SandboxState, SandboxEvent
DEFECTS = {
    "a second sandbox is taken": (changed(S.STARTING, ev.SandboxReady, _takes_any), "never two sandboxes"),
    "one that comes too late is forgotten": (changed(S.STARTING, ev.SandboxReady, without(co.Discard)), "one at most, and it is known"),
    "a used one is given again": ((sandbox.TABLE, (_B.CLAIMED, _E.CLAIM), _B.CLAIMED), "given once|one at most"),
    "destroyed before it is stored": (changed(S.DRAINING, ev.UserKilled, _destroys), "never destroyed"),
    "destroyed where it should wait for the store": (changed(S.DRAINING, ev.PersistFailed, _destroys), "never destroyed"),
    "a crash's lost files are not told": (changed(S.ACTIVE, ev.SandboxGone, without(co.Tell)), "never destroyed"),
    "stored while the user's code runs": (changed(S.ACTIVE, ev.RecycleRequested, _stores_at_once), "nothing of the user's runs"),
    "a restart moves the maximum": (changed(S.ACTIVE, ev.RestartRequested, _moves_the_maximum), "the maximum never moves"),
    "a keep-alive moves the maximum": (changed(S.ACTIVE, ev.Activity, _moves_the_maximum), "the maximum never moves"),
    "a death is no loss": (changed(S.ACTIVE, ev.KernelDied, without(co.LoseVariables)), "grows at a loss and only then"),
    "one loss counts twice": (changed(S.DRAINING, ev.UserKilled, _loses_again), "nothing is lost twice"),
    "the generation grows without a loss": (changed(S.ACTIVE, ev.Activity, _counts), "grows at a loss and only then"),
    "work goes on without its variables": (changed(S.ACTIVE, ev.KernelDied, without(co.FailWork)), "no work goes on"),
    "a moved timer is believed": (changed(S.ACTIVE, ev.TimerFired, _believes_any_timer), "not believed"),
    "the grace never ends": (changed(S.DRAINING, ev.TimerFired, _nothing), "a timer that fires is settled"),
    "the maximum does nothing": (changed(S.ACTIVE, ev.TimerFired, _nothing), "a timer that fires is settled"),
    "warned of what is over": (changed(S.ACTIVE, ev.TimerFired, _always_warns), "no warning of what is over"),
    "an end is not final": (changed(S.ENDED, ev.EndRequested, _begins_again), "an end is final"),
    "a quarantine is not tried again": (changed(S.QUARANTINED, ev.TimerFired, _nothing), "settled|comes to rest"),
    "a removal that is confirmed is not": ((sandbox.TABLE, (_B.REMOVING, _E.CONFIRMED_GONE), _B.REMOVING), "left over"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (table, key, value), message = DEFECTS[defect]
    monkeypatch.setitem(table, key, value)
    with pytest.raises(AssertionError, match=message):
        search()


def test_a_stale_result_that_is_taken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        pass

    monkeypatch.setattr(session, "SandboxEvent", Nothing)
    with pytest.raises(AssertionError, match="a stale result changes nothing"):
        search()


def test_a_restart_that_trusts_the_wall_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchor.Anchor, "same_boot", lambda self, then: False)
    with pytest.raises(AssertionError, match="comes back as it was"):
        search()
