"""File streams: between the gateway's FILE messages and helper processes, with credit both ways.

A helper is a process of the user's uid (for ``root: "in"`` of the relay's), started by init in one of a few slots. Relay and helper
talk over a socket in packets of u8 type, u32 length, data, with the FILE messages' types; its buffer is the credit between the two.
What a helper says is not trusted: user code has the same uid and may stop or kill it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any, Protocol

from frames import FrameError, decode_json, encode_json

OPEN, DATA, END, CREDIT, ABORT = 1, 2, 3, 4, 5
SLOTS = 8
CREDIT_BYTES = 1024 * 1024
CHUNK = 256 * 1024
QUEUED = 512 * 1024
"""No helper is read while so many bytes of file data wait for standard output."""
STUCK_S = 30.0
LEAVE_S = 2.0
_PACKET = struct.Struct("<BI")
_READ = 256 * 1024
COMMANDS = ("list", "get", "put", "delete", "usage")


class Helpers(Protocol):
    def start(self, slot: int, *, as_relay: bool) -> None: ...
    def kill(self, slot: int) -> None: ...
    def release(self, sock: socket.socket) -> None:
        """It is about to be closed."""
        ...



class _Transfer:
    def __init__(self, stream: int, command: dict[str, Any], body: bytes, now: float) -> None:
        self.stream = stream
        self.put = command["cmd"] == "put"
        self.sock: socket.socket | None = None
        self.silent = False
        """The helper has closed its end; what it said may still wait for credit."""
        self.to_helper = bytearray(_PACKET.pack(OPEN, len(body)) + body)
        self.from_helper = bytearray()
        self.may_send = CREDIT_BYTES
        self.may_receive = CREDIT_BYTES
        self.closing = False
        """The gateway has said its END."""
        self.ended = False
        """The gateway has had its END, or wants none."""
        self.gone = False
        """The helper's process has ended; its last words may still be in the socket or wait for credit."""
        self.moved = now

    @property
    def waits_for_helper(self) -> bool:
        return not self.silent and (bool(self.to_helper) or self.sock is None or ((not self.put or self.closing) and self.may_send > 0))


