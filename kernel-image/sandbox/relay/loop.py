"""The relay's one loop: what is ready is read, what is due is done, what can be written is written. Nothing in it blocks.

Standard output blocks whenever the attached gateway does not read. Then frames wait in the outbox, and the kernel is read all the
same; past the retention bound its output is dropped. Only while the gateway is seen to acknowledge does the relay hold back iopub
for a moment, so that a fast cell is slowed down to the stream's speed instead of losing output.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from functools import partial
from typing import Any

from frames import FrameError, Kind, Lane, Message, decode_json
from wire import WireError, unpack

from . import calls
from .incoming import Incoming
from .life import Life
from .link import Link
from .outputs import Item, Outputs, limits_from
from .ports import Init, KernelSockets, Poller, Zygote
from .transfers import Transfers
from .zmtp import Raw

VERSION = "1"
STDIN, STDOUT = 0, 1
READ_BYTES = 256 * 1024
WRITE_BYTES = 128 * 1024
ALIVE_S = 5.0
"""A gateway that acknowledged within this time takes output; the kernel may wait for it."""


def log(text: str) -> None:
    """For the operator: standard error goes to the engine's attach, apart from the frames."""
    print(f"relay: {text[:500]}", file=sys.stderr, flush=True)


class Relay:
    """Also ``life.Ports`` and ``transfers.Helpers``."""

    def __init__(self, init_fd: int, commands: int, reports: int) -> None:
        self._user = int(os.environ["SANDGLASS_USER_UID"])
        self._group = int(os.environ["SANDGLASS_GROUP_ID"])
        self._now = time.monotonic()
        self._poller = Poller()
        self._init = Init(init_fd)
        self._zygote = Zygote(commands, reports)
        self._outputs = Outputs()
        self._sockets = KernelSockets(self._poller, self._on_message)
        self._life = Life(self, self._outputs, self._emit, lambda: self._link.kept_bytes)
        self._sockets.connected = lambda: self._life.connected(self._now)
        self._sockets.closed = lambda: self._life.closed(self._now)
        self._link = Link(self._hello, self._attached, log)
        self._file_bytes = 0
        self._transfers = Transfers(self, self._send_file, lambda: self._link.queued_files)
        self._pending = memoryview(b"")
        self._blocked = False
        self._open = True

    def run(self) -> None:
        """Returns when standard input has ended: the container is to end."""
        for fd in (STDIN, STDOUT):
            os.set_blocking(fd, False)
        self._poller.watch(STDIN, self._on_stdin, read=True)
        self._poller.watch(self._init.sock.fileno(), self._on_init, read=True)
        self._poller.watch(self._zygote.reports, self._on_zygote, read=True)
        parts = (self._link, self._life, self._sockets, self._transfers)
        while self._open:
            self._write()
            self._interests()
            due = self._due()
            events = self._poller.wait(None if due is None else due - time.monotonic())
            self._now = time.monotonic()
            self._poller.dispatch(events)
            if due is not None and due <= self._now:
                for part in parts:
                    part.tick(self._now)

    def _due(self) -> float | None:
        """The next point in time at which something is to be done, whether or not anything comes in."""
        due = self._life.next_deadline()
        for at in (self._link.ack_at, self._sockets.try_at, self._transfers.next_deadline()):
            if at is not None and (due is None or at < due):
                due = at
        if self._sockets.pause_iopub:
            # then the kernel is read again although the gateway acknowledges nothing
            resume = self._link.acked_at + ALIVE_S
            due = resume if due is None else min(due, resume)
        return due

    # --- the stream ---------------------------------------------------------------------------------------------------

    def _on_stdin(self, mask: int) -> None:
        try:
            data = os.read(STDIN, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._open = False
            return
        kept = self._link.kept_bytes
        for message in self._link.feed(self._now, data):
            self._take(message)
        if self._link.kept_bytes < kept and (event := self._outputs.room(self._link.kept_bytes)):
            self._emit(event)

    def _on_message(self, channel: str, raw: Raw) -> None:
        try:
            self._life.message(self._now, channel, raw)
        except Exception as error:  # user code wrote it: a defect of ours that it finds must cost this message and no more
            log(f"a {channel} message was dropped: {error!r}")
            self._life.error(f"a {channel} message of {raw.size} bytes could not be handled")

    def _take(self, message: Message) -> None:
        if message.kind is Kind.KERNEL:
            try:
                channel, parts = unpack(message.body)
                header = decode_json(parts[0])
            except (WireError, FrameError) as error:
                self._emit({"event": "relay_error", "detail": f"a message to the kernel makes no sense: {error}"})
                return
            msg_id, msg_type = str(header.get("msg_id", ""))[:256], str(header.get("msg_type", ""))[:256]
            self._life.request(self._now, message.lane, message.number, channel, parts, msg_id, msg_type)
        elif message.kind is Kind.FILE:
            self._transfers.received(self._now, message.body)
        elif message.kind is Kind.CALL:
            try:
                call = decode_json(message.body)
            except FrameError as error:
                log(f"a call makes no sense: {error}")
                return
            calls.handle(call, self._now, self._life, self._user, lambda: self._link.kept_bytes, self._answer)

    def _answer(self, result: dict[str, Any]) -> None:
        self._link.put_json(Kind.RESULT, Lane.CONTROL, result)

    def _emit(self, item: Item) -> None:
        if isinstance(item, Incoming):
            self._link.put(Kind.KERNEL, Lane.CONTROL if item.channel == "control" else Lane.KERNEL, item.packed())
        else:
            self._link.put_json(Kind.EVENT, Lane.KERNEL, item)

    def _send_file(self, body: bytes) -> None:
        self._link.put(Kind.FILE, Lane.FILES, body)

    def _hello(self) -> dict[str, Any]:
        return {"relay": VERSION, "kernel": self._life.facts(), "python": platform.python_version()}

    def _attached(self, limits: Any) -> None:
        self._outputs.limits = limits_from(limits)
        self._sockets.limit = self._outputs.limits.message_bytes
        self._transfers.reset(self._now)
        self._pending = memoryview(b"")

    def _write(self) -> None:
        while True:
            if not self._pending:
                self._pending = memoryview(self._link.output(WRITE_BYTES))
                if not self._pending:
                    return
            try:
                count = os.write(STDOUT, self._pending)
            except BlockingIOError:
                return
            self._pending = self._pending[count:]

    # --- interests ----------------------------------------------------------------------------------------------------

    def _interests(self) -> None:
        blocked = bool(self._pending)
        if blocked != self._blocked:
            self._blocked = blocked
            self._poller.watch(STDOUT, self._nothing, write=blocked)
        full = self._link.kept_bytes > self._outputs.limits.retain_bytes // 2 and not self._outputs.dropping
        self._sockets.pause(full and self._now < self._link.acked_at + ALIVE_S and not self._life.draining)
        for slot, sock, read, write in self._transfers.interests():
            self._poller.watch(sock.fileno(), partial(self._on_helper, slot), read=read, write=write)

    def _nothing(self, mask: int) -> None:
        """Being woken is all: each round of the loop writes what it can."""

    def _on_helper(self, slot: int, mask: int) -> None:
        self._transfers.writable(self._now, slot)
        self._transfers.readable(self._now, slot)

    # --- init and zygote ----------------------------------------------------------------------------------------------

    def _on_init(self, mask: int) -> None:
        while (heard := self._init.hear()) is not None:
            what, number, sock = heard
            if what == Init.KILL_USER:
                self._life.killed(self._now, number)
            elif what == Init.STARTED and sock is not None:
                self._transfers.started(self._now, number, sock)
            elif what == Init.ENDED:
                self._transfers.ended(self._now, number)

    def _on_zygote(self, mask: int) -> None:
        for kind, number, value in self._zygote.hear():
            if kind == b"L":
                self._life.loaded(self._now, last=number == 0)
            elif kind == b"S":
                self._life.started(number)
            elif kind == b"X":
                self._life.exited(self._now, number, value)
                if not self._sockets.any_open:
                    self._life.closed(self._now)

    # --- life.Ports ---------------------------------------------------------------------------------------------------

    def make(self, life: int) -> bytes:
        return self._sockets.make(life, self._group)

    def fork(self) -> None:
        self._zygote.say(b"F")

    def prepare(self) -> None:
        self._zygote.say(b"P")

    def sigint(self) -> None:
        self._zygote.say(b"I")

    def load(self) -> None:
        self._zygote.say(b"L")

    def kill_user(self) -> None:
        self._init.kill_user()

    def connect(self, life: int) -> None:
        self._sockets.connect(life, self._now)

    def disconnect(self, life: int) -> None:
        self._sockets.disconnect(life)

    def send(self, channel: str, frames: list[Any]) -> bool:
        return self._sockets.send(channel, frames)

    def last_words(self, life: int) -> str:
        return self._sockets.last_words(life)

    # --- transfers.Helpers --------------------------------------------------------------------------------------------

    def start(self, slot: int, *, as_relay: bool) -> None:
        self._init.start(slot, as_relay=as_relay)

    def kill(self, slot: int) -> None:
        self._init.kill(slot)

    def release(self, sock: socket.socket) -> None:
        self._poller.forget(sock.fileno())
