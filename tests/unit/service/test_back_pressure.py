"""Whatever is slow makes what feeds it wait: a slow or hanging store, a slow or full disk, slow records. Memory stays bounded."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import RecordsUnavailable, StoreUnavailable
from gateway.service.access import Access
from gateway.service.filestream import CHUNK, CREDIT
from gateway.service.journal import Entry
from gateway.service.link import HELD_BYTES
from gateway.testing.runtime import PIPE_BYTES, FakeSandbox
from gateway.testing.stores import MemoryStore, MemoryWriter

from .harness import MALLORY, Client, Rig, execute_request, rig, sha256, until

MB = 1024 * 1024
UNREAD = PIPE_BYTES + 256 * 1024
"""What the fake stream holds before the sandbox waits, and the frames that were on their way."""


class SlowStore(MemoryStore):
    """Takes a MiB in ``s_a_mib``; nothing at all, and answers nothing, while ``open`` is not set."""

    def __init__(self, s_a_mib: float = 0.02) -> None:
        super().__init__()
        self.s_a_mib = s_a_mib
        self.opened = asyncio.Event()
        self.opened.set()
        self.taken = 0

    async def writer(self, key: str) -> MemoryWriter:
        await super().writer(key)
        return SlowWriter(self, key)


class SlowWriter(MemoryWriter):
    async def write(self, data: bytes) -> None:
        assert isinstance(self._store, SlowStore)
        await self._store.opened.wait()
        await asyncio.sleep(self._store.s_a_mib * len(data) / MB)
        await super().write(data)
        self._store.taken += len(data)

    async def abort(self) -> None:
        assert isinstance(self._store, SlowStore)
        await self._store.opened.wait()  # a store that hangs, hangs in everything
        await super().abort()


def sandbox_of(r: Rig, access: Access) -> FakeSandbox:
    return r.runtime.sandbox(r.gateway.live[access.session_id].core.sandbox_id)


@contextmanager
def slow_store(r: Rig) -> Iterator[SlowStore]:
    """In the place of the rig's store."""
    store = SlowStore()
    r.store = r.gateway.world.store = store
    try:
        yield store
    finally:
        store.opened.set()


class Most:
    """The most that ``look`` ever answered, looked at each turn of the loop."""

    def __init__(self, look: Callable[[], int]) -> None:
        self.value = 0
        self._look = look

    async def __aenter__(self) -> Most:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def _run(self) -> None:
        while True:
            self.value = max(self.value, self._look())
            await asyncio.sleep(0)

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()


# --- a slow store -----------------------------------------------------------------------------------------------------


async def test_a_slow_store_slows_down_the_sandbox_and_nobody_else(tmp_path: Path) -> None:
    """A checkpoint of 64 MiB: no more than the stream's credit is on its way, and both sessions go on executing."""
    async with rig(tmp_path) as r:
        with slow_store(r) as store:
            access, other = await r.session(), await r.session(MALLORY)
            box, data = sandbox_of(r, access), os.urandom(MB) * 64
            assert box.files.write("workspace", "out/big.bin", data)
            async with Most(lambda: box.files.sent_bytes - store.taken) as held:
                await r.run(access, "print:begin")
                await until(lambda: store.taken)
                for n in range(5):
                    for who in (access, other):
                        assert (await r.run(who, f"print:{n}"))["stdout"].strip() == str(n)
                assert store.taken < len(data) // 2, "the executions waited for the store"
                await until(lambda: store.objects, 30)
            assert CREDIT // 2 < held.value <= CREDIT + CHUNK, f"{held.value:,} bytes were on their way"
            async with asyncio.timeout(5):
                while not (artifacts := await access.artifacts()):
                    await asyncio.sleep(0.01)
            [artifact] = artifacts
            assert (artifact["sha256"], artifact["size"]) == (sha256(data), len(data))


async def test_a_hanging_store_stops_no_execution_and_loses_nothing(tmp_path: Path) -> None:
    """The checkpoint is given up with the store's typed error; a recycle keeps the sandbox until the store answers again."""
    async with rig(tmp_path) as r:
        with slow_store(r) as store:
            access = await r.session()
            session = r.gateway.live[access.session_id]
            session.keeper.patience.store_s = 0.3
            store.opened.clear()
            failures = r.gateway.world.tally.file_failures
            data = os.urandom(3 * MB)
            assert sandbox_of(r, access).files.write("workspace", "out/a.bin", data)
            await r.run(access, "set:x")
            await until(lambda: sandbox_of(r, access).files.sent_bytes >= CREDIT)
            assert (await r.run(access, "print:on"))["stdout"].strip() == "on"
            await until(lambda: failures["checkpoint", "store_unavailable"])
            assert (await r.run(access, "print:and on"))["stdout"].strip() == "and on"
            access.recycle()
            await until(lambda: access.to_json()["state"] == "quarantined")
            assert failures["persist", "store_unavailable"] == 1 and not store.objects
            store.opened.set()
            await until(lambda: access.to_json()["state"] == "dormant", 15)
            assert {n["kind"] for n in await access.notices()} >= {"quarantined", "recycled"}
            assert b"".join([c async for c in access.read_file("out/a.bin")]) == data


# --- a slow disk ------------------------------------------------------------------------------------------------------


