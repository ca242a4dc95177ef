"""What stands between the socket and the routes: body limits, query tokens taken out of the URL, and polite refusals.

Tornado decides too early or too late for three things, so they are done here, once, for every request:

- a body over its limit is answered 413 in our own shape (Tornado writes a bare 400 and closes);
- an answer that is ready before the body has arrived (401, 413, a refused upload) is sent at once and the rest of the
  body is read and thrown away, within bounds; closing instead would reset the connection and lose the answer;
- ``?token=`` is moved from the request line into a private header before anything can log the URL.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote_plus

from tornado import httputil
from tornado.http1connection import HTTP1Connection

from ..errors import BadRequest, SandglassError, TooLarge
from . import errors

log = logging.getLogger("sandglass.http")

QUERY_TOKEN_HEADER = "X-Sandglass-Query-Token"  # noqa: S105  (a header's name, no secret)
LINGER_BYTES = 64 * 1024**2
LINGER_S = 10.0
STALL_S = 60.0
"""A client that sends nothing for so long in the middle of a body is gone."""

BodyLimit = Callable[[str, str], int]
"""(method, path) -> the most bytes that such a request's body may have."""

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class Gate(httputil.HTTPServerConnectionDelegate):
    """Wraps a Tornado application (or any other connection delegate)."""

    def __init__(
        self,
        app: httputil.HTTPServerConnectionDelegate,
        limit: BodyLimit,
        *,
        headers: Callable[[], dict[str, str]] = dict,
        stall_s: float = STALL_S,
    ) -> None:
        self.app = app
        self.limit = limit
        self.headers = headers
        self.stall_s = stall_s

    def start_request(self, server_conn: object, request_conn: httputil.HTTPConnection) -> httputil.HTTPMessageDelegate:
        assert isinstance(request_conn, HTTP1Connection)
        return _Gated(self, server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        self.app.on_close(server_conn)


class Connection(httputil.HTTPConnection):
    """The connection as the application sees it: ``finish`` waits until the request's body has been read."""

    def __init__(self, inner: HTTP1Connection, gated: _Gated) -> None:
        self._inner = inner
        self._gated = gated
        self.context = inner.context

    def write_headers(
        self,
        start_line: httputil.RequestStartLine | httputil.ResponseStartLine,
        headers: httputil.HTTPHeaders,
        chunk: bytes | None = None,
    ) -> asyncio.Future[None]:
        return self._inner.write_headers(start_line, headers, chunk)

    def write(self, chunk: bytes) -> asyncio.Future[None]:
        return self._inner.write(chunk)

    def finish(self) -> None:
        self._gated.answered()

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        self._inner.set_close_callback(callback)

    def abort(self) -> None:
        """Close at once, in the middle of whatever it is; the application is told as when the client leaves."""
        if self._inner.stream is not None:
            self._inner.stream.close()

    def detach(self) -> Any:
        self._gated.cancel_timer()
        return self._inner.detach()


class _Gated(httputil.HTTPMessageDelegate):
    """One request. States: reading (the application gets the body), discarding (it has answered), over."""

    def __init__(self, gate: Gate, server_conn: object, conn: HTTP1Connection) -> None:
        self._gate = gate
        self._server_conn = server_conn
        self._conn = conn
        self._inner: httputil.HTTPMessageDelegate | None = None
        self._reading = False
        self._answered = False
        self._finished = False
        self._expects_continue = False
        self._limit = 0
        self._taken = 0
        self._discarded = 0
        self._timer: asyncio.TimerHandle | None = None

    # -- what Tornado calls

    def headers_received(
        self, start_line: httputil.RequestStartLine | httputil.ResponseStartLine, headers: httputil.HTTPHeaders
    ) -> Awaitable[None] | None:
        assert isinstance(start_line, httputil.RequestStartLine)
        path, token = take_token(start_line.path)
        start_line = start_line._replace(path=path)
        headers.pop(QUERY_TOKEN_HEADER, None)
        if token is not None:
            headers[QUERY_TOKEN_HEADER] = token if token.isascii() and token.isprintable() else "-"
        # No handler reads forms; left alone, Tornado would parse them and refuse what a careless client labels as one.
        if headers.get("Content-Type", "").lower().startswith(_FORMS):
            headers["Content-Type"] = "application/octet-stream"
        length = headers.get("Content-Length")
        chunked = "transfer-encoding" in headers
        self._reading = chunked or (length is not None and length.strip() not in ("", "0"))
        self._expects_continue = headers.get("Expect", "").lower() == "100-continue"
        self._limit = self._gate.limit(start_line.method, path.partition("?")[0])
        if length is not None and length.isascii() and length.isdigit() and int(length) > self._limit:
            self._refuse(TooLarge(f"The body may have at most {self._limit} bytes.", limit=self._limit))
            return None
        try:
            self._inner = self._gate.app.start_request(self._server_conn, Connection(self._conn, self))
            result = self._inner.headers_received(start_line, headers)
        except httputil.HTTPInputError:
            self._refuse(BadRequest("The request's headers cannot be read."))
            return None
        if self._reading and not self._answered:
            self._arm(self._gate.stall_s)
        return result

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        if self._answered:
            self._discarded += len(chunk)
            if self._discarded > LINGER_BYTES:
                self._finish()
            return None
        self._taken += len(chunk)
        if self._taken > self._limit:
            if self._inner is not None:
                self._inner.on_connection_close()
            self._refuse(TooLarge(f"The body may have at most {self._limit} bytes.", limit=self._limit))
            return None
        assert self._inner is not None
        result = self._inner.data_received(chunk)
        if result is None:
            self._arm(self._gate.stall_s)
            return None
        self.cancel_timer()  # while the application makes the client wait, silence is not the client's fault
        return self._and_rearm(result)

    async def _and_rearm(self, result: Awaitable[None]) -> None:
        await result
        if not self._answered and not self._finished:
            self._arm(self._gate.stall_s)

    def finish(self) -> None:
        self._reading = False
        self.cancel_timer()
        if self._inner is not None:
            self._inner.finish()  # also after its answer: a streaming handler waits for the end of the body
        if self._answered:
            self._finish()

    def on_connection_close(self) -> None:
        self.cancel_timer()
        self._finished = True
        if self._inner is not None:
            self._inner.on_connection_close()

    # -- answering

    def answered(self) -> None:
        """The application's answer is written; the connection goes on once the body is out of the way."""
        self._answered = True
        if self._reading and not self._expects_continue:
            self._arm(LINGER_S)
        else:
            self._finish()

    def _refuse(self, error: SandglassError) -> None:
        status, body = errors.problem(error)
        data = errors.encode(body)
        headers = httputil.HTTPHeaders(self._gate.headers() | errors.headers_of(status, body))
        headers["Content-Length"] = str(len(data))
        headers["Connection"] = "close"
        start = httputil.ResponseStartLine("HTTP/1.1", status, errors.title_of(status))
        self._inner = None
        self._conn.write_headers(start, headers, data)
        log.info("refused", extra={"status": status, "code": error.code})
        self.answered()

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            self.cancel_timer()
            self._conn.finish()

    # -- the one timer

    def _arm(self, seconds: float) -> None:
        self.cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expired)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        self._timer = None
        if self._answered:
            self._finish()
        else:
            self._conn.close()


def take_token(target: str) -> tuple[str, str | None]:
    """Split ``/path?a=1&token=T`` into ``/path?a=1`` and ``T`` (the first, if there are several; all are removed)."""
    path, mark, query = target.partition("?")
    if not mark or "token" not in query:
        return target, None
    found: str | None = None
    kept = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) != "token":
            kept.append(part)
        elif found is None:
            found = unquote_plus(value)
    return (path + "?" + "&".join(kept) if kept else path), found
