"""Websocket frames out: gathered for one turn of the loop and handed to the socket at once.

Tornado's own ``write_message`` makes a task, a copy and a system call for each message. A kernel speaks in bursts (a
cell's reply and its idle, a thousand printed lines), and one call for all that a turn delivers costs a fraction. Close
frames and pongs stay Tornado's; what was gathered is flushed before a close.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial

from tornado.iostream import IOStream, StreamClosedError

from ..service.tally import Tally
from .outflow import Outflow

TEXT, BINARY, PING = 0x1, 0x2, 0x9
JOIN = 64 * 1024
"""Up to this size a payload is copied behind its head; a larger one goes to the socket as it is."""


def head(opcode: int, size: int) -> bytes:
    """The head of a whole, unmasked frame (RFC 6455 5.2)."""
    first = 0x80 | opcode
    if size < 126:
        return bytes((first, size))
    if size <= 0xFFFF:
        return struct.pack("!BBH", first, 126, size)
    return struct.pack("!BBQ", first, 127, size)


class FrameWriter:
    """Writes to ``stream`` and counts in ``flow``; refuses everything once ``closing`` says so.

    ``last`` is called before each write and may put one more frame; ``progress`` when the client's machine took some.
    """

    def __init__(
        self,
        stream: IOStream,
        flow: Outflow,
        tally: Tally,
        *,
        closing: Callable[[], bool],
        last: Callable[[], None],
        progress: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._flow = flow
        self._tally = tally
        self._closing = closing
        self._last = last
        self._progress = progress
        self._gathered: list[bytes] = []
        self._planned = False

    def put(self, opcode: int, payload: bytes) -> None:
        """Queue a frame. Raises ConnectionError once the websocket is closing."""
        if self._closing():
            self._flow.lose()
            raise ConnectionResetError("the websocket is closed")
        start = head(opcode, len(payload))
        self._gathered += (start, payload)
        self._flow.add(len(start) + len(payload))
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Hand over what is gathered; nothing happens when there is nothing."""
        if self._closing():
            self._gathered.clear()
        if self._gathered:
            self._planned = True  # what ``last`` puts goes with this write
            self._last()
        self._planned = False
        gathered, self._gathered = self._gathered, []
        small: list[bytes] = []
        for piece in gathered:
            if len(piece) > JOIN:
                self._write(b"".join(small))
                self._write(piece)
                small = []
            else:
                small.append(piece)
        self._write(b"".join(small))

    def _write(self, data: bytes) -> None:
        if not data:
            return
        try:
            sent = self._stream.write(data)
        except StreamClosedError:
            self._flow.lose()
            return
        self._tally.websocket_out += len(data)
        # What this machine's buffers take at once says nothing of the client; what had to wait for it does.
        sent.add_done_callback(partial(self._sent, len(data), not sent.done()))

    def _sent(self, size: int, waited: bool, sent: asyncio.Future[None]) -> None:
        if sent.cancelled() or sent.exception() is not None:
            self._flow.lose()
            return
        if waited:
            self._progress()
        self._flow.took(size)
