"""File streams between a gateway and helpers: credit, slots, helpers that lie, stop or die."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import files
import pytest
from relay.transfers import CHUNK, CREDIT_BYTES, LEAVE_S, QUEUED, SLOTS, STUCK_S, Transfers

OPEN, DATA, END, CREDIT, ABORT = 1, 2, 3, 4, 5
PACKET = struct.Struct("<BI")


class Bench:
    """Transfers with fake helpers: the test holds the helper's end of each socket."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.queued = 0
        self.asked: list[str] = []
        self.now = 0.0
        self.transfers = Transfers(self, lambda body: self.sent.append((int.from_bytes(body[:4], "little"), body[4], body[5:])), lambda: self.queued)
        self.ends: dict[int, socket.socket] = {}

    def start(self, slot: int, *, as_relay: bool) -> None:
        self.asked.append(f"start {slot} {'relay' if as_relay else 'user'}")

    def kill(self, slot: int) -> None:
        self.asked.append(f"kill {slot}")

    def release(self, sock: socket.socket) -> None:
        pass

    def gateway(self, stream: int, kind: int, data: bytes = b"") -> None:
        self.transfers.received(self.now, stream.to_bytes(4, "little") + bytes((kind,)) + data)

    def open(self, stream: int, **command: Any) -> None:
        self.gateway(stream, OPEN, json.dumps({"cmd": "get", "root": "workspace", "path": "x"} | command).encode())

    def run(self, slot: int = 0) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.settimeout(5)
        self.ends[slot] = theirs
        self.transfers.started(self.now, slot, ours)
        return theirs

    def step(self) -> None:
        for slot, _, read, write in self.transfers.interests():
            if write:
                self.transfers.writable(self.now, slot)
            if read:
                self.transfers.readable(self.now, slot)

    def steps(self, count: int = 50) -> None:
        for _ in range(count):
            self.step()

    def until_sent(self, amount: int) -> None:
        end = time.monotonic() + 30
        while len(self.data()) < amount and time.monotonic() < end:
            self.step()
        self.steps()

    def data(self) -> bytes:
        return b"".join(d for _, k, d in self.sent if k == DATA)

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(d) for _, k, d in self.sent if k == END]


def packet(kind: int, data: bytes) -> bytes:
    return PACKET.pack(kind, len(data)) + data


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.transfers.reset(0)
    for sock in made.ends.values():
        sock.close()


def test_a_command_reaches_its_helper_and_the_answer_comes_back(bench: Bench) -> None:
    bench.open(7)
    assert bench.asked == ["start 0 user"]
    helper = bench.run()
    kind, length = PACKET.unpack(helper.recv(5))
    assert kind == OPEN and json.loads(helper.recv(length))["path"] == "x"
    helper.sendall(packet(DATA, b"abc") + packet(END, b'{"ok": true}'))
    bench.steps()
    assert bench.sent == [(7, DATA, b"abc"), (7, END, b'{"ok": true}')]
    bench.open(8)
    assert bench.asked[-1] == "start 1 user"  # slot 0 is free only when its process is gone
    bench.transfers.ended(0, 0)
    bench.open(9, root="in")
    assert bench.asked[-1] == "start 0 relay"


def test_no_more_is_sent_than_the_gateway_allows(bench: Bench) -> None:
    bench.open(1)
    helper = bench.run()
    helper.recv(1000)
    data = os.urandom(3 * CREDIT_BYTES)
    chunk = 64 * 1024
    thread = threading.Thread(target=lambda: [helper.sendall(packet(DATA, data[i : i + chunk])) for i in range(0, len(data), chunk)])
    helper.settimeout(None)
    thread.start()
    # The helper's thread writes when it is given the processor: each amount is waited for, then a few more reads show that it is all.
    bench.until_sent(CREDIT_BYTES)
    assert bench.data() == data[:CREDIT_BYTES]
    bench.gateway(1, CREDIT, (100).to_bytes(4, "little"))
    bench.until_sent(CREDIT_BYTES + 100)
    assert bench.data() == data[: CREDIT_BYTES + 100]
    bench.gateway(1, CREDIT, (10 * CREDIT_BYTES).to_bytes(4, "little"))
    while thread.is_alive():
        bench.step()
    bench.steps()
    assert bench.data() == data


def test_an_end_that_waits_for_credit_is_not_lost_when_the_helper_goes(bench: Bench) -> None:
    bench.open(1)
    helper = bench.run()
    helper.recv(1000)
    payload = b"z" * 200_000
    for _ in range(5):
        helper.sendall(packet(DATA, payload))
        bench.steps(5)
    helper.sendall(packet(DATA, payload[:100_000]) + packet(END, b'{"ok": true}'))
    helper.close()
    bench.steps(5)
    bench.transfers.ended(0, 0)
    assert bench.results() == []
    bench.gateway(1, CREDIT, (10**6).to_bytes(4, "little"))
    bench.steps(5)
    assert bench.results() == [{"ok": True}]
    assert sum(len(d) for _, k, d in bench.sent if k == DATA) == 1_100_000
    bench.open(2)
    assert bench.asked[-1] == "start 0 user"


