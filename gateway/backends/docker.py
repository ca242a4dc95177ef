"""``SandboxRuntime`` over the Docker Engine's API (20.10 and later; the SDK for control calls, our own stream for attach).

The SDK blocks, so its calls run in two bounded pools of threads: a quick one for questions and a slow one for what makes
containers come and go, so that a removal that hangs does not keep an inspect waiting. Every socket wait in a thread is bounded
and so is every call as a whole, its time in the queue included: an engine that hangs costs a typed error, never the pool.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

import docker
import docker.errors
import docker.tls
import requests
import urllib3

from ..errors import (
    CapacityExhausted,
    Conflict,
    EngineUnavailable,
    ImageChanged,
    ImageUnavailable,
    ProfileUnavailable,
    SandboxLost,
    SandglassError,
)
from ..ports import ByteStream, RuntimeEvent, RuntimeInfo, SandboxFacts, SandboxSpec
from . import docker_events, docker_info, hardening
from .docker_stream import EngineAddress, EngineTls, open_attach

log = logging.getLogger(__name__)
T = TypeVar("T")

# the engine answers no question about a container while it starts or removes it, and on a loaded host that takes seconds
QUICK_THREADS, QUICK_S = 8, 15.0
SLOW_THREADS, SLOW_S = 8, 60.0
REMOVE_S = 60.0
INFO_FRESH_S = 30.0
OLDEST_API = "1.41"
"""Docker 20.10; the engine's own version is asked for and used."""

# docker.errors' and requests' own trees, and what lies under them
ENGINE_ERRORS = (
    docker.errors.DockerException,
    docker.errors.StreamParseError,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
    TimeoutError,
    json.JSONDecodeError,
)
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)?")
_FULL = ("no space left", "cannot allocate memory", "resource temporarily unavailable", "too many open files")
_RUNTIME = ("unknown or invalid runtime name", "unknown runtime specified", "seccomp", "oci runtime", "shim", "capabilit")


def typed_error(error: BaseException) -> SandglassError | None:
    """The one map from whatever a call to the engine raises to the error tree; None for a defect of our own.

    The engine's own words can hold host paths: they go to the log, not into the error.
    """
    if isinstance(error, SandglassError):
        return error
    if not isinstance(error, ENGINE_ERRORS):
        return None
    if isinstance(error, docker.errors.ImageNotFound):
        return ImageUnavailable("the kernel image is not in the engine: `make run` builds it when it starts")
    if isinstance(error, docker.errors.NotFound):
        return SandboxLost("the engine has no such sandbox")
    if isinstance(error, docker.errors.APIError):
        return _from_answer(error)
    if isinstance(error, (requests.exceptions.Timeout, TimeoutError, urllib3.exceptions.TimeoutError)):
        return EngineUnavailable("the engine does not answer")
    return EngineUnavailable("the engine cannot be reached")


def _from_answer(error: docker.errors.APIError) -> SandglassError:
    words = str(error.explanation or "").lower()
    status = error.status_code or 0
    if any(word in words for word in _FULL):
        return CapacityExhausted("the engine has no room for another sandbox")
    if status == 404:
        return SandboxLost("the engine has no such sandbox")
    if status == 409:
        return Conflict("the sandbox is in a state that does not admit this")
    if "executable file not found" in words or "no such file or directory" in words:
        return ImageUnavailable("the kernel image does not start: it has no init, or was built for another machine")
    if any(word in words for word in _RUNTIME):
        return ProfileUnavailable("the engine's runtime could not start a sandbox of this profile")
    if 400 <= status < 500:
        return ProfileUnavailable("the engine refused this profile's settings")
    return EngineUnavailable("the engine failed")


