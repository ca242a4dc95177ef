"""The one map from what the client library, its HTTP layer and the system raise to our errors.

Nothing of theirs leaves: neither a type, nor a text of the server's (it may quote a request), nor an address.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import urllib3.exceptions as http
from minio.error import InvalidResponseError, S3Error, ServerError

from ..errors import NotFound, SandglassError, StoreUnavailable

_KEYS = "set SANDGLASS_S3_ACCESS_KEY and SANDGLASS_S3_SECRET_KEY to a pair that may list, read, write and delete in the bucket"
_BUCKET = "The object store has no such bucket: make it and set SANDGLASS_S3_BUCKET, or let it be made with SANDGLASS_S3_CREATE_BUCKET=yes."
_REGION = "The object store expects another region: set SANDGLASS_S3_REGION."
_FULL = "The object store is full."
_BUSY = "The object store is overloaded."
_FAILED = "The object store failed."
_ABSENT = "The object store cannot be reached."
_STRANGE = "The object store answered what cannot be understood."

_MISSING = frozenset(("NoSuchKey", "NoSuchObject", "NoSuchUpload", "ResourceNotFound"))
_SENTENCES: dict[str, tuple[str, bool]] = {
    "NoSuchBucket": (_BUCKET, False),
    "AccessDenied": (f"The object store refuses this key: {_KEYS}.", False),
    "AllAccessDisabled": (f"The object store refuses this key: {_KEYS}.", False),
    "InvalidAccessKeyId": (f"The object store does not know this key: {_KEYS}.", False),
    "SignatureDoesNotMatch": (f"The object store does not take this secret: {_KEYS}.", False),
    "RequestTimeTooSkewed": ("The object store's clock and this machine's differ too much.", False),
    "AuthorizationHeaderMalformed": (_REGION, False),
    "PermanentRedirect": (_REGION, False),
    "Redirect": (_REGION, False),
    "InvalidBucketName": ("The object store takes no bucket of this name: set SANDGLASS_S3_BUCKET.", False),
    "EntityTooLarge": ("The object store takes no object of this size.", False),
    "QuotaExceeded": (_FULL, False),
    "XMinioStorageFull": (_FULL, False),
    "XMinioAdminBucketQuotaExceeded": (_FULL, False),
    "InsufficientStorage": (_FULL, False),
    "SlowDown": (_BUSY, True),
    "SlowDownRead": (_BUSY, True),
    "SlowDownWrite": (_BUSY, True),
    "TooManyRequests": (_BUSY, True),
    "ServiceUnavailable": (_BUSY, True),
    "InternalError": (_FAILED, True),
    "OperationAborted": (_FAILED, True),
    "RequestTimeout": (_FAILED, True),
    "BadDigest": ("What was sent to the object store arrived altered.", True),
    "InvalidDigest": ("What was sent to the object store arrived altered.", True),
    "XAmzContentSHA256Mismatch": ("What was sent to the object store arrived altered.", True),
    "IncompleteBody": ("What was sent to the object store arrived cut.", True),
    "PreconditionFailed": ("An object was replaced while it was read.", False),
}
"""The server's code -> our sentence, and whether to try again at once."""


class S3Failure(Exception):
    """``error``: ours, for the caller. ``again``: the same call may work in a moment."""

    def __init__(self, error: SandglassError, again: bool = False) -> None:
        super().__init__(error.detail)
        self.error, self.again = error, again


def failed(sentence: str, again: bool = False) -> S3Failure:
    return S3Failure(StoreUnavailable(sentence), again)


def no_bucket() -> S3Failure:
    return failed(_BUCKET)


@contextmanager
def translated() -> Iterator[None]:
    """Whatever is raised inside comes out as S3Failure."""
    try:
        yield
    except Exception as exc:
        # without its cause: that one may quote headers and addresses
        raise failure_of(exc) from None


def failure_of(exc: Exception) -> S3Failure:
    if isinstance(exc, S3Failure):
        return exc
    if isinstance(exc, SandglassError):
        return S3Failure(exc)
    if isinstance(exc, S3Error):
        return _of_code(exc.code or "", exc.response.status)
    if isinstance(exc, ServerError):
        return _of_status(exc.status_code)
    if isinstance(exc, InvalidResponseError):
        return _of_status(exc._code)
    if isinstance(exc, http.SSLError | ssl.SSLError):
        return failed("The object store's certificate is not trusted, or it speaks no TLS: set SANDGLASS_S3_CA_FILE, or SANDGLASS_S3_SECURE=no.")
    if isinstance(exc, http.NewConnectionError | ConnectionRefusedError):
        return failed(_ABSENT, True)
    if isinstance(exc, http.TimeoutError | TimeoutError):
        return failed("The object store did not answer in time.", True)
    if isinstance(exc, http.ProtocolError):
        return failed("The connection to the object store broke.", True)
    if isinstance(exc, http.LocationParseError | http.LocationValueError):
        return failed("That is no address of an object store: set SANDGLASS_S3_ENDPOINT.")
    if isinstance(exc, http.HTTPError | OSError):
        return failed(_ABSENT, True)
    return failed(_STRANGE, True)


def _of_code(code: str, status: int) -> S3Failure:
    if code in _MISSING:
        return S3Failure(NotFound("There is no such object."))
    if code in _SENTENCES:
        return failed(*_SENTENCES[code])
    if status >= 500 or status == 429:
        return _of_status(status)
    shown = code if re.fullmatch("[A-Za-z0-9]{1,40}", code) else str(status)
    return failed(f"The object store refuses the request ({shown}).")


def _of_status(status: int) -> S3Failure:
    if status == 507:
        return failed(_FULL)
    if status in (429, 503):
        return failed(_BUSY, True)
    if status in (401, 403):
        return failed(*_SENTENCES["AccessDenied"])
    if status >= 500:
        return failed(_FAILED, True)
    return failed(_STRANGE, True)
