"""A numbered event stream over any number of connections: each event once, in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2

from .errors import SandglassError, Unauthenticated, Unreachable
from .events import json_of
from .models import members, number
from .sse import Parser, ServerEvent
from .transport import Patience, Transport, unreachable

SILENCE_S = 45.0
"""The gateway says every 15 s that it is still there; after so long without a word the connection is taken for dead."""


async def server_events(transport: Transport, path: str, after: int | None = None) -> AsyncGenerator[ServerEvent]:
    """What comes after event ``after`` (None: from now on; 0: from the oldest kept). Comes back by itself, with ``Last-Event-ID``, after
    a connection that broke, a gateway that restarted and a token that ran out where there is a fresh one; ends with the session.

    Raises Unreachable when the gateway stays away longer than the patience, and what it refuses.
    """
    patience = Patience(transport.patience_s)
    refused = False
    while True:
        parser = Parser()
        error: SandglassError = Unreachable("The event stream ended.", sent=True)
        try:
            headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"} | ({} if after is None else {"Last-Event-ID": str(after)})
            async with transport.open("GET", path, headers=headers, answer_s=SILENCE_S) as response:
                async for chunk in response.aiter_bytes():
                    patience.begin()
                    for event in parser.feed(chunk):
                        value = json_of(event) if event.type in ("session", "bye") else {}
                        if event.type == "session" and after is None:
                            after = number(members(value.get("session")).get("last_event"))
                        if event.id is not None:
                            if after is not None and event.id <= after:
                                continue
                            after, refused = event.id, False
                        yield event
                        if value.get("code") == "session_ended":
                            return
                        if value.get("code") == "unauthenticated":
                            raise Unauthenticated("The token ran out, or was revoked.", status=401)
        except httpx2.TransportError as broken:
            error = unreachable(broken, sent=True)
        except Unauthenticated:
            # with a token that is made anew for each request a second connection may do; once
            if refused:
                raise
            refused = True
            continue
        except SandglassError as found:
            if not isinstance(found, Unreachable) and found.retry_after is None:
                raise
            error = found
        await patience.pause(error, error.retry_after if error.status else parser.retry_s)
