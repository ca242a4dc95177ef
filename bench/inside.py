"""Runs inside a sandbox (by ``docker exec``): a plain ZMQ client beside a kernel, the limit to compare with.

``own`` (as the user's uid): the kernel is one of its own, of the image's very code and under the sandbox's very limits, which no relay
reads: what a kernel and a client can do at best. ``shared`` (as the relay's uid): the session's kernel, which the relay reads, too.

The client stays connected. Each line of standard input is ``{"code", "count"}``; the answer is one line of JSON, a list with one
``[seconds, messages, text, payload, finished]`` for each execution (see ``client.Seen``). Nothing is waited for but the sockets: no
thread, no polling; headers are parsed as the bench's other client parses them, signatures are made but not checked.
"""

import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zmq

PATIENCE_S = 120.0
KERNEL = """
import os, sys
sys.path.insert(0, "/opt/sandglass")
import kernel_app
kernel_app.preload()
kernel_app.RUN, kernel_app._become_user = sys.argv[1], lambda: None
kernel_app.become_user_and_run(1, lambda: None, os.open("/dev/null", os.O_WRONLY))
"""


def own_kernel() -> tuple[Path, "subprocess.Popen[bytes]"]:
    """Its connection file, and the process."""
    run = Path(f"/tmp/bench-{os.getpid()}")
    life = run / "k1"
    life.mkdir(parents=True)
    ports = {f"{name}_port": n for n, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)}
    facts = {"transport": "ipc", "ip": str(life / "s"), "key": uuid.uuid4().hex, "signature_scheme": "hmac-sha256", **ports}
    (life / "connection.json").write_text(json.dumps(facts))
    return life / "connection.json", subprocess.Popen([sys.executable, "-c", KERNEL, str(run)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def shared_kernel() -> Path:
    return sorted(Path("/run/sandglass").glob("k*/*.json"), key=lambda p: p.stat().st_mtime)[-1]


def text_size(content: bytes) -> int:
    """Characters of a stream message's text; of a large one counted without decoding it (the same in ``client.py``)."""
    if len(content) < 4096:
        return len(json.loads(content)["text"])
    begin = content.index(b'"text":') + 7
    begin = content.index(b'"', begin) + 1
    return content.rindex(b'"') - begin - content.count(b"\\n")


class Client:
    def __init__(self, file: Path) -> None:
        facts = json.loads(file.read_text())
        self.key = facts["key"].encode()
        self.session = uuid.uuid4().hex
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self.shell, self.iopub = context.socket(zmq.DEALER), context.socket(zmq.SUB)
        for socket, port in ((self.shell, facts["shell_port"]), (self.iopub, facts["iopub_port"])):
            socket.set_hwm(0)
            socket.linger = 0
            joint = "-" if facts["transport"] == "ipc" else ":"
            socket.connect(f"{facts['transport']}://{facts['ip']}{joint}{port}")
        self.iopub.subscribe(b"")
        self.poller = zmq.Poller()
        self.poller.register(self.shell, zmq.POLLIN)
        self.poller.register(self.iopub, zmq.POLLIN)
        for _ in range(60):  # until iopub has joined, too
            if self.execute("pass", patience_s=1.0)[4]:
                return
        raise TimeoutError("no answer from the kernel")

    def send(self, msg_type: str, content: dict[str, Any]) -> str:
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id, "msg_type": msg_type, "username": "bench", "session": self.session, "version": "5.3",
            "date": datetime.now(UTC).isoformat(),
        }
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
        sign = hmac.new(self.key, digestmod=hashlib.sha256)
        for part in parts:
            sign.update(part)
        self.shell.send_multipart([b"<IDS|MSG>", sign.hexdigest().encode() if self.key else b"", *parts])
        return msg_id

    def execute(self, code: str, patience_s: float = PATIENCE_S) -> list[Any]:
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        messages = text = payload = 0
        begun = time.perf_counter()
        msg_id = self.send("execute_request", content)
        replied = idle = False
        while not (replied and idle):
            ready = self.poller.poll(int(patience_s * 1000))
            if not ready:
                break
            for socket, _ in ready:
                parts = socket.recv_multipart()
                at = parts.index(b"<IDS|MSG>") + 2
                header, parent = json.loads(parts[at]), json.loads(parts[at + 1])
                if parent.get("msg_id") != msg_id:
                    continue
                kind = header["msg_type"]
                if kind == "execute_reply":
                    replied = True
                elif kind == "status":
                    idle = json.loads(parts[at + 3])["execution_state"] == "idle"
                elif kind == "stream":
                    messages += 1
                    text += text_size(parts[at + 3])
                elif kind in ("display_data", "comm_msg", "comm_open"):
                    payload += len(parts[at + 3]) + sum(map(len, parts[at + 4 :]))
        return [time.perf_counter() - begun, messages, text, payload, replied and idle]


def main() -> None:
    kernel = None
    if sys.argv[1] == "own":
        file, kernel = own_kernel()
    else:
        file = shared_kernel()
    try:
        client = Client(file)
        print("[]", flush=True)
        for line in sys.stdin:
            work = json.loads(line)
            print(json.dumps([client.execute(work["code"]) for _ in range(work["count"])]), flush=True)
    finally:
        if kernel is not None:
            kernel.kill()


main()
