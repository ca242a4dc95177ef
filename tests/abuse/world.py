"""What a case is given: a sandbox to attack, a neighbour, and code that runs in there with a few helpers.

A case is a function of the same name as its row in ``cases.py``; it raises AssertionError when the attack had an effect. The system call
numbers are those of x86-64.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.domain.model import Limits
from tests.integration.sandbox_client import Engine, Sandbox

LIMITS = Limits(
    memory_bytes=640 << 20,
    workspace_bytes=32 << 20,
    inputs_bytes=16 << 20,
    tmp_bytes=16 << 20,
    shm_bytes=16 << 20,
    workspace_inodes=500,
    processes=64,
    open_files=512,
)
SECRET = "sg-planted-" + secrets.token_hex(8)
"""Stands in the environment of the test run and in a file of the host's: whoever shows it has got out."""

PRELUDE = """
import ctypes, errno, json, os, resource, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode.get(ctypes.get_errno(), "?") if r == -1 else "done"
def tried(f, *args):
    try: f(*args)
    except TimeoutError: return "timeout"
    except OSError as e: return errno.errorcode.get(e.errno, type(e).__name__)
    return "done"
def read(path, size=65536):
    try:
        with open(path, "rb") as f: return f.read(size)
    except OSError: return b""
def processes():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            status = read(f"/proc/{name}/status").decode(errors="replace")
            lines = dict(l.split(":", 1) for l in status.splitlines() if ":" in l)
            if "Uid" in lines: found[int(name)] = int(lines["Uid"].split()[1])
    return found
def others(): return [p for p, uid in processes().items() if uid != os.getuid()]
def answer(x): print("\\x01" + json.dumps(x))
"""

CaseFunction = Callable[["World"], None]
PROBES: dict[str, CaseFunction] = {}
SLOW: set[str] = set()
"""Cases that take seconds, or a kernel's life."""


def case(function: CaseFunction) -> CaseFunction:
    PROBES[function.__name__] = function
    return function


def slow(function: CaseFunction) -> CaseFunction:
    SLOW.add(function.__name__)
    return case(function)


@dataclass
class Host:
    """What is planted on the host for a sandbox to find: a file, listeners on every address, one on an abstract name."""

    file: Path
    tcp: socket.socket
    udp: socket.socket
    abstract: socket.socket
    addresses: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.tcp.getsockname()[1])

    @property
    def abstract_name(self) -> str:
        return str(self.abstract.getsockname()[1:].decode())

    @staticmethod
    def _accept(listener: socket.socket) -> Callable[[], object]:
        return lambda: listener.accept()[0].close()

    def seen(self) -> list[str]:
        """What reached a listener since the last time."""
        found = []
        for name, take in (("tcp", self._accept(self.tcp)), ("abstract", self._accept(self.abstract)), ("udp", lambda: self.udp.recv(100))):
            with contextlib.suppress(BlockingIOError):
                while True:  # all of it: what is left would be held against the next
                    take()
                    found.append(name)
        return found


def _own_addresses() -> list[str]:
    found = {"127.0.0.1"}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        found.add(probe.getsockname()[0])
    return sorted(found)


@contextlib.contextmanager
def planted() -> Iterator[Host]:
    os.environ["SANDGLASS_ABUSE_SECRET"] = SECRET
    with tempfile.TemporaryDirectory(prefix="sandglass-abuse-") as place, contextlib.ExitStack() as stack:
        file = Path(place, "secret.txt")
        Path(place).chmod(0o755)
        file.write_text(SECRET)
        file.chmod(0o644)
        tcp = stack.enter_context(socket.socket())
        udp = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        tcp.bind(("0.0.0.0", 0))
        udp.bind(("0.0.0.0", tcp.getsockname()[1]))
        abstract.bind("\0sandglass-abuse-" + secrets.token_hex(4))
        for listener in (tcp, abstract):
            listener.listen(8)
        for each in (tcp, udp, abstract):
            each.setblocking(False)
        yield Host(file, tcp, udp, abstract, _own_addresses())


@dataclass
class World:
    engine: Engine
    runtime: str
    box: Sandbox
    host: Host
    new: Callable[..., Sandbox]
    """Another sandbox of this runtime, started, with other limits; removed by whoever gave this."""
    limits: Limits = LIMITS

    @property
    def gvisor(self) -> bool:
        return self.runtime == "runsc"

    def run(self, code: str, timeout: float = 60.0, box: Sandbox | None = None) -> Any:
        """What the code gives to ``answer``."""
        done = (box or self.box).execute(PRELUDE + textwrap.dedent(code), timeout)
        assert done.reply is not None and done.reply["status"] == "ok", done.reply
        assert "\x01" in done.text, done.text
        return json.loads(done.text.rpartition("\x01")[2])

    def run_alone(self, code: str) -> Any:
        """The same in a process of one thread: a bare clone of a kernel, which has several, may leave its child waiting for a lock for ever."""
        program = PRELUDE + textwrap.dedent(code)
        return self.run(
            f"done = subprocess.run([sys.executable, '-c', {program!r}], capture_output=True, text=True, timeout=40)\n"
            "print(done.stdout, end='')\nassert done.returncode == 0, done.stderr"
        )

    def refused(self, code: str, *allowed: str) -> None:
        """``code`` answers with name -> outcome: none may be another than the ``allowed`` errors."""
        outcomes = self.run(code)
        wrong = {name: outcome for name, outcome in outcomes.items() if outcome not in allowed}
        assert outcomes and not wrong, wrong

    def revive(self) -> None:
        """A kernel that answers, whatever the case has done to the last one."""
        assert self.box.restart()["life"]
        assert self.box.execute("1 + 1").result == "2"
