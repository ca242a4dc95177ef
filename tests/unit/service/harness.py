"""The whole service on fakes: a manual engine, real SQLite records in a temporary directory, real journals."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.backends.records import SqliteRecords
from gateway.clock import SystemClock
from gateway.domain.model import Lifetimes, Limits, Principal, Profile
from gateway.domain.quota import QuotaLimits
from gateway.protocol import jupyter
from gateway.service.access import Access
from gateway.service.adoption import Adoption
from gateway.service.deadlines import Deadlines
from gateway.service.gateway import Gateway
from gateway.service.journal import Entry, EntryKind
from gateway.service.pool import Pool
from gateway.service.sandboxes import Sandboxes
from gateway.service.tasks import Tasks
from gateway.service.world import Caps, World
from gateway.testing.runtime import FakeRuntime
from gateway.testing.stores import MemoryStore

IMAGE = "sandglass-kernel:test"
ALICE = Principal("alice", "t1")
MALLORY = Principal("mallory", "t2")


class Client:
    """A sink that keeps what it gets; ``slow``: it never drains."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.gaps: list[tuple[int, int]] = []
        self.code = ""
        self.slow = False

    @property
    def queued(self) -> int:
        return 100_000_000 if self.slow else 0

    def deliver(self, entry: Entry) -> int:
        self.entries.append(entry)
        return self.queued

    async def flushed(self) -> None:
        while self.slow:
            await asyncio.sleep(0.01)

    def gap(self, after: int, oldest: int) -> None:
        self.gaps.append((after, oldest))

    def closed(self, code: str) -> None:
        self.code = code

    def messages(self, msg_type: str = "") -> list[jupyter.KernelMessage]:
        found = [jupyter.decode(bytes(e.body)) for e in self.entries if e.kind is EntryKind.MESSAGE]
        return [m for m in found if not msg_type or m.msg_type == msg_type]

    def text(self) -> str:
        return "".join(m.content["text"] for m in self.messages("stream"))


async def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    async with asyncio.timeout(timeout_s):
        while not (value := condition()):
            await asyncio.sleep(0.005)
        return value


class Rig:
    """``runtime``, ``store`` and the state directory outlive a gateway, as an engine and a disk do."""

    def __init__(
        self, path: Path, *, lifetimes: Lifetimes, limits: Limits, target: int = 0, caps: Caps | None = None, store: Any = None,
        quotas: QuotaLimits | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.clock = SystemClock()
        self.runtime = FakeRuntime(self.clock)
        self.store: Any = store or MemoryStore()
        self.lifetimes, self.limits, self.target, self.caps = lifetimes, limits, target, caps or Caps()
        self.quotas = quotas or QuotaLimits()
        self.epoch = 0

    def make_records(self) -> Any:
        return SqliteRecords(self.path / "records.sqlite")

    async def boot(self, *, adopt: bool = True) -> Gateway:
        """``adopt``: False leaves it where it listens and has not looked at the engine yet."""
        self.epoch += 1
        self.records = self.make_records()
        await self.records.open()
        self.tasks = Tasks()
        profile = Profile("container", "container", "runc", IMAGE, "Container", self.limits, self.lifetimes)
        instance = await self.records.instance_id()
        sandboxes = Sandboxes(self.runtime, self.records, self.clock, self.tasks, instance=instance, epoch=self.epoch, images={"container": IMAGE})
        pool = Pool(
            sandboxes, self.records, self.clock, self.tasks, profiles={"container": profile}, warm_profiles=["container"],
            target=self.target, max_live=50,
        )  # fmt: skip
        world = World(
            self.clock, self.records, self.store, self.tasks, Deadlines(self.clock), sandboxes, pool, {"container": profile},
            self.path / "journals", self.caps, quota_limits=self.quotas,
        )  # fmt: skip
        await world.quotas.load(self.records)
        self.gateway = Gateway(world, default_profile="container", problems={})
        self.adoption = Adoption(self.gateway, instance)
        await self.adoption.load()
        if adopt:
            await self.adoption.run()
            pool.maintain()
        return self.gateway

    async def kill(self) -> None:
        """The gateway is gone at once, without any orderly step."""
        self.gateway.world.deadlines.close()
        for session in self.gateway.live.values():
            if session.sandbox is not None:
                await session.sandbox.link._stream.close()
        await self.tasks.close(0.5)
        for session in self.gateway.live.values():
            session.journal.close()
        await self.records.close()

    async def session(self, principal: Principal = ALICE) -> Access:
        access = await self.gateway.create_session(principal)
        assert isinstance(access, Access)
        await until(lambda: access.to_json()["state"] == "active")
        return access

    async def stored(self, count: int) -> None:
        """So many files of living sessions are kept: their bytes, and then their rows."""
        async with asyncio.timeout(10.0):
            while len(self.store.objects) != count or sum([len(await self.records.list_artifacts(name)) for name in self.gateway.live]) < count:
                await asyncio.sleep(0.005)

    async def run(self, access: Access, code: str, **options: Any) -> dict[str, Any]:
        execution_id = await access.execute(code, **options)
        assert await access.wait_execution(execution_id, 15.0), "the execution did not finish"
        result = await access.execution_json(execution_id)
        if (session := self.gateway.live.get(access.session_id)) is not None:
            await session.runs.closed()  # recorded, too
        return result


@asynccontextmanager
async def rig(
    path: Path, *, idle_s: float = 60.0, max_s: float = 600.0, warn: tuple[float, ...] = (), limits: Limits | None = None, **more: Any
) -> AsyncIterator[Rig]:
    lifetimes = Lifetimes(idle_s=idle_s, max_s=max_s, warn_before_s=warn, drain_grace_s=0.5)
    limits = limits or replace(Limits(), interrupt_grace_s=0.3, kill_grace_s=0.3)
    made = Rig(path, lifetimes=lifetimes, limits=limits, **more)
    await made.boot()
    try:
        yield made
    finally:
        await made.kill()


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def execute_request(code: str, session: str = "client", **content: Any) -> tuple[str, bytes]:
    header = jupyter.make_header("execute_request", session)
    full = {
        "code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True, **content,
    }  # fmt: skip
    return header["msg_id"], jupyter.build("shell", header, {}, {}, full)
