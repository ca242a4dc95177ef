"""An agent's way to a kernel of the gateway: executions over REST on one kept connection, and their event streams."""

from __future__ import annotations

import asyncio
import json
import time

from ..client import Seen
from ..processes import Server
from .web import Api, Web

WAIT_S = 120


class Rest:
    """``kernel``: an open one, to share it; else a session of its own, without any websocket."""

    def __init__(self, server: Server, profile: str, kernel: Web | None = None) -> None:
        self.server, self.profile, self._kernel = server, profile, kernel
        self.api = Api(server)
        self.session_id = kernel.kernel_id if kernel is not None else ""

    async def open(self) -> None:
        if not self.session_id:
            self.session_id = self.api.call("POST", "/api/v1/sessions", {"profile": self.profile})["session_id"]
        await self.run("pass")

    @property
    def path(self) -> str:
        return f"/api/v1/sessions/{self.session_id}/executions"

    async def run(self, code: str) -> Seen:
        """One request that waits for its end. Nothing else happens in this process meanwhile, so it may block."""
        body = json.dumps({"code": code}).encode()
        begun = time.perf_counter()
        answer = self.api.raw("POST", f"{self.path}?wait={WAIT_S}", body)
        seen = Seen(time.perf_counter() - begun)
        execution = json.loads(answer)
        seen.finished, seen.text = execution["state"] == "finished", len(execution["stdout"])
        return seen

    async def runs(self, code: str, count: int) -> list[Seen]:
        return [await self.run(code) for _ in range(count)]

    async def close(self) -> None:
        if self._kernel is None and self.session_id:
            self.api.call("DELETE", f"/api/v1/sessions/{self.session_id}")


class Events(Rest):
    """The same, read from the execution's event stream."""

    async def run(self, code: str) -> Seen:
        begun = time.perf_counter()
        execution_id = self.api.call("POST", self.path, {"code": code})["execution_id"]
        seen = await asyncio.to_thread(self._read, f"{self.path}/{execution_id}/events")
        seen.seconds = time.perf_counter() - begun
        return seen

    def _read(self, path: str) -> Seen:
        seen, left = Seen(), b""
        reader = Api(self.server)
        connection = reader._connection
        connection.request("GET", path, headers={"Authorization": f"token {self.server.token}"})
        answer = connection.getresponse()
        while not seen.finished and (data := answer.read1(65536)):
            *events, left = (left + data).split(b"\n\n")
            for event in events:
                kind, _, rest = event.partition(b"event: ")[2].partition(b"\n")
                if kind == b"stdout":
                    seen.messages += 1
                    seen.text += len(json.loads(rest.removeprefix(b"data: "))["text"])
                elif kind == b"done":
                    seen.finished = True
        connection.close()
        return seen
