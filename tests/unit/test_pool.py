"""The pool's plan: what is missing, capped, spread, retired; and never past a cap, whatever the numbers are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.pool import MAX_AGE_S, Plan, Rate, Stock, plan, to_evict


def made(stocks: dict[str, Stock], **changes: float) -> Plan:
    given: dict[str, float] = {"live": 0, "max_live": 50, "parallel": 10, "allowed": 10, "allowed_in_s": 0.0} | changes
    return plan(stocks, **given)  # type: ignore[arg-type]


def test_what_is_missing_is_made_and_what_is_in_flight_counts() -> None:
    assert made({"a": Stock(3, (1.0,), creating=1), "b": Stock(2)}).create == {"a": 1, "b": 2}
    assert made({"a": Stock(2, (1.0, 2.0))}) == Plan({}, {})


def test_the_profile_that_lacks_most_comes_first() -> None:
    assert made({"a": Stock(1), "b": Stock(4)}, parallel=3).create == {"b": 3}
    assert made({"a": Stock(2), "b": Stock(2)}, parallel=2).create == {"a": 1, "b": 1}


def test_capacity_counts_claimed_warm_and_creating_ones() -> None:
    assert made({"a": Stock(5, (1.0,), creating=1), "b": Stock(0, (1.0,))}, live=5, max_live=9).create == {"a": 1}
    assert made({"a": Stock(5)}, live=9, max_live=9).create == {}


def test_aged_ones_are_retired_and_replaced() -> None:
    old = MAX_AGE_S + 1
    assert made({"a": Stock(2, (old, 5.0))}) == Plan({"a": 1}, {"a": 1})


def test_a_backoff_and_the_rate_say_when_to_look_again() -> None:
    assert made({"a": Stock(2, wait_s=7.0), "b": Stock(1)}) == Plan({"b": 1}, {}, 7.0)
    assert made({"a": Stock(2)}, allowed=0, allowed_in_s=0.5) == Plan({}, {}, 0.5)


def test_a_warm_one_makes_room_for_somebody_who_waits() -> None:
    assert to_evict({"a": Stock(2, (1.0,)), "b": Stock(2, (1.0, 2.0))}, live=7, max_live=10) == "b"
    assert to_evict({"a": Stock(2, (1.0,))}, live=7, max_live=10) is None
    assert to_evict({"a": Stock(2, creating=3)}, live=7, max_live=10) is None


ages = st.lists(st.floats(0, 2 * MAX_AGE_S), max_size=6).map(tuple)
stocks = st.dictionaries(
    st.sampled_from("abcd"), st.builds(Stock, st.integers(0, 6), ages, st.integers(0, 4), st.sampled_from([0.0, 0.0, 3.0])), max_size=4
)


@given(stocks, st.integers(0, 20), st.integers(0, 20), st.integers(0, 6), st.integers(0, 6))
def test_no_cap_is_ever_passed(found: dict[str, Stock], live: int, max_live: int, parallel: int, allowed: int) -> None:
    todo = plan(found, live=live, max_live=max_live, parallel=parallel, allowed=allowed, allowed_in_s=1.0)
    new = sum(todo.create.values())
    in_flight = sum(s.creating for s in found.values())
    kept = sum(len(s.ages_s) for s in found.values()) - sum(todo.retire.values())
    assert new <= allowed
    assert not new or (in_flight + new <= parallel and live + in_flight + kept + new <= max_live)
    for name, stock in found.items():
        fresh = len(stock.ages_s) - todo.retire.get(name, 0)
        assert todo.create.get(name, 0) <= max(0, stock.target - fresh - stock.creating)


def test_the_rate_allows_a_burst_and_then_so_many_a_second() -> None:
    rate = Rate(per_s=2.0, burst=3.0, tokens=3.0)
    for _ in range(3):
        assert rate.allowed(100.0) > 0
        rate.take()
    assert rate.allowed(100.0) == 0
    assert rate.wait_s(100.0) == 0.5
    assert rate.allowed(100.6) == 1
    assert rate.allowed(99.0) == 1, "a clock that steps back gives nothing and takes nothing"
