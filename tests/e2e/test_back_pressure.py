"""Back pressure with the real engine: a client that does not read, a flood with nobody there, slow uploads and downloads.

Each holds the same: the gateway's memory stays flat, nobody else waits, and who was slow gets what is kept, or is told the gap.
"""

from __future__ import annotations

import http.client
import os
import re
import resource
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest
from e2e_clients import Kernel, Message, Socket
from e2e_gateway import Gateway

MB = 1024 * 1024
LINE = 65_536
"""A printed line, its number and its line break included: one message each."""
WIDE = {"SANDGLASS_OUTPUT": "4GiB", "SANDGLASS_OUTPUT_MESSAGES": "10000000", "SANDGLASS_WORKSPACE": "256MiB"}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that admits output without a limit that matters here, and keeps the usual 64 MiB of it."""
    gateway = Gateway(tmp_path_factory.mktemp("wide"), WIDE).start()
    yield gateway
    assert gateway.stop() == 0, gateway.tail()


def resident(gateway: Gateway) -> int:
    assert gateway.process is not None
    with open(f"/proc/{gateway.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


class Memory:
    """By how much the gateway's resident memory grows at the most, sampled every 20 ms in a thread."""

    def __init__(self, gateway: Gateway, what: str) -> None:
        self._gateway, self._what = gateway, what
        self._over = threading.Event()
        self.grown = 0

    def __enter__(self) -> Memory:
        self._before = resident(self._gateway)
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._over.wait(0.02):
            self.grown = max(self.grown, resident(self._gateway) - self._before)

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        print(f"{self._what}: the gateway grew by {self.grown / MB:.1f} MB, from {self._before / MB:.1f} MB")


def flood(megabytes: int) -> str:
    """A line is one write and so one message: no gap is in the middle of one."""
    return f"for n in range({megabytes * MB // LINE}): print(f'{{n:08d}}' + 'x' * {LINE - 9} + '\\n', end='', flush=True)"


def numbers(messages: list[Message]) -> list[int]:
    """Of the flood's lines, as they came; none was cut."""
    text = "".join(m.content["text"] for m in messages if m.msg_type == "stream" and m.content["name"] == "stdout")
    lines = text.splitlines()
    assert all(len(line) == LINE - 1 for line in lines), "a line is not whole"
    return [int(line[:8]) for line in lines]


def pace(other: Socket, enough: Callable[[list[float]], bool]) -> list[float]:
    """Seconds of each small execution until ``enough``."""
    times: list[float] = []
    while not enough(times):
        begun = time.monotonic()
        assert other.run("print(sum(range(1000)))") == "499500\n"
        times.append(time.monotonic() - begun)
    return times


# --- a client that does not read --------------------------------------------------------------------------------------


def test_a_client_that_stops_reading_costs_no_memory_and_nobody_waits(wide: Gateway) -> None:
    """200 MB for one that reads nothing and one that reads all, beside a neighbour; then the first one reads on."""
    kernel, neighbour = Kernel.start(wide, "container"), Kernel.start(wide, "container", user="bob")
    try:
        slow, quick, other = kernel.connect("slow", receive_buffer=4096), kernel.connect("quick"), neighbour.connect("other")
        quick.run("pass")
        other.run("pass")
        looping = quick.execute("while True: pass")
        beside_a_loop = pace(other, lambda times: len(times) >= 15)
        kernel.call("POST", "/interrupt", expect=204)
        quick.finished(looping)

        seen: list[Message] = []
        count = 200 * MB // LINE
        with Memory(wide, "a client that does not read") as memory:
            msg_id = quick.execute(flood(200))
            reading = threading.Thread(target=lambda: seen.extend(quick.finished(msg_id)))
            reading.start()
            beside_a_flood = pace(other, lambda times: not reading.is_alive() or len(times) >= 400)
            reading.join()
        assert numbers(seen) == list(range(count))
        assert memory.grown < 64 * MB, f"{memory.grown / MB:.1f} MB"
        usual, during = statistics.median(beside_a_loop), statistics.median(beside_a_flood)
        print(f"a neighbour: {usual * 1e3:.1f} ms beside a loop, {during * 1e3:.1f} ms ({len(beside_a_flood)}) beside the flood")
        assert during < 20 * usual + 0.25, (usual, during, max(beside_a_flood))

        late = slow.until(lambda m: m.msg_type == "status" and m.content["execution_state"] == "idle" and m.parent == msg_id)
        check_late(late, seen, count)
        assert quick.run("print('on')") == "on\n"
        assert slow.until(lambda m: m.msg_type == "stream")[-1].content["text"] == "on\n"
    finally:
        kernel.end()
        neighbour.end()


def check_late(late: list[Message], seen: list[Message], count: int) -> None:
    """In order and to the end, whole but for one gap; the gap is told where it is, with at least as many as are missing."""
    got = numbers(late)
    assert got == sorted(set(got)) and got[-1] == count - 1
    jumps = [(a, b) for a, b in pairwise(got) if b != a + 1]
    told = [re.search(r"(\d+) older messages are no longer kept", m.content.get("text", "")) for m in late if m.msg_type == "stream"]
    gaps = [int(found[1]) for found in told if found]
    print(f"the slow client got {len(got)} of {count} lines; gaps told: {gaps}; jumps: {jumps}")
    assert len(jumps) == len(gaps) == 1, (jumps, gaps)
    assert gaps[0] >= jumps[0][1] - jumps[0][0] - 1
    place = next(i for i, found in enumerate(told) if found)
    assert len(numbers([m for m in late if m.msg_type == "stream"][:place])) == jumps[0][0] + 1, "the gap was told elsewhere than where it is"
    assert len(got) * LINE > 48 * MB, "less than the journal holds"


