"""The composition root: what is made of what, in which order it starts, and in which order it stops (bounded)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .auth import KeptRevocations, Pages, ProviderKeys, Revocations, TokenVerifier
from .backends.docker import DockerRuntime
from .backends.filesystem_store import FilesystemStore
from .backends.metrics import Metrics
from .backends.records import SqliteRecords, make_owner
from .clock import SystemClock
from .config import Settings
from .domain.files import PersistLimits
from .domain.inspection import Downloads
from .domain.model import EndReason, Profile
from .domain.sensitive import Screens
from .domain.session_events import RecycleRequested
from .errors import ImageChanged, SandglassError
from .http import server as http_server
from .http.app import body_limit, make_app, make_frame_app
from .http.deps import Deps, HttpLimits
from .http.provider import fetcher
from .local import ROOT, image_packages
from .ports import Clock, RuntimeInfo
from .service import garbage
from .service.adoption import Adoption
from .service.deadlines import Deadlines
from .service.fairness import CpuWatch
from .service.gateway import Gateway
from .service.inspection import InspectionRules
from .service.monitor import LEASE_TTL_S, Monitor
from .service.pool import Pool
from .service.sandboxes import Sandboxes
from .service.sweeper import Sweeper
from .service.tally import Tally
from .service.tasks import Tasks
from .service.world import World

if TYPE_CHECKING:
    from .backends.s3_store import S3Store

log = logging.getLogger("sandglass.main")
RECYCLE_ALL_S = 60.0
ENGINE_RETRY_S = 3.0
_LAST = ("records", "lease", "engine client", "store")
"""Tasks that are ending may still need these."""
TIERS = (("gvisor", "runsc", "gVisor sandbox"), ("container", "runc", "Plain container"))


@dataclass(frozen=True, slots=True)
class Started:
    """What the caller shows: ``available`` profile names, and for the others why not."""

    url: str
    frame_url: str
    login_url: str
    available: list[str]
    problems: dict[str, str]


def profiles_of(settings: Settings, image: str) -> dict[str, Profile]:
    return {name: Profile(name, name, runtime, image, title, settings.limits, settings.lifetimes) for name, runtime, title in TIERS}


def problems_of(settings: Settings, info: RuntimeInfo) -> dict[str, str]:
    """Profile -> why it is refused. Fail closed: what the engine does not vouch for is not offered."""
    problems = {name: info.problems[name] for name, _, _ in TIERS if name in info.problems}
    if "container" not in problems and not settings.container_allowed:
        problems["container"] = (
            "plain containers share the host's kernel; allow them with SANDGLASS_ALLOW_CONTAINER=yes where one tenant uses this gateway"
        )
    return problems


def default_profile(settings: Settings, problems: dict[str, str]) -> str:
    if settings.default_profile:
        return settings.default_profile
    return next((name for name, _, _ in TIERS if name not in problems), TIERS[0][0])


def usable_profile(settings: Settings, problems: dict[str, str]) -> str:
    """For the gateway's own work: the default where it is served, else the first that is; empty where none is."""
    default = default_profile(settings, problems)
    return default if default not in problems else next((name for name, _, _ in TIERS if name not in problems), "")


def store_of(settings: Settings, clock: Clock) -> FilesystemStore | S3Store:
    """Where kept files are. Raises StoreUnavailable where the settings cannot be right."""
    if not settings.s3.endpoint:
        return FilesystemStore(settings.state / "store")
    from .backends.s3_store import S3Store  # here: the client's library is slow to load, and few need it

    return S3Store(settings.s3, clock)


def _offered(trace: dict[str, dict[str, str]]) -> tuple[str, ...]:
    """Packages of the image, whose lock hash stands in every trace."""
    return image_packages(next(iter(trace.values()))["lock"]) if trace else ()


