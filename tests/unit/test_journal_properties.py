"""The journal against a list, against tails torn at any byte, and against ``kill -9``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.service import journal_format as fmt
from gateway.service.journal import EntryKind, Journal

MAX, SEGMENT = 6_000, 1_500


class JournalMachine(RuleBasedStateMachine):
    """The model: every body ever appended, and a reader that takes what it is given."""

    @initialize()
    def begin(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.journal = self._open()
        self.bodies: dict[int, bytes] = {}
        self.cursor = 0
        self.positions: dict[str, int] = {}

    def _open(self) -> Journal:
        return Journal.open(Path(self.place.name), max_bytes=MAX, segment_bytes=SEGMENT)

    @rule(size=st.integers(0, 900), parent=st.sampled_from(["", "p", "q" * 36]))
    def append(self, size: int, parent: str) -> None:
        body = bytes([len(self.bodies) % 256]) * size
        index = self.journal.append(EntryKind.MESSAGE, body, at=1.0, parent=parent)
        assert index == len(self.bodies) + 1
        self.bodies[index] = body

    @rule(size=st.integers(7_000, 9_000))
    def append_a_large_one(self, size: int) -> None:
        self.append(size, "")

    @rule(entries=st.integers(1, 20), size=st.integers(1, 3_000))
    def read_on(self, entries: int, size: int) -> None:
        begin = max(self.cursor + 1, self.journal.first_index)
        found = self.journal.read(self.cursor, max_bytes=size, max_entries=entries)
        assert [entry.index for entry in found] == list(range(begin, begin + len(found)))
        assert bool(found) == (begin <= self.journal.last_index)
        assert all(entry.body == self.bodies[entry.index] for entry in found)
        assert len(found) == 1 or sum(len(entry.body) for entry in found) <= size
        self.cursor = found[-1].index if found else self.cursor

    @rule(back=st.integers(0, 40))
    def scan(self, back: int) -> None:
        after = max(0, self.journal.last_index - back)
        heads = list(self.journal.scan(after))
        begin = max(after + 1, self.journal.first_index)
        assert [(head.index, head.length) for head in heads] == [
            (index, len(self.bodies[index])) for index in range(begin, self.journal.last_index + 1)
        ]

    @rule(key=st.sampled_from("abc"))
    def deliver(self, key: str) -> None:
        self.journal.set_position(key, self.cursor)
        self.positions[key] = self.cursor

    @rule(orderly=st.booleans())
    def reopen(self, orderly: bool) -> None:
        if orderly:
            self.journal.close()
        self.journal = self._open()

    @rule(later=st.integers(0, 3))
    def forget(self, later: int) -> None:
        """Everything until now goes, and nothing that comes after."""
        boundary = self.journal.cut()
        assert boundary == self.journal.last_index + 1
        for _ in range(later):
            self.append(10, "")
        self.journal.drop_before(boundary)
        assert self.journal.first_index == boundary

    @rule()
    def release(self) -> None:
        self.journal.release()

    @rule(cut=st.integers(1, 200), data=st.binary(max_size=3))
    def tear(self, cut: int, data: bytes) -> None:
        """What a record that was being written leaves: a beginning of it, and no more."""
        start, _ = fmt.pack(self.journal.last_index + 1, 1, 0, 0, 0, 0.0, b"", b"", bytes(200))
        self.journal.close()
        newest = max(Path(self.place.name).glob("*.seg"), default=None)
        if newest is not None:
            with newest.open("ab") as file:
                file.write((start + bytes(150))[:cut] + data)
        self.journal = self._open()

    @invariant()
    def bounds(self) -> None:
        if not hasattr(self, "journal"):
            return
        assert self.journal.last_index == len(self.bodies)
        newest = len(self.bodies.get(self.journal.last_index, b"")) + 200
        assert self.journal.size_bytes <= max(MAX, newest)
        assert {key: self.journal.position(key) for key in self.positions} == self.positions

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()
            self.place.cleanup()


JournalMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestJournalMachine = JournalMachine.TestCase


@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6), data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_tail_torn_at_any_byte_keeps_every_whole_entry(sizes: list[int], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        journal = Journal.open(Path(place))
        ends = [0]
        for size in sizes:
            journal.append(EntryKind.MESSAGE, b"z" * size, at=1.0, parent="p")
            ends.append(journal.size_bytes)
        journal.close()
        cut = data.draw(st.integers(0, ends[-1]))
        (segment,) = Path(place).iterdir()
        os.truncate(segment, fmt.DATA_AT + cut)
        again = Journal.open(Path(place))
        whole = sum(end <= cut for end in ends[1:])
        assert again.last_index == whole
        assert [len(entry.body) for entry in again.read(0)] == sizes[:whole]
        assert again.append(EntryKind.STATE, b"new", at=1.0) == whole + 1
        assert Journal.open(Path(place)).read(whole)[0].body == b"new"
        again.close()


@given(place=st.integers(0, 400), byte=st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_a_flipped_byte_is_never_read_as_good(place: int, byte: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder))
        bodies = [bytes([number]) * 50 for number in range(4)]
        for body in bodies:
            journal.append(EntryKind.MESSAGE, body, at=1.0, target="t")
        journal.close()
        (segment,) = Path(folder).iterdir()
        content = bytearray(segment.read_bytes())
        at = fmt.DATA_AT + place % journal.size_bytes
        content[at] ^= byte
        segment.write_bytes(content)
        again = Journal.open(Path(folder))
        found = again.read(0)
        assert [entry.body for entry in found] == bodies[: len(found)]
        assert len(found) == (at - fmt.DATA_AT) // (journal.size_bytes // 4)
        again.close()


CHILD = """
import sys
from pathlib import Path
from gateway.service.journal import EntryKind, Journal

journal = Journal.open(Path(sys.argv[1]), max_bytes=2_000_000, segment_bytes=200_000)
out = sys.stdout
while True:
    last = journal.last_index
    index = journal.append(EntryKind.MESSAGE, b"m" * (last % 3000), at=1.0, lane=1, number=last + 1)
    journal.set_position("reader", index)
    out.write(f"{index}\\n")
    out.flush()
"""


def append_until_killed(place: Path) -> int:
    """The last index that the child told before it was killed."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(place)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = 0
        for line in child.stdout:
            told = int(line)
            if told % 700 == 0:
                break
        child.send_signal(signal.SIGKILL)
        return max([told, *(int(line) for line in child.stdout if line.endswith("\n"))])


def test_kill_9_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    for _ in range(5):
        told = append_until_killed(tmp_path)
        journal = Journal.open(tmp_path, max_bytes=2_000_000, segment_bytes=200_000)
        assert journal.last_index - told in (0, 1)
        assert journal.received[1] == journal.last_index
        position = journal.position("reader")
        assert position is not None
        assert journal.last_index - position in (0, 1)
        expected = journal.first_index
        while entries := journal.read(expected - 1):
            for entry in entries:
                assert entry.index == expected
                assert len(entry.body) == (entry.index - 1) % 3000
                expected += 1
        assert expected == journal.last_index + 1
        journal.close()
