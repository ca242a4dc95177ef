"""The execution's table: every order of what the kernel says and the platform does, late and twice, ends in one exit reason."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain import execution as ex
from gateway.domain.execution import TABLE, Execution, ExecutionEvent
from gateway.domain.model import ExecutionState as S
from gateway.domain.model import ExitReason
from gateway.errors import InvalidTransition

NEW = Execution("e", "m")
reasons = st.sampled_from([ExitReason.TIMEOUT, ExitReason.CPU_LIMIT, ExitReason.INTERRUPTED])
steps = st.one_of(
    st.just(("started",)), st.just(("idled",)), st.just(("finished",)),
    st.tuples(st.just("replied"), st.sampled_from(["ok", "error", "aborted", ""]), st.sampled_from(["", "KeyError", "SyntaxError"])),
    st.tuples(st.just("imposed"), reasons),
    st.tuples(st.just("finished"), st.sampled_from([ExitReason.SANDBOX_ENDED, ExitReason.KERNEL_DIED])),
)  # fmt: skip
RANK = [S.QUEUED, S.RUNNING, S.FINISHED]


@given(st.lists(steps, max_size=20))
def test_invariants_under_any_order(script: list[tuple[str, ...]]) -> None:
    e = NEW
    first_reply, first_cause, ended = "", None, False
    for name, *arguments in script:
        before = e
        try:
            e = getattr(ex, name)(e, *arguments)
        except InvalidTransition:
            assert name == "finished" and not arguments and not before.complete, "only an end that nothing speaks for is refused"
            continue
        assert RANK.index(e.state) >= RANK.index(before.state), "never back"
        if before.state is S.FINISHED:
            assert e is before, "what is finished stays as it was told"
            continue
        if name == "replied" and not first_reply:
            first_reply = arguments[0] or "error"
        if name == "imposed":
            first_cause = first_cause or arguments[0]
        assert (e.reply, e.imposed) == (first_reply, first_cause), "the first reply and the first cause count"
        assert (e.exit_reason is not None) == (e.state is S.FINISHED)
        if e.reply:
            assert e.state is not S.QUEUED, "what was answered has run"
        if e.state is S.FINISHED:
            ended = True
            assert before.complete or arguments, "only with both the reply and idle, or cut"
            if arguments:
                assert e.exit_reason is (first_cause or arguments[0])
            elif first_reply == "ok":
                assert e.exit_reason is ExitReason.OK, "an interrupt that came too late changes nothing"
            elif first_cause:
                assert e.exit_reason is first_cause
    assert ended == (e.state is S.FINISHED)


def test_the_table_knows_every_event_of_every_state_but_one() -> None:
    assert set(product(S, ExecutionEvent)) - set(TABLE) == {(S.QUEUED, ExecutionEvent.COMPLETED)}
    with pytest.raises(InvalidTransition):
        ex.finished(NEW)
    with pytest.raises(InvalidTransition):
        ex.finished(ex.replied(NEW, "ok"))


def test_idle_alone_begins_nothing_and_a_reply_does() -> None:
    assert ex.idled(NEW).state is S.QUEUED
    done = ex.finished(ex.replied(ex.idled(NEW), "ok"))
    assert (done.state, done.exit_reason) == (S.FINISHED, ExitReason.OK)
