"""Small clients for the end-to-end tests: a raw Jupyter websocket in either framing, and an event stream."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from socket import SO_RCVBUF, SOL_SOCKET
from typing import Any

import requests
import websocket
from e2e_gateway import Gateway

from gateway.protocol import jupyter

PATIENCE_S = 120.0
Json = dict[str, Any]


@dataclass
class Kernel:
    gateway: Gateway
    kernel_id: str
    user: str = "alice"
    sockets: list[Socket] = field(default_factory=list)

    @classmethod
    def start(cls, gateway: Gateway, profile: str | None = None, user: str = "alice") -> Kernel:
        body = {"name": profile} if profile else {}
        response = gateway.call("POST", "/api/kernels", body, user=user, expect=201)
        return cls(gateway, response.json()["id"], user)

    def connect(self, session_id: str | None = None, *, v1: bool = True, token: str | None = None, receive_buffer: int = 0) -> Socket:
        """``receive_buffer``: the bytes that this machine takes for a client that does not read; 0 for the usual."""
        socket = Socket(self, session_id, v1, token if token is not None else self.gateway.token(self.user), receive_buffer)
        self.sockets.append(socket)
        return socket

    def model(self) -> Json:
        model: Json = self.call("GET", "", expect=200).json()
        return model

    def call(self, method: str, tail: str, body: Any = None, **kwargs: Any) -> requests.Response:
        return self.gateway.call(method, f"/api/kernels/{self.kernel_id}{tail}", body, user=self.user, **kwargs)

    def end(self) -> None:
        for socket in self.sockets:
            socket.close()
        self.call("DELETE", "")


@dataclass
class Message:
    """What both framings carry."""

    channel: str
    msg_type: str
    header: Json
    parent: str
    content: Json
    buffers: list[bytes]


class Socket:
    """A websocket that a test reads at its own pace."""

    def __init__(self, kernel: Kernel, session_id: str | None, v1: bool, token: str, receive_buffer: int = 0) -> None:
        query = f"token={token}" + (f"&session_id={session_id}" if session_id else "")
        self.v1 = v1
        self.session = session_id or "raw"
        self.ws = websocket.create_connection(
            f"{kernel.gateway.ws_url}/api/kernels/{kernel.kernel_id}/channels?{query}",
            timeout=PATIENCE_S,
            subprotocols=[jupyter.V1_PROTOCOL] if v1 else None,
            suppress_origin=True,
            sockopt=[(SOL_SOCKET, SO_RCVBUF, receive_buffer)] if receive_buffer else None,
        )

    def send(self, msg_type: str, content: Json, *, channel: str = "shell", parent: Json | None = None, msg_id: str = "") -> str:
        """Send a request; its msg_id."""
        header = jupyter.make_header(msg_type, self.session, msg_id=msg_id)
        if self.v1:
            self.ws.send_binary(jupyter.build(channel, header, parent or {}, {}, content))
        else:
            whole = {
                "channel": channel,
                "header": header,
                "parent_header": parent or {},
                "metadata": {},
                "content": content,
            }
            self.ws.send(json.dumps(whole))
        return str(header["msg_id"])

    def execute(self, code: str, **content: Any) -> str:
        body = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        return self.send("execute_request", body | {"stop_on_error": True} | content)

    def next(self, timeout_s: float = PATIENCE_S) -> Message:
        """The next message. Raises WebSocketTimeoutException, WebSocketConnectionClosedException."""
        data = self._receive(timeout_s)
        if self.v1:
            assert isinstance(data, bytes), data
            m = jupyter.decode(data)
            return Message(m.channel, m.msg_type, m.header, m.parent_id, m.content, [bytes(b) for b in m.buffers])
        whole = json.loads(data) if isinstance(data, str) else _from_binary(data)
        assert {"channel", "msg_id", "msg_type", "header", "parent_header", "metadata", "content", "buffers"} <= set(whole)
        parent = whole["parent_header"].get("msg_id", "")
        return Message(whole["channel"], whole["msg_type"], whole["header"], parent, whole["content"], whole["buffers"])

    def _receive(self, timeout_s: float) -> str | bytes:
        """The next data frame; pings are answered on the way, and do not make the wait longer."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise websocket.WebSocketTimeoutException("nothing but pings")
            self.ws.settimeout(left)
            opcode, frame = self.ws.recv_data_frame(control_frame=True)
            if opcode == websocket.ABNF.OPCODE_TEXT:
                return str(frame.data.decode())
            if opcode == websocket.ABNF.OPCODE_BINARY:
                return bytes(frame.data)
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                raise websocket.WebSocketConnectionClosedException(f"closed: {frame.data!r}")

    def until(self, done: Callable[[Message], bool], timeout_s: float = PATIENCE_S) -> list[Message]:
        """Everything up to and with the first message for which ``done`` holds."""
        deadline = time.monotonic() + timeout_s
        seen: list[Message] = []
        while not (seen and done(seen[-1])):
            left = deadline - time.monotonic()
            assert left > 0, [(m.channel, m.msg_type, m.content) for m in seen[-5:]]
            seen.append(self.next(left))
        return seen

    def finished(self, msg_id: str, timeout_s: float = PATIENCE_S) -> list[Message]:
        """Everything until both the reply and the idle of ``msg_id`` were seen."""
        missing = {"reply", "idle"}

        def done(m: Message) -> bool:
            if m.parent == msg_id and m.msg_type.endswith("_reply"):
                missing.discard("reply")
            if m.parent == msg_id and m.msg_type == "status" and m.content["execution_state"] == "idle":
                missing.discard("idle")
            return not missing

        return self.until(done, timeout_s)

    def run(self, code: str, **content: Any) -> str:
        """Execute and wait; what it printed. Raises AssertionError when it fails."""
        msg_id = self.execute(code, **content)
        seen = [m for m in self.finished(msg_id) if m.parent == msg_id]
        (reply,) = [m for m in seen if m.msg_type == "execute_reply"]
        assert reply.content["status"] == "ok", reply.content
        return text(seen)

    def close_code(self, timeout_s: float = PATIENCE_S) -> int:
        """Read until the server closes; its code."""
        self.ws.settimeout(timeout_s)
        while True:
            opcode, data = self.ws.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return int.from_bytes(data[:2], "big")

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.ws.close(timeout=1)

    def drop(self) -> None:
        """Cut the connection without a word, as a lost network does."""
        self.ws.sock.close()
        self.ws.shutdown()