class Server:
    """One running gateway."""

    def __init__(self, settings: Settings, *, docker_host: str, image: str, image_id: str = "") -> None:
        """``image_id``: what the build of the image said; settings may pin another one, which is then refused."""
        self.settings = settings
        self._docker_host = docker_host
        self._image = image
        self._pin = settings.image_digest or (image.rpartition("@")[2] if "@" in image else image_id)
        self._screens = Screens(settings.sensitive)
        self.clock = SystemClock()
        self.tasks = Tasks()
        self.tally = Tally()
        self.stop_requested = asyncio.Event()
        self._incomplete = False
        self._owner = make_owner(self.clock.boot_id())
        self._undo: list[tuple[str, Callable[[], Any]]] = []

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start(self) -> Started:
        self._on_signal(self.stop_requested.set)  # whoever sees the first sign of life may stop it in order
        s = self.settings
        records = SqliteRecords(s.state / "records.sqlite")
        await records.open()
        self._later("records", records.close)
        instance = await records.instance_id()
        epoch = await records.acquire_lease(self._owner, self.clock.now(), LEASE_TTL_S)
        self._later("lease", lambda: records.release_lease(self._owner))
        store = store_of(s, self.clock)
        self._later("store", store.close)
        await store.open()
        runtime = DockerRuntime(self._docker_host)
        self._later("engine client", runtime.close)
        problems, trace = await self._look_at_engine(runtime)
        profiles = profiles_of(s, self._image)
        deadlines = Deadlines(self.clock, self.tally.deadline_late.observe)
        sandboxes = Sandboxes(
            runtime, records, self.clock, self.tasks, instance=instance, epoch=epoch, images=dict.fromkeys(profiles, self._image),
            tally=self.tally,
        )  # fmt: skip
        usable = {name: p for name, p in profiles.items() if name not in problems}
        pool = Pool(
            sandboxes, records, self.clock, self.tasks, profiles=profiles, warm_profiles=list(usable), target=s.pool_target,
            max_live=s.caps.max_live, parallel=max(1, (os.cpu_count() or 1) // 2),
        )  # fmt: skip
        world = World(
            self.clock, records, store, self.tasks, deadlines, sandboxes, pool, profiles, s.state / "journals",
            s.caps, PersistLimits(s.caps.artifact_bytes, s.caps.session_bytes), trace, retention=s.retention, transcripts=s.transcripts,
            screens=self._screens,
            inspection=InspectionRules(s.archives, Downloads(s.downloads), s.pictures == "anew", s.unpack == "sandbox"),
            quota_limits=s.quotas,
        )  # fmt: skip
        world.disposables.profile = usable_profile(s, problems)
        world.packages = _offered(trace)
        await world.quotas.load(records)
        self._later("quotas", lambda: world.quotas.save(records))
        self._later("deadlines", deadlines.close)
        self.gateway = Gateway(world, default_profile=default_profile(s, problems), problems=problems)
        self.gateway.forbidden = frozenset() if s.container_allowed else frozenset({"container"})
        self._pool = pool
        kept = KeptRevocations(records, self.tasks.spawn)
        revocations = await kept.load()
        for row in await self.gateway.users.load():
            revocations.user_changed(row)
        self.gateway.users.listeners.append(revocations.user_changed)
        adoption = Adoption(self.gateway, instance)
        await adoption.load()
        verifier = TokenVerifier.from_settings(s.auth, self.clock, revocations=revocations)
        keys = await self._provider_keys(verifier)
        started = self._listen(revocations, kept, verifier, keys)
        self.tasks.spawn(self._adopt(adoption), "adoption")
        Monitor(self.gateway, adoption, instance, self._owner, self.stop_requested.set).start()
        self.tasks.spawn(Sweeper(self.gateway).run(), "retention")
        self.tasks.spawn(world.quotas.keep(records), "quotas")
        self.tasks.spawn(CpuWatch(self.gateway, s.caps.cpu_sustained_s).run(), "fairness")
        self.tasks.spawn(self._watch_engine(runtime), "engine-info")
        self.tasks.spawn(garbage.keep_tidy(self.gateway.quiet), "garbage")
        self.tasks.spawn(self.tally.watch_loop(), "loop-lag")
        return replace(started, available=list(usable), problems=problems)

    async def _adopt(self, adoption: Adoption) -> None:
        await adoption.run()
        self.gateway.users.enforce()
        self.gateway.enforce_policy()
        self._pool.maintain()

    async def _look_at_engine(self, runtime: DockerRuntime) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        """Profile -> why it cannot be served, and the members of traces. ``_incomplete`` says that it is worth to look again.

        Raises ImageChanged.
        """
        try:
            info = await runtime.info()
            digest = await runtime.pin_image(self._image, self._pin)
            labels = await runtime.image_labels(self._image)
        except ImageChanged:
            raise
        except SandglassError as error:
            log.error("engine or image not ready", extra={"why": error.detail})
            self._incomplete = True
            return {name: error.detail for name, _, _ in TIERS}, {}
        self._incomplete = False
        trace = {
            name: {
                "image": digest, "lock": labels.get("sandglass.lock", ""), "runtime": f"{oci} {info.runtimes.get(oci, '')}".strip(),
            }
            for name, oci, _ in TIERS
        }  # fmt: skip
        return problems_of(self.settings, info), trace

    async def _watch_engine(self, runtime: DockerRuntime) -> None:
        """An engine that was absent at the start is asked again until it tells what it offers."""
        while self._incomplete:
            await asyncio.sleep(ENGINE_RETRY_S)
            try:
                problems, trace = await self._look_at_engine(runtime)
            except ImageChanged as error:  # it stays refused; sandboxes that run go on
                log.critical("the kernel image is not the pinned one", extra={"why": error.detail})
                self.gateway.problems.update({name: error.detail for name, _, _ in TIERS})
                continue
            self.gateway.problems.clear()
            self.gateway.problems.update(problems)
            self.gateway.default_profile = default_profile(self.settings, problems)
            self.gateway.world.trace.update(trace)
            self.gateway.world.disposables.profile = usable_profile(self.settings, problems)
            self.gateway.world.packages = _offered(trace)
            self._pool.warm(name for name, _, _ in TIERS if name not in problems)

    async def _provider_keys(self, verifier: TokenVerifier) -> ProviderKeys | None:
        """A provider that does not answer now stops no start: tokens are answered 503 until it does."""
        auth = self.settings.auth
        if not auth.jwks_url:
            return None
        fetch, close = fetcher(auth.jwks_url)
        self._later("identity provider", close)
        keys = ProviderKeys(
            fetch, verifier, self.clock, self.tasks.spawn, algorithms=auth.algorithms, fixed=auth.verify_keys(), refresh_s=auth.jwks_refresh_s,
        )  # fmt: skip
        await keys.ask()
        self.tasks.spawn(keys.keep_fresh(), "jwks-refresh")
        return keys

    def _listen(self, revocations: Revocations, kept: KeptRevocations, verifier: TokenVerifier, keys: ProviderKeys | None) -> Started:
        s = self.settings
        pages = Pages(s.auth.page_secret, self.clock, revocations=revocations)
        deps = Deps(
            verifier, pages, self.clock, origins=frozenset(s.allowed_origins), web_dir=ROOT / "web",
            limits=HttpLimits(upload_bytes=s.caps.upload_bytes, message_bytes=s.limits.message_bytes), tasks=self.tasks,
            tally=self.tally, figures=Metrics(self.gateway), scrape_token=s.metrics_token, recorded=kept.recorded, keys=keys, screens=self._screens,
        )  # fmt: skip
        revocations.listeners.append(deps.presence.revoked)
        sockets, port = http_server.bind(s.host, s.port)
        frame_sockets, frame_port = http_server.bind(s.host, s.frame_port)
        name = "127.0.0.1" if s.host in ("0.0.0.0", "", "::") else s.host  # noqa: S104 - compared, not bound
        host = f"[{name}]" if ":" in name else name
        deps.url = s.public_url or f"http://{host}:{port}"
        deps.frame_url, deps.frame_fixed = s.frame_url or f"http://{host}:{frame_port}", bool(s.frame_url)
        # here and not above: the SDK takes a second to import, which `sandglass token` need not wait for
        from .mcp.app import McpApp, security

        transport = security(deps.url, s.host, port, s.allowed_origins, s.allowed_hosts)
        deps.mcp = mcp = McpApp(self.gateway, self.tasks, deps.url, transport, body_bytes=deps.limits.json_bytes)
        servers = [
            http_server.serve(make_app(self.gateway, deps), sockets, body_limit(deps)),
            http_server.serve(make_frame_app(self.gateway, deps), frame_sockets, lambda method, path: 0),
        ]
        for server in servers:
            self._later("connections", server.close_all_connections)
            self._later("listening", server.stop)
        self._later("mcp", mcp.close)
        login_url = ""
        if s.auth.development:
            # with an identity provider's keys nobody is an administrator for having started the process
            ticket, _ = pages.issue_ticket(s.auth.local_admin(), "login")
            login_url = f"{deps.url}/login?ticket={ticket}"
        return Started(deps.url, deps.frame_url, login_url, [], {})

    def write_run_file(self, started: Started) -> None:
        """``run.json``: for scripts; there while the gateway serves."""
        path = self.settings.state / "run.json"
        content = {
            "url": started.url, "frame_url": started.frame_url, "pid": os.getpid(), "docker_host": self._docker_host,
            "profiles": started.available, "image": self._image,
        }  # fmt: skip
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(path)
        self._later("run.json", lambda: path.unlink(missing_ok=True))

    def _later(self, name: str, undo: Callable[[], Any]) -> None:
        self._undo.append((name, undo))

    # --- stopping -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _on_signal(call: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, call)

    async def stop(self, say: Callable[[str], None]) -> None:
        """Stop accepting, end or let go of the sandboxes, then everything else, newest first; each step is bounded."""
        again = asyncio.Event()
        self._on_signal(again.set)
        gateway = getattr(self, "gateway", None)
        if gateway is not None:
            if self.settings.on_stop == "recycle":
                await self._recycle_all(gateway, again, say)
            for session in list(gateway.live.values()):
                session.attachments.close_all("shutdown")
                if session.sandbox is not None:
                    await session.sandbox.link.close()
            await asyncio.wait_for(asyncio.gather(self._pool.close(), gateway.world.disposables.close()), 30.0)
        for name, undo in reversed(self._undo):
            if name not in _LAST:
                await self._bounded(name, undo)
        await self.tasks.close()
        for name, undo in reversed(self._undo):
            if name in _LAST:
                await self._bounded(name, undo)

    @staticmethod
    async def _bounded(name: str, undo: Callable[[], Any]) -> None:
        try:
            result = undo()
            if asyncio.iscoroutine(result):
                await asyncio.wait_for(result, 5.0)
        except Exception as error:
            # stopping goes on whatever one part of it does
            log.warning("stop step failed", extra={"step": name, "why": type(error).__name__})

    async def _recycle_all(self, gateway: Gateway, again: asyncio.Event, say: Callable[[str], None]) -> None:
        held = [s for s in gateway.live.values() if s.core.sandbox_id or s.sandbox is not None]
        if held:
            say(f"stopping: {len(held)} sandbox(es) are ended, declared files are stored first (Ctrl-C again: at once)")
        for session in held:
            with contextlib.suppress(SandglassError):
                session.dispatch(RecycleRequested(EndReason.UPGRADE))

        async def gone() -> None:
            # the end of many tasks of many sessions; looked at for at most a minute of the process
            while any(s.core.sandbox_id for s in gateway.live.values()) or gateway.world.sandboxes.removing:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

        waits = [asyncio.ensure_future(gone()), asyncio.ensure_future(again.wait())]  # noqa: TID251 - both are awaited right here
        await asyncio.wait(waits, timeout=RECYCLE_ALL_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        left = [s for s in gateway.live.values() if s.sandbox is not None]
        if left:
            say(f"stopping: {len(left)} sandbox(es) did not end in time; the next start takes them up")
            for session in left:
                await session.released()
