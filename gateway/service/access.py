"""What the HTTP layer holds of one session (``api.SessionFacade``): checked arguments in, JSON-ready values out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ..clock import iso
from ..domain.audit import Tag
from ..domain.model import Artifact, EndReason, ExecutionState, SessionState
from ..domain.paths import check_pattern, clean_path, split_root
from ..domain.session_events import RecycleRequested
from ..errors import Conflict, NotFound, SessionEnded, TooLarge, Unavailable
from ..ports import DeclarationRow
from . import rebuild
from .api import Attachment, Sink, Trail
from .asking import ask
from .document import Document
from .keeping import read_sandbox
from .live import LiveSession
from .outputs import lines, text
from .run_views import execution_json, find, listed, trail_of, whole
from .sandboxes import Sandbox
from .telling import notice_json
from .uploads import Upload
from .world import World

Json = dict[str, Any]
ACTIVE_WAIT_S = 90.0
PIECE = 64 * 1024


class Access:
    """One caller's hold on a living session; owner and tenant were checked when it was given."""

    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self.session_id = session.session_id

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def ending(self) -> bool:
        return self._s.core.ending or self._s.core.state is SessionState.ENDED

    def to_json(self) -> Json:
        return self._s.to_json()

    def kernel_model(self) -> Json:
        s = self._s
        starting = s.core.state in (SessionState.NEW, SessionState.STARTING)
        return {
            "id": s.session_id, "name": s.profile.name, "last_activity": iso(s.row.last_activity),
            "execution_state": "starting" if starting else "busy" if s.core.busy else "idle", "connections": len(s.attachments),
        }  # fmt: skip

    async def notices(self) -> list[Json]:
        await self._s.told()
        rows = await self._s.world.records.list_notices(self.session_id)
        return [{k: v for k, v in notice_json(r).items() if k != "type"} for r in rows]

    # --- attachments --------------------------------------------------------------------------------------------------

    def attach(self, key: str, sink: Sink, *, after: int | None, jupyter: bool) -> Attachment:
        self._alive()
        return self._s.attachments.attach(key, sink, after=after, jupyter=jupyter)

    def from_client(self, key: str, message: bytes) -> None:
        self._s.traffic.from_client(key, message)

    async def room(self) -> None:
        sandbox = self._s.sandbox
        if sandbox is not None:
            await sandbox.link.room()

    def execution_id_of(self, msg_id: str) -> str | None:
        return self._s.runs.recent.get(msg_id)

    # --- lifetimes ----------------------------------------------------------------------------------------------------

    def _alive(self) -> None:
        if self._s.core.state is SessionState.ENDED:
            raise SessionEnded("The session has ended.")

    def keep_alive(self) -> None:
        self._alive()
        self._s.activity()

    def recycle(self) -> None:
        self._s.dispatch(RecycleRequested(EndReason.USER))
        self._s.audit_soon(Tag.USER_SESSION_RECYCLE)

    def end(self, by: str = "") -> None:
        self._s.end(by)

    async def interrupt(self) -> None:
        self._alive()
        await self._s.effects.interrupt()

    async def restart(self) -> None:
        await self._s.effects.restart()

    async def _active(self) -> Sandbox:
        """The session's sandbox; opens one when there is none. Raises Unavailable."""
        s = self._s
        self._alive()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ACTIVE_WAIT_S
        await s.when_taken_up(ACTIVE_WAIT_S)
        s.want()
        while not (s.core.state is SessionState.ACTIVE and s.sandbox is not None and s.sandbox.link.lost is None):
            changed, before = s.changed, s.core.state
            try:
                await asyncio.wait_for(changed.wait(), max(0.0, deadline - loop.time()))
            except TimeoutError:
                raise Unavailable("The session has no sandbox yet.") from None
            if s.core.state is SessionState.DORMANT and before is SessionState.DRAINING:
                s.want()  # a drain ends the work that came while a cell had its grace, and what that wanted
            elif s.core.state in (SessionState.DORMANT, SessionState.ENDED):
                raise s.effects.start_error or Unavailable("No sandbox could be started.")
        return s.sandbox

    # --- executions ---------------------------------------------------------------------------------------------------

    async def execute(
        self, code: str, *, timeout_s: float | None = None, expect_generation: int | None = None, allow_stdin: bool = False,
        stop_on_error: bool = False, max_output_bytes: int | None = None, inputs: Sequence[tuple[str, str]] = (),
        result_schema: Json | None = None, idempotency_key: str = "",
    ) -> str:  # fmt: skip
        self._alive()
        return await ask(
            self._s, code, timeout_s=timeout_s, expect_generation=expect_generation, allow_stdin=allow_stdin, stop_on_error=stop_on_error,
            max_output_bytes=max_output_bytes, inputs=inputs, result_schema=result_schema, idempotency_key=idempotency_key,
        )  # fmt: skip

    async def wait_execution(self, execution_id: str, timeout_s: float) -> bool:
        row, run = await find(self._s, execution_id)
        if run is None and row.state == ExecutionState.FINISHED:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                if run is None:  # the session is being taken up after a restart of the gateway
                    await self._s.taken_up.wait()
                    row, run = await find(self._s, execution_id)
                if run is not None:
                    await run.done.wait()
        except TimeoutError:
            return False
        return run is not None or row.state == ExecutionState.FINISHED

    async def execution_json(self, execution_id: str, *, outputs: bool = True) -> Json:
        row, run = await find(self._s, execution_id)
        return await whole(self._s, row, run) if outputs else execution_json(self._s, row, run)

    async def trail(self, execution_id: str) -> Trail:
        row, _ = await find(self._s, execution_id)
        return trail_of(self._s, row)

    async def output(self, execution_id: str, stream: str = "") -> AsyncIterator[bytes]:
        at = await self.trail(execution_id)
        journal = self._s.journal
        screen = self._s.world.screens.of(self._s.row.tenant)
        which = journal, at.msg_id, at.began, at.end, screen
        pieces = text(*which, stream) if stream else lines(*which)
        gathered = bytearray()
        async for piece in pieces:
            gathered += piece
            if len(gathered) >= PIECE:
                yield bytes(gathered)
                gathered.clear()
        yield bytes(gathered)

    async def list_executions(self) -> list[Json]:
        return await listed(self._s)

    async def cancel_execution(self, execution_id: str) -> None:
        _, run = await find(self._s, execution_id)
        if run is not None:
            self._s.runs.cancel(run)

    def answer_stdin(self, execution_id: str, value: str) -> None:
        run = self._s.runs.by_id(execution_id)
        if run is None or not run.forwarded:
            raise Conflict("That execution asks for nothing.")
        self._s.traffic.answer_stdin(run, value)

    # --- the transcript, and running it again ------------------------------------------------------------------------

    @property
    def document(self) -> Document:
        return Document(self._s.world, self._s.row, self._s)

    async def start_rebuild(self, cells: list[str] | None, *, timeout_s: float | None = None, allow_stdin: bool = False) -> Json:
        self._alive()
        return rebuild.rebuild_json(self._s, await rebuild.start(self, self._s, cells, timeout_s=timeout_s, allow_stdin=allow_stdin))

    def rebuild_json(self) -> Json:
        if self._s.rebuild is None:
            raise NotFound("Nothing was rebuilt in this session.")
        return rebuild.rebuild_json(self._s, self._s.rebuild)

    def stop_rebuild(self) -> None:
        rebuild.stop(self._s)

    # --- files --------------------------------------------------------------------------------------------------------

    def _readable(self) -> Sandbox | None:
        """The sandbox, where its files can be read: in quarantine too, when nothing else of it lives."""
        s = self._s
        holds = s.core.state in (SessionState.ACTIVE, SessionState.QUARANTINED)
        return s.sandbox if holds and s.sandbox is not None and s.sandbox.link.lost is None else None

    async def list_files(self) -> Json:
        s = self._s
        stored = {a.path: a for a in await s.world.records.list_artifacts(self.session_id)}
        files: list[Json] = []
        refused: list[Json] = []
        cut = False
        sandbox = self._readable()
        if sandbox is not None:
            plan, listing, cut = await s.keeper.plan(sandbox.link)
            kept = {f.path for f in (*plan.keep, *plan.unchanged)}
            refused = [{"path": path, "reason": str(why), "detail": why.sentence} for path, why in plan.refused]
            for f in listing:
                if f.kind == "file":
                    files.append(file_json(s.world, f.path, f.size, iso(f.mtime_ns / 1e9), f.path in kept, stored.get(f.path)))
        else:
            files = [file_json(s.world, a.path, a.size, iso(a.created_at), True, a) for a in stored.values()]
        return {"files": sorted(files, key=lambda f: f["path"]), "refused": refused, "live": sandbox is not None, "truncated": cut}

    async def read_file(self, path: str) -> AsyncIterator[bytes]:
        s = self._s
        path = clean_path(path)
        sandbox = self._readable()
        if sandbox is not None:
            chunks = read_sandbox(sandbox.link, path, s.profile.limits.workspace_bytes)
            async for chunk in s.world.inspector.admitted(path, chunks, s.world.pictures, (s.row.tenant, s.row.user)):
                yield chunk
            return
        artifact = await s.keeper.latest(path)
        _, stored = await s.world.handed_out(artifact)
        async for chunk in stored:
            yield chunk

    async def write_file(self, path: str, size: int, chunks: AsyncIterator[bytes], *, overwrite: bool) -> Json:
        s = self._s
        path = clean_path(path)
        if "/" not in path:
            path = f"in/{path}"
        if size > s.world.caps.upload_bytes:
            raise TooLarge(f"An upload may have at most {s.world.caps.upload_bytes // 2**20} MiB.")
        s.world.quotas.upload(s.row.tenant, s.row.user, size)
        sandbox = await self._active()
        s.activity()
        result = await Upload(s, sandbox, path, size).receive(chunks, overwrite=overwrite)
        s.activity()
        s.checkpoint_soon("")
        return result

    async def delete_file(self, path: str) -> None:
        s = self._s
        path = clean_path(path)
        self._alive()
        missing = not await remove_from_sandbox(s, path)
        if any(a.path == path for a in await s.world.records.list_artifacts(self.session_id)):
            await s.world.records.drop_artifact_path(self.session_id, path, s.world.clock.now())
            missing = False
        if missing:
            raise NotFound("There is no such file.")
        s.activity()

    # --- declarations and artifacts -----------------------------------------------------------------------------------

    async def declarations(self) -> list[Json]:
        rows = await self._s.world.records.list_declarations(self.session_id)
        return [_declaration_json(r) for r in rows]

    async def declare(self, pattern: str, keep: bool, source: str) -> Json:
        s = self._s
        self._alive()
        row = DeclarationRow(self.session_id, check_pattern(pattern), keep, source, s.world.clock.now())
        await s.effects.declare(row)
        s.activity()
        s.checkpoint_soon("")
        return _declaration_json(row)

    async def undeclare(self, pattern: str) -> None:
        self._alive()
        if not await self._s.world.records.delete_declaration(self.session_id, check_pattern(pattern)):
            raise NotFound("There is no such declaration.")
        self._s.activity()

    async def artifacts(self) -> list[Json]:
        return [artifact_json(a) for a in await self._s.world.records.list_artifacts(self.session_id)]


