"""An upload on its way: looked at, written into the sandbox and stored, all while it comes in.

It is refused as soon as its content is known not to be what its name says, and then nothing of it stays anywhere. The store
failing costs nothing but time: the next checkpoint stores what the sandbox has.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from ..errors import StoreUnavailable, Unavailable
from .inspection import Finding
from .keeping import write_sandbox
from .live import LiveSession
from .sandboxes import Sandbox
from .storing import NewVersion

log = logging.getLogger("sandglass.files")
Json = dict[str, Any]


class Upload:
    def __init__(self, session: LiveSession, sandbox: Sandbox, path: str, size: int) -> None:
        self._s, self._sandbox = session, sandbox
        self._path, self._size = path, size
        self._inspection = session.world.inspector.begin(path, (session.row.tenant, session.row.user))
        self._mime = ""
        self._digest = hashlib.sha256()
        self._version: NewVersion | None = None
        self._storing: asyncio.Task[None] | None = None
        self._failed: StoreUnavailable | None = None

    async def receive(self, chunks: AsyncIterator[bytes], *, overwrite: bool) -> Json:
        """``{"path", "size", "sha256", "mime", "artifact_id"}``; the last is null while it is not stored.

        Raises ArtifactRejected, TooLarge, Conflict (exists), Unavailable.
        """
        generation = self._s.core.generation
        await self._begin()
        try:
            result = await write_sandbox(self._sandbox.link, self._path, self._size, self._digest, self._passing(chunks), overwrite=overwrite)
        except BaseException:
            await self._give_up()
            raise
        finally:
            self._inspection.close()
        artifact_id = await self._keep(generation)
        return {"path": self._path, **result, "mime": self._mime, "artifact_id": artifact_id}

    async def _passing(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The bytes, each looked at and stored before the sandbox gets it. Raises ArtifactRejected, Unavailable."""
        judged = False
        async for chunk in chunks:
            if self._inspection.feed(chunk) and not judged:
                judged = True
                self._insist(self._inspection.early())
            self._digest.update(chunk)
            await self._store(chunk)
            yield chunk
        # An archive is known only now; the sandbox shows a file once all of it was sent, and this is before that.
        found = await self._inspection.finding()
        self._insist(found)
        self._mime = found.mime
        if self._version is not None:
            self._version.checked = True

    def _insist(self, found: Finding) -> None:
        if found.rule is not None:
            raise found.refusal(self._path)

    async def _begin(self) -> None:
        try:
            if await self._s.keeper.counts_as_kept(self._path, self._size):
                self._version = await self._s.keeper.begin(self._path, self._digest)
        except Unavailable as error:
            self._later(error)

    async def _store(self, chunk: bytes) -> None:
        """The store works on one piece while the sandbox gets the next; neither waits for more than the other's last."""
        if self._version is not None and self._version.add(chunk):
            await self._settle()
            if self._version is not None:
                self._storing = self._s.world.tasks.spawn(self._flush(self._version), "upload-store")
                await asyncio.sleep(0)  # it takes what was gathered before the next chunk comes

    async def _flush(self, version: NewVersion) -> None:
        try:
            await version.flush()
        except StoreUnavailable as error:
            self._failed = error

    async def _settle(self) -> None:
        """Wait for the piece on its way. When the store failed, the version is given up."""
        if self._storing is not None:
            await self._storing
            self._storing = None
        if self._failed is not None:
            error, self._failed = self._failed, None
            await self._give_up()
            self._later(error)

    async def _keep(self, generation: int) -> str | None:
        await self._settle()
        if self._version is None:
            return None
        try:
            artifact = await self._s.keeper.keep_upload(self._sandbox.link, self._version, generation)
        except Unavailable as error:
            await self._give_up()
            self._later(error)
            return None
        except BaseException:
            await self._give_up()
            raise
        return artifact.artifact_id

    async def _give_up(self) -> None:
        version, self._version = self._version, None
        storing, self._storing = self._storing, None
        if storing is not None:
            await storing
        if version is not None:
            await version.drop()

    def _later(self, error: Unavailable) -> None:
        log.warning("an upload is stored later", extra={"session": self._s.session_id, "why": error.code})
