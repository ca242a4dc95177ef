"""``/api/kernels/{id}/channels``: a websocket as an attachment, in the v1 subprotocol or the default framing.

Close codes: 1000 a newer socket with the same ``session_id`` took over; 1012 the gateway stops, come back; 4400 too
many messages that were none; 4401 the token expired or was revoked; 4404 the session ended; 4429 too many attachments; 4500 a fault,
come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Awaitable
from functools import partial
from typing import Any

from tornado.websocket import WebSocketHandler

from ..domain.sensitive import NOTHING
from ..errors import BadRequest, Forbidden, QuotaExceeded, SandglassError, SessionEnded
from ..protocol import jupyter
from ..service.api import Attachment, GatewayFacade, SessionFacade
from ..service.journal import Entry
from .auth import same_origin
from .confirm import Confirmer
from .deps import Deps
from .expiry import Expiry
from .framing import BINARY, PING, TEXT, FrameWriter
from .jupyter import Jupyter
from .outflow import Outflow
from .render import default_framing, gap_message, refusals
from .screening import screened

log = logging.getLogger("sandglass.channels")

MESSAGE_SLACK = 1024**2
"""On top of the largest message: the framing around it."""
MAX_SESSION_ID = 200
CONFIRM_EVERY_S = 0.025
"""Cells that follow one another faster are confirmed together: each ping costs both sides a frame."""
CLOSE = {
    "replaced": (1000, "a newer connection of the same client took over"),
    "shutdown": (1012, "the gateway restarts; come back"),
    "unauthenticated": (4401, "the token expired or was revoked; come back with a fresh one"),
    "session_ended": (4404, "the session ended"),
    "quota_exceeded": (4429, "too many attachments"),
    "fault": (4500, "something went wrong; come back"),
}


class ChannelsHandler(WebSocketHandler, Jupyter):
    session: SessionFacade
    attachment: Attachment | None = None
    key = ""

    def initialize(self, gateway: GatewayFacade, deps: Deps) -> None:
        super().initialize(gateway, deps)
        self.flow = Outflow()
        self._confirmer = Confirmer()
        self._confirm_at = 0.0
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._opened = False
        self._v1 = False
        self._screen = NOTHING
        self._bad = 0
        self._writer: FrameWriter | None = None
        self._quiet_looks = 0
        self._expiry: Expiry | None = None
        self._watch: asyncio.TimerHandle | None = None

    # -- the handshake: everything that can be refused is refused here, in JSON

    async def prepare(self) -> None:
        await super().prepare()
        if not same_origin(self.request, self.deps, required=False):
            raise Forbidden("A websocket from this origin is not admitted.")
        self.session = await self.kernel(self.path_args[0])
        self._screen = self.deps.screens.of(self.caller.tenant)
        client = self.get_query_argument("session_id", "")
        if len(client) > MAX_SESSION_ID:
            raise BadRequest(f"session_id may have at most {MAX_SESSION_ID} characters.")
        self.key = f"ws:{client}" if client else f"ws:~{secrets.token_hex(16)}"

    async def get(self, *args: Any, **kwargs: Any) -> None:
        headers = self.request.headers
        if headers.get("Upgrade", "").lower() != "websocket":
            raise BadRequest("This is a websocket; ask for an upgrade.")
        if headers.get("Sec-WebSocket-Version") != "13" or not headers.get("Sec-WebSocket-Key"):
            raise BadRequest("The websocket handshake is malformed; version 13 is spoken here.")
        await super().get(*args, **kwargs)

    def check_origin(self, origin: str) -> bool:
        return True  # checked in prepare, by the same rule as everywhere

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        self._v1 = jupyter.V1_PROTOCOL in subprotocols
        return jupyter.V1_PROTOCOL if self._v1 else None

    @property
    def max_message_size(self) -> int:
        return self.deps.limits.message_bytes + MESSAGE_SLACK

    @property
    def ping_interval(self) -> float | None:
        return 0  # our own pings confirm delivery and tell a dead client too

    def open(self, *args: str, **kwargs: str) -> None:
        self._opened = True
        self.set_nodelay(True)
        self._heard()
        assert self.ws_connection is not None and self.ws_connection.stream is not None
        self._writer = FrameWriter(
            self.ws_connection.stream,
            self.flow,
            self.deps.tally,
            closing=self._closing,
            last=self._confirm_later,
            progress=self._heard,
        )
        try:
            self.attachment = self.session.attach(self.key, self, after=None, jupyter=True)
        except SandglassError as error:
            self._end("session_ended" if isinstance(error, SessionEnded) else _word_of(error))
            return
        self._expiry = Expiry(self.deps.clock, self.caller.expires_at, partial(self._end, "unauthenticated"))
        self._watch = asyncio.get_running_loop().call_later(self.deps.limits.ping_s, self._look)
        log.debug("attached", extra={"session": self.session.session_id, "v1": self._v1})

    # -- from the client

    def on_message(self, message: str | bytes) -> Awaitable[None] | None:
        self._heard()
        self.deps.tally.websocket_in += len(message)
        if self.attachment is None:
            return None  # we are closing; whoever speaks here may do so no more
        body: bytes | None = None
        try:
            body = self._decode(message)
            self.session.from_client(self.key, body)
        except jupyter.JupyterError as error:
            self._not_taken(body, BadRequest(str(error)))
        except SandglassError as error:
            self._not_taken(body, error)
        except Exception:
            # A defect of ours; it costs its sender one message, and nobody else anything.
            log.exception("a message could not be handled", extra={"session": self.session.session_id})
            self._not_taken(body, SandglassError("Something went wrong inside the gateway; its log has the details."))
        return self._room()

    def _decode(self, message: str | bytes) -> bytes:
        """The message in v1 form. Raises BadRequest or JupyterError."""
        if len(message) > self.deps.limits.message_bytes:
            raise BadRequest("The message is over its size limit.")
        if not self._v1:
            return jupyter.from_default(message)
        if isinstance(message, str):
            raise BadRequest("Messages of the v1 subprotocol are binary.")
        jupyter.decode(message)
        return message

    async def _room(self) -> None:
        await self.session.room()
        self._heard()  # while we did not read, silence was ours

    def _not_taken(self, body: bytes | None, error: SandglassError) -> None:
        """The message is dropped; a request is answered so that its sender does not wait for ever."""
        what = {"session": self.session.session_id, "code": error.code, "why": error.detail}
        log.info("a message was not taken", extra=what)
        if isinstance(error, SessionEnded):
            self._end("session_ended")
            return
        try:
            answers = refusals(jupyter.decode(body), error) if body is not None else []
        except ValueError:
            answers = []
        for answer in answers:
            self._send(answer)
        if isinstance(error, BadRequest):
            self._bad += 1
            if self._bad >= self.deps.limits.bad_messages:
                self._shut(4400, "too many malformed messages")

    # -- to the client (``Sink``)

    @property
    def queued(self) -> int:
        return self.flow.queued

    def deliver(self, entry: Entry) -> int:
        entry = screened(entry, self._screen)
        if self._v1:
            self._write(entry.body, binary=True)
        else:
            try:
                key = ("default", self.session.session_id, entry.index)
                payload = self.deps.converted.get(key, partial(default_framing, entry))
            except ValueError as error:
                # The kernel is not trusted; a message that cannot be read is nobody's, and the next one may be fine.
                log.info("a message cannot be converted", extra={"session": self.session.session_id, "why": str(error)})
                return self.flow.queued
            self._write(payload.data, binary=payload.binary)
        self._confirmer.delivered(entry.index)
        return self.flow.queued

    async def flushed(self) -> None:
        await self.flow.flushed()

    def gap(self, after: int, oldest: int) -> None:
        self._send(gap_message(after, oldest))

    def closed(self, code: str) -> None:
        self._end(code)

    def _send(self, body: bytes) -> None:
        """A v1 message of our own, not in the journal."""
        out = body if self._v1 else jupyter.to_default(jupyter.decode(body))
        try:
            self._write(out.encode() if isinstance(out, str) else out, binary=not isinstance(out, str))
        except ConnectionError:
            log.debug("too late to answer", extra={"session": self.session.session_id})

    def _write(self, data: bytes, *, binary: bool) -> None:
        if self._writer is None:
            raise ConnectionResetError("the websocket is not open")
        self._writer.put(BINARY if binary else TEXT, data)

    # -- confirmation and signs of life

    def _confirm_later(self) -> None:
        """Ask for confirmation of what was sent, if that was not asked yet: right behind it, in the same write."""
        loop = asyncio.get_running_loop()
        if self._confirm_timer is not None:
            return
        if loop.time() < self._confirm_at:
            self._confirm_timer = loop.call_at(self._confirm_at, self._confirm_now)
        else:
            self._confirm_now()

    def _confirm_now(self) -> None:
        self._confirm_timer = None
        payload = self._confirmer.ping()
        if payload is not None:
            self._confirm_at = asyncio.get_running_loop().time() + CONFIRM_EVERY_S
            self._ping(payload)

    def _ping(self, payload: bytes) -> None:
        if self._writer is not None:
            with contextlib.suppress(ConnectionError):
                self._writer.put(PING, payload)

    def _acknowledge_now(self) -> None:
        """Have the pong's TCP acknowledgement sent at once.

        A client with Nagle on (Tornado's, so a front Jupyter server) holds its next request back until its pong is acknowledged:
        40 ms for each execution if the kernel takes its time.
        """
        stream = self.ws_connection.stream if self.ws_connection is not None else None
        sock = getattr(stream, "socket", None)
        if sock is not None and hasattr(socket, "TCP_QUICKACK"):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def on_pong(self, data: bytes) -> None:
        self._acknowledge_now()
        self._heard()
        index = self._confirmer.pong(data)
        if index is not None:
            if self.attachment is not None:
                self.attachment.confirm(index)
            self._confirm_later()

    def _heard(self) -> None:
        self._quiet_looks = 0

    def _look(self) -> None:
        """Every ``ping_s``: ask for a sign of life, and give up on a client that gave none for ``silence_s``."""
        limits = self.deps.limits
        # Looks are counted, not seconds: when our own loop was late, the clients' answers may still lie unread.
        self._quiet_looks += 1
        if self._quiet_looks * limits.ping_s > limits.silence_s:
            log.info("a silent client is dropped", extra={"session": self.session.session_id})
            self._shut(4500, "no sign of life")
            return
        self._ping(self._confirmer.again())
        self._watch = asyncio.get_running_loop().call_later(limits.ping_s, self._look)

    # -- the end

    def cut_off(self) -> None:
        if self._opened:
            self._end("unauthenticated")
        else:
            super().cut_off()

    def _end(self, word: str) -> None:
        self._shut(*CLOSE.get(word, CLOSE["fault"]))

    def _shut(self, code: int, reason: str) -> None:
        self._release()
        if self._writer is not None:
            self._writer.flush()
        self.close(code, reason)

    def _closing(self) -> bool:
        return self.ws_connection is None or self.ws_connection.is_closing()

    def on_close(self) -> None:
        self._release()
        self.flow.lose()

    def _release(self) -> None:
        """Let go of the attachment and the timers; the session, and what runs in it, goes on."""
        attachment, self.attachment = self.attachment, None
        if attachment is not None:
            attachment.detach()
        if self._expiry is not None:
            self._expiry.cancel()
        for timer in (self._watch, self._confirm_timer):
            if timer is not None:
                timer.cancel()


def _word_of(error: SandglassError) -> str:
    return "quota_exceeded" if isinstance(error, QuotaExceeded) else "fault"