async def remove_from_sandbox(s: LiveSession, path: str) -> bool:
    """Remove a file from the session's sandbox; False where there is no such file, or no sandbox that is active."""
    if s.sandbox is None or s.core.state is not SessionState.ACTIVE:
        return False
    root, inner = split_root(path)
    stream = s.sandbox.link.open_file({"cmd": "delete", "root": root, "path": inner})
    try:
        await stream.result()
    except NotFound:
        return False
    finally:
        stream.abort()
    return True


def artifact_json(a: Any) -> Json:
    return {
        "artifact_id": a.artifact_id, "path": a.path, "sha256": a.sha256, "size": a.size, "mime": a.mime, "generation": a.generation,
        "created_at": iso(a.created_at), "execution_id": a.execution_id, "verdict": a.verdict,
    }  # fmt: skip


def _declaration_json(row: DeclarationRow) -> Json:
    return {"pattern": row.pattern, "keep": row.keep, "source": row.source, "created_at": iso(row.created_at)}


def file_json(world: World, path: str, size: int, mtime: str, declared: bool, stored: Artifact | None) -> Json:
    value: Json = {"path": path, "size": size, "mtime": mtime, "declared": declared, "stored": stored is not None}
    if stored is not None:
        value |= {"stored_at": iso(stored.created_at), "sha256": stored.sha256}
        if why := world.inspector.held_back(stored):
            value["held_back"] = why
    return value

