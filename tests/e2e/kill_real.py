"""The gateway killed with signal 9 at call after call, on a real engine; after each death everything must be right.

One user works on, through one gateway after another on the same state. Used by the tests (every step) and by ``make kill-points``.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import requests
from e2e_gateway import Gateway

Json = dict[str, Any]
SETTLE_S = 90.0
MORTAL = [sys.executable, str(Path(__file__).with_name("mortal_gateway.py"))]
POINTS: dict[str, tuple[int, ...]] = {
    # the names of each step's calls, and which of them: the user's round below makes at least so many
    "records.put_session": (0, 1, 4, 8),
    "records.put_sandbox": (0, 2, 5),
    "engine.create": (0,),
    "engine.attach": (0,),
    "engine.start": (0,),
    "records.put_execution": (0, 3),
    "store.writer": (0,),
    "writer.write": (1,),
    "writer.commit": (0, 1),
    "records.add_artifact": (0, 1),
    "engine.remove": (0,),
    "records.add_notice": (0,),
}
"""Step by step: a session and its claim, executions, checkpoint and drain with their uploads, the removal, what is told."""
WRITE = """
import os
os.makedirs('out', exist_ok=True)
open('out/log.txt', 'a').write('{token}\\n')
open('out/a.txt', 'w').write('{token}' * 1000)
kept = '{token}'
"""
READ = """
import os
if os.path.exists('out/log.txt'):
    print(open('out/log.txt').read())
"""


class Died(Exception):
    """The gateway is gone, as it should be."""


@dataclass
class Ordeal:
    """``asked``: tokens of cells, in order -> whether the user heard that they ran."""

    gateway: Gateway
    profile: str
    session_id: str = ""
    asked: dict[str, bool] = field(default_factory=dict)
    ended: bool = False
    recycles: int = 0
    serial: int = 0
    deaths: int = 0

    def face(self, point: str) -> None:
        """Start, check what the last death left, then go on until the next one at ``point``. Raises AssertionError."""
        (self.gateway.state / "fate").unlink(missing_ok=True)
        self.gateway.start()
        self.check()
        (self.gateway.state / "fate").write_text(point)
        try:
            for _ in range(3):
                self.work()
        except Died:
            self.deaths += 1
            return
        raise AssertionError(f"three rounds did not get to {point}")

    def finish(self) -> None:
        (self.gateway.state / "fate").unlink(missing_ok=True)
        self.gateway.start()
        self.check()
        assert self.gateway.stop() == 0, self.gateway.tail()
        assert not self._containers(), "something is left in the engine"

    # --- the user -----------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Json:
        """Raises Died when the gateway is gone."""
        try:
            answer = self.gateway.call(method, path, body, **more)
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            assert self.gateway.process is not None
            assert self.gateway.process.wait(10) == -9, self.gateway.tail()
            raise Died from error
        assert answer.status_code < 300, (path, answer.status_code, answer.text)
        found: Json = answer.json() if answer.content else {}
        return found

    def work(self) -> None:
        """One round: a session, two cells, a recycle, a cell in the next sandbox, and at times the session's end."""
        if not self.session_id:
            self.asked, self.ended, self.recycles = {}, False, 0
            self.session_id = self.call("POST", "/api/v1/sessions", {"profile": self.profile})["session_id"]
        self.cell()
        time.sleep(1.3)  # the checkpoint
        self.cell()
        self.recycles += 1
        self.call("POST", f"/api/v1/sessions/{self.session_id}/recycle")
        self.wait("dormant")
        self.cell()
        self.ended = True
        self.call("DELETE", f"/api/v1/sessions/{self.session_id}")
        self.wait("ended")
        self.session_id = ""

    def cell(self) -> None:
        self.serial += 1
        token = f"<{self.serial}>"
        self.asked[token] = False
        done = self.call("POST", f"/api/v1/sessions/{self.session_id}/executions?wait=60", {"code": WRITE.format(token=token)})
        assert done["exit_reason"] == "ok", done
        self.asked[token] = True

    def wait(self, *states: str) -> Json:
        deadline = time.monotonic() + SETTLE_S
        while (found := self.call("GET", f"/api/v1/sessions/{self.session_id}"))["state"] not in states:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    # --- after a death ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Right state, declared files whole, cells run once, the true reason, no orphan, no half object."""
        live = self.call("GET", "/api/v1/sessions")["sessions"]
        if not self.session_id and live:
            assert len(live) == 1, live
            self.session_id, self.asked = live[0]["session_id"], {}  # the answer to its creation was lost
        if self.session_id:
            self._check_session()
        deadline = time.monotonic() + SETTLE_S
        while (inside := self._containers()) != (held := self._held()):
            assert time.monotonic() < deadline, f"in the engine {inside}, held {held}"
            time.sleep(0.1)

    def _check_session(self) -> None:
        found = self.wait("active", "dormant", "ended")
        if found["state"] == "ended":
            assert self.ended and found["reason"] == "user", found
            self.session_id = ""
            return
        root = f"/api/v1/sessions/{self.session_id}"
        assert found["reason"] in ("", "user"), found
        assert found["generation"] <= 1 + self.recycles, found
        done = self.call("POST", f"{root}/executions?wait=60", {"code": READ})
        assert done["exit_reason"] == "ok", done
        ran = done["stdout"].split()
        assert len(ran) == len(set(ran)), f"a cell ran twice: {ran}"
        missing = [token for token, heard in self.asked.items() if heard and token not in ran]
        assert not missing, f"lost: {missing} of {list(self.asked)}; {ran} are there"
        if ran:
            text = self.call("POST", f"{root}/executions?wait=60", {"code": "print(open('out/a.txt').read()[:20])"})["stdout"]
            assert text.startswith(ran[-1]), f"out/a.txt is {text!r} after {ran}"
        for artifact in self.call("GET", f"{root}/artifacts")["artifacts"]:
            data = self.gateway.call("GET", f"/api/v1/artifacts/{artifact['artifact_id']}", expect=200).content
            assert hashlib.sha256(data).hexdigest() == artifact["sha256"], artifact

    def _held(self) -> set[str]:
        admin = self.gateway.token("root", "t1", "admin")
        sessions = self.call("GET", "/api/v1/admin/sessions", token=admin)["sessions"]
        return {s["sandbox_id"] for s in sessions if s.get("sandbox_id")}

    def _containers(self) -> set[str]:
        return set(containers_of(self.gateway))


