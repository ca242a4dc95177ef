"""What the machine must have before the gateway can serve: an engine that answers, and the kernel image in it.

Both are the work of scripts (``deploy/engine``, ``kernel-image/build``) that can be run by hand as well; here they are called,
and what they print is passed on, so that nobody waits in silence.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import EngineUnavailable, ImageUnavailable

ROOT = Path(__file__).resolve().parent.parent
ENGINE_SCRIPT = ROOT / "deploy" / "engine"
IMAGE_SCRIPT = ROOT / "kernel-image" / "build"
REQUIREMENTS = ROOT / "kernel-image" / "requirements.in"
USUAL_SOCKET = "unix:///var/run/docker.sock"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Engine:
    """``own``: started by us for this state directory, and ours to stop."""

    host: str
    own: bool


def answers(host: str, timeout_s: float = 3.0) -> bool:
    """True when something at this address answers like an engine (TLS addresses are taken on trust until used)."""
    parts = urlsplit(host)
    if parts.scheme != "unix":
        return bool(parts.hostname)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout_s)
            probe.connect(parts.path)
            probe.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return b"200" in probe.recv(64)
    except OSError:
        return False


def _run(command: list[str], say: Say, failed: str) -> list[str]:
    """Run a script; its standard error and all but the last lines of its output go to ``say``. Returns the output's lines."""
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            line = line.rstrip()
            lines.append(line)
            if line and not line.startswith(("DOCKER_HOST=", "IMAGE=", "IMAGE_ID=")):
                say(line)
    if child.returncode:
        raise EngineUnavailable(f"{failed} (see the lines above).")
    return lines


def _value(lines: list[str], name: str) -> str:
    for line in reversed(lines):
        found = re.search(rf"\b{name}=(\S+)", line)
        if found:
            return found[1]
    return ""


def find_engine(docker_host: str, state: Path, bootstrap: bool, say: Say) -> Engine:
    """The engine to use: the configured one, one of our own that runs already, the usual one, or one started now.

    Raises EngineUnavailable with what to do.
    """
    if docker_host:
        return Engine(docker_host, own=False)
    own = _own_running(state)
    if own:
        return Engine(own, own=True)
    if answers(USUAL_SOCKET):
        return Engine(USUAL_SOCKET, own=False)
    if not bootstrap:
        raise EngineUnavailable("No container engine answers, and SANDGLASS_BOOTSTRAP_ENGINE=no forbids to start one. Set DOCKER_HOST.")
    if os.geteuid() != 0:
        raise EngineUnavailable("No container engine answers. Start Docker, set DOCKER_HOST, or run as root so that one can be started.")
    say("engine: none answers; an engine of its own is installed and started for this gateway")
    lines = _run([str(ENGINE_SCRIPT), "start", "--state", str(state)], say, "The engine could not be started")
    return Engine(_value(lines, "DOCKER_HOST"), own=True)


def _own_running(state: Path) -> str:
    """The address of our own engine when it runs; empty when not."""
    if not (state / "engine").exists():
        return ""
    done = subprocess.run([str(ENGINE_SCRIPT), "status", "--state", str(state)], capture_output=True, text=True, timeout=30, check=False)
    return _value(done.stdout.splitlines(), "DOCKER_HOST") if done.returncode == 0 else ""


def stop_engine(state: Path, say: Say) -> None:
    _run([str(ENGINE_SCRIPT), "stop", "--state", str(state)], say, "The engine could not be stopped")


def ensure_image(docker_host: str, state: Path, say: Say) -> tuple[str, str]:
    """The kernel image's reference and its id, built when its content is new. Raises ImageUnavailable."""
    try:
        lines = _run([sys.executable, str(IMAGE_SCRIPT), "--docker-host", docker_host, "--state", str(state)], say, "failed")
    except EngineUnavailable:
        raise ImageUnavailable("The kernel image could not be built (see the lines above).") from None
    return _value(lines, "IMAGE"), _value(lines, "IMAGE_ID")


def image_packages(lock: str, requirements: Path = REQUIREMENTS) -> tuple[str, ...]:
    """What users find installed in an image with this lock hash (its label ``sandglass.lock``), sorted; empty when it was built from another lock.

    The direct requirements: what these need in turn is there as well, but is nobody's offer.
    """
    file = requirements.with_suffix(".lock")
    try:
        own = hashlib.sha256(f"{file.name}\0-{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode()).hexdigest()  # as ``build`` does it
        lines = requirements.read_text().splitlines() if own == lock else []
    except OSError:
        return ()
    names = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line) for line in lines)
    return tuple(sorted(found[0].lower() for found in names if found))
