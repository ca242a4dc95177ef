"""The relay's own stream, read straight from attach in the bench's process: no journal, no records, no websocket."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any, cast

from gateway.backends.docker import DockerRuntime
from gateway.clock import SystemClock
from gateway.config import Settings
from gateway.main import profiles_of
from gateway.ports import Records, SandboxRow
from gateway.service.keeping import read_sandbox, write_sandbox
from gateway.service.sandboxes import Sandbox, Sandboxes
from gateway.service.tasks import Tasks

from ..client import CONTENT, Count, Seen, message
from ..processes import limits

PIECE = 256 * 1024


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), PIECE):
        yield data[begin : begin + PIECE]


class _NoRecords:
    async def put_sandbox(self, row: SandboxRow) -> None:
        """Nothing is kept: the sandbox ends with the bench."""


class Relay:
    name = "relay stream"

    def __init__(self, docker_host: str, image: str, profile: str) -> None:
        self._runtime = DockerRuntime(docker_host)
        self._tasks = Tasks()
        self._profile = profiles_of(Settings.from_env(limits()), image)[profile]
        self._sandboxes = Sandboxes(
            self._runtime, cast(Records, _NoRecords()), SystemClock(), self._tasks, instance=f"bench-{secrets.token_hex(4)}", epoch=1,
            images={profile: image},
        )  # fmt: skip
        self._sandbox: Sandbox | None = None
        self._count: Count | None = None
        self._done = asyncio.Event()

    async def open(self) -> None:
        self._sandbox = await self._sandboxes.create(self._profile, warm=True)
        self._sandbox.link.on_kernel = self._take
        self._sandbox.link.on_event = lambda name, event: None
        await self.run("pass")

    def _take(self, number: int, lane: int, body: Any) -> None:
        if self._count is not None and self._count.take(bytes(body)):
            self._done.set()

    async def run(self, code: str, patience_s: float = 120.0) -> Seen:
        assert self._sandbox is not None
        msg_id, body = message("shell", "execute_request", {"code": code, **CONTENT})
        self._done.clear()
        self._count = Count(msg_id)
        self._sandbox.link.send_kernel(body)
        try:
            await asyncio.wait_for(self._done.wait(), patience_s)
        except TimeoutError:
            pass
        seen, self._count = self._count.done(), None
        return seen

    async def runs(self, code: str, count: int) -> list[Seen]:
        return [await self.run(code) for _ in range(count)]

    async def put(self, data: bytes) -> None:
        """A plain copy into the sandbox, over the relay's own file stream."""
        assert self._sandbox is not None
        await write_sandbox(self._sandbox.link, "in/bench.bin", len(data), None, _pieces(data), overwrite=True)

    async def get(self) -> bytes:
        assert self._sandbox is not None
        return b"".join([piece async for piece in read_sandbox(self._sandbox.link, "in/bench.bin", 1 << 30)])

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.link.close()
            await self._sandboxes.destroy(self._sandbox.row)
        await self._tasks.close()
        await self._runtime.close()
