"""``sandglass doctor``: what is missing and how to mend it, and every limit in force."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import local
from .backends.docker import DockerRuntime
from .clock import SystemClock
from .config import Settings, describe
from .errors import SandglassError
from .main import TIERS, problems_of, store_of
from .running import run_file

MIN_FREE = 6 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """``mend`` is empty when all is well."""

    what: str
    found: str
    mend: str = ""


def _machine(settings: Settings) -> Iterator[Finding]:
    good = sys.version_info >= (3, 11)
    yield Finding("Python", sys.version.split()[0], "" if good else "install Python 3.11 or newer")
    state = settings.state.resolve()
    existing = next(p for p in (state, *state.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    yield Finding(
        "disk", f"{free / 1024**3:.1f} GiB free for {settings.state}", "" if free > MIN_FREE else "free some space: the image needs about 6 GiB"
    )
    yield Finding("state", str(settings.state), "" if os.access(existing, os.W_OK) else f"make {existing} writable")
    running = run_file(settings.state)
    if running:
        yield Finding("gateway", f"runs at {running['url']} (pid {running['pid']})")
    else:
        for name, port in (("port", settings.port), ("frame port", settings.frame_port)):
            yield Finding(name, str(port or "any free one"), "" if _free(settings.host, port) else f"port {port} is taken; set another")


def _free(host: str, port: int) -> bool:
    if not port:
        return True
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


async def _engine(settings: Settings) -> list[Finding]:
    try:
        host = local.find_engine(settings.docker_host, settings.state, False, lambda line: None).host
    except SandglassError as error:
        will = settings.bootstrap_engine and os.geteuid() == 0
        return [Finding("engine", "none answers", "'make run' will install and start one" if will else error.detail)]
    runtime = DockerRuntime(host)
    try:
        info = await runtime.info()
        found = [Finding("engine", f"{host}, version {info.version}, cgroup v{info.cgroup_version}")]
        problems = problems_of(settings, info)
        for name, oci, _ in TIERS:
            found.append(Finding(f"tier {name}", f"{oci} {info.runtimes.get(oci, 'is not there')}", problems.get(name, "")))
        if settings.image:
            pin = settings.image_digest or (settings.image.rpartition("@")[2] if "@" in settings.image else "")
            found.append(Finding("image", f"{settings.image} {await runtime.pin_image(settings.image, pin)}" + (" (pinned)" if pin else "")))
        return found
    except SandglassError as error:
        return [Finding("engine", host, error.detail)]
    finally:
        await runtime.close()


async def _store(settings: Settings) -> list[Finding]:
    """Looks only: makes no bucket, and no folder of a state that does not exist yet."""
    s3 = settings.s3
    what = f"S3 at {s3.endpoint}, bucket {s3.bucket}, prefix {s3.prefix}" if s3.endpoint else f"a directory, {settings.state / 'store'}"
    if not s3.endpoint and not (settings.state / "store").exists():
        return [Finding("store", f"{what} (made at the first start)")]
    try:
        store = store_of(settings, SystemClock())
        try:
            await store.check()
        finally:
            await store.close()
    except SandglassError as error:
        return [Finding("store", what, error.detail)]
    return [Finding("store", f"{what}: serves")]


async def _parts(settings: Settings) -> list[Finding]:
    return [*await _store(settings), *await _engine(settings)]


def run(settings: Settings, say: Callable[[str], None]) -> int:
    """Print the findings and the settings; 0 when nothing hinders ``make run``."""
    findings = [*_machine(settings), *asyncio.run(_parts(settings))]
    say("This machine")
    for f in findings:
        say(f"  {'ok  ' if not f.mend else 'MEND'}  {f.what}: {f.found}" + (f"\n        -> {f.mend}" if f.mend else ""))
    say("\nSettings and limits in force (environment variable = value: meaning)")
    for name, value, unit, meaning in describe(settings):
        say(f"  {name} = {value}{' ' + unit if unit else ''}: {meaning}")
    for warning in settings.warnings:
        say(f"  note: {warning}")
    tiers = [f for f in findings if f.what.startswith("tier ")]
    fatal = [f for f in findings if f.mend and not f.what.startswith("tier ") and "will install" not in f.mend]
    return 1 if fatal or (tiers and all(f.mend for f in tiers)) else 0
