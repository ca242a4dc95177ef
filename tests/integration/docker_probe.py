"""A container of the runtime under test whose process 1 stands in for init: it becomes the user for every piece of code it is told."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
import uuid
from typing import Any

from gateway.backends import hardening
from gateway.backends.docker import DockerRuntime
from gateway.domain.model import Limits, Profile
from gateway.errors import EngineUnavailable
from gateway.ports import ByteStream, SandboxFacts, SandboxSpec

HOST = os.environ.get("SANDGLASS_TEST_DOCKER_HOST", "")
IMAGE = os.environ.get("SANDGLASS_TEST_IMAGE", "")
LIMITS = Limits(
    memory_bytes=384 << 20,
    workspace_bytes=32 << 20,
    inputs_bytes=16 << 20,
    tmp_bytes=16 << 20,
    shm_bytes=16 << 20,
    workspace_inodes=500,
    processes=48,
)

INIT = """
import json, os, resource, sys, signal
X, Y, G = (int(os.environ["SANDGLASS_" + n]) for n in ("RELAY_UID", "USER_UID", "GROUP_ID"))
PRELUDE = '''
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    r = libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode[ctypes.get_errno()] if r < 0 else r
def tried(f):
    try: f(); return "done"
    except OSError as e: return errno.errorcode[e.errno]
'''
def user(code, out):
    os.setsid(); os.dup2(out, 1); os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    open("/proc/self/oom_score_adj", "w").write("1000")  # before the drop: afterwards the file is root's
    os.setgroups([]); os.setresgid(G, G, G); os.setresuid(Y, Y, Y)
    n = int(os.environ["SANDGLASS_USER_PROCESSES"]); resource.setrlimit(resource.RLIMIT_NPROC, (n, n))
    os.chdir("/workspace")
    exec(compile(PRELUDE + code, "<code>", "exec"), {"__name__": "__main__"})
def say(**what):
    data = json.dumps(what).encode() + b"\\n"
    while data: data = data[os.write(1, data):]
say(ready=True)
for line in sys.stdin:
    order = json.loads(line)
    if order.get("kill"):
        p = os.fork()
        if p == 0:
            os.setgroups([]); os.setresgid(G, G, G); os.setresuid(Y, Y, Y); os.kill(-1, 9); os._exit(0)
        os.waitpid(p, 0)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]: pass
        except ChildProcessError: pass
        say(killed=True); continue
    r, w = os.pipe(); p = os.fork()
    if p == 0:
        try: os.close(r); user(order["code"], w); sys.stdout.flush(); os._exit(0)
        except BaseException as e: os.write(1, repr(e).encode()); os._exit(7)
    os.close(w)
    out = b""
    if not order.get("background"):
        while d := os.read(r, 65536): out += d
        _, status = os.waitpid(p, 0)
        say(out=out.decode(errors="replace"), signal=status & 127, code=status >> 8)
    else:
        say(out=os.read(r, 65536).decode(errors="replace"))
"""


class Probe:
    """A container of the runtime under test that runs code as its user."""

    def __init__(self, runtime: DockerRuntime, spec: SandboxSpec) -> None:
        self.runtime = runtime
        self.spec = spec
        self.engine_id = ""
        self.stream: ByteStream
        self._held = b""

    async def start(self) -> None:
        body = hardening.create_body(self.spec, await self.runtime.info())
        body["Entrypoint"] = ["python3", "-u", "-c", INIT]

        def make(client: Any) -> str:
            made = client.create_container_from_config(body, f"probe-{self.spec.sandbox_id}")
            hardening.check_created(body, client.inspect_container(made["Id"]), made["Warnings"])
            return str(made["Id"])

        self.engine_id = await self.runtime._slow.run(make)
        self.stream = await self.runtime.attach(self.engine_id)
        await self.runtime.start(self.engine_id)
        assert (await self._answer())["ready"]

    async def _answer(self, patience_s: float = 60.0) -> dict[str, Any]:
        async with asyncio.timeout(patience_s):
            while b"\n" not in self._held:
                data = await self.stream.read()
                assert data, f"the container ended: {await self.facts()} {self.stream.stderr_tail()[-2000:]}"
                self._held += data
        line, self._held = self._held.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def order(self, **what: Any) -> dict[str, Any]:
        self.stream.write(json.dumps(what).encode() + b"\n")
        return await self._answer()

    async def run(self, code: str) -> Any:
        """What the user's code prints, as JSON."""
        answer = await self.order(code=textwrap.dedent(code))
        assert (answer["signal"], answer["code"]) == (0, 0), answer
        return json.loads(answer["out"])

    async def remove(self, tries: int = 3) -> None:
        """Until it is gone: an engine may take longer than one call waits to end a sandbox full of processes, and the gateway asks again, too."""
        if not self.engine_id:
            return
        for left in reversed(range(tries)):
            try:
                return await self.runtime.remove(self.engine_id)
            except EngineUnavailable:
                if not left:
                    raise

    async def facts(self) -> SandboxFacts | None:
        return await self.runtime.inspect(self.engine_id)


_uids = iter(range(400_000 + os.getpid() % 1000 * 1000, 2**31, 10))


def spec_for(kind: str, limits: Limits = LIMITS) -> SandboxSpec:
    tier = {"runc": "container", "runsc": "gvisor"}[kind]
    uid = next(_uids)
    name = uuid.uuid4().hex
    return SandboxSpec(name, f"probe-{name}", Profile(tier, tier, kind, limits=limits), IMAGE, uid, uid + 1, uid + 2)
