"""The gateway's end of a sandbox's stream: attach and sync, numbering, acknowledgements, calls, file streams, heartbeat."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

from ..errors import ProtocolViolation, SandboxLost, SandglassError, StoreUnavailable, Unavailable
from ..ports import ByteStream
from ..protocol.frames import (
    LANES,
    MARKER_BYTES,
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
    encode_ack,
)
from .filestream import FileStream
from .tally import Tally
from .tasks import Tasks

log = logging.getLogger("sandglass.link")

STREAM_QUEUE = 1024 * 1024
"""Bytes handed to the engine's socket but not taken yet; past it frames wait in the outbox, where lanes keep their order."""
ROOM_BYTES = 8 * 1024 * 1024
OUTBOX_LIMIT = 128 * 1024 * 1024
ACK_MESSAGES = 64
ACK_BYTES = 256 * 1024
ACK_DELAY_S = 0.1
HELD_BYTES = 1024 * 1024
"""Messages that may wait for the journal's disk before the stream is left unread: what the control lane says still gets through."""
RETRY_S = 0.5
CELL_BYTES, FLOOD_BYTES = 8 * 1024, 64 * 1024
"""What came at once: no more than an ordinary cell says, or at least what only a flood does."""
PACE_S = 0.003
AT_WORK_S = 0.05

Json = dict[str, Any]