class _Calls:
    """A bounded pool of threads and an SDK client whose waits are bounded."""

    def __init__(self, address: EngineAddress, name: str, threads: int, wait_s: float) -> None:
        self._address = address
        self._wait_s = wait_s
        self._client: docker.APIClient | None = None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"engine-{name}")

    async def run(self, job: Callable[[docker.APIClient], T], *, retry: bool = False, expected: tuple[type[SandglassError], ...] = ()) -> T:
        """Run in a thread. ``retry``: once more after a broken connection (questions only: nothing happens twice).

        ``expected``: errors that are an answer to the caller, and no news to the operator.

        Raises what ``typed_error`` makes of it.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._wait_s * 1.5):
                return await loop.run_in_executor(self._pool, self._work, job, retry)
        except Exception as error:
            typed = typed_error(error)
            if typed is None or typed is error:
                raise
            log.log(logging.DEBUG if isinstance(typed, expected) else logging.INFO, "engine call failed: %s: %s", type(error).__name__, error)
            raise typed from error

    def _work(self, job: Callable[[docker.APIClient], T], retry: bool) -> T:
        if self._address.path:
            # the SDK loses a socket each time it cannot connect, so that polling an engine that is away would use up descriptors
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(self._wait_s)
                probe.connect(self._address.path)
        try:
            return job(self._connected())
        except requests.exceptions.ConnectionError as error:
            # the engine may come back as another version, so it is asked again
            self._client = None
            # a kept connection that the engine closed meanwhile; not a timeout, which would only double the wait
            if not retry or isinstance(error, requests.exceptions.Timeout):
                raise
            return job(self._connected())

    def _connected(self) -> docker.APIClient:
        # two threads may both connect at first; a lock would make all wait in line for an engine that hangs
        if self._client is None:
            version = self._new_client(OLDEST_API).version(api_version=False)["ApiVersion"]
            self._client = self._new_client(str(version))
        return self._client

    def _new_client(self, version: str) -> docker.APIClient:
        tls: Any = False
        files = self._address.tls
        if files is not None:
            pair = (str(files.cert), str(files.key)) if files.cert and files.key else None
            tls = docker.tls.TLSConfig(client_cert=pair, ca_cert=str(files.ca) if files.ca else None, verify=files.verify)
        client = docker.APIClient(self._address.base_url, version=version, timeout=self._wait_s, tls=tls)  # type: ignore[arg-type]  # fractions are fine
        # the environment's proxies and certificate bundle would win over what the engine's address says
        client.trust_env = False
        return client

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()


class DockerRuntime:
    """One engine. ``tiers``: tier -> the OCI runtime's name there, for ``info().problems``."""

    def __init__(self, host: str, *, tls: EngineTls | None = None, tiers: Mapping[str, str] | None = None, quick_s: float = QUICK_S) -> None:
        """Opens nothing yet. Raises EngineUnavailable for an address that cannot be used."""
        self._address = EngineAddress.parse(host, tls)
        self._tiers = dict(docker_info.DEFAULT_TIERS if tiers is None else tiers)
        self._quick_s = quick_s
        self._quick = _Calls(self._address, "quick", QUICK_THREADS, quick_s)
        self._slow = _Calls(self._address, "slow", SLOW_THREADS, SLOW_S)
        self._info: tuple[float, RuntimeInfo] | None = None
        self._pins: dict[str, str] = {}

    async def info(self) -> RuntimeInfo:
        def ask(client: docker.APIClient) -> RuntimeInfo:
            return docker_info.describe(client.version(), client.info(), self._tiers, local=self._address.is_local)

        info = await self._quick.run(ask, retry=True)
        self._info = (asyncio.get_running_loop().time(), info)
        return info

    async def _recent_info(self) -> RuntimeInfo:
        if self._info is None or asyncio.get_running_loop().time() - self._info[0] > INFO_FRESH_S:
            return await self.info()
        return self._info[1]

    async def image_digest(self, image: str) -> str:
        found = await self._quick.run(lambda client: client.inspect_image(image), retry=True)  # type: ignore[no-untyped-call]
        return str(found["Id"])

    async def pin_image(self, image: str, expected: str) -> str:
        """The image's id, which every sandbox must be made of from now on, whatever its name comes to mean.

        ``expected``: its id or the digest that a registry knows it by; empty takes what is there. Raises ImageUnavailable, ImageChanged.
        """
        found = await self._quick.run(lambda client: client.inspect_image(image), retry=True)  # type: ignore[no-untyped-call]
        image_id = str(found["Id"])
        digests = {image_id, *(str(name).rpartition("@")[2] for name in found.get("RepoDigests") or ())}
        if expected and expected not in digests:
            raise changed(expected, image_id)
        self._pins[image] = image_id
        return image_id

    async def image_labels(self, image: str) -> dict[str, str]:
        """What the image's build wrote on it (``sandglass.lock``, ``sandglass.content``). Raises ImageUnavailable."""
        found = await self._quick.run(lambda client: client.inspect_image(image), retry=True)  # type: ignore[no-untyped-call]
        return dict((found.get("Config") or {}).get("Labels") or {})

    async def create(self, spec: SandboxSpec) -> str:
        body = hardening.create_body(spec, await self._recent_info())

        def make(client: docker.APIClient) -> str:
            # the name tells nothing and makes a second creation of the same sandbox impossible
            made = client.create_container_from_config(body, f"sandglass-{spec.sandbox_id}")  # type: ignore[no-untyped-call]
            engine_id = str(made["Id"])
            try:
                inspected = client.inspect_container(engine_id)
                hardening.check_created(body, inspected, made.get("Warnings"))
                if (pin := self._pins.get(spec.image)) and str(inspected.get("Image")) != pin:
                    raise changed(pin, str(inspected.get("Image")))
            except BaseException:
                client.remove_container(engine_id, force=True, v=True)
                raise
            return engine_id

        return await self._slow.run(make)

    async def attach(self, engine_id: str) -> ByteStream:
        version = await self._quick.run(lambda client: str(client.api_version))
        stream = await open_attach(self._address, version, engine_id, self._quick_s)
        try:
            # the engine attaches to ended containers too, and then stays silent for ever
            facts = await self.inspect(engine_id)
            if facts is None or (not facts.running and facts.finished_at):
                raise SandboxLost("the sandbox has ended")
        except BaseException:
            await stream.close()
            raise
        return stream

    async def start(self, engine_id: str) -> None:
        await self._slow.run(lambda client: client.start(engine_id))

    async def inspect(self, engine_id: str) -> SandboxFacts | None:
        try:
            found = await self._quick.run(lambda client: client.inspect_container(engine_id), retry=True, expected=(SandboxLost,))
        except SandboxLost:
            return None
        return facts_of(found)

    async def remove(self, engine_id: str) -> None:
        def take(client: docker.APIClient) -> bool:
            try:
                client.remove_container(engine_id, force=True, v=True)
            except docker.errors.NotFound:
                return True
            except docker.errors.APIError as error:
                # "removal already in progress", or a runtime that was slow to kill: asked again until it is gone
                log.info("removal not done yet: %s", error)
            return False

        loop = asyncio.get_running_loop()
        deadline = loop.time() + REMOVE_S
        delay = 0.02
        while not await self._slow.run(take) and await self.inspect(engine_id) is not None:
            if loop.time() > deadline:
                raise EngineUnavailable("the engine does not confirm that a sandbox is gone")
            await asyncio.sleep(delay)
            delay = min(delay * 2, 2.0)

    async def list(self, instance: str) -> list[SandboxFacts]:
        wanted = {"label": [f"{hardening.LABEL_INSTANCE}={instance}"]}
        rows = await self._quick.run(lambda client: client.containers(all=True, filters=wanted), retry=True)
        found = await asyncio.gather(*(self.inspect(str(row["Id"])) for row in rows))
        return [facts for facts in found if facts is not None]

    def events(self, instance: str, since: float) -> AsyncIterator[RuntimeEvent]:
        async def version() -> str:
            return await self._quick.run(lambda client: str(client.api_version))

        return docker_events.follow(self._address, version, instance, since)

    async def stats(self, engine_id: str) -> dict[str, float]:
        no_figures = (SandboxLost, Conflict)
        try:
            found = await self._quick.run(lambda client: client.stats(engine_id, stream=False, one_shot=True), retry=True, expected=no_figures)
        except no_figures:
            return {}
        return usage_of(found)

    async def set_cpu_weight(self, engine_id: str, weight: int) -> None:
        await self._quick.run(lambda client: client.update_container(engine_id, cpu_shares=weight), retry=True)

    async def close(self) -> None:
        self._quick.close()
        self._slow.close()


