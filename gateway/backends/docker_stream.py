"""A sandbox's byte stream: the engine's attach connection, by our own HTTP/1.1 upgrade over asyncio.

The SDK's attach blocks a thread per sandbox; here one event loop carries all of them. What was seen of attach and is relied on:
frames are cut anywhere; with nobody attached the engine throws output away and leaves standard input open; an attached client
that does not read blocks the sandbox after about 1 MiB, so this class always reads (up to ``HIGH_WATER``); an engine that stops
ends the stream just as a sandbox that ends does, so ``b""`` from ``read`` means: ask ``inspect``.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import EngineUnavailable, SandboxLost, SandglassError

HIGH_WATER = 8 * 1024 * 1024
"""Unread output at which the socket is left alone (the sandbox then blocks); the service reads all the time."""
LOW_WATER = 4 * 1024 * 1024
READ_BYTES = 128 * 1024
"""What is handed on at once: a flood from one sandbox holds up the others for as long as this takes to be worked off, some 1 ms."""
STDERR_TAIL = 8 * 1024
WRITE_HIGH = 256 * 1024
HEAD_BYTES = 16 * 1024
CLOSE_S = 1.0

_ENGINE_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
_STDOUT, _STDERR, _ENGINE_MESSAGE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class EngineTls:
    """Files for a tcp engine. ``verify`` off keeps the encryption and drops the check of who answers: for tests only."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Raises EngineUnavailable when a file cannot be read."""
        try:
            context = ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
            if self.cert:
                context.load_cert_chain(str(self.cert), str(self.key) if self.key else None)
        except (OSError, ssl.SSLError) as error:
            raise EngineUnavailable("the engine's TLS files cannot be read: check DOCKER_CERT_PATH") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where the engine listens: ``path`` of a Unix socket, or ``host`` and ``port``."""

    path: str = ""
    host: str = ""
    port: int = 0
    tls: EngineTls | None = None

    @property
    def is_local(self) -> bool:
        return bool(self.path)

    @property
    def base_url(self) -> str:
        """The same for the SDK."""
        if self.path:
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @classmethod
    def parse(cls, url: str, tls: EngineTls | None = None) -> EngineAddress:
        """From ``DOCKER_HOST``. Raises EngineUnavailable, saying what to write instead, for what cannot carry a stream."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise EngineUnavailable("DOCKER_HOST is not an address") from error
        if parts.scheme == "unix" and parts.netloc + parts.path:
            return cls(path=parts.netloc + parts.path)
        if parts.scheme in ("tcp", "http", "https") and parts.hostname:
            if parts.scheme == "https" and tls is None:
                tls = EngineTls()
            return cls(host=parts.hostname, port=port or (2376 if tls else 2375), tls=tls)
        if parts.scheme == "ssh":
            raise EngineUnavailable(
                "ssh:// engines are not supported: forward the engine's socket (ssh -N -L /run/user/1000/engine.sock:"
                "/var/run/docker.sock HOST) and set DOCKER_HOST=unix:///run/user/1000/engine.sock"
            )
        raise EngineUnavailable("DOCKER_HOST must be unix:///path or tcp://host:port")


