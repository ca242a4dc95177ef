"""The relay's descriptors: sockets to a kernel, to init and to the zygote. What they carry is decided elsewhere."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from . import zmtp
from .outputs import HEAD

RUN = "/run/sandglass"
IDENTITY = b"sandglass"
"""Of shell and stdin alike: ipykernel asks for input at the identity that sent the request."""
_KINDS = {"shell": b"DEALER", "iopub": b"SUB", "stdin": b"DEALER", "control": b"DEALER"}
_PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
READ_BYTES = 256 * 1024
READS = 4
"""A flood on one socket leaves the loop to the others after so many reads."""
MAX_TO_KERNEL = 96 * 1024**2
TRY_S, TRY_LATER_S, TRY_QUICK = 0.002, 0.02, 500
REPORT = struct.Struct("<cxxxIi")


class Poller:
    """Level-triggered; ``watch`` with neither read nor write forgets the descriptor."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self._handlers: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, handler: Callable[[int], None], *, read: bool = False, write: bool = False) -> None:
        mask = (select.EPOLLIN if read else 0) | (select.EPOLLOUT if write else 0)
        old = self._masks.get(fd, 0)
        if mask != old:
            if not mask:
                self._epoll.unregister(fd)
                del self._masks[fd], self._handlers[fd]
                return
            (self._epoll.modify if old else self._epoll.register)(fd, mask)
            self._masks[fd] = mask
        if mask:
            self._handlers[fd] = handler

    def forget(self, fd: int) -> None:
        if fd in self._masks:
            self._epoll.unregister(fd)
            del self._masks[fd], self._handlers[fd]

    def wait(self, timeout: float | None) -> list[tuple[int, int]]:
        return self._epoll.poll(-1 if timeout is None else max(0.0, timeout))

    def dispatch(self, events: list[tuple[int, int]]) -> None:
        for fd, mask in events:
            handler = self._handlers.get(fd)
            if handler is not None:  # not forgotten by an earlier one of the same round
                handler(mask)