class Transfers:
    """``send`` queues a FILE message; ``queued`` says how many bytes of such wait."""

    def __init__(self, helpers: Helpers, send: Callable[[bytes], None], queued: Callable[[], int]) -> None:
        self._helpers, self._send, self._queued = helpers, send, queued
        self._slots: dict[int, _Transfer] = {}
        self._streams: dict[int, int] = {}

    # --- from the gateway ---------------------------------------------------------------------------------------------

    def received(self, now: float, body: bytes) -> None:
        """A FILE message."""
        if len(body) < 5:
            return
        stream, kind, data = int.from_bytes(body[:4], "little"), body[4], body[5:]
        if kind == OPEN:
            self._open(now, stream, data)
            return
        slot = self._streams.get(stream)
        if slot is None:
            return  # it has ended already
        transfer = self._slots[slot]
        if kind == ABORT:
            self._leave(now, slot)
        elif kind == CREDIT and len(data) == 4:
            transfer.may_send = min(transfer.may_send + int.from_bytes(data, "little"), 2**40)
            self._forward(now, slot)
        elif kind == DATA and not transfer.closing:
            transfer.may_receive -= len(data)
            if transfer.may_receive < 0:
                self._finish(now, slot, "io", "more data than was allowed")
                return
            transfer.to_helper += _PACKET.pack(DATA, len(data)) + data
            self.writable(now, slot)
        elif kind == END and not transfer.closing:
            transfer.closing = True
            transfer.moved = now
            transfer.to_helper += _PACKET.pack(END, len(data)) + data
            self.writable(now, slot)

    def _open(self, now: float, stream: int, data: bytes) -> None:
        if stream in self._streams:
            return
        slot = next((slot for slot in range(SLOTS) if slot not in self._slots), None)
        if slot is None:
            self._end(stream, {"ok": False, "error": "busy", "detail": f"{SLOTS} file operations are running"})
            return
        try:
            command = decode_json(data)
            if command.get("cmd") not in COMMANDS or len(data) > 64 * 1024:
                raise FrameError("unknown command")
        except FrameError as error:
            self._end(stream, {"ok": False, "error": "io", "detail": str(error)})
            return
        self._slots[slot] = _Transfer(stream, command, data, now)
        self._streams[stream] = slot
        self._helpers.start(slot, as_relay=command.get("root") == "in")

    def reset(self, now: float) -> None:
        """A new gateway: it asks again for what it wants."""
        for slot in list(self._slots):
            self._leave(now, slot)

    # --- from init ----------------------------------------------------------------------------------------------------

    def started(self, now: float, slot: int, sock: socket.socket) -> None:
        transfer = self._slots.get(slot)
        if transfer is None or transfer.ended:
            sock.close()
            return
        sock.setblocking(False)
        transfer.sock = sock
        self.writable(now, slot)

    def ended(self, now: float, slot: int) -> None:
        """The helper's process is gone, or could not be started; only now can the slot be used again."""
        transfer = self._slots.get(slot)
        if transfer is None:
            return
        transfer.gone = True
        if transfer.ended:
            del self._slots[slot]
        elif transfer.sock is None and not transfer.silent:
            self._finish(now, slot, "io", "no file helper could be started")
        # else its socket ends after what it still says

    # --- from helpers -------------------------------------------------------------------------------------------------

    def interests(self) -> list[tuple[int, socket.socket, bool, bool]]:
        """(slot, socket, read?, write?) of every helper."""
        if not self._slots:
            return []
        room = self._queued() < QUEUED
        return [
            (slot, t.sock, room and t.may_send > 0 and len(t.from_helper) < 2 * CHUNK, bool(t.to_helper))
            for slot, t in self._slots.items()
            if t.sock is not None
        ]

    def writable(self, now: float, slot: int) -> None:
        transfer = self._slots.get(slot)
        if transfer is None or transfer.sock is None or not transfer.to_helper:
            return
        try:
            count = transfer.sock.send(memoryview(transfer.to_helper)[:CHUNK])
        except BlockingIOError:
            return
        except OSError:
            return  # it has ended; what it said is still to be read
        del transfer.to_helper[:count]
        transfer.moved = now
        free = CREDIT_BYTES - len(transfer.to_helper) - transfer.may_receive
        if free >= CREDIT_BYTES // 2 and not transfer.closing:
            transfer.may_receive += free
            self._message(transfer.stream, CREDIT, free.to_bytes(4, "little"))

    def readable(self, now: float, slot: int) -> None:
        transfer = self._slots.get(slot)
        if transfer is None or transfer.sock is None:
            return
        try:
            data = transfer.sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        transfer.from_helper += data
        transfer.moved = now
        if not data:
            transfer.silent = True
            transfer.to_helper.clear()
            self._close(transfer)
        self._forward(now, slot)

    def _forward(self, now: float, slot: int) -> None:
        """Send on what the helper said, as far as the gateway allows."""
        transfer = self._slots[slot]
        buffer = transfer.from_helper
        while len(buffer) >= _PACKET.size and not transfer.ended:
            kind, length = _PACKET.unpack_from(buffer)
            if kind not in (DATA, END) or length > CHUNK:
                self._finish(now, slot, "io", "the file helper makes no sense")
                return
            if len(buffer) < _PACKET.size + length:
                break
            data = bytes(memoryview(buffer)[_PACKET.size : _PACKET.size + length])
            if kind == DATA:
                if transfer.may_send < length:
                    if not transfer.may_send:
                        return
                    # as much as is allowed; the rest stays as a packet of its own
                    rest = data[transfer.may_send :]
                    data = data[: transfer.may_send]
                    buffer[: _PACKET.size + length] = _PACKET.pack(DATA, len(rest)) + rest
                else:
                    del buffer[: _PACKET.size + length]
                transfer.may_send -= len(data)
                self._message(transfer.stream, DATA, data)
            else:
                self._message(transfer.stream, END, data)
                self._leave(now, slot)
        if transfer.silent and not transfer.ended:
            self._finish(now, slot, "io", "the file helper ended early")

    # --- time and ends ------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        if not self._slots:
            return None
        return min(t.moved + (LEAVE_S if t.ended else STUCK_S) for t in self._slots.values())

    def tick(self, now: float) -> None:
        for slot, transfer in list(self._slots.items()):
            if transfer.ended and transfer.moved + LEAVE_S <= now:  # it did not go by itself
                transfer.moved = now
                self._helpers.kill(slot)
            elif not transfer.ended and transfer.moved + STUCK_S <= now:
                if transfer.waits_for_helper:
                    self._finish(now, slot, "io", "the file helper does not move")
                    self._helpers.kill(slot)
                else:
                    transfer.moved = now

    def _finish(self, now: float, slot: int, error: str, detail: str) -> None:
        transfer = self._slots[slot]
        if not transfer.ended:
            self._end(transfer.stream, {"ok": False, "error": error, "detail": detail})
            self._leave(now, slot)

    def _leave(self, now: float, slot: int) -> None:
        """Let go of the helper: it sees the end of its input, tidies up and goes, or is killed a little later."""
        transfer = self._slots[slot]
        if transfer.ended:
            return
        transfer.ended, transfer.moved = True, now
        self._streams.pop(transfer.stream, None)
        transfer.to_helper.clear()
        transfer.from_helper.clear()
        self._close(transfer)
        if transfer.gone:
            del self._slots[slot]

    def _close(self, transfer: _Transfer) -> None:
        if transfer.sock is not None:
            self._helpers.release(transfer.sock)
            transfer.sock.close()
            transfer.sock = None

    def _end(self, stream: int, result: dict[str, Any]) -> None:
        self._message(stream, END, encode_json(result))

    def _message(self, stream: int, kind: int, data: bytes) -> None:
        self._send(stream.to_bytes(4, "little") + bytes((kind,)) + data)
