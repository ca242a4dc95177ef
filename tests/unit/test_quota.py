"""Buckets that fill up again: never more than the amount within a period, the wait that is said is the wait, memory is bounded."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.quota import AT_ONCE, PERIOD_S, UNIT, Meter, Quota, QuotaLimits, Scope

ALICE, BOB = ("t1", "alice"), ("t1", "bob")


def test_a_whole_period_at_once_then_as_it_comes_back() -> None:
    meter = Meter(60, 60.0)
    for _ in range(60):
        assert meter.wait_s(ALICE, 1, 100.0) == 0
        meter.take(ALICE, 1, 100.0)
    assert meter.wait_s(ALICE, 1, 100.0) == pytest.approx(1.0)
    assert meter.wait_s(ALICE, 10, 100.0) == pytest.approx(10.0)
    assert meter.wait_s(BOB, 60, 100.0) == 0, "everybody has a bucket of their own"
    assert meter.wait_s(ALICE, 1, 101.001) == 0 and meter.wait_s(ALICE, 2, 101.001) > 0
    assert meter.wait_s(ALICE, 60, 160.0) == 0
    assert meter.wait_s(ALICE, 61, 160.0) == math.inf


def test_debts_are_paid_back_and_have_an_end() -> None:
    meter = Meter(1000, 3600.0)
    meter.take(ALICE, 1_000_000, 0.0)
    assert meter.used(ALICE, 0.0) == 2000, "one more period at most"
    assert meter.wait_s(ALICE, 1, 0.0) == pytest.approx(3600.0, rel=0.01)
    assert meter.wait_s(ALICE, 1, 3604.0) == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 12)), max_size=60))
def test_no_period_gives_more_than_twice_the_amount_and_the_wait_is_enough(asks: list[tuple[float, int]]) -> None:
    """A full bucket and what comes back meanwhile: never more, whatever the order."""
    meter, now, taken = Meter(10, 10.0), 0.0, list[tuple[float, int]]()
    for pause, amount in asks:
        now += pause
        wait = meter.wait_s(ALICE, amount, now)
        if amount > 10:
            assert wait == math.inf
            continue
        if wait > 0:
            assert meter.wait_s(ALICE, amount, now + wait * 0.99 - 1e-6) > 0, "not earlier"
            assert meter.wait_s(ALICE, amount, now + wait + 1e-6) == 0, "and not later"
            continue
        meter.take(ALICE, amount, now)
        taken.append((now, amount))
        assert 0 <= meter.used(ALICE, now) <= 10
    for start, _ in taken:
        assert sum(amount for at, amount in taken if start <= at < start + 10.0) <= 20


def test_what_is_remembered_is_bounded_and_what_is_full_again_is_forgotten() -> None:
    meter = Meter(100, 60.0, most_keys=2000)
    for n in range(50_000):
        meter.take(("t", f"user{n}"), 1, n / 100)  # each owes 0.6 s: some 60 at any time
    assert len(meter) <= 2000
    busy = Meter(100, 60.0, most_keys=2000)
    busy.take(("t", "heavy"), 100, 0.0)
    for n in range(50_000):
        busy.take(("t", f"user{n}"), 1, 0.0)
    assert len(busy) <= 2000
    assert busy.wait_s(("t", "heavy"), 1, 0.0) > 0, "who used most is forgotten last"


def test_use_is_carried_over() -> None:
    before, after = Meter(100, 3600.0), Meter(100, 3600.0)
    before.take(ALICE, 70, 50.0)
    after.restore(before.owed(50.0), 9000.0)
    assert after.used(ALICE, 9000.0) == 70
    after.restore([(BOB, -5.0), (BOB, 1e12)], 9000.0)
    assert after.wait_s(BOB, 1, 9000.0) <= 3700, "a note that is nonsense locks nobody out for long"


def test_every_quota_has_its_words() -> None:
    assert set(PERIOD_S) == set(UNIT) and set(PERIOD_S) | set(AT_ONCE) == set(Quota) and not set(UNIT) & set(AT_ONCE)
    limits = QuotaLimits(1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert [limits.of(q, s) for q in (*PERIOD_S, Quota.OPEN) for s in (Scope.USER, Scope.TENANT)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert limits.of(Quota.SANDBOXES, Scope.TENANT) == 9
