"""What the HTTP layer holds of one session (``api.SessionFacade``): checked arguments in, JSON-ready values out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ..clock import iso
from ..domain.audit import Tag
from ..domain.files import MAX_DECLARATIONS
from ..domain.model import Artifact, EndReason, ExecutionState, SessionState
from ..domain.paths import check_pattern, clean_path, split_root
from ..domain.session_events import RecycleRequested
from ..errors import Conflict, GenerationMismatch, NotFound, QuotaExceeded, SessionEnded, TooLarge, Unavailable
from ..ports import AuditRow, DeclarationRow
from ..protocol import jupyter
from . import rebuild
from .api import Attachment, Sink
from .document import Document
from .keeping import read_sandbox
from .live import LiveSession
from .outputs import collect, presented
from .sandboxes import Sandbox
from .telling import notice_json
from .uploads import Upload
from .world import World

Json = dict[str, Any]
REST_KEY = "rest"
MAX_CODE = 4 * 1024 * 1024
ACTIVE_WAIT_S = 90.0


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

    def end(self, by: str = "") -> None:
        self._s.effects.end(EndReason.USER)
        self._s.spawn(self._audit_end(by), "audit")

    async def _audit_end(self, by: str) -> None:
        s = self._s
        detail = {"reason": EndReason.USER, "by": by or s.row.user}
        row = AuditRow(s.world.clock.now(), Tag.USER_SESSION_END, s.row.tenant, s.row.user, s.session_id, detail)
        await s.insist(lambda: s.world.records.add_audit(row))

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

    async def execute(self, code: str, *, timeout_s: float | None = None, expect_generation: int | None = None, allow_stdin: bool = False) -> str:
        s = self._s
        self._alive()
        if len(code) > MAX_CODE:
            raise TooLarge(f"Code may have at most {MAX_CODE // 2**20} MiB.")
        if expect_generation is not None and expect_generation != s.core.generation:
            raise GenerationMismatch(
                f"The session is in generation {s.core.generation}, not {expect_generation}: its variables were lost.",
                generation=s.core.generation, lost_because=s.lost_because, lost_variables=[v.name for v in s.lost_variables],
                kept_files=s.telling.kept, next_action="rebuild",
            )  # fmt: skip
        limit = s.profile.limits.execution_s_agent
        timeout = limit if timeout_s is None else min(timeout_s, s.profile.limits.execution_s_person)
        header = jupyter.make_header("execute_request", f"{REST_KEY}-{s.session_id}")
        content = {
            "code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": allow_stdin, "stop_on_error": True,
        }  # fmt: skip
        body = jupyter.build("shell", header, {}, {}, content)
        run = s.runs.add(header["msg_id"], header, body, code, key=REST_KEY, source="rest", silent=False, timeout_s=timeout)
        await s.runs.record(run)
        s.want()
        return run.row.execution_id

    async def wait_execution(self, execution_id: str, timeout_s: float) -> bool:
        row, run = await self._s.runs.find(execution_id)
        if run is None:
            return row.state == ExecutionState.FINISHED
        try:
            await asyncio.wait_for(run.done.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def execution_json(self, execution_id: str, *, outputs: bool = True) -> Json:
        row, run = await self._s.runs.find(execution_id)
        value = self._s.runs.to_json(row, run)
        if outputs:
            found = collect(self._s.journal, row.msg_id, row.data.get("first", 0), row.data.get("last"))
            value |= presented(found, self._s.world.screens.of(self._s.row.tenant))
            left_out = value.pop("bytes_left_out")
            if left_out:
                value["truncated"] = (value["truncated"] or {"bytes_dropped": 0, "messages_dropped": 0}) | {"bytes_left_out": left_out}
            value["notices"] = [n for n in await self.notices() if row.created_at <= _seconds(n["at"]) and n["generation"] >= row.generation][:20]
        return value

    async def list_executions(self) -> list[Json]:
        s = self._s
        s.runs.settle()
        rows = await s.world.records.list_executions(self.session_id)
        known = {r.execution_id for r in rows}
        values = [s.runs.to_json(run.row if run else row, run) for row in rows for run in (s.runs.by_id(row.execution_id),)]
        waiting = [r for r in s.runs.open.values() if r.row.execution_id not in known]
        return values + [s.runs.to_json(r.row, r) for r in waiting]

    async def cancel_execution(self, execution_id: str) -> None:
        _, run = await self._s.runs.find(execution_id)
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
            async for chunk in s.world.inspector.admitted(path, chunks, s.world.pictures):
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
        rows = await s.world.records.list_declarations(self.session_id)
        if len(rows) >= MAX_DECLARATIONS and row.pattern not in {r.pattern for r in rows}:
            raise QuotaExceeded(f"A session may have at most {MAX_DECLARATIONS} declarations.")
        await s.world.records.put_declaration(row)
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


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
