"""Which files a recycle keeps, refuses and loses."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.files import Declaration, Declarations, PersistLimits, Refusal, Stored, plan_persist, stamp
from gateway.domain.model import FileInfo


def info(path: str, size: int = 10, mtime_ns: int = 1, kind: str = "file") -> FileInfo:
    return FileInfo(path, size, mtime_ns, kind)


def names(infos: list[FileInfo]) -> list[str]:
    return [i.path for i in infos]


def test_results_and_uploads_are_declared_by_default() -> None:
    listing = [
        info("out/a"),
        info("in/sales.csv"),
        info("scratch.txt"),
        info("out", kind="dir"),
        info("out/d", kind="dir"),
    ]
    plan = plan_persist(listing, Declarations(), {})
    assert sorted(names(plan.keep)) == ["in/sales.csv", "out/a"]
    assert names(plan.undeclared) == ["scratch.txt"]
    assert plan.refused == [] and plan.unchanged == []


def test_the_user_may_say_otherwise() -> None:
    declared = [Declaration("in/big.csv", keep=False), Declaration("model.bin"), Declaration("out/tmp/**", keep=False)]
    chosen = Declarations([*declared, Declaration("out/tmp/keep.txt")])
    decide = {path: chosen.decide(path)[0] for path in ("in/big.csv", "in/b", "model.bin", "out/tmp/x", "out/tmp/keep.txt")}
    assert decide == {
        "in/big.csv": False,
        "in/b": True,
        "model.bin": True,
        "out/tmp/x": False,
        "out/tmp/keep.txt": True,
    }


def test_a_broad_word_of_the_user_goes_before_the_defaults() -> None:
    assert Declarations([Declaration("**", keep=False)]).decide("out/a") == (False, True)
    assert Declarations([Declaration("**")]).decide("scratch") == (True, True)


def test_between_equals_the_latest_wins() -> None:
    early, late = Declaration("a/*.csv", True, at=1.0), Declaration("a/*.txt", False, at=2.0)
    assert Declarations([early, Declaration("a/*.csv", False, at=2.0)]).decide("a/x.csv")[0] is False
    assert Declarations([Declaration("a/x*", True, 1.0), Declaration("a/*x", False, 0.5), late]).decide("a/x")[0] is True
    assert Declarations([Declaration("x", True), Declaration("x", False)]).decide("x")[0] is False


def test_what_is_no_regular_file_is_refused_with_its_reason() -> None:
    listing = [
        info("out/link", kind="link"),
        info("out/fifo", kind="other"),
        info("out/a\nb"),
        info("out/neg", size=-1),
        info("out/huge", size=11),
        info("loose", kind="link"),
    ]
    plan = plan_persist(listing, Declarations(), {}, PersistLimits(file_bytes=10))
    assert plan.refused == [
        ("out/link", Refusal.LINK),
        ("out/fifo", Refusal.NOT_A_FILE),
        ("out/a\\nb", Refusal.BAD_NAME),
        ("out/neg", Refusal.BAD_SIZE),
        ("out/huge", Refusal.TOO_LARGE),
    ]
    assert names(plan.undeclared) == ["loose"]
    assert all(reason.sentence for reason in Refusal)


def test_caps_keep_what_is_stored_then_what_was_asked_for_then_small_ones() -> None:
    listing = [
        info("out/z", 50),
        info("out/a", 40),
        info("mine", 60),
        info("out/old", 30, mtime_ns=7),
        info("out/c", 20),
    ]
    stored = {"out/old": Stored(30, 7), "out/c": Stored(5, 1)}
    plan = plan_persist(listing, Declarations([Declaration("mine")]), stored, PersistLimits(session_bytes=150))
    assert names(plan.unchanged) == ["out/old"]
    assert names(plan.keep) == ["out/c", "mine", "out/a"]
    assert plan.refused == [("out/z", Refusal.SESSION_FULL)]
    few = plan_persist(listing, Declarations(), stored, PersistLimits(files=2))
    assert names(few.unchanged) + names(few.keep) == ["out/old", "out/c"]
    assert {why for _, why in few.refused} == {Refusal.TOO_MANY}


def test_a_path_listed_twice_counts_once() -> None:
    plan = plan_persist([info("out/a", 1), info("out/a", 2)], Declarations(), {})
    assert [i.size for i in plan.keep] == [1]


def test_a_file_changed_just_before_it_was_read_is_looked_at_again() -> None:
    assert stamp(info("a", mtime_ns=int(98.5e9)), read_at=100.0).mtime_ns == -1
    assert stamp(info("a", mtime_ns=int(97e9)), read_at=100.0) == Stored(10, int(97e9))


@given(
    st.lists(st.tuples(st.sampled_from(["out/a", "out/b", "x", "in/c", "out/\0"]), st.integers(-1, 50), st.sampled_from("fl"))),
    st.integers(0, 100),
    st.integers(0, 4),
)
@settings(deadline=None)
def test_every_file_has_one_fate_and_bounds_hold(rows: list[tuple[str, int, str]], total: int, count: int) -> None:
    listing = [info(path, size, kind={"f": "file", "l": "link"}[kind]) for path, size, kind in rows]
    plan = plan_persist(listing, Declarations(), {"out/b": Stored(10, 1)}, PersistLimits(40, total, count))
    kept = plan.keep + plan.unchanged
    assert len(kept) + len(plan.refused) + len(plan.undeclared) == len({path for path, _, _ in rows})
    assert sum(i.size for i in kept) <= total and len(kept) <= count
    assert all(i.kind == "file" and 0 <= i.size <= 40 for i in kept)


def test_a_path_of_ten_thousand_folders_does_no_harm() -> None:
    deep = "a/" * 10_000 + "a"
    plan = plan_persist([info(deep), info("out/" + deep)], Declarations([Declaration("**/*a*/**/b")]), {})
    assert names(plan.undeclared) == [deep]
    assert [why for _, why in plan.refused] == [Refusal.BAD_NAME]
