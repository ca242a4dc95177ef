"""Server processes of the bench: gateways on state directories of their own, and jupyter_server in its own environment."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEER_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
START_S = 120.0
# nothing of what is measured may be cut; a sandbox may use the processors that the peer's kernels may use, too
LIMITS = {
    "SANDGLASS_CPUS": str(os.cpu_count() or 1),
    "SANDGLASS_MEMORY": "3GiB",
    "SANDGLASS_OUTPUT": "16GiB",
    "SANDGLASS_OUTPUT_MESSAGES": "100000000",
    "SANDGLASS_MESSAGE": "64MiB",
    "SANDGLASS_JOURNAL": "512MiB",
    "SANDGLASS_INPUTS": "512MiB",
    "SANDGLASS_WORKSPACE": "512MiB",
    "SANDGLASS_UPLOAD": "256MiB",
    "SANDGLASS_USER_SANDBOXES": "64",
    "SANDGLASS_SANDBOXES": "64",
    "SANDGLASS_USER_EXECUTIONS": "1000000000",
    "SANDGLASS_USER_OUTPUT": "1024TiB",
    "SANDGLASS_USER_UPLOADS": "1024TiB",
    "SANDGLASS_USER_OPEN_EXECUTIONS": "1000000",
    "SANDGLASS_POOL_TARGET": "1",
}
Json = dict[str, Any]


@dataclass
class Server:
    """Something that speaks Jupyter's HTTP and websocket protocols. ``state``: of a gateway; empty ``docker_host``: no gateway."""

    name: str
    url: str
    token: str
    pid: int
    process: subprocess.Popen[bytes] | None = None
    run: Json = field(default_factory=dict)
    admin_token: str = ""
    scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def is_gateway(self) -> bool:
        return bool(self.run)

    def stop(self) -> None:
        """Only what was started here."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.scratch is not None:
            self.scratch.cleanup()


def gateway_of(state: Path, name: str = "gateway") -> Server:
    """One that serves already on this state directory."""
    run = json.loads((state / "run.json").read_text())
    token, admin = (_token(state, role) for role in ("user", "admin"))
    return Server(name, run["url"], token, int(run["pid"]), run=run, admin_token=admin)


def _token(state: Path, role: str) -> str:
    command = [sys.executable, "-m", "gateway", "token", "--user", "bench", "--tenant", "bench", "--role", role]
    env = {**os.environ, "SANDGLASS_STATE": str(state)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]


def start_gateway(docker_host: str, image: str, name: str = "gateway", **settings: str) -> Server:
    """A gateway of our own. What the environment says of the limits above wins, and is told in the results."""
    scratch = tempfile.TemporaryDirectory(prefix="sandglass-bench-", ignore_cleanup_errors=True)
    state = Path(scratch.name)
    base = {k: v for k, v in os.environ.items() if not k.startswith("SANDGLASS_")}
    env = base | limits() | {
        "SANDGLASS_STATE": str(state), "SANDGLASS_HOST": "127.0.0.1", "SANDGLASS_PORT": "0", "SANDGLASS_FRAME_PORT": "0",
        "SANDGLASS_BOOTSTRAP_ENGINE": "no", "SANDGLASS_ALLOW_CONTAINER": "yes", "SANDGLASS_IMAGE": image, "DOCKER_HOST": docker_host, **settings,
    }  # fmt: skip
    process = _spawn([sys.executable, "-m", "gateway", "serve"], env, ROOT, state / "bench.log")
    _wait(process, (state / "run.json").exists, state / "bench.log")
    server = gateway_of(state, name)
    server.process, server.scratch = process, scratch
    return server


def limits() -> dict[str, str]:
    return LIMITS | {k: os.environ[k] for k in LIMITS if os.environ.get(k)}


def start_peer(name: str, *, tuned: bool) -> Server:
    """jupyter_server, as shipped or with no-delay and without output limits (``peer.py``)."""
    scratch = tempfile.TemporaryDirectory(prefix="sandglass-bench-", ignore_cleanup_errors=True)
    home = Path(scratch.name)
    (home / "root").mkdir()
    token, port = secrets.token_hex(16), _free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON", "SANDGLASS_"))}
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "HOME"):
        env[variable] = str(home / variable.lower())
    env |= {"JUPYTER_NO_CONFIG": "1", "JUPYTER_TOKEN": token, "TMPDIR": scratch.name}
    command = [
        str(PEER_PYTHON), str(ROOT / "bench" / "peer.py"), *(["--tuned"] if tuned else []), f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1", "--ServerApp.open_browser=False", "--ServerApp.allow_root=True",
        f"--ServerApp.root_dir={home / 'root'}", "--ServerApp.terminals_enabled=False",
    ]  # fmt: skip
    process = _spawn(command, env, home / "root", home / "bench.log")
    url = f"http://127.0.0.1:{port}"
    _wait(process, lambda: _answers(url, token), home / "bench.log")
    return Server(name, url, token, process.pid, process, scratch=scratch)


def start_bare(name: str) -> Server:
    """A websocket that answers by itself (``bare.py``), in the gateway's own Python."""
    scratch = tempfile.TemporaryDirectory(prefix="sandglass-bench-", ignore_cleanup_errors=True)
    port, log = _free_port(), Path(scratch.name) / "bench.log"
    process = _spawn([sys.executable, str(ROOT / "bench" / "bare.py"), str(port)], dict(os.environ), ROOT, log)
    url = f"http://127.0.0.1:{port}"
    _wait(process, lambda: _answers(url, ""), log)
    return Server(name, url, "", process.pid, process, scratch=scratch)


def _spawn(command: list[str], env: dict[str, str], cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise SystemExit(f"a server of the bench did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)


def _answers(url: str, token: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url + "/api", headers={"Authorization": f"token {token}"}), timeout=5):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
