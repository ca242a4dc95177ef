"""The object store in a bucket of an S3 server.

``<prefix>/objects/<key>`` is an object, with its SHA-256 beside it as metadata; ``<prefix>/uploads/`` what is still being
written. Requests block, so they run in a few threads of the store's own, bounded in time; one that failed in a way that may
pass is repeated after a random pause until its deadline. Every request here may be repeated: an object's content never
changes, and an upload's token says whose it is.

On some servers a key may not be another's folder (``a`` beside ``a/b``); none of the gateway's keys is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from ..domain.paths import check_key
from ..errors import PathRefused, StoreUnavailable
from ..ports import Clock
from .s3_client import CONNECTIONS, LISTED_AT_ONCE, Debris, S3Client
from .s3_errors import S3Failure, failed
from .s3_reader import S3Reader
from .s3_settings import Patience, S3Settings
from .s3_writer import PART_BYTES, S3Writer

log = logging.getLogger("sandglass.store")
OPEN_S = 10.0
CHECK_S = 3.0
_DEBRIS = 1000

T = TypeVar("T")


class S3Store:
    """``ports.ObjectStore``. ``repeated``: how many requests were tried again. Raises StoreUnavailable for a CA file that is none."""

    def __init__(self, settings: S3Settings, clock: Clock, *, patience: Patience | None = None, part_bytes: int = PART_BYTES) -> None:
        self.settings = settings
        self.patience = patience or Patience()
        self._clock = clock
        self._part_bytes = part_bytes
        self.errors = self.repeated = 0
        self._prepare_later = False
        self._debris: deque[Debris] = deque(maxlen=_DEBRIS)
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="s3")
        try:
            self.client = S3Client(settings, self.patience)
        except S3Failure as failure:
            raise failure.error from None

    async def open(self) -> None:
        """Look for the bucket, remove what killed uploads left.

        Raises StoreUnavailable where somebody has to set something. A store that is down for now does not keep the gateway from
        starting: ``check`` says so, and whatever comes first makes up for it.
        """
        try:
            await self._prepare()
        except S3Failure as failure:
            self.errors += 1
            if not failure.again:
                raise failure.error from None
            self._prepare_later = True
            log.warning("the object store does not serve yet", extra={"why": failure.error.detail})

    async def _prepare(self) -> None:
        if self.settings.create_bucket:
            await self._try(self._make_bucket, OPEN_S)
        await self._try(self._sweep, OPEN_S, slack_s=60.0)
        self._prepare_later = False

    async def _make_up(self) -> None:
        """For a start while the store was down. Raises StoreUnavailable."""
        try:
            await self._prepare()
        except S3Failure as failure:
            self.errors += 1
            raise failure.error from None

    def _make_bucket(self) -> None:
        try:
            self.client.bucket_serves()
        except S3Failure as failure:
            if failure.again:
                raise
            self.client.make_bucket()

    def _sweep(self) -> None:
        """Uploads of a gateway that was killed; also the first request of all, whose answer says what is wrong with the settings."""
        old = self._clock.now() - self.patience.leftover_s
        folder = self.settings.key("uploads", "")
        for key, written in self.client.page(folder, ""):
            if written < old:
                self.client.delete(key)
        after = ""
        while True:
            try:
                page, after = self.client.uploads(self.settings.key("", "").rstrip("/") + "/", after)
            except S3Failure as failure:
                if failure.again:
                    raise
                log.info("the object store does not list uploads", extra={"why": failure.error.detail})
                return
            for key, upload_id, begun in page:
                if begun < old:
                    self.client.abort(key, upload_id)
            if not after:
                return

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.client.close()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(self, function: Callable[..., T], *args: object, deadline_s: float = 0.0, slack_s: float = 0.0) -> T:
        """Run it in a thread of ours, again where that may help. Raises our errors, StoreUnavailable above all."""
        try:
            return await self._try(partial(function, *args), deadline_s or self.patience.deadline_s, slack_s=slack_s)
        except S3Failure as failure:
            if isinstance(failure.error, StoreUnavailable):
                self.errors += 1
            raise failure.error from None

    async def _try(self, function: Callable[[], T], deadline_s: float, *, slack_s: float = 0.0) -> T:
        """``slack_s``: how much longer than usual one try may take. Raises S3Failure."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(deadline_s, self.patience.deadline_s)
        tries = 0
        while True:
            try:
                return await self._once(function, until + self.patience.connect_s + self.patience.read_s + slack_s)
            except S3Failure as failure:
                pause = self.patience.pause(tries, random.random())
                if not failure.again or loop.time() + pause > until:
                    raise
            tries += 1
            self.repeated += 1
            await asyncio.sleep(pause)

    async def _once(self, function: Callable[[], T], until: float) -> T:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, function)
        except RuntimeError:
            raise failed("The object store is closed.") from None
        try:
            async with asyncio.timeout_at(until):
                return await future
        except TimeoutError:
            # a store that sends a byte now and then: its thread goes on, nobody waits for it
            raise failed("The object store did not answer in time.") from None

    def _later(self, function: Callable[[], None]) -> None:
        """Without waiting, for cleaning up when the caller was cancelled."""
        try:
            self._threads.submit(function)
        except RuntimeError:
            function()

    async def clean(self, rest: Debris) -> None:
        """Take away what an upload left; what cannot be now is remembered for ``check``, and found by age after a ``kill -9``."""
        try:
            await self._try(partial(self.client.clean, rest), CHECK_S)
        except S3Failure as failure:
            self._debris.append(rest)
            log.warning("an upload's rest could not be removed", extra={"why": failure.error.detail})

    # --- objects ------------------------------------------------------------------------------------------------------

    def _key(self, key: str) -> str:
        return self.settings.key("objects", check_key(key))

    async def writer(self, key: str) -> S3Writer:
        writer = S3Writer(self, self._key(key), self._part_bytes)
        if self._prepare_later:
            await self._make_up()
        return writer

    async def read(self, key: str) -> AsyncIterator[bytes]:
        reader = S3Reader(self.client, self._key(key))
        try:
            while data := await self.call(reader.next):
                yield data
        finally:
            self._later(reader.close)

    async def stat(self, key: str) -> int:
        return (await self.call(self.client.head, self._key(key))).size

    async def delete(self, key: str) -> None:
        await self.call(self.client.delete, self._key(key))

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """In the order of their bytes."""
        if "/" in prefix:
            check_key(prefix.rpartition("/")[0])
        top = self.settings.key("objects", "")
        after, more = "", True
        while more:
            page = await self.call(self.client.page, top + prefix, after)
            more = len(page) >= LISTED_AT_ONCE
            for whole, _ in page:
                if whole <= after or not whole.startswith(top + prefix):
                    raise StoreUnavailable("The object store lists what was not asked for.")
                after = whole
                key = whole.removeprefix(top)
                try:
                    yield check_key(key)
                except PathRefused:
                    continue  # somebody else's

    async def check(self) -> None:
        """One request without a body. It does not see a full store: that shows at the next upload."""
        if self._prepare_later:
            await self._make_up()
        await self.call(self.client.bucket_serves, deadline_s=CHECK_S)
        for _ in range(len(self._debris)):
            await self.clean(self._debris.popleft())
