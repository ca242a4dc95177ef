"""``sandglass mcp``: an MCP server on standard input and output that hands everything to a running gateway's ``/mcp``."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from .. import __version__
from ..errors import BadRequest, SandglassError, Unauthenticated, Unavailable
from .server import CLIENT_HEADER, INSTRUCTIONS

CONNECT_S = 10.0
SILENT_S = 120.0
"""The gateway shows life every 15 s, whatever runs."""

Context = ServerRequestContext[Any, Any]


class _Bearer(httpx2.Auth):
    """The token of the moment: one of our own making is made anew before it expires."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token()}"
        yield request


def make_proxy(client: Client) -> Server[Any]:
    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return await client.list_tools()

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            await ctx.session.report_progress(progress, total, message)

        return await client.call_tool(params.name, params.arguments, progress_callback=tell)

    return Server(
        "sandglass", version=__version__, title="Sandglass", instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


@asynccontextmanager
async def connected(url: str, token: Callable[[], str], session: str) -> AsyncIterator[Client]:
    """A client of that gateway. Raises Unavailable (nothing answers there), Unauthenticated, and what else the gateway says."""
    headers = {CLIENT_HEADER: secrets.token_hex(8)}
    timeout = httpx2.Timeout(CONNECT_S, read=SILENT_S)
    async with httpx2.AsyncClient(auth=_Bearer(token), headers=headers, timeout=timeout) as http:
        await _look(http, url)
        endpoint = f"{url.rstrip('/')}/mcp" + (f"?session={quote(session, safe='')}" if session else "")
        async with Client(streamable_http_client(endpoint, http_client=http)) as client:
            yield client


async def _look(http: httpx2.AsyncClient, url: str) -> None:
    """Whether a gateway answers and takes the token: the protocol's own errors would not say which of it fails."""
    try:
        answer = await http.get(f"{url.rstrip('/')}/api/v1/me")
    except httpx2.HTTPError as error:
        raise Unavailable(f"No gateway answers at {url} ({type(error).__name__}).") from None
    except (httpx2.InvalidURL, ValueError):
        raise BadRequest(f"{url!r} is not an address.") from None
    if answer.status_code != 200:
        try:
            detail = str(answer.json()["detail"])
        except (ValueError, KeyError, TypeError):
            detail = "This does not look like a gateway."
        kind: type[SandglassError] = Unauthenticated if answer.status_code == 401 else Unavailable
        raise kind(f"{url} answers {answer.status_code}: {detail}")


async def serve(url: str, token: Callable[[], str], session: str) -> None:
    """Until standard input ends."""
    async with connected(url, token, session) as client, stdio_server() as (read, write):
        server = make_proxy(client)
        await server.run(read, write, server.create_initialization_options())
