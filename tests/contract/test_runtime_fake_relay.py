"""The fake sandbox speaks the protocol as the gateway's own link expects it: what service tests are built on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.domain.model import Profile
from gateway.errors import NotFound, SandboxLost, SandglassError, TooLarge
from gateway.ports import SandboxSpec
from gateway.protocol import wire
from gateway.service.link import SandboxLink
from gateway.service.tasks import Tasks
from gateway.testing.clock import ManualClock
from gateway.testing.runtime import FakeRuntime, FakeSandbox

pytestmark = pytest.mark.asyncio
SPEC = SandboxSpec("sb", "i", Profile("gvisor", "gvisor", "runsc"), "kernel:1", 1001, 1002, 1003)


class Client:
    """A link with its messages sorted."""

    def __init__(self, runtime: FakeRuntime, engine_id: str) -> None:
        self.runtime = runtime
        self.engine_id = engine_id
        self.tasks = Tasks()
        self.messages: list[tuple[str, str, dict[str, Any], str]] = []
        self.events: list[dict[str, Any]] = []
        self.lost: SandglassError | None = None
        self.link: SandboxLink
        self._news = asyncio.Event()
        self._serial = 0

    @property
    def sandbox(self) -> FakeSandbox:
        return self.runtime.sandboxes[self.engine_id]

    async def open(self, epoch: int = 1, limits: dict[str, int] | None = None) -> None:
        stream = await self.runtime.attach(self.engine_id)
        marker = self.link.marker if epoch > 1 else b""
        received = self.link.received if epoch > 1 else (0, 0, 0)
        self.link = SandboxLink(stream, self.tasks, "sb", epoch, limits or {})
        self.link.on_event = lambda name, event: self._note(self.events.append, event)
        self.link.on_kernel = self._kernel
        self.link.on_lost = self._lost
        if epoch == 1:
            await self.runtime.start(self.engine_id)
            await self.link.open_fresh(5)
        else:
            await self.link.open_again(marker, received, 5)
        self.link.go()

    def _note(self, add: Callable[[Any], None], what: Any) -> None:
        add(what)
        self._news.set()

    def _kernel(self, number: int, lane: int, body: bytes) -> None:
        channel, parts = wire.unpack(body)
        header, parent, content = (json.loads(parts[i]) for i in (0, 1, 3))
        self._note(self.messages.append, (channel, header["msg_type"], content, parent.get("msg_id", "")))

    def _lost(self, error: SandglassError) -> None:
        self.lost = error
        self._news.set()

    async def until(self, done: Callable[[], Any]) -> None:
        async with asyncio.timeout(5):
            while not done():
                self._news.clear()
                await self._news.wait()

    async def start_kernel(self) -> None:
        await self.link.call("start_kernel")
        await self.until(lambda: self.event("ready"))

    def event(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    def send(self, code: str) -> str:
        self._serial += 1
        msg_id = f"m{self._serial}"
        header = {"msg_id": msg_id, "msg_type": "execute_request", "session": "s", "username": "u", "date": "", "version": "5.3"}
        self.link.send_kernel(wire.pack("shell", [json.dumps(header).encode(), b"{}", b"{}", json.dumps({"code": code}).encode()]))
        return msg_id

    def of(self, msg_id: str) -> list[tuple[str, dict[str, Any]]]:
        return [(kind, content) for _, kind, content, parent in self.messages if parent == msg_id]

    def finished(self, msg_id: str) -> bool:
        found = self.of(msg_id)
        return any(k == "execute_reply" for k, _ in found) and ("status", {"execution_state": "idle"}) in found

    async def run(self, code: str) -> list[tuple[str, dict[str, Any]]]:
        msg_id = self.send(code)
        await self.until(lambda: self.finished(msg_id))
        return self.of(msg_id)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    runtime = FakeRuntime(ManualClock(), images=frozenset({"kernel:1"}))
    runtime.cut = 7
    client = Client(runtime, await runtime.create(SPEC))
    await client.open()
    yield client
    await client.link.close()
    await client.tasks.close()
    await runtime.close()


async def test_a_cell_gives_its_messages_in_the_kernels_order(client: Client) -> None:
    await client.start_kernel()
    found = await client.run("print:hello\nset:df\nvalue:42")
    assert [kind for kind, _ in found] == [
        "status", "execute_input", "stream", "execute_result", "sandglass_variables", "execute_reply", "status",
    ]  # fmt: skip
    assert found[2][1] == {"name": "stdout", "text": "hello\n"}
    assert found[4][1]["variables"] == [{"name": "df", "type": "int", "size": 28}]
    assert found[5][1]["status"] == "ok"


async def test_errors_interrupts_and_what_waits_behind_an_error(client: Client) -> None:
    await client.start_kernel()
    assert [c["ename"] for k, c in await client.run("error:ValueError") if k == "error"] == ["ValueError"]
    asleep, waiting = client.send("sleep:60"), client.send("print:never")
    await client.until(lambda: client.of(asleep))
    await client.link.call("interrupt", grace_ms=1)
    await client.until(lambda: client.finished(asleep) and client.finished(waiting))
    assert [c["ename"] for k, c in client.of(asleep) if k == "error"] == ["KeyboardInterrupt"]
    assert [c["status"] for k, c in client.of(waiting) if k == "execute_reply"] == ["aborted"]


async def test_a_hanging_cell_ends_only_by_a_restart(client: Client) -> None:
    await client.start_kernel()
    hanging = client.send("hang")
    await client.until(lambda: client.of(hanging))
    await client.link.call("interrupt", grace_ms=1)
    await asyncio.sleep(0.05)
    assert not client.finished(hanging)
    assert (await client.link.call("restart_kernel"))["life"] == 2
    await client.until(lambda: len(client.event("ready")) == 2)
    assert client.event("exited") == [{"event": "exited", "life": 1, "signal": 9, "expected": True}]
    assert (await client.run("print:again"))[2][1]["text"] == "again\n"


async def test_a_kernel_that_dies_says_by_what(client: Client) -> None:
    await client.start_kernel()
    client.send("die:11")
    await client.until(lambda: client.event("exited"))
    assert client.event("exited") == [{"event": "exited", "life": 1, "signal": 11, "expected": False}]


async def test_nothing_is_lost_over_a_detachment(client: Client) -> None:
    await client.start_kernel()
    running = client.send("print:a\nsleep:0.1\nprint:b\nprint:c")
    await client.until(lambda: len(client.of(running)) >= 3)
    await client.link.close()
    await asyncio.sleep(0.2)
    await client.open(epoch=2)
    await client.until(lambda: client.finished(running))
    texts = [content["text"] for kind, content in client.of(running) if kind == "stream"]
    assert texts == ["a\n", "b\n", "c\n"]
    assert [kind for kind, _ in client.of(running)].count("execute_reply") == 1


async def test_files_go_in_and_out(client: Client) -> None:
    await client.start_kernel()
    data = bytes(range(256)) * 12_000
    put = client.link.open_file({"cmd": "put", "root": "in", "path": "sales.csv", "size": len(data)})
    await put.write(data)
    assert (await put.finish())["size"] == len(data)
    await client.run("write:out/report.txt:hello")
    got = client.link.open_file({"cmd": "get", "root": "in", "path": "sales.csv", "max_bytes": 1 << 30})
    read = bytearray()
    while (piece := await got.read()) is not None:
        read += piece
    assert bytes(read) == data
    listing = client.link.open_file({"cmd": "list", "root": "workspace", "max_entries": 10})
    lines = await listing.read()
    assert lines is not None
    assert json.loads(lines)["path"] == "out/report.txt"
    with pytest.raises(NotFound):
        await client.link.open_file({"cmd": "get", "root": "workspace", "path": "nothing", "max_bytes": 1}).read()


async def test_a_full_disk(client: Client) -> None:
    await client.start_kernel()
    client.sandbox.files.limit = 3
    put = client.link.open_file({"cmd": "put", "root": "workspace", "path": "x", "size": 4})
    await put.write(b"1234")
    with pytest.raises(TooLarge):
        await put.finish()
    assert [c["ename"] for k, c in await client.run("write:y:12345") if k == "error"] == ["OSError"]


async def test_output_past_its_budget_is_cut_and_told(client: Client) -> None:
    client.runtime.cut = 0
    await client.link.close()
    await client.open(epoch=2, limits={"output_bytes": 100_000, "output_messages": 1000})
    await client.start_kernel()
    found = await client.run("flood:1000000")
    assert sum(len(c["text"]) for k, c in found if k == "stream") <= 100_000
    assert [event["parent"] for event in client.event("truncated")] == ["m1", "m1"]
    assert client.event("truncated")[1]["bytes"] >= 1_000_000


async def test_memory_that_runs_out_looks_as_it_does_on_each_runtime(client: Client) -> None:
    await client.start_kernel()
    client.runtime.oom(client.engine_id, whole=False)
    await client.until(lambda: client.event("exited"))
    assert client.event("exited") == [{"event": "exited", "life": 1, "code": 1, "expected": False}]
    client.runtime.oom(client.engine_id)
    await client.until(lambda: client.lost)
    assert isinstance(client.lost, SandboxLost)
    facts = await client.runtime.inspect(client.engine_id)
    assert facts is not None
    assert (facts.running, facts.exit_code, facts.oom_killed) == (False, 137, True)


async def test_a_vanished_sandbox_ends_the_stream(client: Client) -> None:
    client.runtime.vanish(client.engine_id)
    await client.until(lambda: client.lost)
    assert await client.runtime.inspect(client.engine_id) is None


async def test_a_kernel_that_does_not_start(client: Client) -> None:
    client.sandbox.relay.start_fails = True
    await client.link.call("start_kernel")
    await client.until(lambda: client.event("start_failed"))


async def test_the_manual_clock_wakes_what_is_due() -> None:
    clock = ManualClock(now=100.0, boottime=5.0)
    told: list[float] = []
    clock.on_advance(lambda: told.append(clock.boottime()))
    early, late = asyncio.ensure_future(clock.sleep_until(8)), asyncio.ensure_future(clock.sleep_until(80))
    await clock.advance_and_settle(3)
    assert (early.done(), late.done(), told, clock.now()) == (True, False, [8.0], 103.0)
    clock.jump_wall(-50)
    assert (clock.now(), clock.boottime(), clock.boot_id()) == (53.0, 8.0, "boot-1")
    clock.reboot(60)
    assert (clock.now(), clock.boottime(), clock.boot_id()) == (113.0, 10.0, "boot-2")
    late.cancel()