class SandboxLink:
    """One sandbox, one owner. Callbacks run on the loop and must not block.

    ``on_kernel(number, lane, body)``: a kernel message, journaled by the callee before it returns.
    ``on_event(name, event)``: a relay event. ``on_lost(error)``: once, when the stream ended or broke.
    """

    def __init__(self, stream: ByteStream, tasks: Tasks, sandbox_id: str, epoch: int, limits: Json, tally: Tally | None = None) -> None:
        self.sandbox_id = sandbox_id
        self.epoch = epoch
        self.hello: Json = {}
        self.marker = b""
        self.on_kernel: Callable[[int, int, bytes], None] = lambda number, lane, body: None
        self.on_event: Callable[[str, Json], None] = lambda name, event: None
        self.on_lost: Callable[[SandglassError], None] = lambda error: None
        self._stream = stream
        self._tasks = tasks
        self._limits = limits
        self._tally = Tally() if tally is None else tally
        self._parser = Parser()
        self._outbox = Outbox(epoch)
        self._inbox = Inbox()
        self._fresh = set(range(LANES))
        self._calls: dict[int, asyncio.Future[Json]] = {}
        self._files: dict[int, FileStream] = {}
        self._next_id = 1
        self._hello_waiter: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._synced = False
        self._unacked_messages = self._unacked_bytes = 0
        self._ack_timer: asyncio.TimerHandle | None = None
        self._writer_busy = False
        self._moved = asyncio.Event()
        self._reader: asyncio.Task[Any] | None = None
        self._held: list[Message] | None = []
        self._retry: asyncio.TimerHandle | None = None
        self.lost: SandglassError | None = None
        self.last_heard = asyncio.get_running_loop().time()

    # --- attaching ----------------------------------------------------------------------------------------------------

    async def open_fresh(self, timeout_s: float) -> None:
        """First contact with a sandbox that is being started; the stream is attached already."""
        self._reader = self._tasks.spawn(self._read(), f"link-{self.sandbox_id[:8]}")
        hello = await self._hello(timeout_s)
        await self._attach(self._marker_of(hello), (0, 0, 0), timeout_s)

    async def open_again(self, marker: bytes, received: tuple[int, int, int], timeout_s: float) -> None:
        """Take over a running sandbox. ``received``: the highest message numbers that stand in the journal."""
        self._parser = Parser(marker)
        self._reader = self._tasks.spawn(self._read(), f"link-{self.sandbox_id[:8]}")
        await self._attach(marker, received, timeout_s)

    async def _attach(self, marker: bytes, received: tuple[int, int, int], timeout_s: float) -> None:
        self._hello_waiter = asyncio.get_running_loop().create_future()
        self._parser.set_marker(marker)
        self._parser.resync()
        self._parser.min_epoch = self.epoch
        self.marker = marker
        self._inbox = Inbox(received)
        self._fresh = set(range(LANES))
        self._write(marker)
        body = {"protocol": PROTOCOL_VERSION, "epoch": self.epoch, "received": list(received), "limits": self._limits}
        outbox = Outbox(self.epoch)
        outbox.put_unnumbered(Kind.ATTACH, json.dumps(body).encode())
        self._write(outbox.next_frames())
        self.hello = await self._hello(timeout_s)
        numbers = self.hello.get("received")
        if not (isinstance(numbers, list) and len(numbers) == LANES and all(isinstance(n, int) and n >= 0 for n in numbers)):
            raise ProtocolViolation("the relay's greeting is malformed")
        self._outbox = Outbox(self.epoch)
        self._outbox.resume_numbers(numbers)
        self._synced = True

    def go(self) -> None:
        """Start to deliver (callbacks are set now); what came since the attach is delivered first."""
        held, self._held = self._held or [], None
        for at, message in enumerate(held):
            if not self._deliver(message):
                self._held = held[at:]
                break

    def _deliver(self, message: Message) -> bool:
        """False while the journal's disk takes nothing: it and what follows stay unacknowledged, and it is tried again."""
        try:
            self._take(message)
        except StoreUnavailable as error:
            log.error("the journal cannot be written, will try again", extra={"sandbox": self.sandbox_id, "why": error.detail})
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._again)
            return False
        return True

    def _again(self) -> None:
        self._retry = None
        try:
            if self.lost is None:
                self.go()
        except FrameError as broken:
            self._fail(ProtocolViolation(f"the sandbox broke the stream protocol: {broken}"))
        self._moved.set()

    async def _hello(self, timeout_s: float) -> Json:
        try:
            return await asyncio.wait_for(asyncio.shield(self._hello_waiter), timeout_s)
        except TimeoutError:
            raise SandboxLost("the sandbox did not answer in time") from None

    @staticmethod
    def _marker_of(hello: Json) -> bytes:
        try:
            marker = bytes.fromhex(hello["marker"])
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolViolation("the relay's greeting is malformed") from error
        if len(marker) != MARKER_BYTES:
            raise ProtocolViolation("the relay's greeting is malformed")
        return marker

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        error: SandglassError = SandboxLost("the sandbox's stream ended")
        try:
            while True:
                data = await self._stream.read()
                if not data:
                    break
                self.last_heard = asyncio.get_running_loop().time()
                self._tally.stream_in += len(data)
                for message in self._parser.feed(data):
                    self._dispatch(message)
                while self._retry is not None and sum(len(m.body) for m in self._held or ()) > HELD_BYTES:
                    self._moved.clear()
                    await self._moved.wait()
                await self._leave_room(len(data))
        except FrameError as broken:
            with contextlib.suppress(FrameError, SandglassError):
                for message in broken.messages:
                    self._dispatch(message)  # what came whole before the break still counts
            error = ProtocolViolation(f"the sandbox broke the stream protocol: {broken}")
        except SandglassError as lost:
            error = lost
        self._fail(error)

    async def _leave_room(self, size: int) -> None:
        """A flood from one sandbox leaves the loop to the others, and while any of them is at work most of both processors: it is
        read more slowly, which holds back its kernel and all that lies between."""
        now = asyncio.get_running_loop().time()
        if size < CELL_BYTES:
            self._tally.at_work = (now, self.sandbox_id)
        elif size >= FLOOD_BYTES:
            at, whose = self._tally.at_work
            await asyncio.sleep(PACE_S if whose != self.sandbox_id and now - at < AT_WORK_S else 0)

    def _dispatch(self, message: Message) -> None:
        kind = message.kind
        if kind is Kind.HELLO:
            if not self._hello_waiter.done():
                self._hello_waiter.set_result(decode_json(message.body))
        elif kind is Kind.ACK:
            self._outbox.acknowledge(decode_ack(message.body))
            self._moved.set()
        elif kind is Kind.PING:
            self._unnumbered(Kind.PONG, message.body)
        elif kind is Kind.PONG:
            pass
        elif kind in (Kind.RESULT, Kind.FILE):
            self._take(message)
        elif self._held is not None:
            self._held.append(message)
        elif not self._deliver(message):
            self._held = [message]

    def _take(self, message: Message) -> None:
        lane = message.lane
        if lane in self._fresh and message.number:
            # what this owner's predecessor acknowledged is not sent again, though it may not stand in the journal
            self._fresh.discard(lane)
            if message.number > self._inbox.received[lane] + 1:
                self._inbox.received[lane] = message.number - 1
        if not self._inbox.accept(message):
            return
        if message.kind is Kind.KERNEL:
            try:
                self.on_kernel(message.number, lane, message.body)
            except StoreUnavailable:
                self._inbox.received[lane] = message.number - 1  # a later link gets it again
                raise
        elif message.kind is Kind.EVENT:
            event = decode_json(message.body)
            self.on_event(str(event.get("event", "")), event)
        elif message.kind is Kind.RESULT:
            result = decode_json(message.body)
            waiter = self._calls.pop(result.get("id", 0), None)
            if waiter is not None and not waiter.done():
                waiter.set_result(result)
        elif message.kind is Kind.FILE:
            stream = self._files.get(int.from_bytes(message.body[:4], "little"))
            if stream is not None:
                stream.received(message.body)
            return
        else:
            raise FrameError("a message of the wrong direction")
        self._owe_ack(len(message.body))

    def _owe_ack(self, size: int) -> None:
        self._unacked_messages += 1
        self._unacked_bytes += size
        if self._unacked_messages >= ACK_MESSAGES or self._unacked_bytes >= ACK_BYTES:
            self._ack()
        elif self._ack_timer is None:
            self._ack_timer = asyncio.get_running_loop().call_later(ACK_DELAY_S, self._ack)

    def _ack(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self._unacked_messages = self._unacked_bytes = 0
        if self.lost is None:
            with contextlib.suppress(SandglassError):
                self._write(encode_ack(tuple(self._inbox.received), self.epoch))

    # --- writing ------------------------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes on the way into the sandbox, not yet acknowledged."""
        return self._outbox.kept_bytes + self._stream.queued

    async def room(self) -> None:
        """Wait while more than ``ROOM_BYTES`` is on the way into the sandbox."""
        while self.lost is None and self.queued_bytes > ROOM_BYTES:
            self._moved.clear()
            await self._moved.wait()

    def send_kernel(self, body: bytes, *, control: bool = False) -> int:
        """Forward a v1 kernel message; returns its number in its lane. Raises Unavailable when too much waits."""
        if self.lost is not None:
            raise self.lost
        if self.queued_bytes + len(body) > OUTBOX_LIMIT:
            raise Unavailable("too much is on its way into the sandbox")
        number = self._outbox.put(Kind.KERNEL, Lane.CONTROL if control else Lane.KERNEL, body)
        self._flush()
        return number

    @property
    def last_kernel_number(self) -> int:
        """Of what was sent on the kernel lane: a restart drops requests up to it, and keeps what is asked for later."""
        return self._outbox.last[Lane.KERNEL]

    def next_kernel_number(self) -> int:
        """The number that the next message of the kernel lane will have."""
        return self.last_kernel_number + 1

    @property
    def received(self) -> tuple[int, int, int]:
        """The highest number taken in each lane."""
        a, b, c = self._inbox.received
        return a, b, c

    def carry_over(self, old: SandboxLink) -> None:
        """Send again what the earlier attachment had sent and the sandbox did not get (same numbers, same order)."""
        got = self.hello["received"]
        for lane in (Lane.CONTROL, Lane.KERNEL):
            for number, kind, body in old.unacknowledged(lane):
                if kind == Kind.KERNEL and number > got[lane]:
                    self._outbox.put(kind, lane, body)
        self._flush()

    def unacknowledged(self, lane: Lane) -> list[tuple[int, int, bytes]]:
        return self._outbox.kept(lane)

    async def call(self, op: str, timeout_s: float = 10.0, **arguments: Any) -> Json:
        """Ask the relay. Raises SandboxLost (also when it does not answer in time), Unavailable when it refuses."""
        if self.lost is not None:
            raise self.lost
        call_id, self._next_id = self._next_id, self._next_id + 1
        waiter: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = waiter
        self._outbox.put(Kind.CALL, Lane.CONTROL, json.dumps({"id": call_id, "op": op, **arguments}).encode())
        self._flush()
        try:
            result = await asyncio.wait_for(waiter, timeout_s)
        except TimeoutError:
            raise SandboxLost(f"the sandbox did not answer {op} in time") from None
        finally:
            self._calls.pop(call_id, None)
        if not result.get("ok"):
            raise Unavailable(f"the sandbox refused {op}: {str(result.get('error', ''))[:200]}")
        return result

    def open_file(self, command: Json) -> FileStream:
        """Start a file operation. Raises SandboxLost."""
        if self.lost is not None:
            raise self.lost
        stream_id, self._next_id = self._next_id, self._next_id + 1
        stream = FileStream(stream_id, self._send_file, lambda: self._files.pop(stream_id, None))
        self._files[stream_id] = stream
        stream.start(command)
        return stream

    def _send_file(self, body: bytes) -> None:
        if self.lost is not None:
            raise self.lost
        self._outbox.put(Kind.FILE, Lane.FILES, body)
        self._flush()

    def ping(self) -> None:
        """Ask for a sign of life; ``last_heard`` tells when one came."""
        self._unnumbered(Kind.PING, b"")

    def _unnumbered(self, kind: Kind, body: bytes) -> None:
        if self.lost is None:
            self._outbox.put_unnumbered(kind, body)
            self._flush()

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._tally.stream_out += len(data)

    def _flush(self) -> None:
        if self._writer_busy:
            return
        try:
            while self._outbox.pending and self._stream.queued < STREAM_QUEUE:
                self._write(self._outbox.next_frames())
        except SandglassError as error:
            self._fail(error)
            return
        if self._outbox.pending:
            self._writer_busy = True
            self._tasks.spawn(self._drain(), f"link-drain-{self.sandbox_id[:8]}")

    async def _drain(self) -> None:
        try:
            await self._stream.drain()
        except SandglassError as error:
            self._fail(error)
            return
        finally:
            self._writer_busy = False
        self._flush()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _fail(self, error: SandglassError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        self._moved.set()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        if not self._hello_waiter.done():
            self._hello_waiter.set_exception(error)
            self._hello_waiter.exception()  # it may have no waiter any more
        for waiter in self._calls.values():
            if not waiter.done():
                waiter.set_exception(error)
        for stream in list(self._files.values()):
            stream.fail(error)
        log.info("stream ended", extra={"sandbox": self.sandbox_id, "why": error.code, "stderr": self._stream.stderr_tail()[-500:]})
        self.on_lost(error)

    def give_up(self, error: SandglassError) -> None:
        """Treat the stream as lost."""
        self._fail(error)

    async def close(self) -> None:
        """Let go of the stream; the sandbox itself goes on."""
        self.on_lost = lambda error: None
        self._fail(SandboxLost("detached"))
        if self._reader is not None:
            self._reader.cancel()
        await self._stream.close()