# --- a flood that nobody reads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limited", "word"), [(False, "ok"), (True, "output_limit")])
def test_a_flood_that_nobody_reads_costs_no_memory(gateway: Gateway, wide: Gateway, limited: bool, word: str) -> None:
    """300 MB with nobody attached; ``limited``: with the output limit as it is."""
    asked = gateway if limited else wide
    session = asked.call("POST", "/api/v1/sessions", {"profile": "container"}, expect=201).json()["session_id"]
    try:
        asked.run_code(session, "pass")
        with Memory(asked, f"a flood that nobody reads ({word})") as memory:
            done = asked.run_code(session, flood(300))
        assert done["exit_reason"] == word, {k: v for k, v in done.items() if k not in ("stdout", "stderr")}
        assert memory.grown < 48 * MB, f"{memory.grown / MB:.1f} MB"
        assert done["truncated"], "what the answer leaves out is not said"
        assert asked.run_code(session, "print('on')")["stdout"] == "on\n"
    finally:
        asked.call("DELETE", f"/api/v1/sessions/{session}")


# --- a full disk ------------------------------------------------------------------------------------------------------


def test_a_full_disk_in_the_middle_of_a_flood_makes_it_wait(start_gateway: Callable[..., Gateway]) -> None:
    """No file of the gateway's may grow past 6 MB for two seconds: what does not fit waits in the sandbox, and comes afterwards.

    The records have room all the time: the journal is what is full.
    """
    wide = start_gateway(**WIDE)
    kernel = Kernel.start(wide, "container")
    assert wide.process is not None
    pid, seen = wide.process.pid, list[Message]()
    usual = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    try:
        quick = kernel.connect("quick")
        quick.run("pass")
        assert all(f.stat().st_size < 5 * MB for f in wide.state.glob("*.sqlite*")), "the records have no room either"
        with Memory(wide, "a full disk") as memory:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (6 * MB, usual[1]))
            msg_id = quick.execute(flood(100))
            reading = threading.Thread(target=lambda: seen.extend(quick.finished(msg_id)))
            reading.start()
            time.sleep(2)
            assert kernel.model()["execution_state"] == "busy"
            (segment,) = (wide.state / "journals" / kernel.kernel_id).iterdir()
            assert 5 * MB < segment.stat().st_size <= 6 * MB, "the disk was not full"
            resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
            reading.join()
        assert numbers(seen) == list(range(100 * MB // LINE))
        assert memory.grown < 48 * MB, f"{memory.grown / MB:.1f} MB"
        assert wide.call("GET", f"/api/v1/sessions/{kernel.kernel_id}").json()["generation"] == 1
        assert quick.run("print('on')") == "on\n"
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
        kernel.end()


# --- slow uploads and downloads ---------------------------------------------------------------------------------------


def opened(gateway: Gateway, head: str, receive_buffer: int = 0) -> socket.socket:
    """A plain connection on which a request's head was sent."""
    to = urlsplit(gateway.url)
    plain = socket.socket()
    if receive_buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.settimeout(60)
    plain.connect((to.hostname, to.port))
    plain.sendall(f"{head}\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {gateway.token()}\r\n\r\n".encode())
    return plain


def test_slow_uploads_and_downloads_cost_no_memory_and_nobody_waits(wide: Gateway) -> None:
    """Four downloads of 60 MB read a byte at a time, and an upload sent a byte at a time; others are served meanwhile."""
    session = wide.call("POST", "/api/v1/sessions", {"profile": "container"}, expect=201).json()["session_id"]
    root = f"/api/v1/sessions/{session}"
    plain: list[socket.socket] = []
    data = os.urandom(MB)
    try:
        wide.run_code(session, "with open('big', 'wb') as f:\n    for n in range(60): f.write(bytes([n]) * 2**20)")
        with Memory(wide, "slow uploads and downloads") as memory:
            plain += [opened(wide, f"GET {root}/files/big HTTP/1.1", 65536) for _ in range(4)]
            downloads = [http.client.HTTPResponse(one) for one in plain]
            for down in downloads:
                down.begin()
            upload = opened(wide, f"PUT {root}/files/in/slow.bin HTTP/1.1\r\nContent-Length: 50")
            plain.append(upload)
            for n in range(50):
                for down in downloads:
                    assert down.read(1) == b"\0"
                upload.sendall(bytes([n]))
                if n % 10 == 0:
                    assert wide.run_code(session, f"print({n})")["stdout"].strip() == str(n)
                    wide.call("PUT", f"{root}/files/in/quick", data, params={"overwrite": "1"}, expect=201)
                    assert wide.call("GET", f"{root}/files/in/quick", expect=200).content == data
        assert memory.grown < 40 * MB, f"{memory.grown / MB:.1f} MB"
        assert b" 201 " in upload.recv(65536).partition(b"\r\n")[0]
        assert wide.call("GET", f"{root}/files/in/slow.bin", expect=200).content == bytes(range(50))
        rest = downloads[0].read()
        assert len(rest) == 60 * MB - 50 and rest[::MB] == bytes(range(60)), "a download that was read slowly did not come whole"
    finally:
        for one in plain:
            one.close()
        wide.call("DELETE", f"/api/v1/sessions/{session}")
