"""What the runtime's contract suite needs: a door to hurt an engine through, a world for each implementation, the least of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.domain.model import Profile
from gateway.ports import ByteStream, SandboxRuntime, SandboxSpec
from gateway.protocol.frames import Kind, Message, Outbox, Parser


class Door:
    """A Unix socket in front of the engine's: it can be shut (the engine stops) or go deaf (the engine hangs)."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._folder = tempfile.TemporaryDirectory()
        self.path = str(Path(self._folder.name) / "engine.sock")
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._deaf = False

    async def open(self) -> None:
        self._deaf = False
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    def go_deaf(self) -> None:
        self._deaf = True

    async def shut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._open:
            task.cancel()
        self._writers.clear()
        Path(self.path).unlink(missing_ok=True)
        await asyncio.sleep(0.05)

    async def forget(self) -> None:
        """At the end of a test: nothing is left open."""
        await self.shut()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._folder.cleanup()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        there, back = await asyncio.open_unix_connection(self._target)
        self._writers.add(back)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.get_running_loop().create_task(self._pump(source, sink))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                while self._deaf:
                    await asyncio.sleep(0.05)
                sink.write(data)
                await sink.drain()
        sink.close()


@dataclass
class World:
    """One implementation, and how to hurt it."""

    runtime: SandboxRuntime
    profile: Profile
    image: str
    stop: Callable[[], Awaitable[None]]
    start: Callable[[], Awaitable[None]]
    hang: Callable[[], Awaitable[None]]
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)
    patience_s: float = 60.0
    made: list[str] = field(default_factory=list)
    real: bool = True
    _uids: int = 300_000

    def spec(self, **changes: Any) -> SandboxSpec:
        self._uids += 10
        base = SandboxSpec(
            uuid.uuid4().hex[:16], self.instance, self.profile, self.image, self._uids, self._uids + 1, self._uids + 2, {"sandglass.template": "t"}
        )
        return replace(base, **changes)

    async def create(self, **changes: Any) -> tuple[SandboxSpec, str]:
        spec = self.spec(**changes)
        engine_id = await self.runtime.create(spec)
        self.made.append(engine_id)
        return spec, engine_id

    async def running(self) -> tuple[SandboxSpec, str, Talk]:
        spec, engine_id = await self.create()
        talk = Talk(await self.runtime.attach(engine_id))
        await self.runtime.start(engine_id)
        await asyncio.wait_for(talk.hello(), self.patience_s)
        return spec, engine_id, talk


class Talk:
    """The least of a gateway: greets the relay and plays ping with it."""

    def __init__(self, stream: ByteStream, marker: bytes = b"", epoch: int = 0) -> None:
        self.stream = stream
        self.marker = marker
        self.epoch = epoch
        self.hellos: list[dict[str, Any]] = []
        self._parser = Parser(marker or None)

    async def next(self, kind: Kind) -> Message:
        while True:
            data = await self.stream.read()
            assert data, f"the stream ended; standard error: {self.stream.stderr_tail()}"
            for message in self._parser.feed(data):
                if message.kind is kind:
                    return message

    async def hello(self) -> dict[str, Any]:
        hello: dict[str, Any] = json.loads((await self.next(Kind.HELLO)).body)
        self.marker = bytes.fromhex(hello["marker"])
        self._parser.set_marker(self.marker)
        self.hellos.append(hello)
        return hello

    async def attach(self, epoch: int) -> dict[str, Any]:
        self.epoch = epoch
        self._parser.resync()
        self.stream.write(self.marker)
        self._put(Kind.ATTACH, json.dumps({"protocol": 1, "epoch": epoch, "received": [0, 0, 0], "limits": {}}).encode())
        return await self.hello()

    async def ping(self, body: bytes) -> bytes:
        self._put(Kind.PING, body)
        return (await self.next(Kind.PONG)).body

    def _put(self, kind: Kind, body: bytes) -> None:
        out = Outbox(self.epoch)
        out.put_unnumbered(kind, body)
        self.stream.write(out.next_frames())
