"""``/api/v1/sessions/{id}/transcript``, ``.../notebook``, ``.../rebuild``: what a session ran, to read, take away, delete and run again."""

from __future__ import annotations

from .base import Authenticated
from .download import Downloading
from .models import bodies, queries


class TranscriptHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        asked = self.query(queries.Transcript)
        session = await self.session_of(session_id, ended=True)
        self.answer(await session.document.to_json(after=asked.after, limit=asked.limit, outputs=asked.outputs))

    async def delete(self, session_id: str) -> None:
        session = await self.session_of(session_id, ended=True)
        await session.document.delete(self.caller.user)
        self.no_content()


class NotebookHandler(Downloading):
    async def get(self, session_id: str) -> None:
        document = (await self.session_of(session_id, ended=True)).document
        await self.send_file(document.name.replace("/", "_"), document.notebook())


class RebuildHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        self.answer((await self.session_of(session_id)).rebuild_json())

    async def post(self, session_id: str) -> None:
        body = self.body(bodies.NewRebuild)
        session = await self.session_of(session_id)
        made = await session.start_rebuild(body.cells, timeout_s=body.timeout_s, allow_stdin=body.allow_stdin)
        self.set_header("Location", f"/api/v1/sessions/{session_id}/rebuild")
        self.answer(made, 202)

    async def delete(self, session_id: str) -> None:
        session = await self.session_of(session_id)
        session.stop_rebuild()
        self.answer(session.rebuild_json())
