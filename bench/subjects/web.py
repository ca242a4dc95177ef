"""A server with kernels behind a v1 websocket: the gateway and jupyter_server, by the very same client."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

from ..client import Seen, Socket
from ..processes import Server

Json = dict[str, Any]


class Api:
    """REST on one kept connection, blocking, with no-delay."""

    def __init__(self, server: Server) -> None:
        self.server = server
        parts = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=180)

    def raw(self, method: str, path: str, body: bytes | None = None, *, admin: bool = False) -> bytes:
        token = self.server.admin_token if admin else self.server.token
        headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
        for again in (True, False):
            if self._connection.sock is None:
                self._connection.connect()  # http.client turns no-delay on
            try:
                self._connection.request(method, path, body, headers)
                answer = self._connection.getresponse()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self._connection.close()  # a kept connection that the server has closed meanwhile
                if not again:
                    raise
        data = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{self.server.name}: {method} {path}: {answer.status} {data[:300]!r}")
        return data

    def call(self, method: str, path: str, body: Json | None = None, *, admin: bool = False) -> Any:
        data = self.raw(method, path, None if body is None else json.dumps(body).encode(), admin=admin)
        return json.loads(data) if data else {}


class Web:
    """One kernel of a server with an open websocket. ``kernel``: the kernelspec's name, which is the profile's at the gateway."""

    def __init__(self, server: Server, kernel: str, name: str = "") -> None:
        self.server, self.kernel = server, kernel if server.is_gateway else "python3"
        self.name = name or server.name
        self.api = Api(server)
        self.kernel_id = ""
        self.socket: Socket | None = None

    async def open(self) -> Seen:
        """Start a kernel and run a first cell: the time from the request to the first result."""
        begun = time.perf_counter()
        self.kernel_id = self.api.call("POST", "/api/kernels", {"name": self.kernel})["id"]
        await self.attach()
        seen = await self.run("1+1")
        seen.seconds = time.perf_counter() - begun
        return seen

    async def attach(self) -> None:
        self.socket = await Socket.open(self.server.url, self.server.token, self.kernel_id)

    async def run(self, code: str, patience_s: float = 120.0) -> Seen:
        assert self.socket is not None
        return await self.socket.execute(code, patience_s)

    async def runs(self, code: str, count: int) -> list[Seen]:
        return [await self.run(code) for _ in range(count)]

    async def restart(self) -> Seen:
        """The time from the request to the next result."""
        begun = time.perf_counter()
        await self._in_thread("POST", f"/api/kernels/{self.kernel_id}/restart", {})
        seen = await self.run("1+1", 20.0)  # jupyter_server now and then loses what is asked so early
        seen.seconds = time.perf_counter() - begun
        return seen

    async def interrupt(self) -> Seen:
        """The time from the request to the end of the interrupted cell."""
        running = asyncio.get_running_loop().create_task(self.run("import time\nwhile True: time.sleep(0.01)", 30.0))
        await asyncio.sleep(0.5)
        begun = time.perf_counter()
        await self._in_thread("POST", f"/api/kernels/{self.kernel_id}/interrupt", {})
        seen = await running
        seen.seconds = time.perf_counter() - begun
        return seen

    async def _in_thread(self, method: str, path: str, body: Json) -> Any:
        return await asyncio.to_thread(self.api.call, method, path, body)

    def sandbox_id(self) -> str:
        """Of a gateway's session."""
        for session in self.api.call("GET", "/api/v1/admin/sessions", admin=True).get("sessions", []):
            if session["session_id"] == self.kernel_id:
                return str(session.get("sandbox_id") or "")
        raise RuntimeError("the session is not among the gateway's")

    async def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None
        if self.kernel_id:
            with contextlib.suppress(RuntimeError):
                await self._in_thread("DELETE", f"/api/kernels/{self.kernel_id}", {})
            self.kernel_id = ""
