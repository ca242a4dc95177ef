"""Pictures as they are handed out: decoded and encoded anew in a disposable sandbox, so that nothing but a picture is left.

What hides in a picture (a polyglot, a program behind its end, an exploit for a decoder, where it was taken) stays behind. The
stored original is what a restore uses; the copy lies beside it in the store, under the original's name, and goes with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ..domain.filetypes import type_of
from ..domain.inspection import Rule
from ..domain.model import Artifact
from ..domain.paths import printable
from ..errors import ArtifactRejected, NotFound
from .disposable import Given, Job, Owner, WorkFailed, once
from .sniffing import sniff
from .storing import Patience, derived_key, read_stored, store_whole

if TYPE_CHECKING:
    from .world import World

log = logging.getLogger("sandglass.files")
KINDS = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff"))
MOST_BYTES = 32 * 1024**2
"""A larger picture is not handed out: original and copy are held in memory."""
WITHIN_S = 30.0
CODE = """
def encode_anew():
    import warnings
    from PIL import Image, ImageOps, ImageSequence
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    Image.MAX_IMAGE_PIXELS = 100_000_000
    with Image.open("in/picture", formats=["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"]) as given:
        kind, frames, pixels = given.format, [], 0
        for frame in ImageSequence.Iterator(given):
            pixels += frame.width * frame.height
            if pixels > 2 * Image.MAX_IMAGE_PIXELS:
                raise ValueError("too many pixels")
            clean = frame.copy()
            try:
                clean = ImageOps.exif_transpose(clean)
            except Exception:
                pass  # what says how to turn it makes no sense
            clean.info = {k: v for k, v in frame.info.items() if k in ("transparency", "duration", "loop")}
            frames.append(clean)
    more = {"save_all": True, "append_images": frames[1:]} if len(frames) > 1 else {}
    frames[0].save("picture", kind, **({"quality": 92} if kind == "JPEG" else {}), **more)
encode_anew()
"""


class Pictures:
    """``anew``: False where pictures are handed out as they were stored."""

    def __init__(self, world: World, anew: bool) -> None:
        self._world, self._anew = world, anew
        self._patience = Patience()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def concerns(self, mime: str) -> bool:
        return self._anew and mime in KINDS

    @property
    def concerns_any(self) -> bool:
        return self._anew

    async def derived(self, artifact: Artifact) -> tuple[int, AsyncIterator[bytes]]:
        """The copy's size and bytes; made at the first time. Raises ArtifactRejected, Unavailable, NotFound."""
        key = derived_key(artifact)
        lock = self._locks.setdefault(artifact.artifact_id, asyncio.Lock())
        async with lock:
            try:
                size = await self._patience.of(self._world.store.stat(key))
            except NotFound:
                self._bounded(artifact.size, artifact.path)
                original = b"".join([chunk async for chunk in read_stored(self._world.store, self._patience, artifact)])
                clean = await self._reencode(original, artifact.path, artifact.mime, (artifact.tenant, artifact.user))
                await store_whole(self._world.store, self._patience, key, clean)
                if await self._world.records.get_artifact(artifact.artifact_id) is None:
                    await self._patience.of(self._world.store.delete(key))  # it was deleted meanwhile
                    raise NotFound("There is no such artifact.") from None
                size = len(clean)
        return size, self._world.store.read(key)

    async def clean(self, path: str, mime: str, chunks: AsyncIterator[bytes], owner: Owner) -> bytes:
        """The copy of a file that is not stored. Raises ArtifactRejected, Unavailable."""
        original = bytearray()
        async for chunk in chunks:
            original += chunk
            self._bounded(len(original), path)
        return await self._reencode(bytes(original), path, mime, owner)

    def _bounded(self, size: int, path: str) -> None:
        if size > MOST_BYTES:
            raise _refused(path)

    async def _reencode(self, original: bytes, path: str, mime: str, owner: Owner) -> bytes:
        given = Given("in/picture", len(original), once(original))

        def is_one(clean: bytes) -> bool:
            return type_of(clean, path, sniff(clean)) == mime

        try:
            return await self._world.disposables.run(owner, Job(CODE, (given,), "picture", MOST_BYTES, WITHIN_S, is_one))
        except WorkFailed as error:
            log.info("a picture was not encoded anew", extra={"why": str(error)})
            raise _refused(path) from None


def _refused(path: str) -> ArtifactRejected:
    return ArtifactRejected(Rule.PICTURE.sentence, rule=str(Rule.PICTURE), path=printable(path))