class Channel:
    """One connection to the kernel."""

    def __init__(self, name: str, path: str, limit: int, event: Callable[[Channel, int], None]) -> None:
        self.name, self._path = name, path
        self.handler: Callable[[int], None] = lambda mask: event(self, mask)
        self._decoder = zmtp.Decoder(limit, HEAD)
        self.sock: socket.socket | None = None
        self.ended = False
        self._out: deque[memoryview] = deque()
        self.out_bytes = 0

    def connect(self) -> bool:
        """True once connected. Raises OSError when it never will be."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.connect(self._path)
        except OSError as error:
            sock.close()
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN):
                return False
            raise
        kind = _KINDS[self.name]
        sock.send(zmtp.opening(kind, b"" if kind == b"SUB" else IDENTITY))  # a new socket has room for it
        self.sock = sock
        if kind == b"SUB":
            self.queue(zmtp.encode([zmtp.SUBSCRIBE_ALL]))
        return True

    def queue(self, data: bytes) -> None:
        """Goes out as soon as the peer is ready for messages."""
        self._out.append(memoryview(data))
        self.out_bytes += len(data)
        self.flush()

    @property
    def wants_to_write(self) -> bool:
        return self._decoder.ready and self.out_bytes > 0

    def flush(self) -> None:
        while self._out and self.sock is not None and self._decoder.ready:
            try:
                count = self.sock.send(self._out[0])
            except BlockingIOError:
                return
            except OSError:
                # the kernel closed it; what it said before is still to be read
                self._out.clear()
                self.out_bytes = 0
                return
            self.out_bytes -= count
            if count == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][count:]

    def read(self, buffer: memoryview, take: Callable[[str, zmtp.Raw], None]) -> None:
        for _ in range(READS):
            assert self.sock is not None
            try:
                count = self.sock.recv_into(buffer)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self.ended = True
                return
            try:
                messages = self._decoder.feed(buffer[:count])
            except zmtp.ZmtpError:
                self.ended = True
                return
            if self._out:
                self.flush()  # the peer may just have become ready
            for raw in messages:
                take(self.name, raw)
            if count < len(buffer):
                return

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()


class KernelSockets:
    """The four connections of one life. ``take`` gets messages; ``connected`` and ``closed`` are told once each."""

    def __init__(self, poller: Poller, take: Callable[[str, zmtp.Raw], None]) -> None:
        self._poller, self._take = poller, take
        self.connected: Callable[[], None] = lambda: None
        self.closed: Callable[[], None] = lambda: None
        self.limit = 64 * 1024**2
        self.pause_iopub = False
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._channels: dict[str, Channel] = {}
        self._waiting: list[Channel] = []
        self._tries = 0
        self.try_at: float | None = None
        """When ``tick`` tries to connect."""
        self._root = os.open(RUN, os.O_RDONLY | os.O_DIRECTORY)
        # the user, who is in the group, must not be able to make or replace anything here
        os.fchmod(self._root, 0o2751)

    @property
    def any_open(self) -> bool:
        return any(c.sock is not None and not c.ended for c in self._channels.values())

    def make(self, life: int, group: int) -> bytes:
        """The life's directory, open to the group until all is connected, and the connection file. Raises OSError."""
        name = f"k{life}"
        os.mkdir(name, 0o770, dir_fd=self._root)
        directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._root)
        try:
            os.fchown(directory, -1, group)
            os.fchmod(directory, 0o2770)
            key = secrets.token_hex(32)
            connection: dict[str, Any] = {"transport": "ipc", "ip": f"{RUN}/{name}/s", "key": key}
            connection |= {"signature_scheme": "hmac-sha256", "kernel_name": "python3"}
            connection |= {f"{channel}_port": port for channel, port in _PORTS.items()}
            fd = os.open("connection.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640, dir_fd=directory)
            with open(fd, "w") as file:
                os.fchown(fd, -1, group)
                json.dump(connection, file)
        finally:
            os.close(directory)
        return key.encode()

    def connect(self, life: int, now: float) -> None:
        self._channels = {name: Channel(name, f"{RUN}/k{life}/s-{_PORTS[name]}", self.limit, self._event) for name in _KINDS}
        self._waiting = list(self._channels.values())
        self._tries, self.try_at = 0, now
        self._life = life

    def tick(self, now: float) -> None:
        if self.try_at is None or self.try_at > now:
            return
        self._tries += 1
        # in the order of binding, so that the first one that is not there ends the round
        while self._waiting:
            try:
                if not self._waiting[0].connect():
                    break
            except OSError:
                break
            self._watch(self._waiting.pop(0))
        if self._waiting:
            self.try_at = now + (TRY_S if self._tries < TRY_QUICK else TRY_LATER_S)
            return
        self.try_at = None
        with contextlib.suppress(OSError):
            os.chmod(f"k{self._life}", 0o2750, dir_fd=self._root)
        self.connected()

    def pause(self, iopub: bool) -> None:
        """Whether iopub is left unread for now."""
        if iopub != self.pause_iopub:
            self.pause_iopub = iopub
            if "iopub" in self._channels:
                self._watch(self._channels["iopub"])

    def _watch(self, channel: Channel) -> None:
        if channel.sock is not None and not channel.ended:
            read = not (channel.name == "iopub" and self.pause_iopub)
            self._poller.watch(channel.sock.fileno(), channel.handler, read=read, write=channel.wants_to_write)

    def _event(self, channel: Channel, mask: int) -> None:
        if mask & select.EPOLLOUT:
            channel.flush()
            self._watch(channel)
        if mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            channel.read(self._buffer, self._take)
            if channel.ended:
                assert channel.sock is not None
                self._poller.forget(channel.sock.fileno())
                if all(c.ended or c.sock is None for c in self._channels.values()):
                    self.closed()

    def send(self, channel: str, parts: list[bytes]) -> bool:
        target = self._channels.get(channel)
        if target is None or target.ended:
            return True  # it dies with its kernel, whose end is told
        if target.out_bytes > MAX_TO_KERNEL:
            return False
        target.queue(zmtp.encode(parts))
        if target.out_bytes:
            self._watch(target)
        return True

    def disconnect(self, life: int) -> None:
        for channel in self._channels.values():
            if channel.sock is not None:
                self._poller.forget(channel.sock.fileno())
                channel.close()
        self._channels, self._waiting, self.try_at = {}, [], None
        with contextlib.suppress(OSError):
            directory = os.open(f"k{life}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._root)
            try:
                for name in os.listdir(directory):
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=directory)
            finally:
                os.close(directory)
            os.rmdir(f"k{life}", dir_fd=self._root)

    def last_words(self, life: int) -> str:
        """What a kernel that failed to start wrote; the file is the user's, so nothing in it is believed."""
        try:
            fd = os.open(f"k{life}/error", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._root)
        except OSError:
            return ""
        try:
            return os.read(fd, 4000).decode("utf-8", "replace")
        except OSError:
            return ""
        finally:
            os.close(fd)


class Init:
    """Process 1: one byte each way, with a descriptor for a helper. The numbers are those of ``init.py``."""

    KILL_USER, AS_USER, AS_RELAY, KILL, STARTED, ENDED = 0x01, 0x10, 0x20, 0x30, 0x40, 0x50

    def __init__(self, fd: int) -> None:
        self.sock = socket.socket(fileno=fd)
        self.sock.setblocking(False)

    def _say(self, byte: int) -> None:
        self.sock.send(bytes((byte,)))

    def kill_user(self) -> None:
        self._say(self.KILL_USER)

    def start(self, slot: int, *, as_relay: bool) -> None:
        self._say((self.AS_RELAY if as_relay else self.AS_USER) | slot)

    def kill(self, slot: int) -> None:
        self._say(self.KILL | slot)

    def hear(self) -> tuple[int, int, socket.socket | None] | None:
        """(what, slot or number, socket); None when there is nothing more. Raises SystemExit when init is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, 16, 1)
        except BlockingIOError:
            return None
        if not data:
            raise SystemExit(1)
        sock = socket.socket(fileno=fds[0]) if fds else None
        if data[0] == self.KILL_USER:
            return data[0], data[1], sock
        return data[0] & 0xF0, data[0] & 0x0F, sock


class Zygote:
    """One byte to it, reports of fixed size from it."""

    def __init__(self, commands: int, reports: int) -> None:
        self._commands, self.reports = commands, reports
        self._rest = b""

    def say(self, byte: bytes) -> None:
        os.write(self._commands, byte)

    def hear(self) -> list[tuple[bytes, int, int]]:
        """(kind, number, value). Raises SystemExit when the zygote is gone."""
        data = os.read(self.reports, 4096)
        if not data:
            raise SystemExit(1)
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return list(REPORT.iter_unpack(data[:whole]))
