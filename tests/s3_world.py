"""An S3 server for tests (moto's), stores on it, and what is really in a bucket, looked at past the store."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.backends.s3_client import S3Client
from gateway.backends.s3_settings import Patience, S3Settings
from gateway.backends.s3_store import S3Store
from gateway.clock import SystemClock

SECRET = b"planted-secret-0123456789"
QUICK = Patience(connect_s=5.0, read_s=10.0, deadline_s=20.0, first_s=0.01, most_s=0.1)
"""Short pauses, and time enough for a machine that is busy."""
HURRIED = Patience(connect_s=1.0, read_s=1.0, deadline_s=0.5, first_s=0.01, most_s=0.1)
"""For faults that do not pass."""


@contextmanager
def serve(*tls: str) -> Iterator[str]:
    """``tls``: files with a certificate and its key."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {"PATH": os.environ["PATH"], "MOTO_S3_CUSTOM_ENDPOINTS": "", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    if tls:
        command += ["-c", tls[0], "-k", tls[1]]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                assert server.poll() is None, "moto's server did not start"
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def settings(endpoint: str, **more: object) -> S3Settings:
    values: dict[str, object] = {
        "endpoint": endpoint, "bucket": f"b-{secrets.token_hex(8)}", "access_key": b"tester", "secret_key": SECRET, "secure": False,
        "create_bucket": True, **more,
    }  # fmt: skip
    return S3Settings(**values)  # type: ignore[arg-type]


def store_on(given: S3Settings, *, patience: Patience = QUICK, **more: int) -> S3Store:
    return S3Store(given, SystemClock(), patience=patience, **more)


def wait(store: S3Store, patience: Patience) -> None:
    """From here on it waits so long."""
    store.patience = store.client._patience = store.client._http._patience = patience


class Bucket:
    """What is in it, past every proxy."""

    def __init__(self, given: S3Settings) -> None:
        self._settings = given
        self.client = S3Client(given, Patience())

    def objects(self) -> list[str]:
        return [key.removeprefix(self._settings.prefix + "/") for key, _ in self.client.page(self._settings.prefix + "/", "")]

    def uploads(self) -> list[str]:
        return [key for key, _, _ in self.client.uploads(self._settings.prefix + "/", "")[0]]

    def put(self, key: str, data: bytes) -> None:
        self.client.put(self._settings.key("objects", key), data, "", "somebody else's")
