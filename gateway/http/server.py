"""Sockets and servers: explicit binding (port 0 works), bounded requests, no trust in forwarded headers."""

from __future__ import annotations

import socket
from typing import Any

from tornado import iostream
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerConnectionDelegate
from tornado.netutil import bind_sockets

from . import errors
from .gate import STALL_S, BodyLimit, Gate
from .headers import SECURITY_HEADERS

MAX_HEADER_BYTES = 64 * 1024
"""Tokens with many roles are a few KiB; query strings carry them too."""
MAX_BUFFER_BYTES = 80 * 1024**2
"""The most that is read ahead from one connection: one websocket message of the largest kind, and its framing."""
CHUNK_BYTES = 256 * 1024
"""What is read of a body at once: each piece costs turns of the loop, a frame to the sandbox and a look at its content."""
IDLE_S = 300.0
_BARE_400 = b"HTTP/1.1 400 Bad Request\r\n\r\n"


class Server(HTTPServer):
    """An HTTPServer whose answer to bytes that are not HTTP has the shape of every other error.

    Tornado writes that answer as fixed bytes, deep inside the connection; the stream is the one seam to change it at.
    """

    def handle_stream(self, stream: iostream.IOStream, address: tuple[Any, ...]) -> None:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if stream.socket.family in (socket.AF_INET, socket.AF_INET6):
            stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
            stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
            stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        plain_write = stream.write
        bad_request = _bad_request()

        def write(data: bytes | memoryview) -> Any:
            return plain_write(bad_request if data == _BARE_400 else data)

        setattr(stream, "write", write)
        super().handle_stream(stream, address)


def _bad_request() -> bytes:
    body = errors.problem_of_status(400, "This is not a well-formed HTTP request.")
    data = errors.encode(body)
    headers = SECURITY_HEADERS | errors.headers_of(400, body) | {"Content-Length": str(len(data)), "Connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 400 Bad Request\r\n{head}\r\n".encode("latin-1") + data


def bind(host: str, port: int) -> tuple[list[socket.socket], int]:
    """Listening sockets for ``host`` (one for each address it means) and the port they got. Raises OSError.

    With port 0 and several addresses every socket gets the port that the first one was given.
    """
    sockets = bind_sockets(port, address=host, reuse_port=False)
    return sockets, int(sockets[0].getsockname()[1])


def serve(
    app: HTTPServerConnectionDelegate, sockets: list[socket.socket], limit: BodyLimit, *, idle_s: float = IDLE_S, stall_s: float = STALL_S
) -> Server:
    """Start answering on ``sockets``. ``idle_s``: until a request's head is there; ``stall_s``: between pieces of its body.

    Stop with ``server.stop()``, then ``await server.close_all_connections()``."""
    gate = Gate(app, limit, headers=lambda: dict(SECURITY_HEADERS), stall_s=stall_s)
    server = Server(
        gate,
        xheaders=False,
        decompress_request=False,
        max_header_size=MAX_HEADER_BYTES,
        # The gate bounds every body; this bound only stands behind it.
        max_body_size=1 << 40,
        max_buffer_size=MAX_BUFFER_BYTES,
        chunk_size=CHUNK_BYTES,
        idle_connection_timeout=idle_s,
    )
    server.add_sockets(sockets)
    return server
