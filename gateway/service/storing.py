"""One version of a file on its way into the store: bytes, then a row in the records; or nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncGenerator, Awaitable
from typing import Protocol, TypeVar

from ..domain.inspection import OK
from ..domain.model import Artifact
from ..errors import StoreUnavailable
from ..ports import Clock, ObjectStore, ObjectWriter, Records
from .sniffing import Look

STORE_S = 60.0
"""A store that takes or gives nothing for so long counts as down."""
STORE_RATE = 8 * 1024 * 1024
"""A commit may take so much longer: bytes a second at the least, for what a store still has to sync or to copy then."""
AT_ONCE = 256 * 1024
"""So much goes to the store in one piece: what comes from a client comes in small ones, and each costs a change of threads."""
T = TypeVar("T")


class Digest(Protocol):
    """One of ``hashlib``'s."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class Patience:
    """How long the store may take. Everything that waits for a store that neither answers nor fails would hang with it."""

    def __init__(self) -> None:
        self.store_s, self.store_rate = STORE_S, STORE_RATE

    async def of(self, call: Awaitable[T], size: int = 0) -> T:
        """The call's result. Raises StoreUnavailable when it takes too long; ``size``: bytes that it may have to work through."""
        try:
            return await asyncio.wait_for(call, self.store_s + size / self.store_rate)
        except TimeoutError:
            raise StoreUnavailable("The object store does not answer.") from None


class NewVersion:
    """Made by ``begin``; then ``write``, and either ``keep`` or ``drop``. The type is taken from the content as it passes.

    ``digest``: of the same bytes, which its owner counts: at 200 MB/s a hash is much of what an upload costs.
    """

    def __init__(self, store: ObjectStore, patience: Patience, key: str, path: str, writer: ObjectWriter, digest: Digest | None = None) -> None:
        self._store, self._patience, self._writer = store, patience, writer
        self._key = key
        self._counts = digest is None
        self._digest = digest or hashlib.sha256()
        self.path = path
        self.size = 0
        self.look = Look(path)
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self.checked = False
        """All of it was looked into, and is fine; an archive that was not gets its verdict later."""

    @classmethod
    async def begin(
        cls, store: ObjectStore, patience: Patience, path: str, *, tenant: str, user: str, digest: Digest | None = None
    ) -> NewVersion:
        """Raises StoreUnavailable."""
        key = object_key(tenant, user, secrets.token_hex(16))
        return cls(store, patience, key, path, await patience.of(store.writer(key)), digest)

    async def write(self, chunk: bytes) -> None:
        """Raises StoreUnavailable."""
        if self.add(chunk):
            await self.flush()

    def add(self, chunk: bytes) -> bool:
        """Take a chunk; True when there is enough for the store, to be sent with ``flush`` before the next one is taken."""
        if self._counts:
            self._digest.update(chunk)
        self.size += len(chunk)
        self.look.feed(chunk)
        self._gathered.append(chunk)
        self._gathered_bytes += len(chunk)
        return self._gathered_bytes >= AT_ONCE

    async def flush(self) -> None:
        """Raises StoreUnavailable."""
        data, self._gathered, self._gathered_bytes = b"".join(self._gathered), [], 0
        if data:
            await self._patience.of(self._writer.write(data))

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    async def keep(self, records: Records, clock: Clock, session_id: str, tenant: str, user: str, generation: int, execution_id: str) -> Artifact:
        """The row, written once the store has the bytes and says so. Raises StoreUnavailable, RecordsUnavailable."""
        await self.flush()
        if await self._patience.of(self._writer.commit(), self.size) != self.sha256:
            raise StoreUnavailable("The store took something else than was sent.")
        if await self._patience.of(self._store.stat(self._key)) != self.size:
            raise StoreUnavailable("The store does not hold what it took.")
        artifact = Artifact(
            artifact_id=self._key.rsplit("/", 1)[1], session_id=session_id, tenant=tenant, user=user, path=self.path, sha256=self.sha256,
            size=self.size, mime=self.look.mime, generation=generation, created_at=clock.now(), execution_id=execution_id,
            verdict="" if self.look.archive and not self.checked else str(self.look.rule or OK),
        )  # fmt: skip
        await records.add_artifact(artifact)
        return artifact

    async def drop(self) -> None:
        """Nothing of it stays."""
        with contextlib.suppress(StoreUnavailable):
            await self._patience.of(self._writer.abort())


async def read_stored(store: ObjectStore, patience: Patience, artifact: Artifact) -> AsyncGenerator[bytes, None]:
    """Its bytes. Raises StoreUnavailable, NotFound, Conflict (not what was stored)."""
    chunks = store.read(artifact_key(artifact))
    while chunk := await patience.of(anext(chunks, b"")):
        yield chunk


async def store_whole(store: ObjectStore, patience: Patience, key: str, data: bytes) -> None:
    """An object of a few bytes. Raises StoreUnavailable."""
    writer = await patience.of(store.writer(key))
    try:
        await patience.of(writer.write(data), len(data))
        await patience.of(writer.commit(), len(data))
    except BaseException:
        with contextlib.suppress(StoreUnavailable):
            await patience.of(writer.abort())
        raise


def derived_key(artifact: Artifact) -> str:
    """Where the copy of a picture lies that is handed out."""
    return artifact_key(artifact).replace("artifacts/", "derived/", 1)


def artifact_key(artifact: Artifact) -> str:
    return object_key(artifact.tenant, artifact.user, artifact.artifact_id)


def object_key(tenant: str, user: str, artifact_id: str) -> str:
    return f"artifacts/{_opaque(tenant)}/{_opaque(user)}/{artifact_id}"


def _opaque(name: str) -> str:
    """Object keys carry no names of people or tenants."""
    return hashlib.sha256(name.encode()).hexdigest()[:24]
