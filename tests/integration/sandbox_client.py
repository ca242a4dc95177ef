"""A small blocking gateway for tests: an engine over its Unix socket, the attach stream, and the stream protocol on top of it.

The container is created with the request of ``gateway.backends.hardening``, so that the sandbox is met as it is in production.
"""

from __future__ import annotations

import copy
import hashlib
import http.client
import itertools
import json
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.backends.hardening import create_body
from gateway.domain.model import Limits, Profile
from gateway.ports import RuntimeInfo, SandboxSpec
from gateway.protocol import jupyter
from gateway.protocol.frames import FrameError, Inbox, Kind, Lane, Message, Outbox, Parser, decode_ack, decode_json, encode_ack, encode_json

Json = dict[str, Any]
_uids = itertools.count(300_000 + secrets.randbelow(100_000) * 4, 4)
_numbers = itertools.count(1)


class EngineConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


class Engine:
    """``host``: as in DOCKER_HOST, a Unix socket."""

    def __init__(self, host: str) -> None:
        self.path = host.removeprefix("unix://")

    def request(self, method: str, url: str, body: Any = None) -> Any:
        connection = EngineConnection(self.path)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, f"/v1.41{url}", data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            if response.status >= 400:
                raise RuntimeError(f"{method} {url}: {response.status} {text[:500]!r}")
            return json.loads(text) if text else None
        finally:
            connection.close()

    def attach(self, container: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        sock.connect(self.path)
        sock.sendall(
            f"POST /v1.41/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\nHost: engine\r\n"
            "Upgrade: tcp\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)  # one by one: what follows belongs to the stream
        assert b" 101 " in head.split(b"\r\n")[0], head
        return sock


@dataclass
class Execution:
    msg_id: str
    reply: Json | None = None
    idle: bool = False
    messages: list[jupyter.KernelMessage] = field(default_factory=list)
    """All that named it as parent, in order, of every channel."""

    @property
    def done(self) -> bool:
        return self.reply is not None and self.idle

    @property
    def text(self) -> str:
        return "".join(m.content["text"] for m in self.messages if m.msg_type == "stream" and m.content["name"] == "stdout")

    @property
    def errors(self) -> str:
        return "".join(m.content["text"] for m in self.messages if m.msg_type == "stream" and m.content["name"] == "stderr")

    def of_type(self, msg_type: str) -> list[jupyter.KernelMessage]:
        return [m for m in self.messages if m.msg_type == msg_type]

    @property
    def result(self) -> str:
        return "".join(m.content["data"]["text/plain"] for m in self.of_type("execute_result"))


class Sandbox:
    """One container. ``events``: relay events in order; ``numbers``: of every reliable message taken, per lane.

    ``change``: alters the create request, to see what a hardening rule is there for; ``asked`` stays what production asks for.
    """

    def __init__(
        self,
        engine: Engine,
        image: str,
        runtime: str,
        *,
        limits: Limits | None = None,
        relay_limits: Json | None = None,
        change: Callable[[Json], object] | None = None,
    ) -> None:
        uid = next(_uids)
        tier = "gvisor" if runtime == "runsc" else "container"
        profile = Profile(name=tier, tier=tier, runtime=runtime, limits=limits or Limits(memory_bytes=1536 * 1024**2))
        info = RuntimeInfo(version="", runtimes={runtime: ""}, problems={}, cgroup_version=1)
        spec = SandboxSpec(f"test{secrets.token_hex(6)}", "sandbox-tests", profile, image, uid, uid + 1, uid + 2)
        self.engine, self.relay_uid, self.user_uid, self.group_id = engine, uid, uid + 1, uid + 2
        self.relay_limits = relay_limits or {}
        self.began = time.monotonic()
        self.spec = spec
        self.asked: Json = create_body(spec, info)
        body: Json = copy.deepcopy(self.asked)
        if change is not None:
            change(body)
        created = engine.request("POST", "/containers/create", body)
        self.container: str = created["Id"]
        self.warnings: list[str] = created.get("Warnings") or []
        self.epoch = 0
        self.marker = b""
        self.inbox, self.outbox = Inbox(), Outbox()
        self.hello: Json = {}
        self.events: list[Json] = []
        self.kernel: list[jupyter.KernelMessage] = []
        self.executions: dict[str, Execution] = {}
        self.results: dict[int, Json] = {}
        self.files: dict[int, list[tuple[int, bytes]]] = {}
        self.numbers: list[list[int]] = [[], [], []]
        self.stderr = bytearray()
        self.stdout_bytes = 0
        self.acking = True
        self.ack_messages = 1
        self.pongs = 0
        self._raw = bytearray()
        self._unacked = 0
        self.sock = engine.attach(self.container)
        self.parser = Parser()
        self.ended = False

    # --- the stream ---------------------------------------------------------------------------------------------------

    def start(self, *, kernel: bool = True, **arguments: Any) -> Sandbox:
        self.engine.request("POST", f"/containers/{self.container}/start")
        self.wait(lambda: self.hello, "the relay's greeting")
        self.attach()
        if kernel:
            assert self.call("start_kernel", **arguments)["ok"]
            self.wait_event("ready")
        return self

    def attach(self, received: list[int] | None = None) -> None:
        """Become the owner with the next epoch, on the open socket."""
        self.epoch += 1
        self.marker = self.marker or bytes.fromhex(self.hello["marker"])
        self.parser.set_marker(self.marker)
        self.parser.resync()
        self.parser.min_epoch = self.epoch
        self.hello = {}
        body = {"protocol": 1, "epoch": self.epoch, "received": received or self.inbox.received, "limits": self.relay_limits}
        outbox = Outbox(self.epoch)
        outbox.put_unnumbered(Kind.ATTACH, encode_json(body))
        self.sock.sendall(self.marker + outbox.next_frames())
        self.wait(lambda: self.hello, "the greeting after an attach")
        self.outbox = Outbox(self.epoch)
        self.outbox.resume_numbers(self.hello["received"])

    def detach(self) -> None:
        """As a gateway that is killed: the socket goes, nothing is said."""
        self.sock.close()
        self._raw.clear()

    def reattach(self) -> None:
        self.sock = self.engine.attach(self.container)
        self.attach()

    def flush(self) -> None:
        while self.outbox.pending:
            self.sock.sendall(self.outbox.next_frames())

    def pump(self, timeout: float) -> bool:
        """Read what there is; False when nothing came in time."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return False
        data = self.sock.recv(1 << 20)
        if not data:
            self.ended = True
            raise EOFError(f"the stream ended; stderr: {bytes(self.stderr[-3000:]).decode(errors='replace')}")
        self._raw += data
        pos = 0
        while len(self._raw) - pos >= 8:
            stream, size = self._raw[pos], struct.unpack_from(">I", self._raw, pos + 4)[0]
            if len(self._raw) - pos < 8 + size:
                break
            piece = bytes(memoryview(self._raw)[pos + 8 : pos + 8 + size])
            pos += 8 + size
            if stream == 1:
                self.stdout_bytes += size
                for message in self.parser.feed(piece):
                    self._take(message)
            else:
                self.stderr += piece
        del self._raw[:pos]
        self.flush()
        return True

    def _take(self, message: Message) -> None:
        kind = message.kind
        if kind is Kind.HELLO:
            self.hello = decode_json(message.body)
        elif kind is Kind.ACK:
            self.outbox.acknowledge(decode_ack(message.body))
        elif kind is Kind.PONG:
            self.pongs += 1
        elif self.inbox.accept(message):
            if message.lane != Lane.FILES:
                self.numbers[message.lane].append(message.number)
            if kind is Kind.KERNEL:
                self._kernel(message)
            elif kind is Kind.EVENT:
                self.events.append(decode_json(message.body))
            elif kind is Kind.RESULT:
                result = decode_json(message.body)
                self.results[result["id"]] = result
            elif kind is Kind.FILE:
                self.files.setdefault(int.from_bytes(message.body[:4], "little"), []).append((message.body[4], message.body[5:]))
            else:
                raise FrameError("a message of the wrong direction")
            self._unacked += 1
            if self.acking and self._unacked >= self.ack_messages:
                self._unacked = 0
                self.sock.sendall(encode_ack(self.inbox.received, self.epoch))

    def _kernel(self, message: Message) -> None:
        m = jupyter.decode(message.body)
        self.kernel.append(m)
        execution = self.executions.get(m.parent_id)
        if execution is None:
            return
        execution.messages.append(m)
        if m.channel == "shell" and m.msg_type == "execute_reply":
            execution.reply = m.content
        elif m.msg_type == "status" and m.content["execution_state"] == "idle":
            execution.idle = True

    def wait(self, done: Callable[[], Any], what: str, timeout: float = 60.0) -> Any:
        end = time.monotonic() + timeout
        while not (value := done()):
            left = end - time.monotonic()
            if left <= 0:
                tail = bytes(self.stderr[-3000:]).decode(errors="replace")
                raise TimeoutError(f"no {what} within {timeout} s; events {self.events[-5:]}; stderr: {tail}")
            self.pump(min(left, 1.0))
        return value

    def wait_event(self, name: str, timeout: float = 60.0, **members: Any) -> Json:
        """The first event of that name (and with those members) that no earlier wait has given."""

        def found() -> Json | None:
            for event in self.events:
                if event["event"] == name and not event.get("_seen") and all(event.get(k) == v for k, v in members.items()):
                    event["_seen"] = True
                    return event
            return None

        event: Json = self.wait(found, f"event {name}", timeout)
        return event

    # --- what a gateway does ------------------------------------------------------------------------------------------

    def call_nowait(self, op: str, **arguments: Any) -> int:
        call_id = next(_numbers)
        self.outbox.put(Kind.CALL, Lane.CONTROL, encode_json({"id": call_id, "op": op, **arguments}))
        self.flush()
        return call_id

    def call(self, op: str, timeout: float = 30.0, **arguments: Any) -> Json:
        call_id = self.call_nowait(op, **arguments)
        result: Json = self.wait(lambda: self.results.get(call_id), f"result of {op}", timeout)
        return result

    def send(self, channel: str, msg_type: str, content: Json, parent: Json | None = None) -> str:
        header = jupyter.make_header(msg_type, "tests")
        lane = Lane.CONTROL if channel == "control" else Lane.KERNEL
        self.outbox.put(Kind.KERNEL, lane, jupyter.build(channel, header, parent or {}, {}, content))
        self.flush()
        return str(header["msg_id"])

    def execute_nowait(self, code: str, **content: Any) -> Execution:
        full = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
        execution = Execution(self.send("shell", "execute_request", full | content))
        self.executions[execution.msg_id] = execution
        return execution

    def execute(self, code: str, timeout: float = 60.0, **content: Any) -> Execution:
        execution = self.execute_nowait(code, **content)
        self.wait(lambda: execution.done, f"end of {code[:60]!r}", timeout)
        return execution

    def restart(self) -> Json:
        result = self.call("restart_kernel", after=self.outbox.last[Lane.KERNEL])
        assert result["ok"], result
        return self.wait_event("ready", life=result["life"])

    # --- files --------------------------------------------------------------------------------------------------------

    def file_message(self, stream: int, kind: int, data: bytes) -> None:
        self.outbox.put(Kind.FILE, Lane.FILES, stream.to_bytes(4, "little") + bytes([kind]) + data)
        self.flush()

    def file(self, command: Json, data: bytes | None = None, timeout: float = 60.0) -> tuple[bytes, Json]:
        """One file operation; returns its data and its END."""
        stream = next(_numbers)
        inbox = self.files.setdefault(stream, [])
        self.file_message(stream, 1, encode_json(command))
        credit, out, sent = 1024 * 1024, bytearray(), 0
        end: Json | None = None
        while end is None:
            while data is not None and credit > 0 and sent < len(data):
                piece = data[sent : sent + min(credit, 256 * 1024)]
                self.file_message(stream, 2, piece)
                sent += len(piece)
                credit -= len(piece)
            if data is not None and sent >= len(data):
                self.file_message(stream, 3, b"{}")
                data = None
            self.wait(lambda: inbox, f"answer to {command}", timeout)
            kind, body = inbox.pop(0)
            if kind == 2:
                out += body
                self.file_message(stream, 4, len(body).to_bytes(4, "little"))
            elif kind == 4:
                credit += int.from_bytes(body, "little")
            elif kind == 3:
                end = decode_json(body)
        return bytes(out), end

    def get(self, path: str, root: str = "workspace", max_bytes: int = 2**40) -> tuple[bytes, Json]:
        return self.file({"cmd": "get", "root": root, "path": path, "max_bytes": max_bytes})

    def put(self, path: str, data: bytes, root: str = "in", **more: Any) -> Json:
        command = {"cmd": "put", "root": root, "path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} | more
        return self.file(command, data)[1]

    def list(self, root: str = "workspace", max_entries: int = 10_000) -> tuple[dict[str, Json], Json]:
        data, end = self.file({"cmd": "list", "root": root, "max_entries": max_entries})
        return {(entry := json.loads(line))["path"]: entry for line in data.splitlines()}, end

    # --- the container ------------------------------------------------------------------------------------------------

    def inspect(self) -> Json:
        found: Json = self.engine.request("GET", f"/containers/{self.container}/json")
        return found

    def wait_end(self, timeout: float = 30.0) -> int:
        """The container's exit code, once it has one."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            state = self.inspect()["State"]
            if not state["Running"]:
                return int(state["ExitCode"])
            time.sleep(0.05)
        raise TimeoutError("the container still runs")

    def remove(self) -> None:
        """Again while the engine does not manage: with gVisor it once took more than a minute over a sandbox full of processes."""
        self.sock.close()
        end = time.monotonic() + 240
        while True:
            try:
                self.engine.request("DELETE", f"/containers/{self.container}?force=1")
                return
            except (TimeoutError, RuntimeError) as error:
                if isinstance(error, RuntimeError) and ": 404 " in str(error):
                    return  # the first request did it after all
                if time.monotonic() > end or (isinstance(error, RuntimeError) and ": 409 " not in str(error)):
                    raise
            time.sleep(1)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def settings() -> tuple[str, str] | None:
    """Engine and image from the environment; None when the tests are not wanted."""
    host, image = os.environ.get("SANDGLASS_TEST_DOCKER_HOST", ""), os.environ.get("SANDGLASS_TEST_IMAGE", "")
    return (host, image) if host.startswith("unix://") and image else None
