"""The relay's end of the stream, sans-I/O: attach and marker, numbers, acknowledgements, ping. See ``docs/stream-protocol.md``."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from frames import (
    LANES,
    MARKER_BYTES,
    PROTOCOL_VERSION,
    RELIABLE,
    FrameError,
    Inbox,
    Kind,
    Lane,
    Message,
    Outbox,
    Parser,
    decode_ack,
    decode_json,
    encode,
    encode_json,
    pack_ack,
)

ACK_MESSAGES = 64
ACK_BYTES = 256 * 1024
ACK_S = 0.1
_ANSWERED_HERE = frozenset({Kind.ATTACH, Kind.ACK, Kind.PING, Kind.PONG, Kind.HELLO})


class Link:
    """``hello``: what HELLO says beside the numbers. ``attached``: told the limits at each new attach, before anything is sent."""

    def __init__(self, hello: Callable[[], dict[str, Any]], attached: Callable[[Any], None], log: Callable[[str], None]) -> None:
        self._hello, self._attached, self._log = hello, attached, log
        self._marker = secrets.token_bytes(MARKER_BYTES)
        self._parser = Parser(self._marker, watch=True)
        self._outbox = Outbox()
        self._inbox = Inbox()
        self._owned = False
        self._ack_messages = self._ack_bytes = 0
        self.ack_at: float | None = None
        """When ``tick`` has an acknowledgement to send."""
        self.acked_at = float("-inf")
        """When the gateway last acknowledged something, or attached."""
        # before the first attach the greeting goes out and nothing else
        self._prefix = b"".join(encode(Kind.HELLO, Lane.CONTROL, 0, 0, self._greeting()))

    @property
    def epoch(self) -> int:
        return self._outbox.epoch

    @property
    def kept_bytes(self) -> int:
        return self._outbox.kept_bytes

    @property
    def queued_files(self) -> int:
        """Bytes of file data that wait for standard output."""
        return self._outbox.queued(Lane.FILES)

    def put(self, kind: Kind, lane: Lane, body: bytes) -> None:
        """Queue a message; it waits while no gateway has attached."""
        if lane in RELIABLE or self._owned:
            self._outbox.put(kind, lane, body)

    def put_json(self, kind: Kind, lane: Lane, value: dict[str, Any]) -> None:
        self.put(kind, lane, encode_json(value))

    def _greeting(self) -> bytes:
        value = {
            "protocol": PROTOCOL_VERSION,
            "marker": self._marker.hex(),
            "epoch": self._outbox.epoch,
            "received": list(self._inbox.received),
            "last": list(self._outbox.last),
            **self._hello(),
        }
        return encode_json(value)

    # --- in -----------------------------------------------------------------------------------------------------------

    def feed(self, now: float, data: bytes) -> list[Message]:
        """Bytes from standard input; returns the new messages for the rest of the relay (KERNEL, CALL, FILE)."""
        try:
            messages = self._parser.feed(data)
        except FrameError as error:
            self._log(f"the gateway's frames are broken, waiting for the marker: {error}")
            messages = error.messages
        out = []
        for message in messages:
            try:
                if message.epoch < self._parser.min_epoch:
                    continue  # it was parsed together with the ATTACH that made it old
                if message.kind in _ANSWERED_HERE:
                    self._own(now, message)
                elif self._inbox.accept(message):
                    self._owe(now, len(message.body))
                    out.append(message)
            except FrameError as error:
                self._log(f"a message of kind {message.kind.name} was refused: {error}")
        return out

    def _own(self, now: float, message: Message) -> None:
        if message.kind is Kind.PING:
            self._outbox.put_unnumbered(Kind.PONG, message.body)
        elif message.kind is Kind.ACK:
            self._outbox.acknowledge(decode_ack(message.body))
            self.acked_at = now
        elif message.kind is Kind.ATTACH:
            self._attach(now, decode_json(message.body))

    def _attach(self, now: float, value: dict[str, Any]) -> None:
        epoch, received = value.get("epoch"), value.get("received")
        if type(epoch) is not int or not 0 < epoch < 2**32 or epoch <= self._outbox.epoch:
            raise FrameError(f"epoch {str(epoch)[:20]} is not above {self._outbox.epoch}")
        if type(received) is not list or len(received) != LANES or any(type(n) is not int or n < 0 for n in received):
            raise FrameError("received is not three numbers")
        self._outbox.rewind(received, epoch)
        self._parser.min_epoch = epoch
        self._ack_messages = self._ack_bytes = 0
        self.ack_at = None
        self.acked_at = now
        self._prefix = self._marker
        self._owned = True
        self._attached(value.get("limits"))
        self._outbox.put_unnumbered(Kind.HELLO, self._greeting())

    def _owe(self, now: float, size: int) -> None:
        self._ack_messages += 1
        self._ack_bytes += size
        if self._ack_messages >= ACK_MESSAGES or self._ack_bytes >= ACK_BYTES:
            self.ack_at = now
        elif self.ack_at is None:
            self.ack_at = now + ACK_S

    # --- out ----------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self.ack_at is not None and self.ack_at <= now:
            self.ack_at = None
            self._ack_messages = self._ack_bytes = 0
            self._outbox.put_unnumbered(Kind.ACK, pack_ack(self._inbox.received))

    @property
    def restarted(self) -> bool:
        """True once after each attach: bytes that were taken from ``output`` and not written yet are to be thrown away."""
        return bool(self._prefix)

    def output(self, budget: int) -> bytes:
        """The next bytes for standard output; empty when there are none."""
        if self._prefix:
            data, self._prefix = self._prefix, b""
            return data
        return self._outbox.next_frames(budget) if self._owned else b""
