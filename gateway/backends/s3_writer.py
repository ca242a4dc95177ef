"""An upload to S3: one PUT while it fits into a part, parts from then on, two of them in memory at the most.

Parts go under a key of the upload's own (``uploads/``). Once the store has put them together and says the right size, it
copies the object to its key, with the SHA-256 that is known only by now; so nothing is ever under a key that is not whole,
hashed and looked at (docs/adr/0008).
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ..errors import StoreUnavailable
from .s3_client import Debris
from .s3_settings import MIB

if TYPE_CHECKING:
    from .s3_store import S3Store

PART_BYTES = 8 * MIB
MAX_PARTS = 10_000
"""As S3 allows: objects of up to 78 GiB."""
CONFIRM_S = 5.0


class S3Writer:
    """``ports.ObjectWriter``. ``held``: bytes in memory now; ``peak``: the most there ever were."""

    def __init__(self, store: S3Store, key: str, part_bytes: int) -> None:
        self._store, self._client = store, store.client
        self._key = key
        self._part_bytes = part_bytes
        self._token = secrets.token_hex(16)
        self._staged = store.settings.key("uploads", self._token)
        self._part = bytearray()
        self._flying = 0
        self._flight: asyncio.Future[None] | None = None
        self._upload_id = ""
        self._etags: list[str] = []
        self._size = 0
        self._digest = hashlib.sha256()
        self._named = False
        """Something may be under the key."""
        self._broken = self._over = False
        self._lock = asyncio.Lock()
        self.peak = 0

    @property
    def held(self) -> int:
        return len(self._part) + self._flying

    async def write(self, data: bytes) -> None:
        async with self._lock:
            self._must_be_open()
            self._broken = True  # until this is through; half a write must not become an object
            view = memoryview(data)
            while view:
                if len(self._part) >= self._part_bytes:
                    await self._take_off()
                room = self._part_bytes - len(self._part)
                self._part += view[:room]
                view = view[room:]
                self.peak = max(self.peak, self.held)
            self._size += len(data)
            self._broken = False

    async def commit(self) -> str:
        """When it is cancelled, the object may be there all the same, unless ``abort`` follows."""
        async with self._lock:
            self._must_be_open()
            self._broken = True
            await self._landed()
            self._start(self._commit_parts() if self._flight else self._commit_small())
            await self._landed()
            self._over = True
            self._drop()
            return self._digest.hexdigest()

    async def abort(self) -> None:
        """Fine at any time; after ``commit`` it does nothing. What the store does not let go now, it is asked for again later."""
        if self._over:
            return
        self._over = True
        if self._flight is not None and not self._flight.done():
            # so that we know what there is to take away
            await asyncio.wait({self._flight}, timeout=self._store.patience.read_s)
            self._flight.cancel()
        self._drop()
        if self._upload_id or self._named:
            staged = self._staged if self._upload_id else ""
            await self._store.clean(Debris(self._token, staged, self._upload_id, self._key if self._named else ""))

    def _must_be_open(self) -> None:
        if self._over or self._broken:
            raise StoreUnavailable("The upload is over.")

    def _drop(self) -> None:
        self._part = bytearray()
        self._flying = 0

    async def _commit_small(self) -> None:
        await self._store.call(self._digest.update, self._part)
        digest = self._digest.hexdigest()
        self._named = True
        etag = await self._store.call(self._client.put, self._key, self._part, digest, self._token)
        await self._confirm(etag, digest)

    async def _commit_parts(self) -> None:
        await self._fly(self._part)
        digest = self._digest.hexdigest()
        await self._store.call(self._client.complete, self._staged, self._upload_id, self._etags, self._size)
        self._named = True
        slack = self._size / self._store.patience.copied_a_s
        etag = await self._store.call(self._client.copy, self._staged, self._key, self._size, digest, self._token, slack_s=slack)
        await self._confirm(etag, digest)
        await self._store.clean(Debris(self._token, self._staged))

    async def _confirm(self, etag: str, digest: str) -> None:
        await self._store.call(self._client.confirm, self._key, self._size, etag, digest, self._token, deadline_s=CONFIRM_S)

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _take_off(self) -> None:
        """Send the part that is full, once the one before has arrived."""
        await self._landed()
        part, self._part = self._part, bytearray()
        self._flying = len(part)
        self._start(self._fly(part))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._flight = asyncio.ensure_future(work)  # noqa: TID251 - awaited by the next write, by commit or by abort
        self._flight.add_done_callback(_seen)

    async def _landed(self) -> None:
        """A cancellation of the waiting does not cancel what is on its way. Raises what that failed with."""
        if self._flight is not None:
            await asyncio.wait({self._flight})
            self._flight.result()

    async def _fly(self, part: bytearray) -> None:
        store = self._store
        if len(self._etags) >= MAX_PARTS:
            raise StoreUnavailable("The object store takes no object of this size.")
        if not self._upload_id:
            self._upload_id = await store.call(self._client.begin, self._staged)
        await store.call(self._digest.update, part)
        # the client takes any bytes-like body; a copy would be a third part in memory
        self._etags.append(await store.call(self._client.part, self._staged, self._upload_id, len(self._etags) + 1, part))
        self._flying = 0


def _seen(flight: asyncio.Future[None]) -> None:
    """Nobody may be left to ask how it ended."""
    if not flight.cancelled():
        flight.exception()
