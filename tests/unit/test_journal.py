"""The journal: order, bounds, torn tails, positions, and one descriptor at most."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import StoreUnavailable, TooLarge
from gateway.service import journal_format as fmt
from gateway.service.journal import EntryKind, Flag, Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal.open(tmp_path / "j", max_bytes=20_000, segment_bytes=4_000)
    yield made
    made.close()


def add(journal: Journal, body: bytes = b"x", **more: object) -> int:
    return journal.append(EntryKind.MESSAGE, body, at=1.5, **more)  # type: ignore[arg-type]


def everything(journal: Journal, after: int = 0, **limits: int) -> list[int]:
    seen: list[int] = []
    while entries := journal.read(seen[-1] if seen else after, **limits):
        seen += [entry.index for entry in entries]
    return seen


def test_an_entry_comes_back_whole(journal: Journal) -> None:
    index = journal.append(
        EntryKind.REQUEST,
        b"\0body",
        flags=Flag.REPLY | Flag.IDLE,
        lane=1,
        number=2**60,
        at=12.25,
        target="ws é",
        parent="p",
    )
    (entry,) = journal.read(0)
    assert entry == (index, EntryKind.REQUEST, Flag.REPLY | Flag.IDLE, 1, 2**60, 12.25, "ws é", "p", b"\0body")
    assert isinstance(entry.flags, Flag)
    assert isinstance(entry.kind, EntryKind)
    (head,) = journal.scan()
    assert head == (*entry[:-1], 5)


def test_an_empty_journal(journal: Journal) -> None:
    assert (journal.first_index, journal.last_index, journal.size_bytes) == (1, 0, 0)
    assert journal.read(0) == []
    assert list(journal.scan()) == []
    assert journal.position("a") is None
    assert journal.received == {}


def test_reads_are_bounded_and_a_large_entry_comes_alone(journal: Journal) -> None:
    for size in (10, 10, 3_000, 10, 9_000, 10):
        add(journal, b"b" * size)
    assert [e.index for e in journal.read(0, max_entries=1)] == [1]
    assert [e.index for e in journal.read(0, max_bytes=200)] == [1, 2]
    assert [e.index for e in journal.read(2, max_bytes=200)] == [3]
    assert [e.index for e in journal.read(3, max_bytes=1)] == [4]
    assert [e.index for e in journal.read(4, max_bytes=1)] == [5]
    assert everything(journal, max_bytes=500) == [1, 2, 3, 4, 5, 6]
    assert journal.read(6) == []
    assert journal.read(99) == []


def test_the_oldest_segment_is_dropped(journal: Journal, tmp_path: Path) -> None:
    for _ in range(100):
        add(journal, b"b" * 950)
    assert journal.size_bytes <= 20_000
    assert journal.last_index == 100
    assert journal.first_index > 75
    assert everything(journal) == list(range(journal.first_index, 101))
    assert [head.index for head in journal.scan(90)] == list(range(91, 101))
    assert len(list((tmp_path / "j").iterdir())) <= 6


def test_what_is_forgotten_takes_no_number_and_no_position_with_it(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j")
    assert journal.cut() == 1
    add(journal, b"planted", lane=0, number=7)
    journal.set_position("a", 1)
    boundary = journal.cut()
    assert journal.cut() == boundary == 2, "a segment with nothing in it is the new one already"
    add(journal, b"after", lane=0, number=8)
    assert everything(journal) == [1, 2]
    journal.drop_before(boundary)
    assert everything(journal) == [2] and (journal.first_index, journal.last_index) == (2, 2)
    journal.close()
    assert [p.name for p in (tmp_path / "j").iterdir() if b"planted" in p.read_bytes()] == []
    again = Journal.open(tmp_path / "j")
    assert (again.received, again.position("a"), again.last_index) == ({0: 8}, 1, 2)
    assert add(again) == 3
    again.close()


def test_one_entry_may_be_larger_than_the_bound(journal: Journal) -> None:
    add(journal)
    add(journal, b"b" * 50_000)
    assert everything(journal) == [2]
    add(journal)
    assert everything(journal) == [3]


def test_what_no_record_may_hold(journal: Journal) -> None:
    with pytest.raises(TooLarge):
        add(journal, parent="p" * 1025)
    with pytest.raises(TooLarge):
        add(journal, target="é" * 513)
    with pytest.raises(TooLarge):
        add(journal, bytes(fmt.MAX_BODY + 1))
    assert journal.last_index == 0


def test_received_counts_the_relays_numbers_since_the_mark(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, max_bytes=100_000, segment_bytes=1_000)
    add(journal, lane=1, number=50)
    journal.append(EntryKind.MARK, b"{}", at=1.0)
    assert journal.received == {}
    for number in range(1, 60):
        add(journal, b"b" * 100, lane=1, number=number)
    journal.append(EntryKind.STATE, b"{}", at=1.0, lane=0, number=7)
    journal.append(EntryKind.REQUEST, b"{}", at=1.0, lane=0, number=900)
    journal.append(EntryKind.NOTICE, b"{}", at=1.0)
    assert journal.received == {0: 7, 1: 59}
    journal.close()
    again = Journal.open(tmp_path, max_bytes=100_000, segment_bytes=1_000)
    assert again.received == {0: 7, 1: 59}
    assert again.last_index == 64


def test_positions_outlive_the_process_and_the_segment(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, max_bytes=4_000, segment_bytes=1_000)
    journal.set_position("early", 0)
    for _ in range(50):
        index = add(journal, b"b" * 200)
        journal.set_position("ws", index)
    again = Journal.open(tmp_path, max_bytes=4_000, segment_bytes=1_000)
    assert again.position("ws") == 50
    assert again.position("early") == 0
    assert again.position("other") is None
    again.set_position("ws", 20)
    assert Journal.open(tmp_path).position("ws") == 20


def test_the_position_set_longest_ago_gives_way(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.set_position("0", 0)
    journal.append(EntryKind.STATE, b"{}", at=1.0)
    for number in range(fmt.SLOTS + 10):
        journal.set_position(str(number), 1)
        journal.set_position("kept", 1)
    for found in (journal, Journal.open(tmp_path)):
        assert found.position("0") is None
        assert found.position("kept") == 1
        known = [n for n in range(fmt.SLOTS + 10) if found.position(str(n)) is not None]
        assert known == list(range(11, fmt.SLOTS + 10))


def test_a_broken_slot_is_forgotten_alone(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    for key in ("a", "b"):
        journal.set_position(key, 0)
    (segment,) = tmp_path.iterdir()
    with segment.open("r+b") as file:
        file.seek(fmt.SLOTS_AT + 5)
        file.write(b"\xff")
    again = Journal.open(tmp_path)
    assert (again.position("a"), again.position("b")) == (None, 0)
    again.set_position("c", 0)
    assert Journal.open(tmp_path).position("c") == 0


def test_a_position_ahead_of_what_was_kept_is_cut(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    for _ in range(5):
        add(journal)
    journal.set_position("a", 5)
    (segment,) = tmp_path.iterdir()
    os.truncate(segment, segment.stat().st_size - 1)
    assert Journal.open(tmp_path).position("a") == 4


def test_a_full_disk_is_a_typed_error_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    add(journal, b"a" * 100)
    limit = fmt.DATA_AT + journal.size_bytes + 100_000
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        for size in (50_000, 100_000, 1_000_000):
            if size > 50_000:
                with pytest.raises(StoreUnavailable, match="full"):
                    add(journal, b"b" * size)
            else:
                add(journal, b"b" * size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (segment,) = tmp_path.iterdir()
    assert segment.stat().st_size == fmt.DATA_AT + journal.size_bytes
    assert add(journal, b"c") == 3
    assert everything(Journal.open(tmp_path)) == [1, 2, 3]


def test_a_segment_that_cannot_be_begun_changes_nothing(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j", max_bytes=10_000, segment_bytes=1_000)
    add(journal, b"a" * 900)
    (tmp_path / "j" / f"{2:020d}.new").mkdir()
    with pytest.raises(StoreUnavailable):
        add(journal, b"b" * 900)
    (tmp_path / "j" / f"{2:020d}.new").rmdir()
    assert add(journal, b"b" * 900) == 2
    assert everything(journal) == [1, 2]


def test_a_lost_part_is_a_gap_and_never_an_endless_empty_answer(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, max_bytes=100_000, segment_bytes=1_000)
    for _ in range(30):
        add(journal, b"a" * 200)
    names = sorted(tmp_path.iterdir())
    names[2].unlink()
    with names[3].open("r+b") as file:
        file.seek(fmt.DATA_AT + 300)
        file.write(b"\xff")
    assert everything(journal) == [*range(1, 9), 13, *range(17, 31)]
    with names[-1].open("r+b") as file:
        file.seek(fmt.DATA_AT + 5)
        file.write(b"\xff")
    with pytest.raises(StoreUnavailable):
        journal.read(int(names[-1].stem) - 1)


def test_hundreds_of_journals_need_few_descriptors(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    journals = [Journal.open(tmp_path / str(number)) for number in range(300)]
    assert count() == before
    for journal in journals:
        add(journal)
        journal.set_position("a", 1)
        assert everything(journal) == [1]
    assert count() <= before + 300
    for journal in journals:
        journal.release()
    assert count() == before
    for journal in journals:
        assert everything(journal) == [1]
    assert count() == before
    for journal in journals:
        journal.set_position("a", 1)
        assert add(journal) == 2
        journal.close()
    assert count() == before


def test_a_scan_is_not_disturbed_by_a_release(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, max_bytes=10_000, segment_bytes=1_000)
    for _ in range(10):
        add(journal, b"a" * 200)
    heads = journal.scan()
    seen = [next(heads).index for _ in range(9)]
    journal.release()
    other = os.open(os.devnull, os.O_RDONLY)
    assert seen + [head.index for head in heads] == list(range(1, 11))
    os.close(other)


def test_delete_and_close(journal: Journal, tmp_path: Path) -> None:
    add(journal)
    journal.delete()
    assert not (tmp_path / "j").exists()
    assert journal.read(0) == []
    with pytest.raises(StoreUnavailable):
        add(journal)
    with pytest.raises(StoreUnavailable):
        journal.set_position("a", 1)
    journal.delete()
    assert not (tmp_path / "j").exists()


def test_files_are_private(journal: Journal, tmp_path: Path) -> None:
    add(journal)
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "j").iterdir()} == {0o600}


def test_strange_files_beside_do_no_harm(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    add(journal)
    journal.close()
    (tmp_path / "notes.seg").write_text("x")
    (tmp_path / "00000000000000000009.new").write_text("x")
    (tmp_path / "00000000000000000002.seg").write_text("short")
    again = Journal.open(tmp_path)
    assert everything(again) == [1]
    assert add(again) == 2
