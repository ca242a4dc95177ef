"""A client inside the same container (``bench/inside.py`` by ``docker exec``), connected once and then kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import docker

from gateway.backends.docker_stream import AttachStream, EngineAddress

from ..client import Seen

PROGRAM = (Path(__file__).resolve().parent.parent / "inside.py").read_text()


class Inside:
    """``shared``: at the session's kernel, else at one of its own (see ``bench/inside.py``)."""

    def __init__(self, docker_host: str, container: str, *, shared: bool = False) -> None:
        """``container``: name or id of a running sandbox."""
        self._host, self._container, self._shared = docker_host, container, shared
        self._stream: AttachStream | None = None
        self._line = bytearray()

    async def open(self) -> None:
        engine = docker.APIClient(base_url=self._host, version="auto")
        info = engine.inspect_container(self._container)
        env = dict(item.split("=", 1) for item in info["Config"]["Env"])
        who = env["SANDGLASS_RELAY_UID" if self._shared else "SANDGLASS_USER_UID"]
        made: Any = engine.exec_create(
            self._container, ["/opt/kernel/bin/python", "-c", PROGRAM, "shared" if self._shared else "own"], stdin=True,
            user=f"{who}:{env['SANDGLASS_GROUP_ID']}", environment={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        head = f"POST /v{engine.api_version}/exec/{made['Id']}/start HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        stream = AttachStream(head.encode() + body)
        address, loop = EngineAddress.parse(self._host), asyncio.get_running_loop()
        if address.path:
            await loop.create_unix_connection(lambda: stream, address.path)
        else:
            await loop.create_connection(lambda: stream, address.host, address.port)
        await stream.opened
        self._stream = stream
        await self._answer()
        engine.close()

    async def runs(self, code: str, count: int) -> list[Seen]:
        assert self._stream is not None
        self._stream.write(json.dumps({"code": code, "count": count}).encode() + b"\n")
        return [Seen(*row) for row in await self._answer()]

    async def run(self, code: str) -> Seen:
        return (await self.runs(code, 1))[0]

    async def _answer(self) -> list[list[Any]]:
        assert self._stream is not None
        while b"\n" not in self._line:
            data = await asyncio.wait_for(self._stream.read(), 300)
            if not data:
                raise RuntimeError(f"the client inside ended: {self._stream.stderr_tail()[-2000:]}")
            self._line += data
        line, _, rest = bytes(self._line).partition(b"\n")
        self._line[:] = rest
        found: list[list[Any]] = json.loads(line)
        return found

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.close()
