"""Requests to a gateway: who asks, what an answer means, and when to ask again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from .errors import SandglassError, Unauthenticated, Unreachable, from_response

Json = dict[str, Any]
Token = str | Callable[[], str]
Content = bytes | Callable[[], AsyncIterable[bytes]]
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
CONNECT_S = 10.0
ANSWER_S = 60.0
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class Patience:
    """A time to try again in. Pauses grow where nobody says how long to wait, and last at least as long as somebody says."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Something came: the time counts anew."""
        self._until = time.monotonic() + self._seconds
        self._pause = FIRST_PAUSE_S

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())

    async def pause(self, error: SandglassError, asked_s: float | None = None) -> None:
        """Before the next try. Raises ``error`` when the time is over, or would be before the next try."""
        wait = self._pause if asked_s is None else asked_s
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        wait *= 1 + random.random() / 10  # those who were refused together do not come back together
        if wait > self.left_s:
            raise error
        await asyncio.sleep(wait)


class Transport:
    """``token``: a string, or what gives a fresh one: it is asked before each request, and again when one is not taken."""

    def __init__(self, url: str, token: Token, *, patience_s: float, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self.patience_s = patience_s
        self._token = token
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8)
        self._http = httpx2.AsyncClient(base_url=self.url, transport=transport, limits=limits, follow_redirects=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def json(self, method: str, path: str, body: Json | None = None, **options: Any) -> Json:
        """The JSON object that is answered; empty for 204."""
        response = await self.request(method, path, body, **options)
        value = response.json() if response.content else {}
        return value if isinstance(value, dict) else {}

    async def request(
        self, method: str, path: str, body: Json | None = None, *, params: dict[str, str] | None = None, content: Content | None = None,
        headers: dict[str, str] | None = None, answer_s: float = ANSWER_S, repeat: bool = True, patience_s: float | None = None,
    ) -> httpx2.Response:  # fmt: skip
        """An answer of 2xx. Asked again within the patience: when it could not be sent, when the gateway says after how long to come back
        (429, 503), and, with ``repeat``, when the connection broke before the answer. Raises SandglassError."""
        patience = Patience(self.patience_s if patience_s is None else patience_s)
        while True:
            try:
                async with self.open(method, path, body, params=params, content=content, headers=headers, answer_s=answer_s) as response:
                    try:
                        await response.aread()
                    except httpx2.TransportError as error:
                        raise unreachable(error, sent=True) from error
                    return response
            except Unreachable as error:
                if error.sent and not repeat:
                    raise
                await patience.pause(error)
            except SandglassError as error:
                if error.retry_after is None or error.status not in (429, 502, 503, 504):
                    raise
                await patience.pause(error, error.retry_after)

    @asynccontextmanager
    async def open(
        self, method: str, path: str, body: Json | None = None, *, params: dict[str, str] | None = None, content: Content | None = None,
        headers: dict[str, str] | None = None, answer_s: float = ANSWER_S,
    ) -> AsyncIterator[httpx2.Response]:  # fmt: skip
        """One try: an answer of 2xx whose body is not read yet. Raises SandglassError."""
        for last in (not callable(self._token), True):
            try:
                response = await self._send(method, path, body, params, content, headers, answer_s)
                break
            except Unauthenticated:
                if last:
                    raise
        try:
            yield response
        finally:
            await response.aclose()

    async def _send(
        self, method: str, path: str, body: Json | None, params: dict[str, str] | None, content: Content | None,
        headers: dict[str, str] | None, answer_s: float,
    ) -> httpx2.Response:  # fmt: skip
        token = self._token() if callable(self._token) else self._token
        request = self._http.build_request(
            method, path, params=params, json=body, content=content() if callable(content) else content,
            headers={"Authorization": f"Bearer {token}", **(headers or {})}, timeout=httpx2.Timeout(answer_s, connect=CONNECT_S),
        )  # fmt: skip
        try:
            response = await self._http.send(request, stream=True)
        except httpx2.TransportError as error:
            raise unreachable(error, sent=not isinstance(error, NOT_SENT)) from error
        if response.is_success:
            return response
        try:
            await response.aread()
        except httpx2.TransportError as error:
            raise unreachable(error, sent=True) from error
        finally:
            await response.aclose()
        raise from_response(response.status_code, response.headers, response.content)


def unreachable(error: httpx2.TransportError, *, sent: bool) -> Unreachable:
    what = str(error) or type(error).__name__
    return Unreachable(f"The connection to the gateway broke ({what})." if sent else f"The gateway cannot be reached ({what}).", sent=sent)
