"""``/api/v1/sessions/{id}/transcript``, ``.../notebook``, ``.../rebuild``: what a session ran, to read, take away, delete and run again."""

from __future__ import annotations

from ..domain.rebuild import MAX_STEPS
from ..errors import BadRequest
from ..service.document import PAGE_CELLS
from .auth import require_scope
from .base import Authenticated
from .body import Field
from .download import Downloading
from .models.executions import TIMEOUT_S

REBUILD = {
    "cells": Field(list, max_chars=128, most=MAX_STEPS),
    "timeout_s": Field(float, least=0.001, most=TIMEOUT_S),
    "allow_stdin": Field(bool, default=False),
}


class TranscriptHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        require_scope(self.caller, "results:read")
        after, limit = self._number("after", 0), self._number("limit", PAGE_CELLS)
        outputs = self.flag("outputs") if self.get_query_argument("outputs", "") else True
        session = await self.session_of(session_id, ended=True)
        self.answer(await session.document.to_json(after=after, limit=limit, outputs=outputs))

    async def delete(self, session_id: str) -> None:
        require_scope(self.caller, "sessions:write")
        session = await self.session_of(session_id, ended=True)
        await session.document.delete(self.caller.user)
        self.no_content()

    def _number(self, name: str, default: int) -> int:
        text = self.get_query_argument(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise BadRequest(f"?{name}= must be a whole number.")
        return int(text)


class NotebookHandler(Downloading):
    scope = "results:read"

    async def get(self, session_id: str) -> None:
        document = (await self.session_of(session_id, ended=True)).document
        await self.send_file(document.name.replace("/", "_"), document.notebook())


class RebuildHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        require_scope(self.caller, "results:read")
        self.answer((await self.session_of(session_id)).rebuild_json())

    async def post(self, session_id: str) -> None:
        require_scope(self.caller, "execute")
        body = self.json_body(REBUILD)
        session = await self.session_of(session_id)
        made = await session.start_rebuild(body["cells"], timeout_s=body["timeout_s"], allow_stdin=body["allow_stdin"])
        self.set_header("Location", f"/api/v1/sessions/{session_id}/rebuild")
        self.answer(made, 202)

    async def delete(self, session_id: str) -> None:
        require_scope(self.caller, "execute")
        session = await self.session_of(session_id)
        session.stop_rebuild()
        self.answer(session.rebuild_json())