def test_an_upload_is_bounded_and_its_credit_comes_back(bench: Bench) -> None:
    bench.open(1, cmd="put", size=10**7)
    helper = bench.run()
    helper.recv(1000)
    for _ in range(4):
        bench.gateway(1, DATA, b"u" * CHUNK)
    got = b""
    while len(got) < CREDIT_BYTES:
        bench.steps(3)
        got += helper.recv(10**6)
    bench.steps(3)
    assert sum(int.from_bytes(d, "little") for _, k, d in bench.sent if k == CREDIT) >= CREDIT_BYTES // 2
    for _ in range(9):
        bench.gateway(1, DATA, b"u" * CHUNK)
    assert bench.results() == [{"ok": False, "error": "io", "detail": "more data than was allowed"}]


def test_too_many_at_once_are_refused(bench: Bench) -> None:
    for stream in range(SLOTS + 1):
        bench.open(stream)
    assert bench.results()[0]["error"] == "busy"
    bench.open(3)  # a number that is in use
    assert len(bench.asked) == SLOTS


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b'{"cmd": "rm"}', b'{"cmd": []}', b'{"cmd":"get","a":"' + b"x" * 70_000 + b'"}'])
def test_commands_that_make_no_sense_are_refused(bench: Bench, data: bytes) -> None:
    bench.gateway(1, OPEN, data)
    assert bench.results()[0]["ok"] is False and not bench.asked


@pytest.mark.parametrize(
    "said", [b"\xff" * 10, packet(OPEN, b"x"), PACKET.pack(DATA, 2**32 - 1), PACKET.pack(DATA, CHUNK + 1), packet(CREDIT, b"1234")]
)
def test_a_helper_that_lies_ends_its_own_stream_only(bench: Bench, said: bytes) -> None:
    bench.open(1)
    bench.run().sendall(said)
    bench.steps()
    assert bench.results()[0]["error"] == "io"


def test_a_helper_that_dies_or_stops_is_told(bench: Bench) -> None:
    bench.open(1)
    bench.run().close()
    bench.steps()
    assert bench.results() == [{"ok": False, "error": "io", "detail": "the file helper ended early"}]
    bench.transfers.ended(0, 0)
    bench.open(2)
    bench.transfers.ended(0, 0)
    assert bench.results()[1]["detail"] == "no file helper could be started"
    bench.open(3)
    bench.run()
    bench.steps()
    bench.now = STUCK_S + 1
    bench.transfers.tick(bench.now)
    assert bench.results()[2]["detail"] == "the file helper does not move" and bench.asked[-1] == "kill 0"


def test_a_gateway_may_take_its_time(bench: Bench) -> None:
    bench.open(1, cmd="put", size=5)
    bench.run().recv(1000)
    bench.now = 10 * STUCK_S
    bench.transfers.tick(bench.now)
    assert bench.results() == []
    bench.gateway(1, END, b"{}")
    bench.steps()
    bench.now += STUCK_S + 1
    bench.transfers.tick(bench.now)
    assert bench.results()[0]["detail"] == "the file helper does not move"


def test_aborted_and_forgotten_helpers_go_or_are_killed(bench: Bench) -> None:
    bench.open(1)
    helper = bench.run()
    helper.recv(1000)
    bench.gateway(1, ABORT)
    assert helper.recv(10) == b"" and bench.results() == []
    bench.now = LEAVE_S
    bench.transfers.tick(bench.now)
    assert bench.asked[-1] == "kill 0"
    bench.transfers.ended(bench.now, 0)
    bench.open(2)
    bench.transfers.reset(bench.now)
    late = bench.run()
    assert late.recv(10) == b""
    bench.gateway(2, DATA, b"x")
    bench.gateway(99, CREDIT, b"1234")
    bench.gateway(99, END)
    bench.transfers.received(0, b"abc")
    assert bench.results() == []


def test_files_wait_while_standard_output_is_full(bench: Bench) -> None:
    bench.open(1)
    bench.run().sendall(packet(DATA, b"abc"))
    bench.queued = QUEUED
    bench.steps()
    assert bench.sent == []
    bench.queued = 0
    bench.steps()
    assert bench.sent == [(1, DATA, b"abc")]


# --- with the real helper, in a thread -----------------------------------------------------------------------------------


class Files(Bench):
    def __init__(self, root: Path) -> None:
        super().__init__()
        for name in ("workspace", "in"):
            (root / name).mkdir()
        self.root = root
        self.roots = [os.open(root / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("workspace", "in")]
        self.next = 1

    def start(self, slot: int, *, as_relay: bool) -> None:
        ours, theirs = socket.socketpair()

        def serve() -> None:
            files.serve(theirs, *self.roots)
            theirs.close()

        self.thread = threading.Thread(target=serve)
        self.thread.start()
        self.transfers.started(self.now, slot, ours)

    def do(self, data: bytes = b"", **command: Any) -> tuple[bytes, dict[str, Any]]:
        stream, self.next = self.next, self.next + 1
        self.open(stream, **command)
        slot = next(slot for slot, *_ in self.transfers.interests())
        if command["cmd"] == "put":
            self.gateway(stream, DATA, data)
            self.gateway(stream, END, b"{}")
        while not any(s == stream and k == END for s, k, _ in self.sent):
            self.step()
            self.gateway(stream, CREDIT, (10**6).to_bytes(4, "little"))
        self.thread.join()
        self.transfers.ended(self.now, slot)
        mine = [(k, d) for s, k, d in self.sent if s == stream]
        self.sent.clear()
        return b"".join(d for k, d in mine if k == DATA), json.loads(mine[-1][1])


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path)
    yield made
    for fd in made.roots:
        os.close(fd)


