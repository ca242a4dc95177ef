"""A websocket server that answers each execution at once, by itself: what the hop through any server of this kind costs at the least.

No kernel, no sandbox, no records, no journal; Tornado's websocket with no-delay, and the four messages that `pass` makes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

from gateway.protocol import jupyter


class Api(RequestHandler):
    def get(self) -> None:
        self.write({})

    def post(self) -> None:
        self.set_status(201)
        self.write({"id": "bare"})

    def delete(self, *_: str) -> None:
        self.set_status(204)


class Channels(WebSocketHandler):
    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return jupyter.V1_PROTOCOL if jupyter.V1_PROTOCOL in subprotocols else None

    def open(self, *_: str) -> None:
        self.set_nodelay(True)

    def on_message(self, message: str | bytes) -> None:
        assert isinstance(message, bytes)
        header = jupyter.decode(message).header
        answers: list[tuple[str, str, dict[str, Any]]] = [
            ("iopub", "status", {"execution_state": "busy"}), ("iopub", "execute_input", {"code": "pass", "execution_count": 1}),
            ("shell", "execute_reply", {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": []}),
            ("iopub", "status", {"execution_state": "idle"}),
        ]  # fmt: skip
        for channel, kind, content in answers:
            self.write_message(jupyter.build(channel, jupyter.make_header(kind, "bare"), header, {}, content), binary=True)


async def main(port: int) -> None:
    app = Application([("/api", Api), ("/api/kernels", Api), ("/api/kernels/([^/]+)", Api), ("/api/kernels/([^/]+)/channels", Channels)])
    HTTPServer(app).add_sockets(bind_sockets(port, "127.0.0.1"))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