class Counting(Client):
    """``taken``: bytes of kernel messages, each given at the moment when it stands in the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def deliver(self, entry: Entry) -> int:
        self.taken += len(entry.body) if entry.number else 0
        return super().deliver(entry)


def held_of(r: Rig, box: FakeSandbox, client: Counting) -> Callable[[], int]:
    """What the gateway was sent and has not written down: unread, and read and not yet in the journal."""
    tally = r.gateway.world.tally
    before = tally.stream_in - client.taken
    return lambda: sum(len(stream._in) for stream in box.streams) + tally.stream_in - client.taken - before


LINES = 1000


def burst(box: FakeSandbox) -> None:
    """The running cell prints ``LINES`` lines of 6 KB in one turn of the loop, faster than anything can take them."""
    kernel = box.relay.kernel
    assert kernel is not None and kernel._running is not None
    for n in range(LINES):
        kernel._stdout(f"{n} {'x' * 6000}\n", kernel._running[0])


def numbers(client: Client) -> list[int]:
    return [int(m.content["text"].split()[0]) for m in client.messages("stream")]


async def test_a_slow_disk_makes_the_sandbox_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 ms for each write of the journal: the stream's buffer is all that is held, order and completeness stand."""
    pwrite = os.pwrite
    calls = 0

    def slowly(fd: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        time.sleep(0.002)
        return pwrite(fd, data, offset)

    async with rig(tmp_path) as r:
        access = await r.session()
        box, client = sandbox_of(r, access), Counting()
        access.attach("ws:client", client, after=None, jupyter=True)
        await r.run(access, "pass")
        monkeypatch.setattr(os, "pwrite", slowly)
        async with Most(held_of(r, box, client)) as held, Most(lambda: box.relay.kept_bytes) as kept:
            asked = await access.execute("print:-1\nsleep:0.1")
            await until(lambda: numbers(client))
            burst(box)
            assert await access.wait_execution(asked, 30)
        monkeypatch.undo()
        assert (await access.execution_json(asked))["exit_reason"] == "ok" and calls >= LINES
        assert numbers(client) == list(range(-1, LINES))
        assert kept.value > 2 * MB, "the disk was not slow enough for anything to wait"
        assert held.value < UNREAD, f"{held.value:,} bytes were held by the gateway"


async def test_a_full_disk_makes_a_flood_wait_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for the journal in the middle of a cell: what cannot be written stays with the sandbox, and comes when there is room."""
    pwrite, refused = os.pwrite, 0

    def full(fd: int, data: bytes, offset: int) -> int:
        nonlocal refused
        refused += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    async with rig(tmp_path) as r:
        access, other = await r.session(), await r.session(MALLORY)
        box, client = sandbox_of(r, access), Counting()
        access.attach("ws:client", client, after=None, jupyter=True)
        generation = access.to_json()["generation"]
        asked = await access.execute("print:-1\nsleep:0.1")
        await until(lambda: numbers(client))
        monkeypatch.setattr(os, "pwrite", full)
        async with Most(held_of(r, box, client)) as held:
            burst(box)
            await asyncio.sleep(1.0)
            with pytest.raises(StoreUnavailable, match="full"):
                await other.execute("print:refused")
        assert refused and not await access.wait_execution(asked, 0.1)
        monkeypatch.setattr(os, "pwrite", pwrite)
        assert await access.wait_execution(asked, 15)
        assert (await access.execution_json(asked))["exit_reason"] == "ok"
        assert numbers(client) == list(range(-1, LINES))
        assert held.value < HELD_BYTES + 2 * UNREAD, f"{held.value:,} bytes were held by the gateway"
        assert refused < 100, "it was tried in a busy loop"
        view = access.to_json()
        assert (view["state"], view["generation"]) == ("active", generation)
        for who in (access, other):
            assert (await r.run(who, "print:on"))["stdout"].strip() == "on"
        assert [e["exit_reason"] for e in await other.list_executions()] == ["ok"], "what was refused was run"
        assert r.tasks.failures == 0


async def test_slow_records_hold_back_what_is_to_be_recorded_and_no_output(tmp_path: Path) -> None:
    """50 ms and now and then a refusal for each execution's record: order stands, and nothing is written twice over or piles up."""
    async with rig(tmp_path) as r:
        access = await r.session()
        session, client = r.gateway.live[access.session_id], Client()
        access.attach("ws:client", client, after=None, jupyter=True)
        put, calls = r.records.put_execution, 0

        async def slowly(row: Any) -> None:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.05)
            if calls % 7 == 0:
                raise RecordsUnavailable("The disk of the records is full.")
            await put(row)

        setattr(r.records, "put_execution", slowly)
        asked = [execute_request(f"print:{n}") for n in range(30)]
        for _, body in asked:
            access.from_client("ws:client", body)
        async with Most(lambda: len(session._effects)) as waiting:
            await until(lambda: len(client.messages("execute_reply")) == 30, 20)
        assert [m.parent_id for m in client.messages("execute_reply")] == [msg_id for msg_id, _ in asked]
        assert numbers(client) == list(range(30))
        assert waiting.value < 10
        await until(lambda: not session.runs._closing and not session.runs.open)
        rows = await r.records.list_executions(access.session_id)
        assert len(rows) == 30 and {row.exit_reason for row in rows} == {"ok"}
