"""A plain client of a running gateway: REST over urllib, one v1 websocket per session over Tornado."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gateway.protocol import jupyter

Json = dict[str, Any]


class Api:
    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            raw = answer.read()
        return dict(json.loads(raw)) if raw else {}

    def session(self, profile: str) -> str:
        session_id = str(self.call("POST", "/api/v1/sessions", {"profile": profile, "name": "bench"})["session_id"])
        while self.call("GET", f"/api/v1/sessions/{session_id}")["state"] != "active":
            time.sleep(0.05)
        return session_id


class Socket:
    """Executes and waits for both reply and idle."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection
        self.bytes = 0

    @classmethod
    async def open(cls, api: Api, session_id: str) -> Socket:
        url = api.url.replace("http", "ws", 1) + f"/api/kernels/{session_id}/channels?session_id={uuid.uuid4().hex}"
        request = HTTPRequest(url, headers={"Authorization": f"Bearer {api.token}"})
        connection = await websocket_connect(request, subprotocols=[jupyter.V1_PROTOCOL], max_message_size=128 * 2**20)
        return cls(connection)

    async def execute(self, code: str) -> float:
        """Seconds from sending to having both reply and idle."""
        header = jupyter.make_header("execute_request", "bench")
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        body = jupyter.build("shell", header, {}, {}, content)
        begun = time.perf_counter()
        await self.connection.write_message(body, binary=True)
        replied = idle = False
        while not (replied and idle):
            data = await self.connection.read_message()
            if not isinstance(data, bytes):
                raise ConnectionError("the websocket was closed")
            self.bytes += len(data)
            message = jupyter.decode(data)
            if message.parent_id != header["msg_id"]:
                continue
            if message.msg_type == "execute_reply":
                replied = True
            elif message.msg_type == "status":
                idle = message.content["execution_state"] == "idle"
        return time.perf_counter() - begun
