"""Fetches an identity provider's JWK set on the event loop: bounded in time and size, without following anybody anywhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tornado.httpclient import AsyncHTTPClient, HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from ..errors import Unavailable

MAX_BYTES = 1024**2
PATIENCE_S = 5.0


def fetcher(url: str) -> tuple[Callable[[], Awaitable[bytes]], Callable[[], None]]:
    """``(fetch, close)``. ``fetch`` raises Unavailable for anything but a 200 with a body."""
    AsyncHTTPClient.configure(SimpleAsyncHTTPClient)
    # an instance of its own: its bounds are no one else's
    client = AsyncHTTPClient(force_instance=True, max_clients=2, max_body_size=MAX_BYTES, max_buffer_size=2 * MAX_BYTES)

    async def fetch() -> bytes:
        request = HTTPRequest(
            url, connect_timeout=PATIENCE_S, request_timeout=PATIENCE_S, follow_redirects=False, decompress_response=False,
            user_agent="sandglass", headers={"Accept": "application/jwk-set+json, application/json"}, validate_cert=True,
        )  # fmt: skip
        try:
            response = await client.fetch(request, raise_error=False)
        except (HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"The identity provider does not answer ({type(error).__name__}).") from None
        if response.code != 200 or not response.body:
            raise Unavailable(f"The identity provider answers {response.code}.")
        return response.body

    return fetch, client.close
