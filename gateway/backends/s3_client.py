"""The S3 requests that the store needs, through the ``minio`` client; each blocks, and raises S3Failure only.

Requests of the client that stand below its ``put_object`` (one part, complete, abort) have a leading underscore there.
They are used all the same: ``put_object`` pulls from a file object and would hold a thread for as long as a sandbox
takes to send a file. The library is pinned by hash, and the tests run every one of them.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import urllib3
from minio import Minio
from minio.commonconfig import REPLACE, CopySource
from minio.datatypes import Part
from minio.error import S3Error
from minio.sse import SseS3

from ..errors import NotFound
from .s3_errors import S3Failure, failed, no_bucket, translated
from .s3_settings import Patience, S3Settings

SHA256 = "x-amz-meta-sha256"
UPLOAD = "x-amz-meta-upload"
"""Which upload made an object, so that a failed one takes back its own and no other."""
CONNECTIONS = 8
LISTED_AT_ONCE = 1000
_NOT_KEPT = "The object store did not keep what it was given."


@dataclass(frozen=True, slots=True)
class Head:
    size: int
    etag: str
    sha256: str
    upload: str


@dataclass(frozen=True, slots=True)
class Debris:
    """What an upload may have left: parts, an object put together but not named yet, an object that nobody was promised."""

    upload: str
    staged: str = ""
    upload_id: str = ""
    key: str = ""


class _Http(urllib3.PoolManager):
    """No repetitions (those are ours), no redirects (a signed request goes nowhere else), a time limit for every request."""

    def __init__(self, patience: Patience, context: ssl.SSLContext | None) -> None:
        super().__init__(maxsize=CONNECTIONS, retries=False, ssl_context=context)
        self._patience = patience
        self._mine = threading.local()

    @contextmanager
    def slower(self, seconds: float) -> Iterator[None]:
        """This thread's requests may take so much longer."""
        self._mine.extra = seconds
        try:
            yield
        finally:
            self._mine.extra = 0.0

    def urlopen(self, method: str, url: str, redirect: bool = True, **kw: Any) -> urllib3.BaseHTTPResponse:  # type: ignore[override]
        limit = urllib3.Timeout(connect=self._patience.connect_s, read=self._patience.read_s + getattr(self._mine, "extra", 0.0))
        return super().urlopen(method, url, redirect=False, timeout=limit, **kw)


