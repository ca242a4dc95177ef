"""What the measures use, started when first asked for and ended together: servers, and for each profile its open subjects."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .client import Seen
from .processes import Server, gateway_of, start_bare, start_gateway, start_peer
from .report import Report
from .subjects.inside import Inside
from .subjects.relay import Relay
from .subjects.web import Api, Web

GATEWAY, INSIDE, RELAY, PEER, TUNED = "gateway", "inside", "relay stream", "jupyter_server", "jupyter_server, tuned"
SHARED = "inside, relay's kernel"
BARE = "a websocket that answers by itself"


class Subject(Protocol):
    async def run(self, code: str) -> Seen: ...
    async def runs(self, code: str, count: int) -> list[Seen]: ...
    async def close(self) -> None: ...


class Lab:
    def __init__(self, docker_host: str, image: str, report: Report, *, quick: bool, rounds: int = 0, state: Path | None = None) -> None:
        self._rounds = rounds
        self.docker_host, self.image, self.report, self.quick, self.state = docker_host, image, report, quick, state
        self._servers: dict[str, Server] = {}
        self._open: list[Subject] = []
        self._subjects: dict[str, dict[str, Any]] = {}

    def rounds(self, full: int) -> int:
        return self._rounds or (2 if self.quick else full)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    # --- servers ------------------------------------------------------------------------------------------------------

    def _server(self, name: str, start: Callable[[], Server]) -> Server:
        if name not in self._servers:
            self._servers[name] = start()
        return self._servers[name]

    def gateway(self) -> Server:
        state = self.state
        return self._server(GATEWAY, lambda: gateway_of(state) if state else start_gateway(self.docker_host, self.image))

    def cold_gateway(self) -> Server:
        return self._server("cold", lambda: start_gateway(self.docker_host, self.image, SANDGLASS_POOL_TARGET="0"))

    def plain_gateway(self) -> Server:
        """With the processor limit that a sandbox has by default."""
        state = self.state
        return self.gateway() if state else self._server("plain", lambda: start_gateway(self.docker_host, self.image, SANDGLASS_CPUS="1"))

    def small_gateway(self, sandboxes: int) -> Server:
        """With room for few sandboxes, and little in each."""
        settings = {"SANDGLASS_SANDBOXES": str(sandboxes), "SANDGLASS_CPUS": "1", "SANDGLASS_MEMORY": "512MiB", "SANDGLASS_WORKSPACE": "64MiB",
                    "SANDGLASS_INPUTS": "64MiB", "SANDGLASS_UPLOAD": "16MiB", "SANDGLASS_JOURNAL": "16MiB"}  # fmt: skip
        return self.gateway() if self.state else self._server("small", lambda: start_gateway(self.docker_host, self.image, **settings))

    def peer(self) -> Server:
        return self._server(PEER, lambda: start_peer(PEER, tuned=False))

    def tuned(self) -> Server:
        return self._server(TUNED, lambda: start_peer(TUNED, tuned=True))

    def bare(self) -> Server:
        return self._server(BARE, lambda: start_bare(BARE))

    def end_server(self, name: str) -> None:
        """It is not needed any more; fewer processes disturb what follows."""
        if name in self._servers:
            self._servers.pop(name).stop()

    async def settled(self, profile: str, server: Server | None = None) -> None:
        """Until the gateway's pool is full, so that it works for nobody else."""
        api, deadline = Api(server or self.gateway()), time.monotonic() + 120
        while time.monotonic() < deadline:
            pool = api.call("GET", "/healthz")["checks"]["pool"]
            if pool["warm"].get(profile, 0) > 0 and not any(pool["creating"].values()):
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)  # the container before is being removed

    # --- subjects -----------------------------------------------------------------------------------------------------

    async def subjects(self, profile: str, *names: str) -> dict[str, Any]:
        """Open subjects by name, in the order asked for; the same ones each time."""
        held = self._subjects.setdefault(profile, {})
        for name in names:
            if name not in held:
                held[name] = await self._make(profile, name, held)
                self._open.append(held[name])
        return {name: held[name] for name in names}

    async def _make(self, profile: str, name: str, held: dict[str, Any]) -> Any:
        if name in (GATEWAY, PEER, TUNED, BARE):
            server = {GATEWAY: self.gateway, PEER: self.peer, TUNED: self.tuned, BARE: self.bare}[name]()
            if name == GATEWAY:
                await self.settled(profile)
            subject: Any = Web(server, profile)
        elif name == RELAY:
            subject = Relay(self.docker_host, self.image, profile)
        else:
            gateway = (await self.subjects(profile, GATEWAY))[GATEWAY]
            subject = Inside(self.docker_host, f"sandglass-{gateway.sandbox_id()}", shared=name == SHARED)
        await subject.open()
        return subject

    async def fresh(self, server: Server, profile: str) -> Web:
        """A kernel for one measure, the gateway's from the pool; the measure closes it."""
        if server.is_gateway:
            await self.settled(profile, server)
        web = Web(server, profile)
        await web.open()
        return web

    async def drop(self, profile: str) -> None:
        for subject in reversed(list(self._subjects.pop(profile, {}).values())):
            self._open.remove(subject)
            with contextlib.suppress(Exception):
                await subject.close()

    async def close(self) -> None:
        for profile in list(self._subjects):
            await self.drop(profile)
        for name in list(self._servers):
            self.end_server(name)


async def alternate(subjects: Mapping[str, Callable[[], Awaitable[Sequence[Any]]]], rounds: int, rest_s: float = 0.0) -> dict[str, list[Any]]:
    """A B C A B C ...: what each gave, over all rounds. One that fails is out, and its last entry is the exception."""
    found: dict[str, list[Any]] = {name: [] for name in subjects}
    failed: set[str] = set()
    for _ in range(rounds):
        for name, work in subjects.items():
            if name in failed:
                continue
            try:
                found[name] += await work()
            except Exception as error:
                failed.add(name)
                found[name] = [error]
            await asyncio.sleep(rest_s)
    return found