class AttachStream(asyncio.Protocol):
    """``ports.ByteStream`` over one attach connection. One reader at a time."""

    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._head: bytearray | None = bytearray()
        self._frame_head = bytearray()
        self._frame_kind = 0
        self._frame_left = 0
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._reading_paused = False
        self._writing_paused = False
        self._readers: list[asyncio.Future[None]] = []
        self._drainers: list[asyncio.Future[None]] = []
        self._stderr = bytearray()
        self._closing = False
        self._ended = False
        self._error: SandglassError | None = None
        self._lost = loop.create_future()

    # ------------------------------------------------------------ what the port promises

    async def read(self) -> bytes:
        while not self._chunks:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return b""
            await self._wait(self._readers)
        if len(self._chunks) == 1:
            data = self._chunks.popleft()
        else:
            size, some = 0, []
            while self._chunks and size < READ_BYTES:
                some.append(self._chunks.popleft())
                size += len(some[-1])
            data = b"".join(some)
        self._buffered -= len(data)
        if self._reading_paused and self._buffered <= LOW_WATER and self._transport and not self._ended:
            self._reading_paused = False
            self._transport.resume_reading()
        return data

    def write(self, data: bytes) -> None:
        if self._closing or self._ended or self._transport is None:
            raise SandboxLost("the sandbox's stream is closed")
        self._transport.write(data)

    async def drain(self) -> None:
        while self._writing_paused and not self._ended:
            await self._wait(self._drainers)
        if self._ended:
            raise SandboxLost("the sandbox's stream ended")

    @property
    def queued(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport and not self._ended else 0

    async def close(self) -> None:
        """Deliver what is queued, for ``CLOSE_S`` at the most, then go. The sandbox's standard input stays open."""
        self._closing = True
        if self._transport is None or self._lost.done():
            return
        if self._reading_paused:
            # a paused transport would not notice that the other side has gone
            self._transport.resume_reading()
        self._transport.close()
        await asyncio.wait([self._lost], timeout=CLOSE_S)
        if not self._lost.done():
            self._transport.abort()
            await asyncio.wait([self._lost], timeout=CLOSE_S)

    def stderr_tail(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    async def _wait(self, waiters: list[asyncio.Future[None]]) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in waiters:
                waiters.remove(waiter)

    # ------------------------------------------------------------ what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family != socket.AF_UNIX:
            # a host that vanished is noticed although nothing is said for hours
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            rest = self._take_head(data)
            if rest is None:
                return
            data = rest
        if self._closing:
            return
        if not self._demultiplex(data):
            self._fail(EngineUnavailable("the engine's attach stream has a frame of an unknown kind"))
            return
        if self._buffered >= HIGH_WATER and not self._reading_paused and self._transport:
            self._reading_paused = True
            self._transport.pause_reading()
        _wake(self._readers)

    def _take_head(self, data: bytes) -> bytes | None:
        """Collect the response's head; return what follows it, None while it is not whole or when it is a refusal."""
        assert self._head is not None
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            if len(self._head) > HEAD_BYTES:
                self._fail(EngineUnavailable("the engine's answer to attach is no HTTP"))
            return None
        line = bytes(self._head[: self._head.find(b"\r\n")])
        rest = bytes(self._head[end + 4 :])
        self._head = None
        words = line.split(None, 2)
        status = int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1].isdigit() else 0
        if status in (101, 200):
            if not self.opened.done():
                self.opened.set_result(None)
            return rest
        if status in (404, 409):
            self._fail(SandboxLost("the engine has no such sandbox, or it is being removed"))
        else:
            self._fail(EngineUnavailable(f"the engine refused to attach (HTTP {status})"))
        return None

    def _demultiplex(self, data: bytes) -> bool:
        """Take 8-byte heads (kind, three zeros, big-endian length) off; False for what is no such stream."""
        position, end = 0, len(data)
        while position < end:
            if not self._frame_left:
                missing = 8 - len(self._frame_head)
                self._frame_head += data[position : position + missing]
                position += missing
                if len(self._frame_head) < 8:
                    return True
                self._frame_kind = self._frame_head[0]
                self._frame_left = int.from_bytes(self._frame_head[4:8], "big")
                if self._frame_kind not in (_STDOUT, _STDERR, _ENGINE_MESSAGE) or any(self._frame_head[1:4]):
                    return False
                self._frame_head.clear()
                continue
            piece = data[position : position + self._frame_left]
            position += len(piece)
            self._frame_left -= len(piece)
            if self._frame_kind == _STDOUT:
                self._chunks.append(piece)
                self._buffered += len(piece)
            else:
                self._stderr += piece[-STDERR_TAIL:]
                del self._stderr[:-STDERR_TAIL]
        return True

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        if not self.opened.done():
            self.opened.set_exception(self._error or EngineUnavailable("the engine closed the connection"))
        if exc is not None and self._error is None and not self._closing:
            self._error = EngineUnavailable("the connection to the engine broke")
        self._lost.set_result(None)
        _wake(self._readers)
        _wake(self._drainers)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        _wake(self._drainers)

    def _fail(self, error: SandglassError) -> None:
        self._error = error
        if not self.opened.done():
            self.opened.set_exception(error)
        if self._transport:
            self._transport.abort()

    def abandon(self) -> None:
        """Give up a connection that nobody got."""
        if self._transport:
            self._transport.abort()
        if not self.opened.done():
            self.opened.cancel()
        elif not self.opened.cancelled():
            self.opened.exception()  # seen: asyncio need not warn about it


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


async def open_attach(address: EngineAddress, api_version: str, engine_id: str, timeout_s: float) -> AttachStream:
    """Attach to a container, running or not yet. Raises SandboxLost when there is none, else EngineUnavailable."""
    if not _ENGINE_ID.fullmatch(engine_id):
        raise SandboxLost("that is no engine id")
    loop = asyncio.get_running_loop()
    request = (
        f"POST /v{api_version}/containers/{engine_id}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
        "Host: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
    ).encode()
    stream = AttachStream(request)
    try:
        async with asyncio.timeout(timeout_s):
            if address.path:
                await loop.create_unix_connection(lambda: stream, address.path)
            else:
                context = address.tls.context() if address.tls else None
                await loop.create_connection(lambda: stream, address.host, address.port, ssl=context)
            await stream.opened
    except BaseException as error:
        stream.abandon()
        if isinstance(error, TimeoutError):
            raise EngineUnavailable("the engine does not answer") from error
        if isinstance(error, OSError):
            raise EngineUnavailable("the engine cannot be reached") from error
        raise
    return stream
