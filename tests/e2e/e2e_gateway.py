"""A real gateway in a process of its own, on a private state directory, for the end-to-end tests.

Needs ``SANDGLASS_TEST_DOCKER_HOST`` and ``SANDGLASS_TEST_IMAGE`` (the kernel image); without them these tests are skipped.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).resolve().parents[2]
DOCKER_HOST = os.environ.get("SANDGLASS_TEST_DOCKER_HOST", "")
IMAGE = os.environ.get("SANDGLASS_TEST_IMAGE", "")
START_S = 120.0
STOP_S = 120.0
HTTP_S = 120.0

Json = dict[str, Any]


def command() -> list[str]:
    """How ``sandglass`` is called: the environment's own script, else this Python."""
    script = ROOT / ".venv" / "bin" / "sandglass"
    return [str(script)] if script.exists() else [sys.executable, "-m", "gateway"]


def _end_with_the_tests() -> None:
    """In the new process: be told to stop when the test run dies without its fixtures being torn down (Linux)."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGTERM), 0, 0, 0)


@dataclass
class Gateway:
    """``env`` adds to the settings; the process can be killed and started again on the same state. ``program``: what is run instead."""

    state: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    run: Json = field(default_factory=dict)
    program: list[str] = field(default_factory=list)
    _tokens: dict[tuple[str, str, str, int], str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        base = {k: v for k, v in os.environ.items() if not k.startswith("SANDGLASS_") and k != "DOCKER_HOST"}
        return base | {
            "SANDGLASS_STATE": str(self.state),
            "SANDGLASS_HOST": "127.0.0.1",
            "SANDGLASS_PORT": "0",
            "SANDGLASS_FRAME_PORT": "0",
            "SANDGLASS_BOOTSTRAP_ENGINE": "no",
            "SANDGLASS_ALLOW_CONTAINER": "yes",
            # what nobody uses is not made, and what runs where it does not matter runs where it costs least
            "SANDGLASS_POOL_TARGET": "0",
            "SANDGLASS_DEFAULT_PROFILE": "container",
            "SANDGLASS_JWT_LEEWAY": "1",
            "SANDGLASS_IMAGE": IMAGE,
            "DOCKER_HOST": DOCKER_HOST,
            **self.env,
        }

    @property
    def log(self) -> Path:
        return self.state / "test.log"

    def start(self) -> Gateway:
        """Start it and wait until it is ready. Raises AssertionError with the end of its log when it does not get there."""
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "run.json").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.program or [*command(), "serve"],
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_the_tests,
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the gateway ended with {self.process.returncode}:\n{self.tail()}")
            if (self.state / "run.json").exists():
                self.run = json.loads((self.state / "run.json").read_text())
                return self
            time.sleep(0.05)
        raise AssertionError(f"the gateway is not ready after {START_S} s:\n{self.tail()}")

    def tail(self, size: int = 6000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def stop(self) -> int:
        """Stop it in order; its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the gateway did not stop within {STOP_S} s:\n{self.tail()}") from None

    @property
    def url(self) -> str:
        return str(self.run["url"])

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def token(self, user: str = "alice", tenant: str = "t1", role: str = "user", ttl: int = 3600) -> str:
        """A development token, made by the command line as a user makes it."""
        key = (user, tenant, role, ttl)
        if key not in self._tokens or ttl < 3600:
            done = subprocess.run(
                [*command(), "token", "--user", user, "--tenant", tenant, "--role", role, "--ttl", str(ttl)],
                env=self.environment,
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            self._tokens[key] = done.stdout.strip().splitlines()[-1]
        return self._tokens[key]

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str = "alice",
        token: str | None = None,
        expect: int | None = None,
        **kwargs: Any,
    ) -> requests.Response:
        """One request as ``user``. ``expect``: the status that it must have."""
        headers = {
            "Authorization": f"Bearer {token if token is not None else self.token(user)}",
            **kwargs.pop("headers", {}),
        }
        if isinstance(body, bytes):
            kwargs["data"] = body
        elif body is not None:
            kwargs["json"] = body
        kwargs.setdefault("timeout", HTTP_S)
        response = requests.request(method, self.url + path, headers=headers, **kwargs)
        if expect is not None:
            assert response.status_code == expect, (method, path, response.status_code, response.text[:2000])
        return response

    def available(self) -> list[str]:
        profiles = self.call("GET", "/api/v1/profiles", expect=200).json()["profiles"]
        return [p["name"] for p in profiles if p["available"]]

    def wait_state(self, session_id: str, *states: str, timeout_s: float = 60.0) -> Json:
        """The session once it is in one of ``states``."""
        deadline = time.monotonic() + timeout_s
        while True:
            session: Json = self.call("GET", f"/api/v1/sessions/{session_id}", expect=200).json()
            if session["state"] in states:
                return session
            assert time.monotonic() < deadline, session
            time.sleep(0.05)

    def run_code(self, session_id: str, code: str, **body: Any) -> Json:
        """Run over REST and wait; the finished execution."""
        path = f"/api/v1/sessions/{session_id}/executions?wait=120"
        execution: Json = self.call("POST", path, {"code": code, **body}, expect=200).json()
        return execution
