"""The client of every websocket subject: one v1 websocket over Tornado, so that the client costs the same everywhere."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gateway.protocol import jupyter

PATIENCE_S = 120.0
CONTENT = {"silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
Json = dict[str, Any]


@dataclass
class Seen:
    """What one execution showed: stream messages and the characters in them, bytes of display and comm messages."""

    seconds: float = 0.0
    messages: int = 0
    text: int = 0
    payload: int = 0
    finished: bool = False
    """Both the reply and the idle were seen."""


class Count:
    """Collects ``Seen`` of one request from its messages, as ``inside.py`` does."""

    def __init__(self, msg_id: str) -> None:
        self.msg_id = msg_id
        self.seen = Seen()
        self.replied = self.idle = False
        self.first = 0.0
        self.begun = time.perf_counter()

    def take(self, data: bytes) -> bool:
        """True once the execution is complete."""
        message = jupyter.decode(data)
        if message.parent_header.get("msg_id") != self.msg_id:
            return False
        kind = message.header["msg_type"]
        if kind == "execute_reply":
            self.replied = True
        elif kind == "status":
            self.idle = message.content["execution_state"] == "idle"
        elif kind == "stream":
            self.seen.messages += 1
            self.seen.text += text_size(message.raw(3))
        elif kind in ("display_data", "comm_msg", "comm_open"):
            self.seen.payload += message.content_size + sum(map(len, message.buffers))
        if kind in ("stream", "execute_result", "display_data") and not self.first:
            self.first = time.perf_counter() - self.begun
        return self.replied and self.idle

    def done(self) -> Seen:
        self.seen.seconds = time.perf_counter() - self.begun
        self.seen.finished = self.replied and self.idle
        return self.seen


def text_size(content: bytes) -> int:
    """Characters of a stream message's text; of a large one counted without decoding it."""
    if len(content) < 4096:
        return len(json.loads(content)["text"])
    begin = content.index(b'"text":') + 7
    begin = content.index(b'"', begin) + 1
    return content.rindex(b'"') - begin - content.count(b"\\n")


def message(channel: str, msg_type: str, content: Json, buffers: Sequence[bytes] = ()) -> tuple[str, bytes]:
    header = jupyter.make_header(msg_type, "bench")
    return str(header["msg_id"]), jupyter.build(channel, header, {}, {}, content, buffers)


class Socket:
    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection

    @classmethod
    async def open(cls, url: str, token: str, kernel_id: str) -> Socket:
        address = url.replace("http", "ws", 1) + f"/api/kernels/{kernel_id}/channels?session_id={uuid.uuid4().hex}"
        request = HTTPRequest(address, headers={"Authorization": f"token {token}"}, connect_timeout=30, request_timeout=60)
        connection = await websocket_connect(request, subprotocols=[jupyter.V1_PROTOCOL], max_message_size=512 * 2**20)
        assert connection.protocol is not None
        connection.protocol.set_nodelay(True)  # Tornado's client leaves Nagle's algorithm on
        return cls(connection)

    async def send(self, channel: str, msg_type: str, content: Json, buffers: Sequence[bytes] = ()) -> str:
        msg_id, body = message(channel, msg_type, content, buffers)
        await self.connection.write_message(body, binary=True)
        return msg_id

    async def execute(self, code: str, patience_s: float = PATIENCE_S) -> Seen:
        """One execution, to its reply and its idle; gives up (``finished`` false) when the next message takes too long."""
        msg_id, body = message("shell", "execute_request", {"code": code, **CONTENT})
        count = Count(msg_id)
        await self.connection.write_message(body, binary=True)
        try:
            while not count.take(await self.read(patience_s)):
                pass
        except TimeoutError:
            pass
        return count.done()

    async def read(self, patience_s: float) -> bytes:
        async with asyncio.timeout(patience_s):
            data = await self.connection.read_message()
        if not isinstance(data, bytes):
            raise ConnectionError(f"the websocket was closed ({self.connection.close_code})")
        return data

    def close(self) -> None:
        self.connection.close()
