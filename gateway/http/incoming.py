"""An upload's body on its way from the socket to whoever stores it: a few chunks in memory, never more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from ..errors import BadRequest

AHEAD = 4
"""Chunks (``server.CHUNK_BYTES`` at the most) that may wait."""


class Incoming:
    """One writer, one reader. The writer waits while the reader is behind; the reader hears when the writer is gone."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self.ended = False
        self._broken = False
        self._deaf = False

    async def put(self, chunk: bytes) -> None:
        """Hand over a chunk; returns when more may come. Once nobody reads, chunks are thrown away."""
        if self._deaf:
            return
        self._chunks.append(chunk)
        self._ready.set()
        while len(self._chunks) >= AHEAD and not self._deaf:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """The body is complete."""
        self.ended = True
        self._ready.set()

    def broke_off(self) -> None:
        """The client went away before the end."""
        self._broken = not self.ended
        self._ready.set()

    def nobody_reads(self) -> None:
        """The reader has stopped, done or not."""
        self._deaf = True
        self._chunks.clear()
        self._room.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body. Raises BadRequest when it ends early."""
        while True:
            if self._broken:
                raise BadRequest("The upload ended before all of the file had come.")
            if self._chunks:
                chunk = self._chunks.popleft()
                self._room.set()
                yield chunk
            elif self.ended:
                return
            else:
                self._ready.clear()
                await self._ready.wait()
