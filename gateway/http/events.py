"""``/api/v1/sessions/{id}/events``: a session's journal as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial

from tornado import iostream

from ..domain.sensitive import NOTHING, Screen
from ..errors import BadRequest
from ..service.api import SessionFacade
from ..service.journal import Entry
from .base import Authenticated
from .cache import ByteCache, Payload
from .expiry import Expiry
from .models import queries
from .outflow import Outflow
from .render import bye_event, entry_event, gap_event, session_event

HEARTBEAT = b": still here\n\n"
RETRY_MS = 1000
_BYE = {"session_ended": "session_ended", "unauthenticated": "unauthenticated"}


class EventSink(ABC):
    """Collects what the service delivers; the handler's loop writes it out as fast as the client reads."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._wake = asyncio.Event()
        self.flow = Outflow()
        self.ended = False
        self.look_again = False
        """Entries were passed over: what is waited for may have been among them."""

    @abstractmethod
    def render(self, entry: Entry) -> bytes:
        """The event for an entry; empty for none."""

    # -- the service's side (``Sink``)

    @property
    def queued(self) -> int:
        return self.flow.queued

    def deliver(self, entry: Entry) -> int:
        if self.flow.lost:
            raise ConnectionResetError("the client went away")
        self.push(self.render(entry))
        return self.flow.queued

    async def flushed(self) -> None:
        await self.flow.flushed()

    def gap(self, after: int, oldest: int) -> None:
        self.push(gap_event(after, oldest))

    def closed(self, code: str) -> None:
        if not self.ended:
            self.push(bye_event(_BYE.get(code, "shutdown")))
            self.end()

    # -- the handler's side

    def push(self, data: bytes) -> None:
        if data and not self.ended:
            self._pending.append(data)
            self.flow.add(len(data))
            self._wake.set()

    def end(self) -> None:
        """What was pushed is the last."""
        self.ended = True
        self._wake.set()

    async def take(self, timeout_s: float) -> bytes:
        """What is to be written next; a heartbeat when nothing came for ``timeout_s``, empty at the end."""
        if not self._pending and not self.ended and not self.flow.lost:
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), timeout_s)
            except TimeoutError:
                self.flow.add(len(HEARTBEAT))
                return HEARTBEAT
        data, self._pending = b"".join(self._pending), []
        return b"" if self.flow.lost else data

    def lose(self) -> None:
        self.flow.lose()
        self._wake.set()


class SessionSink(EventSink):
    """Everything that a session has to tell; one conversion serves all its readers."""

    def __init__(self, session: SessionFacade, cache: ByteCache, screen: Screen = NOTHING) -> None:
        super().__init__()
        self._screen = screen
        self._session = session
        self._cache = cache

    def render(self, entry: Entry) -> bytes:
        key = ("event", self._session.session_id, entry.index)
        return self._cache.get(key, lambda: Payload(entry_event(entry, self._session.execution_id_of, self._screen))).data


async def _nothing() -> None:
    pass


class Streaming(Authenticated):
    sink: EventSink | None = None

    async def stream(self, sink: EventSink, between: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Write out what comes until the end; ``between`` is asked at first and whenever nothing came for a while.

        Raises StreamClosedError when the client is gone.
        """
        if self.gone:
            sink.lose()
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("X-Accel-Buffering", "no")
        await between()
        while data := await sink.take(self.deps.limits.heartbeat_s):
            self.write(data)
            await self.flush()
            sink.flow.took(len(data))
            self.deps.tally.events_out += len(data)
            if data is HEARTBEAT or sink.look_again:
                sink.look_again = False
                await between()

    def cut_off(self) -> None:
        if self.sink is not None:
            self.sink.closed("unauthenticated")
        else:
            super().cut_off()

    def resume_point(self) -> int | None:
        """``Last-Event-ID`` (of a browser that reconnects) before ``?after=``. Raises BadRequest."""
        text = self.request.headers.get("Last-Event-ID")
        if not text:
            return self.query(queries.Events).after
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise BadRequest("Last-Event-ID (or ?after=) must be the number of an event.")
        return int(text)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self.sink is not None:
            self.sink.lose()


class EventsHandler(Streaming):
    async def get(self, session_id: str) -> None:
        after = self.resume_point()
        session = await self.session_of(session_id)
        sink = self.sink = SessionSink(session, self.deps.converted, self.deps.screens.of(self.caller.tenant))
        sink.push(f"retry: {RETRY_MS}\n\n".encode() + session_event(session.to_json()))
        attachment = session.attach(f"sse:{secrets.token_hex(8)}", sink, after=after, jupyter=False)
        # The page renews its cookie, so its stream comes back with a fresh one, or is told 401 then.
        last_word = "shutdown" if self.by_cookie else "unauthenticated"
        expiry = Expiry(self.deps.clock, self.caller.expires_at, partial(sink.closed, last_word))
        try:
            with contextlib.suppress(iostream.StreamClosedError):
                await self.stream(sink)
        finally:
            expiry.cancel()
            sink.lose()
            attachment.detach()
