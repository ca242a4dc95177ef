"""The clock, and the engine with its sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from ..domain.model import Profile


class Clock(Protocol):
    def now(self) -> float: ...
    def boottime(self) -> float: ...
    def boot_id(self) -> str: ...


class ByteStream(Protocol):
    """The sandbox's standard input and output, as bytes cut anywhere."""

    async def read(self) -> bytes:
        """The next bytes of standard output; ``b""`` when the stream has ended. Raises EngineUnavailable."""
        ...

    def write(self, data: bytes) -> None:
        """Queue bytes for standard input; never blocks. Raises SandboxLost once closed."""
        ...

    async def drain(self) -> None:
        """Wait until little of what was written is still queued."""
        ...

    @property
    def queued(self) -> int:
        """Bytes written but not yet taken by the engine."""
        ...

    async def close(self) -> None: ...

    def stderr_tail(self) -> str:
        """The last few KiB that init or relay wrote to standard error: untrusted, for the operator's log only."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What to create. ``relay_uid`` and ``user_uid`` belong to this container alone on its host; ``group_id`` is shared by the two."""

    sandbox_id: str
    instance: str
    profile: Profile
    image: str
    relay_uid: int
    user_uid: int
    group_id: int
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """What the engine says of a container. ``started_at`` and ``finished_at``: seconds since the epoch, 0 if never."""

    engine_id: str
    sandbox_id: str
    running: bool
    exit_code: int | None = None
    oom_killed: bool = False
    started_at: float = 0.0
    finished_at: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """``action``: ``die``, ``oom`` or ``destroy``; ``engine_up`` after the event stream was (re)connected."""

    action: str
    engine_id: str
    sandbox_id: str
    at: float
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What the engine offers. ``runtimes``: OCI runtime name -> version; ``problems``: profile tier -> why it is refused."""

    version: str
    runtimes: dict[str, str]
    problems: dict[str, str]
    cgroup_version: int = 0


class SandboxRuntime(Protocol):
    """A container engine. Every call is bounded in time and raises EngineUnavailable when the engine is absent or hangs."""

    async def info(self) -> RuntimeInfo: ...

    async def image_digest(self, image: str) -> str:
        """The image's id. Raises ImageUnavailable."""
        ...

    async def create(self, spec: SandboxSpec) -> str:
        """Create, not start; returns the engine's id. Raises ImageUnavailable, ProfileUnavailable, CapacityExhausted."""
        ...

    async def attach(self, engine_id: str) -> ByteStream:
        """Open the sandbox's byte stream (before ``start``, or again later). Raises SandboxLost when there is no such container."""
        ...

    async def start(self, engine_id: str) -> None: ...

    async def inspect(self, engine_id: str) -> SandboxFacts | None:
        """None when the engine has no such container."""
        ...

    async def remove(self, engine_id: str) -> None:
        """Kill and remove; returns when the engine confirms that it is gone (also when it never was)."""
        ...

    async def list(self, instance: str) -> list[SandboxFacts]:
        """Every container with this instance's label, running or not."""
        ...

    def events(self, instance: str, since: float) -> AsyncIterator[RuntimeEvent]:
        """Endless; reconnects by itself and replays from the last seen time."""
        ...

    async def stats(self, engine_id: str) -> dict[str, float]:
        """``memory_bytes``, ``cpu_s``, ``pids``; empty when not running."""
        ...

    async def set_cpu_weight(self, engine_id: str, weight: int) -> None:
        """Its share of processors that are wanted by more than one; 1024 is everybody's at first. Raises SandboxLost, Unavailable."""
        ...

    async def close(self) -> None: ...