def text(messages: list[Message], name: str = "stdout") -> str:
    return "".join(m.content["text"] for m in messages if m.msg_type == "stream" and m.content["name"] == name)


def _from_binary(data: bytes) -> Json:
    count = int.from_bytes(data[:4], "big")
    offsets = [int.from_bytes(data[4 * i : 4 * i + 4], "big") for i in range(1, count + 1)] + [len(data)]
    parts = [data[a:b] for a, b in pairwise(offsets)]
    whole: Json = json.loads(parts[0])
    whole["buffers"] = parts[1:]
    return whole


class Events:
    """A session's event stream. Iterating gives ``(id, event, data)`` until the server ends it."""

    def __init__(self, gateway: Gateway, session_id: str, *, after: int | None = None, user: str = "alice") -> None:
        query = "" if after is None else f"?after={after}"
        headers = {"Authorization": f"Bearer {gateway.token(user)}"}
        url = f"{gateway.url}/api/v1/sessions/{session_id}/events{query}"
        self.response = requests.get(url, headers=headers, stream=True, timeout=PATIENCE_S)
        assert self.response.status_code == 200, self.response.text
        self._events = self._parse()

    def _parse(self) -> Iterator[tuple[int | None, str, Json]]:
        block: dict[str, str] = {}
        for raw in self.response.iter_lines(chunk_size=1):
            line = raw.decode()
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                block[name] = value
            elif "data" in block:
                yield int(block["id"]) if "id" in block else None, block["event"], json.loads(block["data"])
                block = {}
            else:
                block = {}

    def __iter__(self) -> Iterator[tuple[int | None, str, Json]]:
        return self._events

    def _receive(self, timeout_s: float) -> str | bytes:
        """The next data frame; pings are answered on the way, and do not make the wait longer."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise websocket.WebSocketTimeoutException("nothing but pings")
            self.ws.settimeout(left)
            opcode, frame = self.ws.recv_data_frame(control_frame=True)
            if opcode == websocket.ABNF.OPCODE_TEXT:
                return str(frame.data.decode())
            if opcode == websocket.ABNF.OPCODE_BINARY:
                return bytes(frame.data)
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                raise websocket.WebSocketConnectionClosedException(f"closed: {frame.data!r}")

    def until(self, done: Callable[[str, Json], bool]) -> list[tuple[int | None, str, Json]]:
        """Everything up to and with the first event for which ``done`` holds."""
        seen = []
        for ident, event, data in self._events:
            seen.append((ident, event, data))
            if done(event, data):
                return seen
        raise AssertionError(f"the stream ended: {seen[-3:]}")

    def close(self) -> None:
        self.response.close()
