"""Sending bytes that nobody vouches for: always a download, streamed at the client's pace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from urllib.parse import quote

from tornado import iostream

from ..errors import SandglassError
from .access import shown
from .base import Authenticated
from .headers import DOWNLOAD_CSP

log = logging.getLogger("sandglass.http")
STALL_S = 120.0
"""A client that takes nothing for so long gets no more: it holds a stream of the sandbox open."""


class Downloading(Authenticated):
    async def send_file(self, path: str, chunks: AsyncIterator[bytes], size: int | None = None) -> None:
        """Stream ``chunks`` as an attachment with the name of ``path``'s last part.

        Errors before the first byte come out as usual; later ones cut the connection, so that nobody takes half a file
        for a whole one.
        """
        try:
            first = await anext(chunks, b"")
            self.set_header("Content-Type", "application/octet-stream")
            self.set_header("Content-Disposition", disposition(path))
            self.set_header("Content-Security-Policy", DOWNLOAD_CSP)
            if size is not None:
                self.set_header("Content-Length", str(size))
            self.write(first)
            await self._flushed()
            async for chunk in chunks:
                self.write(chunk)
                await self._flushed()
            await self.finish()
        except iostream.StreamClosedError:
            log.debug("a download was left", extra={"path": shown(self.request.path)})
        except Exception as error:
            if not self._headers_written:
                raise
            ours = None if isinstance(error, SandglassError) else error  # a defect is shown with its place
            log.warning("a download broke off", extra={"path": shown(self.request.path), "why": type(error).__name__}, exc_info=ours)
            self.detach().close()
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    async def _flushed(self) -> None:
        try:
            await asyncio.wait_for(self.flush(), STALL_S)
        except TimeoutError:
            log.info("a download stalled", extra={"path": shown(self.request.path)})
            raise


def disposition(path: str) -> str:
    """``Content-Disposition`` for a download (RFC 6266): an ASCII stand-in, and the real name in ``filename*``."""
    name = path.rsplit("/", 1)[-1] or "file"
    # Control and direction-changing characters would let a name show as another one in the browser's dialog.
    name = "".join(c if c.isprintable() else "_" for c in name)[:255]
    plain = "".join(c if c.isascii() and c not in '"\\%' else "_" for c in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
