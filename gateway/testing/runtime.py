"""An engine in memory: sandboxes are fake relays, and everything that can go wrong with an engine can be made to."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from ..errors import EngineUnavailable, ImageUnavailable, ProfileUnavailable, SandboxLost, SandglassError
from ..ports import Clock, RuntimeEvent, RuntimeInfo, SandboxFacts, SandboxSpec
from .clock import ManualClock
from .files import FakeFiles
from .relay import FakeRelay

LABEL_INSTANCE = "sandglass.instance"
LABEL_SANDBOX = "sandglass.sandbox"
PIPE_BYTES = 1024 * 1024
"""What an attached client may leave unread before the sandbox blocks."""


class FakeStream:
    """``ports.ByteStream`` to one fake sandbox. ``cut``: at most so many bytes a ``read``, 0 for no cutting."""

    def __init__(self, sandbox: FakeSandbox, cut: int = 0) -> None:
        self._sandbox = sandbox
        self._cut = cut
        self._in = bytearray()
        self._out: deque[bytes] = deque()
        self._queued = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._closed = False

    async def read(self) -> bytes:
        while not self._in:
            if self._ended:
                return b""
            self._changed.clear()
            await self._changed.wait()
        size = min(self._cut or len(self._in), len(self._in))
        data = bytes(self._in[:size])
        del self._in[:size]
        if len(self._in) < PIPE_BYTES and not self._closed:
            self._sandbox.relay.block(False)
        return data

    def write(self, data: bytes) -> None:
        if self._ended or self._closed:
            raise SandboxLost("the sandbox's stream is closed")
        self._queued += len(data)
        self._out.append(bytes(data))
        asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        while self._out:
            data = self._out.popleft()
            self._queued -= len(data)
            if self._sandbox.running:
                self._sandbox.relay.feed(data)
        self._changed.set()

    async def drain(self) -> None:
        await asyncio.sleep(0)
        if self._ended:
            raise SandboxLost("the sandbox's stream ended")

    @property
    def queued(self) -> int:
        return self._queued

    async def close(self) -> None:
        self._deliver()
        self._closed = True
        self.end()
        if self in self._sandbox.streams:
            self._sandbox.streams.remove(self)

    def stderr_tail(self) -> str:
        return self._sandbox.stderr

    # what the engine does

    def arrive(self, data: bytes) -> None:
        self._in += data
        if len(self._in) >= PIPE_BYTES:
            self._sandbox.relay.block(True)
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()


@dataclass(slots=True)
class FakeSandbox:
    """A container. Tests reach the inside through ``relay`` (its kernel, its files)."""

    engine_id: str
    spec: SandboxSpec
    files: FakeFiles
    relay: FakeRelay = field(init=False)
    streams: list[FakeStream] = field(default_factory=list)
    running: bool = False
    exit_code: int | None = None
    oom_killed: bool = False
    started_at: float = 0.0
    finished_at: float = 0.0
    stderr: str = ""
    cpu_s: float = 0.5
    cpu_weight: int = 1024

    def output(self, data: bytes) -> None:
        """With nobody attached the engine throws output away."""
        for stream in self.streams:
            stream.arrive(data)

    def facts(self) -> SandboxFacts:
        labels = dict(self.spec.labels) | {LABEL_INSTANCE: self.spec.instance, LABEL_SANDBOX: self.spec.sandbox_id}
        return SandboxFacts(
            self.engine_id, self.spec.sandbox_id, self.running, self.exit_code, self.oom_killed, self.started_at, self.finished_at, labels
        )


class FakeRuntime:
    """``SandboxRuntime``. The attributes below are switches that a test turns at any time."""

    def __init__(self, clock: Clock | None = None, *, images: frozenset[str] = frozenset({"sandglass-kernel:test"})) -> None:
        self.clock: Clock = clock or ManualClock()
        self.images = set(images)
        self.runtimes = {"runc": "1.1.5", "runsc": "20240729.0"}
        self.problems: dict[str, str] = {}
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.created: list[SandboxSpec] = []
        self.removed: list[str] = []
        self.create_errors: deque[SandglassError] = deque()
        """Each creation takes one off and raises it."""
        self.lost_answers: deque[float] = deque()
        """Each creation takes one off: it is done so many seconds later, and nobody hears of it."""
        self.remove_errors: deque[SandglassError] = deque()
        self.start_errors: deque[SandglassError] = deque()
        self.create_s = 0.0
        self.remove_s = 0.0
        """How long a removal takes, in loop time."""
        self.ready_s = 0.0
        """How long a kernel takes to start, in loop time."""
        self.call_timeout_s = 0.2
        self.cut = 0
        self.memory_bytes = 150e6
        self._up = asyncio.Event()
        self._up.set()
        self._answering = asyncio.Event()
        self._answering.set()
        self._starts = 1
        self._events: list[RuntimeEvent] = []
        self._news = asyncio.Event()
        self._serial = itertools.count(1)
        self._closed = False

    # ---------------------------------------------------------------- switches

    def stop_engine(self) -> None:
        """As ``systemctl stop docker`` with live-restore: sandboxes go on, streams end, calls fail."""
        self._up.clear()
        for sandbox in self.sandboxes.values():
            for stream in sandbox.streams:
                stream.end()
            sandbox.streams.clear()
            sandbox.relay.block(False)
        self._tell()

    def start_engine(self) -> None:
        """The engine is back; it remembers no event from before."""
        self._events.clear()
        self._starts += 1
        self._up.set()
        self._tell()

    def hang(self, hanging: bool = True) -> None:
        """Calls are taken and not answered; they end after ``call_timeout_s``."""
        if hanging:
            self._answering.clear()
        else:
            self._answering.set()

    def sandbox(self, sandbox_id: str) -> FakeSandbox:
        """By the sandbox's id, for a test to look into. Raises KeyError."""
        for sandbox in self.sandboxes.values():
            if sandbox.spec.sandbox_id == sandbox_id:
                return sandbox
        raise KeyError(sandbox_id)

    def vanish(self, engine_id: str) -> None:
        """Somebody removed it behind our back; no event tells."""
        sandbox = self.sandboxes.pop(engine_id)
        sandbox.running = False
        self._cut_off(sandbox)

    def exit(self, engine_id: str, code: int, *, oom_killed: bool = False) -> None:
        """Process 1 ended."""
        sandbox = self.sandboxes[engine_id]
        if not sandbox.running:
            return
        sandbox.running = False
        sandbox.exit_code = code
        sandbox.oom_killed = oom_killed
        sandbox.finished_at = self.clock.now()
        self._cut_off(sandbox)
        self._event("die", sandbox, code)

    def oom(self, engine_id: str, *, whole: bool = True) -> None:
        """Memory ran out, with the evidence each runtime was seen to leave.

        runc: the kernel dies of signal 9 and the sandbox goes on. gVisor: ends whole with 137 and OOMKilled, or, not ``whole``,
        the kernel ends with code 1 and no signal.
        """
        sandbox = self.sandboxes[engine_id]
        self._event("oom", sandbox)
        if sandbox.spec.profile.runtime == "runsc":
            if whole:
                self.exit(engine_id, 137, oom_killed=True)
            else:
                sandbox.relay.kernel_ends(code=1)
        elif sandbox.relay.kernel is not None:
            sandbox.relay.kernel.end_by_signal(9)

    def _cut_off(self, sandbox: FakeSandbox) -> None:
        sandbox.relay.stop()
        for stream in sandbox.streams:
            stream.end()
        sandbox.streams.clear()

    def _event(self, action: str, sandbox: FakeSandbox, code: int | None = None) -> None:
        self._events.append(RuntimeEvent(action, sandbox.engine_id, sandbox.spec.sandbox_id, self.clock.now(), code))
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _answer(self) -> None:
        """What every call goes through."""
        await asyncio.sleep(0)
        if not self._up.is_set() or self._closed:
            raise EngineUnavailable("the engine cannot be reached")
        if not self._answering.is_set():
            try:
                await asyncio.wait_for(self._answering.wait(), self.call_timeout_s)
            except TimeoutError:
                raise EngineUnavailable("the engine does not answer") from None

    # ---------------------------------------------------------------- the port

    async def info(self) -> RuntimeInfo:
        await self._answer()
        return RuntimeInfo("fake", dict(self.runtimes), dict(self.problems), 2)

    async def image_digest(self, image: str) -> str:
        await self._answer()
        if image not in self.images:
            raise ImageUnavailable("the kernel image is not in the engine")
        return f"sha256:{image.encode().hex():0>64.64}"

    async def create(self, spec: SandboxSpec) -> str:
        await self._answer()
        if self.create_s:
            await asyncio.sleep(self.create_s)
        if self.create_errors:
            raise self.create_errors.popleft()
        problem = self.problems.get(spec.profile.tier)
        if problem or spec.profile.runtime not in self.runtimes:
            raise ProfileUnavailable(problem or "the engine has no such runtime")
        if spec.image not in self.images:
            raise ImageUnavailable("the kernel image is not in the engine")
        if self.lost_answers:
            asyncio.get_running_loop().call_later(self.lost_answers.popleft(), self._make, spec)
            raise EngineUnavailable("the engine does not answer")
        return self._make(spec)

    def _make(self, spec: SandboxSpec) -> str:
        engine_id = f"{next(self._serial):064x}"
        sandbox = FakeSandbox(engine_id, replace(spec), FakeFiles(spec.profile.limits.workspace_bytes))
        sandbox.relay = FakeRelay(engine_id, sandbox.output, sandbox.files, ready_s=self.ready_s)
        self.sandboxes[engine_id] = sandbox
        self.created.append(spec)
        return engine_id

    def _known(self, engine_id: str) -> FakeSandbox:
        if engine_id not in self.sandboxes:
            raise SandboxLost("the engine has no such sandbox")
        return self.sandboxes[engine_id]

    async def set_cpu_weight(self, engine_id: str, weight: int) -> None:
        await self._answer()
        self._known(engine_id).cpu_weight = weight

    async def attach(self, engine_id: str) -> FakeStream:
        await self._answer()
        sandbox = self._known(engine_id)
        if sandbox.finished_at:
            raise SandboxLost("the sandbox has ended")
        stream = FakeStream(sandbox, self.cut)
        sandbox.streams.append(stream)
        return stream

    async def start(self, engine_id: str) -> None:
        await self._answer()
        sandbox = self._known(engine_id)
        if self.start_errors:
            raise self.start_errors.popleft()
        if not sandbox.running:
            sandbox.running = True
            sandbox.started_at = self.clock.now()
            sandbox.relay.start()

    async def inspect(self, engine_id: str) -> SandboxFacts | None:
        await self._answer()
        sandbox = self.sandboxes.get(engine_id)
        return sandbox.facts() if sandbox else None

    async def remove(self, engine_id: str) -> None:
        await self._answer()
        if engine_id not in self.sandboxes:
            return
        if self.remove_errors:
            raise self.remove_errors.popleft()
        if self.remove_s:
            await asyncio.sleep(self.remove_s)
        self.exit(engine_id, 137)
        sandbox = self.sandboxes.pop(engine_id, None)
        if sandbox is not None:
            self._cut_off(sandbox)
            self.removed.append(engine_id)
            self._event("destroy", sandbox)

    async def list(self, instance: str) -> list[SandboxFacts]:
        await self._answer()
        return [sandbox.facts() for sandbox in self.sandboxes.values() if sandbox.spec.instance == instance]

    async def events(self, instance: str, since: float) -> AsyncIterator[RuntimeEvent]:
        while not self._closed:
            await self._up.wait()
            connected = self._starts
            yield RuntimeEvent("engine_up", "", "", since)
            position = 0
            while self._up.is_set() and self._starts == connected and not self._closed:
                news = self._news
                for event in self._events[position:]:
                    position += 1
                    if event.at >= since and self._is_of(event, instance):
                        yield event
                if position == len(self._events):
                    await news.wait()

    def _is_of(self, event: RuntimeEvent, instance: str) -> bool:
        return any(spec.instance == instance and spec.sandbox_id == event.sandbox_id for spec in self.created)

    async def stats(self, engine_id: str) -> dict[str, float]:
        await self._answer()
        sandbox = self.sandboxes.get(engine_id)
        if sandbox is None or not sandbox.running:
            return {}
        return {"memory_bytes": self.memory_bytes, "cpu_s": sandbox.cpu_s, "pids": 12.0}

    async def close(self) -> None:
        self._closed = True
        for sandbox in self.sandboxes.values():
            self._cut_off(sandbox)
        self._tell()
