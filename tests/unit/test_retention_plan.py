"""What is due by age, and when the clock is believed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.retention import DAY_S, MARGIN_S, Retention, StoredPath, Version, Why, cut, due_versions, old, only_marks
from gateway.domain.trust import AWAY_S, HOLDS_S, STEP_S, Seen, look

NOW = 1_800_000_000.0
KEEP = Retention(artifacts_s=30 * DAY_S, versions_s=7 * DAY_S, versions=2)
HOUR = 3600.0


def path(*ages: float, ended_ago: float | None = None, marks: tuple[int, ...] = ()) -> StoredPath:
    """Versions of these ages in days, oldest first; those whose place is in ``marks`` are marks of deletion."""
    versions = tuple(Version("" if n in marks else str(n), 10, NOW - age * DAY_S) for n, age in enumerate(ages))
    return StoredPath("s", "t", "u", "out/a", None if ended_ago is None else NOW - ended_ago * DAY_S, versions)


def due(p: StoredPath, keep: Retention = KEEP, now: float = NOW) -> dict[str, Why]:
    return {d.version.artifact_id: d.why for d in due_versions(p, keep, now)}


def test_versions() -> None:
    assert due(path(900)) == {}, "the newest of a living session stays whatever its age"
    assert due(path(900, 1)) == {}, "superseded a day ago"
    assert due(path(900, 8)) == {"0": Why.SUPERSEDED}
    assert due(path(4, 3, 2, 1)) == {"0": Why.TOO_MANY}
    assert due(path(900, 3, 2, 1)) == {"0": Why.TOO_MANY}
    assert due(path(4, 3, 2), replace(KEEP, versions=0)) == {"0": Why.TOO_MANY, "1": Why.TOO_MANY}
    assert due(path()) == {}


def test_a_deleted_path() -> None:
    assert due(path(900, 1, marks=(1,))) == {}
    assert due(path(900, 8, marks=(1,))) == {"0": Why.SUPERSEDED}
    assert due(path(5, 4, 3, 1, marks=(3,))) == {"0": Why.TOO_MANY}, "all are older ones, and two may stay"
    assert due(path(900, 8, 1, marks=(1,))) == {"0": Why.SUPERSEDED}, "stored again since"
    assert only_marks(path(3, 2, marks=(0, 1))) and not only_marks(path(3, 2, marks=(1,)))


def test_an_ended_session() -> None:
    assert due(path(900, 29.5, ended_ago=29)) == {"0": Why.SUPERSEDED}
    assert due(path(900, 40, 35, marks=(1,), ended_ago=31)) == {"0": Why.ENDED, "2": Why.ENDED}
    assert due(path(900, ended_ago=31)) == {"0": Why.ENDED}
    assert due(path(1, ended_ago=31)) == {}, "stored after its end: the clock was set"


def test_the_margin() -> None:
    edge = 30 * DAY_S + MARGIN_S
    assert old(NOW - edge, 30 * DAY_S, NOW) and not old(NOW - edge + 1, 30 * DAY_S, NOW)
    assert not old(None, 0, NOW) and not old(NOW + 1, 0, NOW)
    assert cut(30 * DAY_S, NOW) == NOW - edge


ages = st.lists(st.floats(0, 400), max_size=12)


@given(ages, st.sets(st.integers(0, 11)), st.none() | st.floats(0, 400), st.floats(0, 400), st.integers(0, 5), st.floats(0, 400))
def test_what_always_holds(days: list[float], marks: set[int], ended: float | None, versions_d: float, count: int, artifacts_d: float) -> None:
    keep = Retention(artifacts_s=artifacts_d * DAY_S, versions_s=versions_d * DAY_S, versions=count)
    p = path(*sorted(days, reverse=True), ended_ago=ended, marks=tuple(marks))
    found = due(p, keep)
    stored = [v.artifact_id for v in p.versions if v.artifact_id]
    assert set(found) <= set(stored) and "" not in found
    if p.versions and p.ended_at is None and p.versions[-1].artifact_id:
        assert p.versions[-1].artifact_id not in found
        assert len(stored) - len(found) <= count + 1
    for version in p.versions:
        if found.get(version.artifact_id) in (Why.ENDED, Why.SUPERSEDED):
            assert version.created_at <= NOW - MARGIN_S
    # an hour back: by age nothing that was not due before
    earlier = due(p, keep, NOW - HOUR)
    assert {k for k, why in earlier.items() if why is not Why.TOO_MANY} <= set(found)
    # what went leaves nothing more to do
    left = replace(p, versions=tuple(v for v in p.versions if v.artifact_id not in found))
    assert due(left, keep) == {}


def seen(wall: float = NOW, boottime: float = 1000.0, boot_id: str = "b") -> Seen:
    return Seen(wall, boottime, boot_id)


def test_a_clock_that_goes_right_is_believed() -> None:
    assert look(None, NOW, 5.0, "b") == (Seen(NOW, 5.0, "b"), True)
    assert look(seen(), NOW + 40 * DAY_S, 1000.0 + 40 * DAY_S, "b")[1], "it was suspended for long"
    assert look(seen(), NOW + HOUR, 1000.0, "b")[1], "corrected by an hour"
    assert look(seen(), NOW - HOUR, 1000.0, "b") == (Seen(NOW - HOUR, 1000.0, "b"), True)
    assert look(seen(), NOW + AWAY_S, 5.0, "other boot")[1], "off for a week"


def test_years_ahead_are_refused_and_over_once_it_is_right_again() -> None:
    now = NOW + 3 * 365 * DAY_S
    state, believed = look(seen(), now, 1000.0 + HOUR, "b")
    assert not believed and state == Seen(NOW + HOUR, 1000.0 + HOUR, "b", now, 0.0)
    state, believed = look(state, NOW + 2 * HOUR, 1000.0 + 2 * HOUR, "b")
    assert believed and state == Seen(NOW + 2 * HOUR, 1000.0 + 2 * HOUR, "b")
    assert not look(seen(), NOW + AWAY_S + 1, 5.0, "other boot")[1]
    assert not look(seen(), NOW + STEP_S + 1, 1000.0, "b")[1]


def test_a_clock_that_stands_by_its_word_is_believed_after_three_days() -> None:
    ahead = 3 * 365 * DAY_S
    state, believed = look(seen(), NOW + ahead, 1000.0, "b")
    hours = 0
    while not believed:
        hours += 1
        state, believed = look(state, NOW + ahead + hours * HOUR, 1000.0 + hours * HOUR, "b")
    assert hours * HOUR == HOLDS_S and state.claim is None


def test_a_claim_that_changes_begins_anew_and_a_reboot_does_not() -> None:
    state, _ = look(seen(), NOW + 900 * DAY_S, 1000.0, "b")
    state, _ = look(state, NOW + 900 * DAY_S + HOUR, 1000.0 + HOUR, "b")
    assert state.held_s == HOUR
    later, _ = look(state, NOW + 900 * DAY_S + 5 * HOUR, 10.0, "other boot")
    assert later.held_s == HOUR and later.boot_id == "other boot"
    jumped, believed = look(state, NOW + 1900 * DAY_S, 1000.0 + 2 * HOUR, "b")
    assert not believed and jumped.held_s == 0.0


@given(st.lists(st.tuples(st.floats(0, 2 * DAY_S), st.floats(-400 * DAY_S, 400 * DAY_S) | st.just(0.0)), max_size=20))
def test_in_one_boot_believed_time_never_runs_ahead_by_more_than_a_step_a_look(moves: list[tuple[float, float]]) -> None:
    """Unless the clock stood by it for three days."""
    state, wall, boot = seen(), NOW, 1000.0
    for went, step in moves:
        wall, boot = wall + went + step, boot + went
        should = state.wall + (boot - state.boottime)
        held = state.held_s + went
        state, believed = look(state, wall, boot, "b")
        if believed:
            assert state.wall == wall and (wall <= should + STEP_S or held >= HOLDS_S)
        else:
            assert state.wall == should and wall > should + STEP_S
