"""``run_code`` and ``rebuild``: begun, watched with progress told live, and ended when the caller gives up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import QuotaExceeded, SandglassError, SessionEnded, Unavailable
from ..protocol import jupyter
from ..service.api import Attachment, SessionFacade
from ..service.journal import Entry, EntryKind, Flag
from . import answers
from .answers import Answer
from .arguments import Rebuild, RunCode
from .call import Call

HEARTBEAT_S = 10.0
"""So often progress is told while nothing is printed, so that a client's own time limit sees life."""
SPACING_S = 0.25
WORDS = 400
LONG_S = 7 * 24 * 3600.0
"""An execution has a limit of its own; this wait only stands behind it."""


class Watch:
    """A reader of the session's journal that remembers the last thing printed; it never makes the session wait."""

    queued = 0

    def __init__(self, session: SessionFacade, execution_id: str) -> None:
        self._session = session
        self._execution_id = execution_id
        self._last: Entry | None = None
        self.changed = asyncio.Event()
        self.over = ""

    def deliver(self, entry: Entry) -> int:
        if entry.kind is EntryKind.MESSAGE and entry.flags & Flag.OUTPUT:
            if not self._execution_id or self._session.execution_id_of(entry.parent) == self._execution_id:
                self._last = entry
                self.changed.set()
        elif entry.kind is EntryKind.STATE:
            self.changed.set()
        return 0

    async def flushed(self) -> None:
        return

    def gap(self, after: int, oldest: int) -> None:
        """Only the last words count here."""

    def closed(self, code: str) -> None:
        self.over = code
        self.changed.set()

    def words(self) -> str:
        """The last line printed since the last look; empty when there is none."""
        entry, self._last = self._last, None
        if entry is None:
            return ""
        try:
            message = jupyter.decode(bytes(entry.body))
            if message.msg_type != "stream":
                return f"[{message.msg_type}]"
            lines = str(message.content.get("text", "")).strip().splitlines()
        except ValueError:  # kernels are not trusted
            return ""
        return lines[-1][-WORDS:] if lines else ""


async def follow(
    call: Call, session: SessionFacade, execution_id: str, finished: Callable[[], Awaitable[bool]], *, after: int | None = None
) -> bool:
    """Wait until ``finished`` returns, telling progress meanwhile; what it returned. Raises Unavailable when the gateway stops.

    ``execution_id``: whose words are told; empty: anybody's. ``after``: the journal's index behind which they begin.
    """
    watch = Watch(session, execution_id)
    attachment: Attachment | None = None
    try:
        attachment = session.attach(f"mcp:{id(watch):x}", watch, after=after, jupyter=False)
    except QuotaExceeded:
        pass  # progress then tells the time only
    done = call.service.tasks.spawn(_outcome(finished), "mcp-wait")
    try:
        while not done.done():
            changed = call.service.tasks.spawn(_set(watch.changed), "mcp-watch")
            await asyncio.wait({done, changed}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            watch.changed.clear()
            if done.done():
                break
            if watch.over == "shutdown" or call.service.closing:
                raise Unavailable("The gateway is being stopped; what runs goes on. Ask session_status later.", execution_id=execution_id)
            await call.report(watch.words() or f"running for {time.monotonic() - call.began:.0f} s")
            await asyncio.wait({done}, timeout=SPACING_S)
        outcome = done.result()
    finally:
        done.cancel()
        if attachment is not None:
            attachment.detach()
    if isinstance(outcome, Exception):
        raise outcome
    return bool(outcome)


async def _outcome(finished: Callable[[], Awaitable[bool]]) -> bool | Exception:
    """An error as a value: it is the call's own to report."""
    try:
        return await finished()
    except Exception as error:
        return error


async def _set(event: asyncio.Event) -> None:
    await event.wait()


async def run_code(call: Call, args: RunCode) -> Answer:
    session = await call.obtain(args.session, args.profile)
    after: int = session.to_json()["last_event"]
    start = session.execute(args.code, timeout_s=args.timeout_s, expect_generation=args.expect_generation)
    begun = call.service.tasks.spawn(_begin(start), "mcp-execute")
    try:
        # whatever becomes of the caller meanwhile, an execution that was taken on is known here, and ended with the call
        execution_id = await asyncio.shield(begun)
        if isinstance(execution_id, Exception):
            raise execution_id
        await follow(call, session, execution_id, lambda: session.wait_execution(execution_id, LONG_S), after=after)
    except asyncio.CancelledError:
        call.undo(_cancel(session, begun))
        raise
    return await show(call, session, execution_id, args.max_output_chars)


async def _begin(start: Awaitable[str]) -> str | SandglassError:
    try:
        return await start
    except SandglassError as error:
        return error


async def _cancel(session: SessionFacade, begun: asyncio.Task[Any]) -> None:
    execution_id = await begun
    if isinstance(execution_id, str):
        await session.cancel_execution(execution_id)


async def show(call: Call, session: SessionFacade, execution_id: str, most: int) -> Answer:
    """An execution; its outputs only for a token that may read results."""
    readable = call.permits("results:read")
    answer = answers.execution(await session.execution_json(execution_id, outputs=readable), most)
    if not readable:
        answer.lines.append("Its outputs are withheld: the token lacks the scope results:read.")
        answer.fields["withheld"] = "results:read"
    return answer


async def rebuild(call: Call, args: Rebuild) -> Answer:
    session = await call.find(args.session)
    began = await session.start_rebuild(args.cells, timeout_s=args.timeout_s)

    async def ended() -> bool:
        while (now := session.rebuild_json())["rebuild_id"] == began["rebuild_id"] and now["state"] == "running":
            current = next((c["execution_id"] for c in now["cells"] if c["execution_id"] and not c["exit_reason"]), None)
            if current is None or not await session.wait_execution(current, LONG_S):
                await asyncio.sleep(SPACING_S)  # the next cell is about to be asked for
        return True

    try:
        await follow(call, session, "", ended)
    except asyncio.CancelledError:
        call.undo(_stop(session, began["rebuild_id"]))
        raise
    now = session.rebuild_json()
    if now["rebuild_id"] != began["rebuild_id"]:
        raise SessionEnded("Another rebuild took this one's place.")
    lines = [f"Rebuild {now['state']}: {now['done']} of {now['total']} cells ran. {now['detail']}".strip()]
    if now["missing"]:
        lines.append(f"Still missing: {', '.join(now['missing'][: answers.MOST_NAMES])}.")
    return Answer({"rebuild": now | {"cells": now["cells"][:200]}}, lines, failed=now["state"] != "done")


async def _stop(session: SessionFacade, rebuild_id: str) -> None:
    if session.rebuild_json()["rebuild_id"] == rebuild_id:
        session.stop_rebuild()