def test_put_get_list_delete(real: Files) -> None:
    assert real.do(b"hello", cmd="put", path="a/b/c.txt", size=5)[1]["ok"]
    assert real.do(cmd="get", path="a/b/c.txt")[0] == b"hello"
    assert real.do(b"other", cmd="put", path="a/b/c.txt", size=5)[1]["error"] == "exists"
    assert real.do(b"other", cmd="put", path="a/b/c.txt", size=5, overwrite=True)[1]["ok"]
    data, end = real.do(cmd="list")
    assert [json.loads(line)["path"] for line in data.splitlines()] == ["a", "a/b", "a/b/c.txt"] and end["entries"] == 3
    assert real.do(cmd="delete", path="a/b")[1]["error"] == "not_empty"
    assert real.do(cmd="delete", path="a/b/c.txt")[1]["ok"]
    assert real.do(cmd="delete", path="a/b")[1]["ok"]
    usage = real.do(cmd="usage")[1]
    assert usage["workspace"]["bytes_limit"] > 0 and set(usage["in"]) == {"bytes", "bytes_limit", "inodes", "inodes_limit"}


def test_the_list_goes_on_after_a_directory_and_is_bounded(real: Files) -> None:
    work = real.root / "workspace"
    for name in ("b/x", "b/y", "a", "c"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).touch()
    (work / ".sandglass-half").touch()
    os.mkfifo(work / "f")
    os.symlink("/etc", work / "l")
    open(os.fsencode(work) + b"/bad\xff", "w").close()
    data, end = real.do(cmd="list")
    found = [(e["path"], e["kind"]) for e in map(json.loads, data.splitlines())]
    assert found == [("a", "file"), ("b", "dir"), ("b/x", "file"), ("b/y", "file"), ("c", "file"), ("f", "other"), ("l", "link")]
    assert end["unreadable"] == 1 and not end["truncated"]
    data, end = real.do(cmd="list", max_entries=3)
    assert len(data.splitlines()) == 3 and end["truncated"]


@pytest.mark.parametrize("path", ["../x", "/x", "", ".", "..", "a//b", "a/./b", "a/../b", "a\0", 5, None, [], "x" * 5000, "a/" * 80 + "b"])
def test_paths_are_checked(real: Files, path: Any) -> None:
    for command in ("get", "delete"):
        assert real.do(cmd=command, path=path)[1]["error"] == "path_refused"
    assert real.do(b"", cmd="put", path=path, size=0)[1]["error"] == "path_refused"


def test_links_lead_nowhere(real: Files) -> None:
    work = real.root / "workspace"
    (real.root / "secret").write_text("s")
    os.symlink("../secret", work / "l")
    os.symlink("..", work / "up")
    for path in ("l", "up/secret"):
        assert real.do(cmd="get", path=path)[1]["error"] == "path_refused"
    assert real.do(b"x", cmd="put", path="up/new", size=1)[1]["error"] == "path_refused"
    assert real.do(b"x", cmd="put", path="l", size=1, overwrite=True)[1]["ok"]
    assert (real.root / "secret").read_text() == "s" and (work / "l").read_text() == "x"
    (work / "plain").touch()
    assert real.do(b"x", cmd="put", path="plain/new", size=1)[1]["error"] == "path_refused"
    assert real.do(cmd="get", path="plain/new")[1]["error"] == "not_found"


def test_only_whole_files_appear(real: Files) -> None:
    for command, data, error in (({"size": 9}, b"abc", "io"), ({"size": 1}, b"abc", "io"), ({"size": -1}, b"", "io"), ({"size": "x"}, b"", "io"),
                                 ({"size": 3, "sha256": "0" * 64}, b"abc", "hash_mismatch"), ({"size": 2**60}, b"", "disk_full")):  # fmt: skip
        assert real.do(data, cmd="put", path="f", **command)[1]["error"] == error
    assert os.listdir(real.root / "workspace") == []
    assert real.do(cmd="get", path="f", root="elsewhere")[1]["error"] == "io"
    (real.root / "workspace/f").write_bytes(b"12345")
    assert real.do(cmd="get", path="f", max_bytes=4)[1]["error"] == "too_large"
    for odd in ("x", None, 1.5):
        assert "ok" in real.do(cmd="get", path="f", max_bytes=odd)[1]


def test_a_large_file_goes_through_in_both_directions(real: Files) -> None:
    data = os.urandom(700_000)
    assert real.do(data, cmd="put", path="large", size=len(data), root="in")[1]["ok"]
    assert real.do(cmd="get", path="large", root="in")[0] == data
