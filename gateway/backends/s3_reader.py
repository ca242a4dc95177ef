"""An object that is read from S3 in chunks, taken up where a connection broke, and held against its SHA-256 at the end."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress

import urllib3

from ..errors import Conflict
from .s3_client import SHA256, S3Client
from .s3_errors import S3Failure, failed, translated

CHUNK_BYTES = 256 * 1024


class S3Reader:
    """Blocking; one call at a time. ``next`` raises S3Failure, and goes on where it was when it is called again."""

    def __init__(self, client: S3Client, key: str) -> None:
        self._client, self._key = client, key
        self._lock = threading.Lock()
        self._response: urllib3.BaseHTTPResponse | None = None
        self._digest = hashlib.sha256()
        self._offset, self._size = 0, -1
        self._etag = self._sha256 = ""
        self._suspect = self._over = False

    def next(self) -> bytes:
        """At most ``CHUNK_BYTES``; ``b""`` at the end. The last chunk is handed out only when the whole is what was stored."""
        with self._lock:
            try:
                return self._next()
            except S3Failure:
                self._let_go()
                raise
            finally:
                if self._over:
                    self._let_go()

    def _next(self) -> bytes:
        if self._over or self._offset == self._size > 0:
            return b""
        if self._suspect:
            return self._look_again()
        response = self._response or self._open()
        wanted = min(CHUNK_BYTES, self._size - self._offset)
        data = _read(response, wanted)
        digest = self._digest.copy()
        digest.update(data)
        if self._offset + wanted == self._size and digest.hexdigest() != self._sha256:
            self._suspect = True
            raise failed("An object arrived altered.", True)
        self._digest, self._offset = digest, self._offset + wanted
        return data

    def _open(self) -> urllib3.BaseHTTPResponse:
        with translated():
            found = self._client.get(self._key, self._offset, self._etag)
            self._response = found
            headers, length = found.headers, int(found.headers["content-length"])
            if length < 0:
                raise failed("The object store answered what cannot be understood.", True)
            if self._size < 0:
                self._size, self._etag, self._sha256 = length, headers.get("etag", "").strip('"'), headers.get(SHA256, "")
            elif headers.get("etag", "").strip('"') != self._etag or length != self._size - self._offset:
                raise failed("An object was replaced while it was read.")
            return found

    def _look_again(self) -> bytes:
        """All of it once more: was it altered on its way, or in the store? Where what was handed out was right, the rest is returned."""
        response = self._client.get(self._key)
        try:
            digest, left = hashlib.sha256(), self._offset
            while left:
                data = _read(response, min(CHUNK_BYTES, left))
                left -= len(data)
                digest.update(data)
            same = digest.digest() == self._digest.digest()
            rest = _read(response, self._size - self._offset)
            digest.update(rest)
        finally:
            response.close()
        if digest.hexdigest() != self._sha256:
            raise S3Failure(Conflict("The stored object is not what was stored."))
        if not same:
            raise failed("An object arrived altered; it has to be read again.")
        self._suspect = False
        self._digest, self._offset = digest, self._size
        return rest

    def _let_go(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()

    def close(self) -> None:
        """At any time, and without waiting for a read that hangs: that one ends with its connection."""
        self._over = True
        if self._lock.acquire(blocking=False):
            try:
                self._let_go()
            finally:
                self._lock.release()
        elif (response := self._response) is not None:
            with suppress(Exception):  # it may end by itself in this very moment
                response.shutdown()


def _read(response: urllib3.BaseHTTPResponse, size: int) -> bytes:
    with translated():
        data = response.read(size, decode_content=False) if size else b""
    if len(data) != size:
        raise failed("An object arrived cut.", True)
    return data
