"""An image whose relay misbehaves when told to, and a user's hold on one session of a gateway that runs on it.

The relay is the real one; a thread beside it looks for ``/tmp/order``, which user code can write. So what the gateway sees of a relay
that leaks memory, breaks the protocol or ends is what it would see of a defective one, with the engine's own evidence.
"""

from __future__ import annotations

import io
import tarfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import docker
from e2e_gateway import DOCKER_HOST, IMAGE, Gateway

from gateway.auth.settings import AuthSettings

Json = dict[str, Any]
PATIENCE_S = 60.0
LEAK, BREAK, END = "memory", "protocol", "crash"
RELAY = f'''
import os, sys, threading, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from relay.loop import Relay

def obey():
    held = []
    while True:
        time.sleep(0.05)
        try:
            order = open("/tmp/order").read()
        except OSError:
            continue
        if order == "{BREAK}":
            os.write(1, bytes(4096))
        elif order == "{END}":
            os._exit(9)
        while order == "{LEAK}":
            held.append(b"x" * (1 << 20))

threading.Thread(target=obey, daemon=True).start()
os.umask(0o007)
sys.exit(Relay(3, 4, 5).run())
'''


def order(word: str) -> str:
    """Code that gives it, and then does not end by itself."""
    return f"import time\nopen('/tmp/order', 'w').write('{word}')\ntime.sleep(120)"


def engine() -> docker.APIClient:
    return docker.APIClient(base_url=DOCKER_HOST, version="auto", timeout=120)


@contextmanager
def image() -> Iterator[str]:
    """Its reference, under which it can be taken away and put back (``keep_as``)."""
    client, name = engine(), f"sandglass-words-{uuid.uuid4().hex[:12]}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo("start_relay.py")
        entry.size, entry.mode = len(RELAY.encode()), 0o644
        tar.addfile(entry, io.BytesIO(RELAY.encode()))
    made = client.create_container(IMAGE)["Id"]
    try:
        client.put_archive(made, "/opt/sandglass", packed.getvalue())
        client.commit(made, repository=name, tag="here")
    finally:
        client.remove_container(made, force=True)
    try:
        client.tag(f"{name}:here", name, "aside")
        yield f"{name}:here"
    finally:
        for tag in ("here", "aside"):
            try:
                client.remove_image(f"{name}:{tag}", force=True)
            except docker.errors.ImageNotFound:
                pass
        client.close()


@contextmanager
def taken_away(reference: str) -> Iterator[None]:
    """The image is not in the engine under its name meanwhile."""
    client, name = engine(), reference.partition(":")[0]
    client.remove_image(reference)
    try:
        yield
    finally:
        client.tag(f"{name}:aside", name, "here")
        client.close()


@dataclass
class Hold:
    """One user's session, over restarts of the gateway."""

    gateway: Gateway
    user: str
    profile: str
    session_id: str = ""
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self.token = token(self.gateway, self.user)

    @property
    def path(self) -> str:
        return f"/api/v1/sessions/{self.session_id}"

    def call(self, method: str, tail: str = "", body: Any = None, **more: Any) -> Any:
        return self.gateway.call(method, self.path + tail, body, token=self.token, **more)

    def open(self) -> Hold:
        made = self.gateway.call("POST", "/api/v1/sessions", {"profile": self.profile}, token=self.token, expect=201)
        self.session_id = made.json()["session_id"]
        self.state("active")
        return self

    def run(self, code: str, **body: Any) -> Json:
        done: Json = self.call("POST", "/executions?wait=120", {"code": code, **body}, expect=200).json()
        return done

    def begin(self, code: str) -> str:
        """Run it, and do not wait for more than its beginning."""
        made = str(self.call("POST", "/executions", {"code": code}, expect=202).json()["execution_id"])
        self._until(lambda: self.call("GET", f"/executions/{made}").json()["state"] != "queued", "it runs, or ran")
        return made

    def finished(self, execution_id: str) -> Json:
        done: Json = self.call("GET", f"/executions/{execution_id}?wait=60", expect=200).json()
        assert done["state"] == "finished", done
        return done

    def state(self, *states: str) -> Json:
        return dict(self._until(lambda: (v := self.call("GET", expect=200).json())["state"] in states and v, f"it is {states}"))

    def recycled(self) -> Json:
        self.call("POST", "/recycle", {}, expect=202)
        return self.state("dormant")

    def _until(self, look: Any, what: str) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := look()):
            assert time.monotonic() < deadline, f"{self.user}: not so that {what}: {self.call('GET').text[:800]}"
            time.sleep(0.05)
        return found

    def container(self) -> str:
        """Its engine id."""
        root = token(self.gateway, "root", "admin")
        sandbox = self.gateway.call("GET", f"/api/v1/admin/sessions/{self.session_id}", token=root, expect=200).json()["sandbox_id"]
        client = engine()
        [found] = client.containers(all=True, filters={"label": f"sandglass.sandbox={sandbox}"})
        client.close()
        return str(found["Id"])


def token(gateway: Gateway, user: str, role: str = "user") -> str:
    return AuthSettings(state=gateway.state).issue_dev_token(user, "t1", (role,), 3600.0, time.time())