def containers_of(gateway: Gateway) -> dict[str, str]:
    """What the engine has of this gateway: sandbox id -> container id."""
    engine = docker.APIClient(base_url=gateway.environment["DOCKER_HOST"], version="auto")
    try:
        found = engine.containers(all=True, filters={"label": f"sandglass.instance={_instance(gateway)}"})
        return {c["Labels"]["sandglass.sandbox"]: c["Id"] for c in found}
    finally:
        engine.close()


def _instance(gateway: Gateway) -> str:
    import sqlite3

    with sqlite3.connect(f"file:{gateway.state / 'records.sqlite'}?mode=ro", uri=True) as records:
        return str(records.execute("SELECT value FROM meta WHERE key = 'instance_id'").fetchone()[0])


def ordeal(state: Path, profile: str) -> Ordeal:
    env = {"SANDGLASS_POOL_TARGET": "0", "SANDGLASS_DEFAULT_PROFILE": profile}
    return Ordeal(Gateway(state, env, program=MORTAL), profile)


def every_point() -> list[str]:
    return [f"{name} {nth} {moment}" for name, nths in POINTS.items() for nth in nths for moment in ("before", "after")]


def random_points(count: int, profile: str) -> int:
    """``count`` random points; prints each that fails and a summary, returns how many did."""
    points, failed = every_point(), 0
    with tempfile.TemporaryDirectory() as folder:
        victim = ordeal(Path(folder) / "0", profile)
        for number in range(count):
            point = random.choice(points)
            try:
                victim.face(point)
            except AssertionError as error:
                failed += 1
                print(f"{number} {point}: {error}", flush=True)
                if victim.gateway.process is not None and victim.gateway.process.poll() is None:
                    victim.gateway.stop()
                victim = ordeal(Path(folder) / str(number + 1), profile)
            if number % 20 == 19:
                print(f"{number + 1} points, {failed} failed", flush=True)
        victim.finish()
    print(f"{count} random points on {profile}: {failed} failed; 0 is what counts")
    return failed