def changed(expected: str, found: str) -> ImageChanged:
    return ImageChanged(
        f"The kernel image in the engine is {found[:23]}..., the pinned one is {expected[:23]}...: it was replaced or built anew. "
        "See docs/updating.md before you change the pin.", expected=expected, found=found,
    )  # fmt: skip


def facts_of(found: dict[str, Any]) -> SandboxFacts:
    """From the engine's inspect document."""
    state = found.get("State") or {}
    labels = (found.get("Config") or {}).get("Labels") or {}
    running = bool(state.get("Running"))
    finished = _seconds(state.get("FinishedAt"))
    return SandboxFacts(
        engine_id=str(found["Id"]),
        sandbox_id=labels.get(hardening.LABEL_SANDBOX, ""),
        running=running,
        exit_code=int(state.get("ExitCode", 0)) if not running and finished else None,
        oom_killed=bool(state.get("OOMKilled")),
        started_at=_seconds(state.get("StartedAt")),
        finished_at=finished,
        labels=dict(labels),
    )


def _seconds(text: str | None) -> float:
    """From RFC 3339 with up to nanoseconds; 0 for the engine's year 1, which means never."""
    if not text or text.startswith("0001-"):
        return 0.0
    match = _TIME.fullmatch(text)
    if match is None:
        return 0.0
    return datetime.fromisoformat(match[1] + (match[3] or "Z").replace("Z", "+00:00")).timestamp() + float(f"0{match[2] or '.0'}")


def usage_of(found: dict[str, Any]) -> dict[str, float]:
    """From a stats document of cgroup v1 or v2; empty when the container does not run.

    Page cache that can be dropped does not count; tmpfs does, as it does against the limit.
    """
    memory = found.get("memory_stats") or {}
    if not memory.get("usage"):
        return {}
    details = memory.get("stats") or {}
    inactive = details.get("total_inactive_file", details.get("inactive_file", 0))
    return {
        "memory_bytes": float(max(0, memory["usage"] - inactive)),
        "cpu_s": (found.get("cpu_stats") or {}).get("cpu_usage", {}).get("total_usage", 0) / 1e9,
        "pids": float((found.get("pids_stats") or {}).get("current", 0)),
    }
