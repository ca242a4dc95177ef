"""Which journal entries a websocket's client has surely got, found out with pings. Sans-I/O.

A pong comes back after everything that was sent before its ping, so a ping that carries a journal index confirms all up
to it. At most one ping is out: a fast stream is confirmed a round trip at a time, a quiet one at once.
"""

from __future__ import annotations

import struct

_PAYLOAD = struct.Struct("!2sQ")
_MAGIC = b"Sg"


class Confirmer:
    """``sent``: the highest index handed to the socket. ``confirmed``: the highest that the client surely has."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = 0
        self._out: int | None = None

    @property
    def waiting(self) -> bool:
        """A ping is out."""
        return self._out is not None

    def delivered(self, index: int) -> None:
        self.sent = max(self.sent, index)

    def ping(self) -> bytes | None:
        """The payload of a ping to send now, or None: one is out, or there is nothing to confirm."""
        if self._out is not None or self.sent <= self.confirmed:
            return None
        self._out = self.sent
        return _PAYLOAD.pack(_MAGIC, self.sent)

    def again(self) -> bytes:
        """The payload for a ping that only asks for a sign of life.

        That of the ping that is out, if there is one: a client that has two to answer may answer the last one only.
        """
        return b"" if self._out is None else _PAYLOAD.pack(_MAGIC, self._out)

    def pong(self, payload: bytes) -> int | None:
        """The index that a pong confirms, or None when it does not answer our ping (clients may send pongs at will)."""
        if self._out is None or payload != _PAYLOAD.pack(_MAGIC, self._out):
            return None
        self.confirmed, self._out = self._out, None
        return self.confirmed
