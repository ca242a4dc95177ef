"""The sandbox's end of the stream protocol, in memory, with a scripted kernel and files: what a real relay would answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

from ..protocol import wire
from ..protocol.frames import (
    PROTOCOL_VERSION,
    FrameError,
    Inbox,
    Kind,
    Lane,
    Message,
    Outbox,
    Parser,
    decode_ack,
    decode_json,
    encode_json,
    pack_ack,
)
from .files import ABORT, OPEN, FakeFiles, FakeFileStream
from .kernel import CellError, ScriptedKernel

Json = dict[str, Any]
OUTPUT_KINDS = frozenset({"stream", "display_data", "update_display_data", "execute_result"})
DEFAULT_LIMITS = {"message_bytes": 64 << 20, "retain_bytes": 32 << 20, "output_bytes": 32 << 20, "output_messages": 100_000}


class FakeRelay:
    """``write(bytes)`` is standard output. Feed it standard input; ``ready_s`` is how long a kernel takes to start."""

    def __init__(self, name: str, write: Callable[[bytes], None], files: FakeFiles, *, ready_s: float = 0.0) -> None:
        self.files = files
        self.kernel: ScriptedKernel | None = None
        self.ready_s = ready_s
        self.start_fails = False
        """The next ``start_kernel`` ends in ``start_failed``."""
        self.mute = False
        """Alive and silent, as a relay that was stopped: nothing is read or written."""
        self.deaf_to: set[str] = set()
        """Calls that are lost on their way: not done, not answered."""
        self.received: list[Message] = []
        """Every message taken, for a test to look at."""
        self.marker = hashlib.sha256(name.encode()).digest()
        self._write = write
        self._parser = Parser(self.marker, watch=True)
        self._outbox = Outbox()
        self._inbox = Inbox()
        self._epoch = 0
        self._attached = False
        self._limits: Json = dict(DEFAULT_LIMITS)
        self._life = 0
        self._state = "none"
        self._streams: dict[int, FakeFileStream] = {}
        self._output: dict[str, list[int]] = {}
        self._dropped = [0, 0]
        self._blocked = False
        self._timers: set[asyncio.TimerHandle] = set()

    def start(self) -> None:
        """The first words: HELLO with epoch 0, then nothing until ATTACH."""
        hello = Outbox(0)
        hello.put_unnumbered(Kind.HELLO, encode_json(self._hello()))
        self._write(hello.next_frames())

    def stop(self) -> None:
        """Every process of the sandbox is gone."""
        self.mute = True
        if self.kernel is not None:
            self.kernel.kill()
        for timer in self._timers:
            timer.cancel()

    @property
    def kept_bytes(self) -> int:
        return self._outbox.kept_bytes

    def _hello(self) -> Json:
        return {
            "protocol": PROTOCOL_VERSION,
            "relay": "fake",
            "marker": self.marker.hex(),
            "epoch": self._epoch,
            "received": list(self._inbox.received),
            "last": list(self._outbox.last),
            "kernel": {"state": self._state, "life": self._life, "busy": self.kernel.busy if self.kernel else []},
            "python": "3.13.0",
        }

    # ---------------------------------------------------------------- from the gateway

    def feed(self, data: bytes) -> None:
        """Bytes on standard input."""
        if self.mute:
            return
        try:
            messages = self._parser.feed(data)
        except FrameError as error:
            messages = error.messages
        for message in messages:
            self._take(message)
        self.flush()

    def _take(self, message: Message) -> None:
        self.received.append(message)
        if message.kind is Kind.ATTACH:
            self._attach(decode_json(message.body))
        elif not self._attached:
            return
        elif message.kind is Kind.PING:
            self._outbox.put_unnumbered(Kind.PONG, message.body)
        elif message.kind is Kind.ACK:
            self._outbox.acknowledge(decode_ack(message.body))
            self._tell_dropped()
        elif message.number and self._inbox.accept(message):
            if message.kind is Kind.CALL:
                self._call(decode_json(message.body))
            elif message.kind is Kind.KERNEL and self.kernel is not None:
                self.kernel.request(message.body)
            elif message.kind is Kind.FILE:
                self._file(message.body)
            self._outbox.put_unnumbered(Kind.ACK, pack_ack(self._inbox.received))

    def _attach(self, body: Json) -> None:
        if body["epoch"] <= self._epoch:
            return
        self._epoch = self._parser.min_epoch = body["epoch"]
        self._attached = True
        self._blocked = False
        self._limits.update(body.get("limits") or {})
        self._streams.clear()
        self._outbox.rewind(body["received"], self._epoch)
        self._write(self.marker)
        self._outbox.put_unnumbered(Kind.HELLO, encode_json(self._hello()))

    def _call(self, call: Json) -> None:
        result: Json = {"id": call["id"], "ok": True}
        op = call.get("op")
        if op in self.deaf_to:
            return
        if op in ("start_kernel", "restart_kernel"):
            if op == "restart_kernel":
                self._kill()
            result["life"] = self._start_kernel()
        elif op == "interrupt":
            if self.kernel is not None:
                self.kernel.interrupt()
        elif op == "kill_user":
            self._kill()
            result["remaining"] = 0
        elif op == "stats":
            processes = 1 if self.kernel is not None and self.kernel.alive else 0
            result |= {"user_processes": processes, "relay_rss": 20 << 20, "kept_bytes": self.kept_bytes}
        else:
            result = {"id": call["id"], "ok": False, "error": "unknown_op"}
        self._outbox.put(Kind.RESULT, Lane.CONTROL, encode_json(result))

    def _start_kernel(self) -> int:
        self._life += 1
        life = self._life
        self._state = "starting"
        self.kernel = ScriptedKernel(life, self._from_kernel, self._write_file, lambda number: self._exited(life, number))
        failed, self.start_fails = self.start_fails, False

        def ready() -> None:
            if self._life != life or self.kernel is None or not self.kernel.alive:
                return
            if failed:
                self.kernel.kill()
                self._state = "dead"
                self.event("start_failed", life=life, detail="scripted")
            else:
                self._state = "ready"
                self.event("ready", life=life, ms=self.ready_s * 1000)

        self._timers.add(asyncio.get_running_loop().call_later(self.ready_s, ready))
        return life

    def _kill(self) -> None:
        if self.kernel is not None and self.kernel.alive:
            self.kernel.kill()
            self._state = "dead"
            self.event("exited", life=self._life, signal=9, expected=True)

    def _exited(self, life: int, number: int) -> None:
        if life == self._life:
            self._state = "dead"
            self.event("exited", life=life, signal=number, expected=False)

    def kernel_ends(self, code: int) -> None:
        """The kernel process exits by itself with this code."""
        if self.kernel is not None and self.kernel.alive:
            self.kernel.kill()
            self._state = "dead"
            self.event("exited", life=self._life, code=code, expected=False)

    def _write_file(self, path: str, data: bytes) -> None:
        if not self.files.write("workspace", path, data):
            raise CellError("OSError", "[Errno 28] No space left on device")

    def _file(self, body: bytes) -> None:
        stream_id, kind, data = int.from_bytes(body[:4], "little"), body[4], body[5:]
        if kind == OPEN:

            def send(kind: int, data: bytes) -> None:
                self._outbox.put(Kind.FILE, Lane.FILES, stream_id.to_bytes(4, "little") + bytes([kind]) + data)
                self.flush()

            self._streams[stream_id] = FakeFileStream(self.files, send)
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.take(kind, data)
            if stream.over or kind == ABORT:
                self._streams.pop(stream_id, None)

    # ---------------------------------------------------------------- to the gateway

    def event(self, name: str, **members: Any) -> None:
        """Queue a relay event and send what can be sent."""
        self._outbox.put(Kind.EVENT, Lane.KERNEL, encode_json({"event": name, **members}))
        self.flush()

    def _from_kernel(self, body: bytes) -> None:
        channel, parts = wire.unpack(body)
        kind = json.loads(parts[0])["msg_type"]
        parent = json.loads(parts[1]).get("msg_id", "")
        if channel == "iopub" and kind in OUTPUT_KINDS:
            if self._over_budget(parent, len(parts[3])):
                return
            if self._outbox.kept_bytes + len(body) > self._limits["retain_bytes"]:
                self._dropped[0] += len(body)
                self._dropped[1] += 1
                return
        elif kind == "status" and b'"idle"' in parts[3]:
            count = self._output.pop(parent, None)
            if count is not None and count[2]:
                self.event("truncated", parent=parent, bytes=count[0], messages=count[1])
        lane = Lane.CONTROL if channel == "control" else Lane.KERNEL
        self._outbox.put(Kind.KERNEL, lane, body)
        self.flush()

    def _over_budget(self, parent: str, size: int) -> bool:
        """Count one output message; True when it is past the limits (told once at once, and with totals before idle)."""
        count = self._output.setdefault(parent, [0, 0, 0])
        count[0] += size
        count[1] += 1
        if count[0] <= self._limits["output_bytes"] and count[1] <= self._limits["output_messages"]:
            return False
        if not count[2]:
            count[2] = 1
            self.event("truncated", parent=parent, bytes=count[0], messages=count[1])
        return True

    def _tell_dropped(self) -> None:
        if self._dropped[1] and self._outbox.kept_bytes < self._limits["retain_bytes"] // 2:
            size, count = self._dropped
            self._dropped = [0, 0]
            self.event("dropped", bytes=size, messages=count, comms=0)

    def block(self, blocked: bool) -> None:
        """Standard output is full (or not any more): frames wait in the outbox."""
        self._blocked = blocked
        if not blocked:
            self.flush()

    def flush(self) -> None:
        while self._attached and not self._blocked and not self.mute and self._outbox.pending:
            self._write(self._outbox.next_frames())
