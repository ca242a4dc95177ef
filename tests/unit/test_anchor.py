"""Times that outlive a process: what a step of the clock, a restart and a reboot do to them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.anchor import Anchor
from gateway.domain.model import Lifetimes, SessionState
from gateway.domain.session_state import Phase, Session
from gateway.jsonio import dumps
from gateway.ports import ExecutionRow, SessionRow
from gateway.service.anchors import ran_s, stamp
from gateway.service.session_record import core_of, data_of
from gateway.testing.clock import ManualClock

HOUR = 3600.0
times = st.none() | st.floats(0, 1000)
cores = st.builds(
    Session, st.builds(Lifetimes), st.sampled_from(SessionState), st.integers(1, 9), st.sampled_from(["", "a"]), st.sampled_from(["", "user"]),
    st.none() | st.sampled_from(Phase), st.booleans(), st.booleans(), st.booleans(), times, times, times, times, times, st.integers(0, 5),
    st.frozensets(st.sampled_from(["idle_warn:60", "max_warn:60"])), st.sampled_from(["", "admin"]),
)  # fmt: skip


def recorded(core: Session, clock: ManualClock) -> SessionRow:
    row = SessionRow("s", "t", "u", "n", "p", core.state, core.generation, clock.now(), clock.now(), core.reason, core.sandbox_id)
    row.data = json.loads(dumps(data_of(core, clock)))
    return row


@given(cores, st.floats(0, 1e5), st.sampled_from([-HOUR, 0.0, HOUR]))
def test_in_the_same_boot_a_session_comes_back_as_it_was(core: Session, down_s: float, step_s: float) -> None:
    clock = ManualClock()
    row = recorded(core, clock)
    clock.advance(down_s)
    clock.jump_wall(step_s)
    assert core_of(row, clock, None) == core


@given(st.floats(0, 900), st.floats(0, 1e5), st.floats(0, 4 * HOUR))
def test_after_a_reboot_a_session_is_as_old_as_the_wall_clock_says(age_s: float, down_s: float, lived_s: float) -> None:
    clock = ManualClock()
    core = Session(Lifetimes(), SessionState.ACTIVE, sandbox_id="a", claimed_at=clock.boottime() - age_s, idle_since=clock.boottime())
    row = recorded(core, clock)
    clock.reboot(down_s)
    clock.advance(lived_s)
    again = core_of(row, clock, None)
    assert again.claimed_at == pytest.approx(clock.boottime() - age_s - down_s - lived_s, abs=1e-3)
    assert again.idle_since == pytest.approx(clock.boottime() - down_s - lived_s, abs=1e-3)


def test_a_clock_put_back_over_a_reboot_gives_no_time_as_a_present() -> None:
    """What it had lived by the time of the record stays lived: the maximum moves by the time that nobody saw, and no more."""
    clock = ManualClock()
    core = Session(Lifetimes(), SessionState.ACTIVE, sandbox_id="a", claimed_at=clock.boottime() - 500)
    row = recorded(core, clock)
    clock.reboot(60.0)
    clock.jump_wall(-HOUR)
    assert core_of(row, clock, None).claimed_at == clock.boottime() - 500
    assert core_of(row, clock, row.data["wall"] - 500.5).claimed_at == clock.boottime() - 500, "with a container as old as that, too"


def test_after_a_reboot_a_sandbox_is_not_older_than_its_container() -> None:
    clock = ManualClock()
    core = Session(Lifetimes(), SessionState.ACTIVE, sandbox_id="a", claimed_at=clock.boottime() - 500, idle_since=clock.boottime() - 400)
    row = recorded(core, clock)
    clock.reboot(0.0)
    again = core_of(row, clock, clock.now() - 100)
    assert (again.claimed_at, again.idle_since) == (clock.boottime() - 100, clock.boottime() - 100)


def test_boot_time_that_went_back_is_another_boot_whatever_its_name_says() -> None:
    then = Anchor("unknown", 5000.0, 100.0)
    now = Anchor("unknown", 10.0, 160.0)
    assert now.since(then) == 60.0 and now.carried(4000.0, then) == 10.0 - 60.0 - 1000.0
    assert Anchor("", 6000.0, 160.0).since(Anchor("", 5000.0, 100.0)) == 60.0, "no name, no same boot"


def run(clock: ManualClock, **data: object) -> ExecutionRow:
    return ExecutionRow("e", "s", "t", "u", "m", "rest", "running", 1, "c", clock.now(), started_at=clock.now(), data=dict(data))


@pytest.mark.parametrize("step_s", [-HOUR, 0.0, HOUR])
def test_an_execution_has_run_for_as_long_as_it_has(step_s: float) -> None:
    clock = ManualClock()
    row = run(clock, began=stamp(clock), sent=stamp(clock))
    clock.advance(40.0)
    clock.jump_wall(step_s)
    assert ran_s(row, clock) == 40.0


def test_one_whose_beginning_only_the_journal_knows_has_not_run_for_longer_than_since_it_was_sent() -> None:
    clock = ManualClock()
    row = run(clock, sent=stamp(clock))
    clock.advance(40.0)
    assert ran_s(row, clock) == 40.0
    clock.jump_wall(HOUR)
    assert ran_s(row, clock) == 40.0
    assert ran_s(run(clock), clock) == 0.0, "a record of an earlier release"
