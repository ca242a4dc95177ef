"""The engine's events as an endless stream that survives the engine's restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from ..errors import EngineUnavailable
from ..ports import RuntimeEvent
from .docker_stream import EngineAddress
from .hardening import LABEL_INSTANCE, LABEL_SANDBOX

ACTIONS = ("die", "oom", "destroy")
LINE_BYTES = 1024 * 1024
CONNECT_S = 10.0
BACKOFF_S = (0.1, 5.0)


async def follow(address: EngineAddress, api_version: Callable[[], Awaitable[str]], instance: str, since: float) -> AsyncIterator[RuntimeEvent]:
    """Events of this instance's containers from ``since`` (the engine's clock, seconds) on, each once.

    After every (re)connection ``engine_up`` comes first. The engine keeps its last 256 events, and none over a restart of its
    own: so ``engine_up`` also means: compare with ``list``.
    """
    cursor = _Cursor(since)
    delay = BACKOFF_S[0]
    while True:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await _connect(address)
                chunked = await _ask(reader, writer, await api_version(), instance, cursor.since)
            delay = BACKOFF_S[0]
            yield RuntimeEvent("engine_up", "", "", cursor.since_s)
            async for line in _lines(reader, chunked=chunked):
                event = parse_event(line)
                if event is not None and cursor.is_new(event, line):
                    yield event
        except (OSError, EngineUnavailable, TimeoutError, asyncio.IncompleteReadError, ValueError):
            pass  # the port promises to go on; the service learns from its own calls that the engine is away
        finally:
            if writer is not None:
                writer.close()
        await asyncio.sleep(delay)
        delay = min(delay * 2, BACKOFF_S[1])


class _Cursor:
    """Where to go on: the newest time seen, and what was seen at that very nanosecond."""

    def __init__(self, since: float) -> None:
        self._ns = max(0, int(since * 1e9))
        self._seen: set[tuple[str, str]] = set()

    @property
    def since(self) -> str:
        return f"{self._ns // 10**9}.{self._ns % 10**9:09d}"

    @property
    def since_s(self) -> float:
        return self._ns / 1e9

    def is_new(self, event: RuntimeEvent, line: bytes) -> bool:
        at = int(json.loads(line).get("timeNano") or event.at * 1e9)
        key = (event.action, event.engine_id)
        if at == self._ns and key in self._seen:
            return False
        if at > self._ns:
            self._ns, self._seen = at, set()
        if at == self._ns:
            self._seen.add(key)
        return True


def parse_event(line: bytes) -> RuntimeEvent | None:
    """One line of ``/events``; None for what is not ours. Raises ValueError when it is no JSON object."""
    data: Any = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError("an event is an object")
    actor = data.get("Actor") or {}
    attributes = actor.get("Attributes") or {}
    action = str(data.get("Action", "")).partition(":")[0]
    if data.get("Type") != "container" or action not in ACTIONS or LABEL_SANDBOX not in attributes:
        return None
    at = data["timeNano"] / 1e9 if data.get("timeNano") else float(data.get("time", 0))
    code: int | None = None
    if action == "die":
        with suppress(KeyError, ValueError):
            code = int(attributes["exitCode"])
    return RuntimeEvent(action, str(actor.get("ID", "")), attributes[LABEL_SANDBOX], at, code)


async def _connect(address: EngineAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.path:
        return await asyncio.open_unix_connection(address.path, limit=LINE_BYTES)
    context = address.tls.context() if address.tls else None
    return await asyncio.open_connection(address.host, address.port, ssl=context, limit=LINE_BYTES)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: str, instance: str, since: str) -> bool:
    """Send the request and read the response's head; True when the body comes in chunks."""
    filters = json.dumps({"type": ["container"], "event": list(ACTIONS), "label": [f"{LABEL_INSTANCE}={instance}"]})
    path = f"/v{version}/events?since={since}&filters={quote(filters, safe='')}"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: engine\r\nAccept: application/json\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
        raise EngineUnavailable("the engine refused to tell its events")
    return b"transfer-encoding: chunked" in head.lower()


async def _lines(reader: asyncio.StreamReader, *, chunked: bool) -> AsyncIterator[bytes]:
    """JSON values, one a line. Ends when the engine ends the body; raises ValueError for one that is too long."""
    held = b""
    while True:
        if chunked:
            size = int((await reader.readline()).partition(b";")[0], 16)
            if size > LINE_BYTES:
                raise ValueError("a chunk is too long")
            data = await reader.readexactly(size) if size else b""
            await reader.readexactly(2)
        else:
            data = await reader.read(65536)
        if not data:
            return
        held += data
        *whole, held = held.split(b"\n")
        if len(held) > LINE_BYTES:
            raise ValueError("a line is too long")
        for line in whole:
            if line.strip():
                yield line
