"""``/api/v1/sessions/{id}/files`` and artifacts: listing, uploads as a stream, downloads as a stream, deletion."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable

from tornado.web import stream_request_body

from ..clock import iso
from ..errors import BadRequest, PathRefused, TooLarge
from ..service.api import Json
from .base import Authenticated
from .download import Downloading
from .incoming import Incoming
from .models import bodies, queries

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class FilesHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        self.answer(await (await self.session_of(session_id, ended=True)).list_files())


class ArtifactsHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        self.answer({"artifacts": await (await self.session_of(session_id, ended=True)).artifacts()})


class ArtifactHandler(Downloading):
    async def delete(self, artifact_id: str) -> None:
        await self.gateway.delete_artifact(self.caller, artifact_id)
        self.no_content()

    async def get(self, artifact_id: str) -> None:
        found, chunks = await self.gateway.artifact(self.caller, artifact_id)
        await self.send_file(found["path"], chunks, found["size"])


class ArtifactLinkHandler(Authenticated):
    async def post(self, artifact_id: str) -> None:
        self.body(bodies.Nothing)
        await self.gateway.artifact(self.caller, artifact_id)  # no link to what could not be downloaded
        link, expires_at = self.deps.pages.issue_link(self.caller, artifact_id)
        url = f"{self.deps.url.rstrip('/')}/api/v1/artifacts/{artifact_id}/download?link={link}"
        self.answer({"url": url, "expires_at": iso(expires_at)}, 201)


class ArtifactDownloadHandler(Downloading):
    """By link: the caller must be who it was made for, and the artifact must still be there."""

    async def get(self, artifact_id: str) -> None:
        self.deps.pages.check_link(self.query(queries.Link).link, self.caller, artifact_id)
        found, chunks = await self.gateway.artifact(self.caller, artifact_id)
        await self.send_file(found["path"], chunks, found["size"])


@stream_request_body
class FileHandler(Downloading):
    """One file. An upload is handed on chunk by chunk; the client is read only as fast as the sandbox takes it."""

    _incoming: Incoming | None = None
    _stored: asyncio.Task[Json | Exception] | None = None

    async def prepare(self) -> None:
        await super().prepare()
        if _BAD_ESCAPE.search(self.request.path):
            raise PathRefused("The path has a broken percent escape.")
        if self.request.method == "PUT":
            await self._begin_upload(*self.path_args)

    async def _begin_upload(self, session_id: str, path: str) -> None:
        length = self.request.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise BadRequest("An upload needs a Content-Length; chunked transfers are not taken.")
        limit = self.deps.limits.upload_bytes
        if int(length) > limit:
            raise TooLarge(f"A file may have at most {limit} bytes.", limit=limit)
        overwrite = self.query(queries.Upload).overwrite
        session = await self.session_of(session_id)
        incoming = self._incoming = Incoming()
        upload = session.write_file(path, int(length), incoming.chunks(), overwrite=overwrite)
        self._stored = self.deps.tasks.spawn(_outcome(upload), "http-upload")
        self._stored.add_done_callback(self._upload_done)

    def _upload_done(self, task: asyncio.Task[Json | Exception]) -> None:
        assert self._incoming is not None
        self._incoming.nobody_reads()
        if self._incoming.ended or self.gone or task.cancelled():
            return
        # Refused in the middle: say so now, instead of taking in the rest of the file first.
        outcome = task.result()
        if isinstance(outcome, Exception) and not self._finished:
            self.log_exception(type(outcome), outcome, outcome.__traceback__)
            self.send_error(500, exc_info=(type(outcome), outcome, outcome.__traceback__))

    async def data_received(self, chunk: bytes) -> None:
        if self._incoming is not None:
            await self._incoming.put(chunk)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._incoming is not None:
            self._incoming.broke_off()

    async def put(self, session_id: str, path: str) -> None:
        if self._finished:
            return
        assert self._incoming is not None and self._stored is not None
        self._incoming.end()
        outcome = await self._stored
        if isinstance(outcome, Exception):
            raise outcome
        self.answer(outcome, 201)

    async def get(self, session_id: str, path: str) -> None:
        session = await self.session_of(session_id, ended=True)
        await self.send_file(path, session.read_file(path))

    async def delete(self, session_id: str, path: str) -> None:
        await (await self.session_of(session_id, ended=True)).delete_file(path)
        self.no_content()


async def _outcome(upload: Awaitable[Json]) -> Json | Exception:
    """The result or the error as a value: it is the request's own to report, not a background task's failure."""
    try:
        return await upload
    except Exception as error:
        return error
