"""What a gateway case is given: a session to attack with, the gateway's memory meanwhile, answers read strictly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.abuse.cases import MEMORY_GROWTH
from tests.e2e.e2e_gateway import Gateway

SETTINGS = {
    "SANDGLASS_MEMORY": "768MiB",
    "SANDGLASS_WORKSPACE": "64MiB",
    "SANDGLASS_INPUTS": "32MiB",
    "SANDGLASS_TMP": "16MiB",
    "SANDGLASS_SHM": "16MiB",
    "SANDGLASS_OUTPUT": "4MiB",
    "SANDGLASS_OUTPUT_MESSAGES": "5000",
    "SANDGLASS_PROCESSES": "64",
    "SANDGLASS_INTERRUPT_GRACE": "1s",
    "SANDGLASS_KILL_GRACE": "2s",
}
ANSWER_BYTES = 16 * 1024**2
"""No answer about an execution is larger, whatever it printed: four times the output limit."""
Json = dict[str, Any]
AttackFunction = Callable[["Attack"], None]


def strict(text: str) -> Any:
    """JSON as browsers and other languages read it: no NaN, no lone surrogate."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    found = json.loads(text, parse_constant=refuse)
    json.dumps(found, ensure_ascii=False).encode()  # a lone surrogate is no text
    return found


class Memory:
    """By how much the gateway's resident memory grows at the most, sampled in a thread."""

    def __init__(self, gateway: Gateway) -> None:
        assert gateway.process is not None
        self._path = f"/proc/{gateway.process.pid}/status"
        self._over = threading.Event()
        self.grown = 0

    def _resident(self) -> int:
        with open(self._path) as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))

    def __enter__(self) -> Memory:
        self._before = self._resident()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._over.wait(0.02):
            self.grown = max(self.grown, self._resident() - self._before)

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        assert self.grown < MEMORY_GROWTH, f"the gateway grew by {self.grown >> 20} MiB"


@dataclass
class Attack:
    gateway: Gateway
    tier: str
    session: str = ""

    @property
    def root(self) -> str:
        return f"/api/v1/sessions/{self.session}"

    def fresh(self) -> None:
        """A session of its own, for cases that fill it with files or lose their kernel."""
        self.end()
        self.session = self.gateway.call("POST", "/api/v1/sessions", {"profile": self.tier}, user="mallory", expect=201).json()["session_id"]

    def end(self) -> None:
        if self.session:
            self.gateway.call("DELETE", self.root, user="mallory")
        self.session = ""

    def call(self, method: str, tail: str, body: Any = None, **more: Any) -> Any:
        return self.gateway.call(method, self.root + tail, body, user="mallory", **more)

    def run(self, code: str, **body: Any) -> Json:
        """The finished execution; its answer is bounded and strictly JSON."""
        if not self.session:
            self.fresh()
        response = self.call("POST", "/executions?wait=100", {"code": code, "timeout_s": 60, **body}, expect=200)
        assert len(response.content) < ANSWER_BYTES, len(response.content)
        found: Json = strict(response.content.decode())
        # the types that docs/api.md names, whatever the kernel sent
        assert isinstance(found["stdout"], str) and isinstance(found["stderr"], str)
        assert all(isinstance(result["data"], dict) and isinstance(result["metadata"], dict) for result in found["results"])
        if (error := found["error"]) is not None:
            assert all(isinstance(text, str) for text in (error["name"], error["value"], *error["traceback"])), error
        assert found["execution_count"] is None or abs(found["execution_count"]) < 2**53
        return found

    def ends(self, code: str, *words: str, **body: Any) -> Json:
        """Run; it must end with one of these words, and the next cell must answer."""
        done = self.run(code, **body)
        shown = {k: v for k, v in done.items() if k not in ("stdout", "stderr", "results")}
        assert done["state"] == "finished" and done["exit_reason"] in words, shown
        after = self.run("print('still', 'here')")
        assert after["stdout"].strip() == "still here", after
        return done

    def told(self) -> None:
        """What the other surfaces say of this session is strictly JSON, too."""
        for tail in ("", "/executions", "/files", "/artifacts", "/notices", "/transcript?limit=500", "/notebook"):
            response = self.call("GET", tail)
            assert response.status_code in (200, 409), (tail, response.status_code, response.text[:300])
            strict(response.content.decode())

    def recycle(self) -> Json:
        """End the sandbox; the session once its files are stored."""
        self.call("POST", "/recycle", {}, expect=202)
        deadline = time.monotonic() + 90
        while (found := self.call("GET", "", expect=200).json())["state"] not in ("dormant", "ended"):
            assert time.monotonic() < deadline and found["state"] != "quarantined", found
            time.sleep(0.05)
        return dict(found)

    def kept(self) -> dict[str, Json]:
        """path -> newest artifact."""
        rows = strict(self.call("GET", "/artifacts", expect=200).content.decode())["artifacts"]
        return {row["path"]: row for row in sorted(rows, key=lambda row: str(row["created_at"]))}

    def bytes_of(self, artifact: Json) -> bytes:
        response = self.gateway.call("GET", f"/api/v1/artifacts/{artifact['artifact_id']}", user="mallory")
        if response.status_code != 200:
            return b""
        # whatever it is, no browser shows it in the gateway's origin
        headers = response.headers
        assert headers["Content-Disposition"].startswith("attachment") and headers["X-Content-Type-Options"] == "nosniff", headers
        assert "sandbox" in headers.get("Content-Security-Policy", ""), headers
        return bytes(response.content)