class S3Client:
    """Keys here are whole ones, the prefix included."""

    def __init__(self, settings: S3Settings, patience: Patience) -> None:
        self._settings, self._patience = settings, patience
        self._bucket = settings.bucket
        with translated():
            context = None
            if settings.secure:
                try:
                    context = ssl.create_default_context(cafile=settings.ca_file or None)
                except (OSError, ValueError):
                    raise failed("SANDGLASS_S3_CA_FILE cannot be read, or holds no certificate.") from None
            self._http = _Http(patience, context)
            self._minio = Minio(
                settings.endpoint, settings.access_key.decode(), settings.secret_key.decode(), secure=settings.secure,
                region=settings.region, http_client=self._http,
            )  # fmt: skip

    def close(self) -> None:
        self._http.clear()

    def _headers(self, **headers: str) -> dict[str, Any]:
        if self._settings.encryption == "sse-s3":
            headers["x-amz-server-side-encryption"] = "AES256"
        return {"Content-Type": "application/octet-stream", **headers}

    # --- the bucket ---------------------------------------------------------------------------------------------------

    def bucket_serves(self) -> None:
        with translated():
            if not self._minio.bucket_exists(self._bucket):
                raise no_bucket()

    def make_bucket(self) -> None:
        with translated():
            try:
                self._minio.make_bucket(self._bucket)
            except S3Error as exc:
                if exc.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

    # --- objects ------------------------------------------------------------------------------------------------------

    def head(self, key: str) -> Head:
        with translated():
            found = self._minio.stat_object(self._bucket, key)
            headers = cast(Any, found.metadata)
            if "content-length" not in headers:
                raise failed("The object store does not say how large an object is.", True)
            return Head(found.size or 0, found.etag or "", headers.get(SHA256, ""), headers.get(UPLOAD, ""))

    def put(self, key: str, data: bytes, sha256: str, upload: str) -> str:
        """Returns its ETag."""
        with translated():
            return self._minio._put_object(self._bucket, key, data, self._headers(**{SHA256: sha256, UPLOAD: upload})).etag or ""

    def copy(self, source: str, key: str, size: int, sha256: str, upload: str) -> str:
        """Within the store, atomic; in parts where it is over 5 GiB. Returns its ETag."""
        with translated(), self._http.slower(size / self._patience.copied_a_s):
            made = self._minio.copy_object(
                self._bucket, key, CopySource(self._bucket, source), metadata={"sha256": sha256, "upload": upload}, metadata_directive=REPLACE,
                sse=SseS3() if self._settings.encryption == "sse-s3" else None,
            )  # fmt: skip
            return made.etag or ""

    def get(self, key: str, offset: int = 0, etag: str = "") -> urllib3.BaseHTTPResponse:
        """Open; the caller reads and closes. ``etag``: refused when it is another object by now."""
        with translated():
            headers: dict[str, Any] = {"If-Match": f'"{etag}"'} if etag else {}
            got = self._minio.get_object(self._bucket, key, offset=offset, length=0, request_headers=headers)
            if offset and not got.headers.get("content-range", "").startswith(f"bytes {offset}-"):
                got.close()
                raise failed("The object store sent another part of an object than was asked for.", True)
            return got

    def delete(self, key: str) -> None:
        """Also fine when there is none."""
        with translated():
            try:
                self._minio.remove_object(self._bucket, key)
            except S3Error as exc:
                if exc.code != "NoSuchKey":
                    raise

    def page(self, prefix: str, after: str) -> list[tuple[str, float]]:
        """The next keys with this beginning, at most one page, and when each was written."""
        with translated():
            found = self._minio.list_objects(self._bucket, prefix=prefix, recursive=True, start_after=after or None)
            return [(item.object_name or "", item.last_modified.timestamp() if item.last_modified else 0.0) for item in islice(found, LISTED_AT_ONCE)]

    # --- uploads in parts ---------------------------------------------------------------------------------------------

    def begin(self, key: str) -> str:
        with translated():
            return self._minio._create_multipart_upload(self._bucket, key, self._headers())

    def part(self, key: str, upload_id: str, number: int, data: bytes) -> str:
        """Returns what names the part when it is put together. What is sent is signed, or has its MD5 beside it."""
        with translated():
            etag: str = self._minio._upload_part(self._bucket, key, data, None, upload_id, number)
            if not etag:
                raise failed("The object store does not confirm a part.", True)
            return etag

    def complete(self, key: str, upload_id: str, etags: list[str], size: int) -> None:
        """Put together and looked at; an earlier try may have done it without our being told."""
        again = True
        with translated():
            try:
                self._minio._complete_multipart_upload(self._bucket, key, upload_id, [Part(n, etag) for n, etag in enumerate(etags, 1)])
            except S3Error as exc:
                if exc.code != "NoSuchUpload":
                    raise
                again = False
        try:
            found = self.head(key)
        except S3Failure as exc:
            if isinstance(exc.error, NotFound):
                raise failed("The object store lost an upload.", again) from None
            raise
        if found.size != size:
            raise failed(_NOT_KEPT, True)

    def confirm(self, key: str, size: int, etag: str, sha256: str, upload: str) -> None:
        """The store says that it holds what it was given, or another try is due."""
        try:
            found = self.head(key)
        except S3Failure as exc:
            if isinstance(exc.error, NotFound):
                raise failed(_NOT_KEPT, True) from None
            raise
        if found != Head(size, etag, sha256, upload):
            raise failed(_NOT_KEPT, True)

    def clean(self, rest: Debris) -> None:
        """Take away what a writer left."""
        if rest.upload_id:
            self.abort(rest.staged, rest.upload_id)
        if rest.staged:
            self.delete(rest.staged)
        if rest.key and self._made_by(rest.key, rest.upload):
            self.delete(rest.key)

    def _made_by(self, key: str, upload: str) -> bool:
        try:
            return self.head(key).upload == upload
        except S3Failure as exc:
            if isinstance(exc.error, NotFound):
                return False
            raise

    def abort(self, key: str, upload_id: str) -> None:
        """Also fine when there is none."""
        with translated():
            try:
                self._minio._abort_multipart_upload(self._bucket, key, upload_id)
            except S3Error as exc:
                if exc.code != "NoSuchUpload":
                    raise

    def uploads(self, prefix: str, after: str) -> tuple[list[tuple[str, str, float]], str]:
        """``(key, upload id, begun at)`` of one page, and where the next one begins ("" when this was the last)."""
        with translated():
            page = self._minio._list_multipart_uploads(self._bucket, prefix=prefix, key_marker=after or None)
            found = [(u.object_name, u.upload_id or "", u.initiated_time.timestamp()) for u in page.uploads if u.initiated_time]
            return found, (page.next_key_marker or "") if page.is_truncated else ""
