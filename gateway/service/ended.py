"""What is left of a session that ended: its record, its notices, its executions, its stored files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NoReturn

from ..clock import iso
from ..domain.model import Artifact
from ..domain.paths import clean_path
from ..errors import NotFound, SessionEnded
from ..ports import SessionRow
from .access import artifact_json, file_json
from .api import Attachment, Sink, Trail
from .document import Document
from .run_views import ended_execution, row_json
from .telling import notice_json
from .views import ended_brief, ended_json
from .world import World

Json = dict[str, Any]


class EndedAccess:
    """Reads what is stored; everything that would need the session raises SessionEnded."""

    def __init__(self, world: World, row: SessionRow, tier: str) -> None:
        self._world = world
        self._row = row
        self._tier = tier
        self.session_id = row.session_id

    @property
    def ending(self) -> bool:
        return True

    def _over(self) -> NoReturn:
        raise SessionEnded("The session has ended.", reason_ended=self._row.reason)

    def to_json(self) -> Json:
        return ended_json(self._row, self._tier, self._world.clock.now())

    def kernel_model(self) -> Json:
        self._over()

    async def notices(self) -> list[Json]:
        return [{k: v for k, v in notice_json(r).items() if k != "type"} for r in await self._world.records.list_notices(self.session_id)]

    async def artifacts(self) -> list[Json]:
        return [artifact_json(a) for a in await self._world.records.list_artifacts(self.session_id)]

    async def list_files(self) -> Json:
        stored = await self._world.records.list_artifacts(self.session_id)
        files = [file_json(self._world, a.path, a.size, iso(a.created_at), True, a) for a in stored]
        return {"files": files, "refused": [], "live": False, "truncated": False}

    async def _latest(self, path: str) -> Artifact:
        for artifact in await self._world.records.list_artifacts(self.session_id):
            if artifact.path == path:
                return artifact
        raise NotFound("There is no such file.")

    async def read_file(self, path: str) -> AsyncIterator[bytes]:
        artifact = await self._latest(clean_path(path))
        _, chunks = await self._world.handed_out(artifact)
        async for chunk in chunks:
            yield chunk

    @property
    def document(self) -> Document:
        return Document(self._world, self._row, None)

    async def start_rebuild(self, cells: list[str] | None, *, timeout_s: float | None = None, allow_stdin: bool = False) -> Json:
        self._over()

    def rebuild_json(self) -> Json:
        self._over()

    def stop_rebuild(self) -> None:
        self._over()

    async def declarations(self) -> list[Json]:
        rows = await self._world.records.list_declarations(self.session_id)
        return [{"pattern": r.pattern, "keep": r.keep, "source": r.source, "created_at": iso(r.created_at)} for r in rows]

    def end(self, by: str = "") -> None:
        """It has ended already."""

    def attach(self, key: str, sink: Sink, *, after: int | None, jupyter: bool) -> Attachment:
        self._over()

    def from_client(self, key: str, message: bytes) -> None:
        self._over()

    async def room(self) -> None:
        self._over()

    def execution_id_of(self, msg_id: str) -> str | None:
        return None

    def keep_alive(self) -> None:
        self._over()

    def recycle(self) -> None:
        self._over()

    async def interrupt(self) -> None:
        self._over()

    async def restart(self) -> None:
        self._over()

    async def execute(self, code: str, **options: Any) -> str:
        self._over()

    async def trail(self, execution_id: str) -> Trail:
        self._over()

    async def output(self, execution_id: str, stream: str = "") -> AsyncIterator[bytes]:
        self._over()
        yield b""

    async def wait_execution(self, execution_id: str, timeout_s: float) -> bool:
        return True

    async def execution_json(self, execution_id: str, *, outputs: bool = True) -> Json:
        row = await self._world.records.get_execution(execution_id)
        if row is None or row.session_id != self.session_id:
            raise NotFound("There is no such execution.")
        return await ended_execution(self._world, row, ended_brief(self._row))

    async def list_executions(self) -> list[Json]:
        return [row_json(row, ended_brief(self._row)) for row in await self._world.records.list_executions(self.session_id)]

    async def cancel_execution(self, execution_id: str) -> None:
        self._over()

    def answer_stdin(self, execution_id: str, value: str) -> None:
        self._over()

    async def write_file(self, path: str, size: int, chunks: AsyncIterator[bytes], *, overwrite: bool) -> Json:
        self._over()

    async def delete_file(self, path: str) -> None:
        self._over()

    async def declare(self, pattern: str, keep: bool, source: str) -> Json:
        self._over()

    async def undeclare(self, pattern: str) -> None:
        self._over()
