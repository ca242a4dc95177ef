"""Files of a session, as requests."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO
from urllib.parse import quote

import httpx2

from .errors import SandglassError, Unreachable
from .models import File
from .transport import Content, Patience, Transport, unreachable

CHUNK = 256 * 1024
TRANSFER_S = 300.0
"""Without a byte."""


def url_of(root: str, path: str) -> str:
    return f"{root}/files/{quote(path, safe='/')}"


async def upload(transport: Transport, root: str, source: bytes | str | os.PathLike[str], to: str, overwrite: bool) -> File:
    """Bytes, or the file of this path; a large one is sent as it is read."""
    if isinstance(source, bytes):
        content: Content = source
        size = len(source)
    else:
        local = Path(source)
        size = (await asyncio.to_thread(local.stat)).st_size
        content = lambda: _chunks(local, size)  # noqa: E731  # read again at each try
        to = to or local.name
    if not to:
        raise ValueError("upload: say which path the file gets (to=...)")
    made = await transport.json(
        "PUT", url_of(root, to), params={"overwrite": "1"} if overwrite else None, content=content, answer_s=TRANSFER_S,
        headers={"Content-Length": str(size), "Content-Type": "application/octet-stream"}, repeat=overwrite,
    )  # fmt: skip
    return File.of(made)


async def _chunks(path: Path, size: int) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while size > 0 and (chunk := await asyncio.to_thread(file.read, min(CHUNK, size))):
            size -= len(chunk)  # a file that grows meanwhile is sent as long as it was
            yield chunk


async def fetch(transport: Transport, path: str) -> bytes:
    return bytes((await transport.request("GET", path, answer_s=TRANSFER_S)).content)


async def save(transport: Transport, path: str, to: Path) -> str:
    """Write it to ``to``, which is there only once it is whole; the SHA-256."""
    partial = to.with_name(f".{to.name}.part")
    patience = Patience(transport.patience_s)
    try:
        while True:
            try:
                with await asyncio.to_thread(partial.open, "wb") as file:
                    digest = await _into(transport, path, file)
                await asyncio.to_thread(partial.replace, to)
                return digest
            except Unreachable as error:
                await patience.pause(error)
            except SandglassError as error:
                if error.retry_after is None:
                    raise
                await patience.pause(error, error.retry_after)
    finally:
        partial.unlink(missing_ok=True)


async def _into(transport: Transport, path: str, file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    async with transport.open("GET", path, answer_s=TRANSFER_S) as response:
        try:
            async for chunk in response.aiter_bytes(CHUNK):
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)
        except httpx2.TransportError as error:
            raise unreachable(error, sent=True) from error
    return digest.hexdigest()
