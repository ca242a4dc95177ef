"""One file operation inside a sandbox: a small stream with credit both ways (``docs/stream-protocol.md``)."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ..errors import Conflict, NotFound, PathRefused, SandboxLost, SandglassError, TooLarge, Unavailable

CREDIT = 1024 * 1024
CHUNK = 256 * 1024
Json = dict[str, Any]


class FileType(IntEnum):
    OPEN = 1
    DATA = 2
    END = 3
    CREDIT = 4
    ABORT = 5


_ERRORS: dict[str, type[SandglassError]] = {
    "not_found": NotFound,
    "not_a_file": PathRefused,
    "path_refused": PathRefused,
    "exists": Conflict,
    "too_large": TooLarge,
    "disk_full": TooLarge,
    "changed": Conflict,
    "hash_mismatch": Conflict,
}


class FileStream:
    """``read`` gives data until None; ``write`` waits for credit; ``result`` is what the helper says at its end."""

    def __init__(self, stream_id: int, send: Callable[[bytes], None], forget: Callable[[], object]) -> None:
        self._prefix = stream_id.to_bytes(4, "little")
        self._send = send
        self._forget = forget
        self._data: deque[bytes] = deque()
        self._held = 0
        self._credit = CREDIT
        self._granted = CREDIT
        self._changed = asyncio.Event()
        self._end: Json | None = None
        self._error: SandglassError | None = None

    def start(self, command: Json) -> None:
        self._put(FileType.OPEN, json.dumps(command).encode())

    def _put(self, kind: FileType, data: bytes) -> None:
        self._send(self._prefix + bytes([kind]) + data)

    def received(self, body: bytes) -> None:
        """A FILE message of this stream. What breaks the rules ends the stream, not the sandbox."""
        kind, data = body[4] if len(body) > 4 else 0, body[5:]
        if kind == FileType.DATA:
            self._granted -= len(data)
            if self._granted < 0:
                self.abort(SandboxLost("the file helper sent more than it was allowed"))
                return
            self._data.append(data)
            self._held += len(data)
        elif kind == FileType.CREDIT and len(data) == 4:
            self._credit += min(int.from_bytes(data, "little"), CREDIT)
        elif kind == FileType.END:
            try:
                end = json.loads(data)
                self._end = end if isinstance(end, dict) else {"ok": False, "error": "io"}
            except (ValueError, RecursionError):
                self._end = {"ok": False, "error": "io"}
            self._forget()
        self._changed.set()

    async def read(self) -> bytes | None:
        """The next chunk, or None at the end. Raises the helper's error, typed."""
        while not self._data:
            if self._error is not None:
                raise self._error
            if self._end is not None:
                self._check()
                return None
            await self._wait()
        data = self._data.popleft()
        self._held -= len(data)
        missing = CREDIT - self._granted - self._held
        if missing >= CREDIT // 2 and self._end is None:
            self._granted += missing
            self._put(FileType.CREDIT, missing.to_bytes(4, "little"))
        return data

    async def write(self, data: bytes) -> None:
        """Send data into the sandbox, as fast as the helper takes it. Raises the helper's error, typed."""
        view = memoryview(data)
        while view:
            while self._credit <= 0:
                self._raise_if_over()
                await self._wait()
            self._raise_if_over()
            piece = view[: min(CHUNK, self._credit)]
            self._credit -= len(piece)
            self._put(FileType.DATA, bytes(piece))
            view = view[len(piece) :]

    async def finish(self, meta: Json | None = None) -> Json:
        """Say that no more data comes; returns the result. Raises the helper's error, typed."""
        self._put(FileType.END, json.dumps(meta or {}).encode())
        return await self.result()

    async def result(self) -> Json:
        while self._end is None:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._check()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _raise_if_over(self) -> None:
        if self._error is not None:
            raise self._error
        if self._end is not None:
            self._check()
            raise SandboxLost("the file helper stopped early")

    def _check(self) -> Json:
        assert self._end is not None
        if not self._end.get("ok"):
            code = str(self._end.get("error", "io"))
            detail = {"disk_full": "The workspace is full.", "exists": "A file of that name exists."}.get(code)
            raise _ERRORS.get(code, Unavailable)(detail or f"The sandbox answers: {code}", file_error=code)
        return self._end

    def abort(self, error: SandglassError | None = None) -> None:
        """Stop it; the helper is killed."""
        if self._end is None and self._error is None:
            self._error = error or SandboxLost("aborted")
            self._forget()
            try:
                self._put(FileType.ABORT, b"")
            except SandglassError:
                pass
            self._changed.set()

    def fail(self, error: SandglassError) -> None:
        """The sandbox is gone."""
        self._error = self._error or error
        self._forget()
        self._changed.set()
