"""A proxy in front of an S3 server that fails and lies as it is told: the same faults a network, a disk and a bad server make."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit


@dataclass
class Message:
    """A request or a response. ``head``: its first line."""

    head: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def get(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def put(self, name: str, value: str) -> None:
        self.headers = [(k, v) for k, v in self.headers if k.lower() != name] + [(name, value)]

    def encode(self) -> bytes:
        return "\r\n".join([self.head, *(f"{k}: {v}" for k, v in self.headers), "", ""]).encode("latin-1") + self.body

    @property
    def kind(self) -> str:
        """What the store calls this request."""
        method, target, _ = self.head.split(" ")
        parts = urlsplit(target)
        query = parse_qs(parts.query, keep_blank_values=True)
        bucket = parts.path.strip("/").count("/") == 0
        if "uploads" in query:
            return "uploads" if method == "GET" else "begin"
        if "uploadId" in query:
            return {"PUT": "part", "POST": "complete", "DELETE": "abort"}[method]
        if method == "PUT":
            return "make" if bucket else "copy" if self.get("x-amz-copy-source") else "put"
        return {"GET": "list" if bucket else "get", "HEAD": "bucket" if bucket else "head", "DELETE": "delete"}[method]


Forward = Callable[[Message], Awaitable[Message]]
Fault = Callable[[Message, Forward], Awaitable[bytes]]
"""Returns the bytes to answer with; the connection ends after them."""


@dataclass
class Proxy:
    upstream: str
    endpoint: str = ""
    seen: list[str] = field(default_factory=list)
    _rules: list[list[object]] = field(default_factory=list)

    def fail(self, kind: str, fault: Fault, times: int = 1 << 30) -> None:
        """The next so many requests of that kind; ``*`` is every kind."""
        self._rules.append([kind, fault, times])

    def heal(self) -> None:
        self._rules.clear()

    def _fault(self, kind: str) -> Fault:
        for rule in self._rules:
            if rule[0] in (kind, "*") and rule[2] > 0:  # type: ignore[operator]
                rule[2] -= 1  # type: ignore[operator]
                return rule[1]  # type: ignore[return-value]
        return passes

    async def _forward(self, request: Message) -> Message:
        host, _, port = self.upstream.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            request.put("connection", "close")
            writer.write(request.encode())
            return await _message(reader, to="HEAD" if request.head.startswith("HEAD") else "")
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await _message(reader)
            self.seen.append(request.kind)
            writer.write(await self._fault(request.kind)(request, self._forward))
            await writer.drain()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def proxy(upstream: str) -> AsyncIterator[Proxy]:
    made = Proxy(upstream)
    running: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(made._serve(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 20)
    made.endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _message(reader: asyncio.StreamReader, to: str = "") -> Message:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = [(key, value.strip()) for key, _, value in (line.partition(":") for line in head[1:] if line)]
    message = Message(head[0], fields)
    if to != "HEAD" and (length := int(message.get("content-length") or 0)):
        message.body = await reader.readexactly(length)
    return message


# --- faults -----------------------------------------------------------------------------------------------------------


async def passes(request: Message, forward: Forward) -> bytes:
    answer = await forward(request)
    answer.put("connection", "close")
    return answer.encode()


async def drops(request: Message, forward: Forward) -> bytes:
    """Nothing was done, nothing is said."""
    return b""


async def drops_the_answer(request: Message, forward: Forward) -> bytes:
    """It was done, and nobody is told."""
    await forward(request)
    return b""


async def hangs(request: Message, forward: Forward) -> bytes:
    await asyncio.sleep(3600)
    return b""


def answers(status: int, code: str = "") -> Fault:
    async def fault(request: Message, forward: Forward) -> bytes:
        body = f"<Error><Code>{code}</Code><Message>of {request.get('authorization')}</Message></Error>".encode() if code else b"<html>no</html>"
        kind = "application/xml" if code else "text/html"
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Connection", "close")]
        return Message(f"HTTP/1.1 {status} X", headers, b"" if request.head.startswith("HEAD") else body).encode()

    return fault


async def cuts(request: Message, forward: Forward) -> bytes:
    """Half of the answer."""
    answer = await forward(request)
    answer.put("connection", "close")
    whole = answer.encode()
    return whole[: len(whole) - (len(answer.body) + 1) // 2]


async def flips(request: Message, forward: Forward) -> bytes:
    """The last byte is another one."""
    answer = await forward(request)
    answer.put("connection", "close")
    answer.body = answer.body[:-1] + bytes([answer.body[-1] ^ 1])
    return answer.encode()


async def flips_the_first(request: Message, forward: Forward) -> bytes:
    answer = await forward(request)
    answer.put("connection", "close")
    answer.body = bytes([answer.body[0] ^ 1]) + answer.body[1:]
    return answer.encode()


def says(name: str, value: str) -> Fault:
    """A header that is not true."""

    async def fault(request: Message, forward: Forward) -> bytes:
        answer = await forward(request)
        answer.put("connection", "close")
        answer.put(name, value)
        return answer.encode()

    return fault


async def keeps_half(request: Message, forward: Forward) -> bytes:
    """Takes all, stores half, and says that all is well."""
    request.body = request.body[: len(request.body) // 2]
    request.put("content-length", str(len(request.body)))
    request.headers = [(k, v) for k, v in request.headers if k.lower() not in ("content-md5", "x-amz-content-sha256")]
    return await passes(request, forward)


async def says_done(request: Message, forward: Forward) -> bytes:
    """Does nothing and says that all is well, with an error in the body, as S3 may when it puts parts together."""
    body = b"<Error><Code>InternalError</Code></Error>"
    return Message(
        "HTTP/1.1 200 OK", [("Content-Type", "application/xml"), ("Content-Length", str(len(body))), ("Connection", "close")], body
    ).encode()
