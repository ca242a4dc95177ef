"""``/api/v1/sessions/{id}/executions/{eid}/events``: one execution as server-sent events; and its whole output as a download."""

from __future__ import annotations

import contextlib
import json
import secrets
from functools import partial
from typing import Any

from tornado import iostream

from ..domain.sensitive import Screen
from ..jsonio import dumps
from ..protocol import jupyter
from ..service.api import Attachment, Json, SessionFacade, Trail
from ..service.journal import Entry, EntryKind, Flag
from ..service.outputs import event_of
from .download import Downloading
from .events import RETRY_MS, EventSink, Streaming
from .expiry import Expiry
from .models.executions import OutputQuery
from .render import frame


class ExecutionSink(EventSink):
    """Only what concerns one execution, in its own words. ``done_at``: the entry that says that it is finished, 0 while none did."""

    def __init__(self, trail: Trail, screen: Screen) -> None:
        super().__init__()
        self._trail = trail
        self._screen = screen
        self.done_at = 0

    def render(self, entry: Entry) -> bytes:
        if self.done_at:
            return b""
        if entry.kind is EntryKind.MESSAGE:
            return self._message(entry) if entry.parent == self._trail.msg_id and not entry.target else b""
        if entry.kind is EntryKind.NOTICE:
            return _notice(entry)
        return self._state(entry) if entry.kind is EntryKind.STATE else b""

    def gap(self, after: int, oldest: int) -> None:
        self.look_again = True
        self.push(frame("warning", dumps({"type": "warning", "code": "gap", "after": after, "oldest": oldest, "text": _GAP}), oldest - 1))

    def _message(self, entry: Entry) -> bytes:
        if entry.flags & Flag.INPUT:
            return frame("started", dumps({"type": "started", "execution_id": self._trail.execution_id, **_count(entry)}), entry.index)
        event = event_of(entry, self._screen) if entry.flags & Flag.OUTPUT else None
        return b"" if event is None else frame(event["type"], dumps(event), entry.index)

    def _state(self, entry: Entry) -> bytes:
        if self._trail.execution_id.encode() not in entry.body:
            return b""
        execution = json.loads(entry.body).get("execution")
        if not isinstance(execution, dict) or execution.get("execution_id") != self._trail.execution_id:
            return b""
        if execution["state"] == "finished":
            self.done_at = entry.index
            self.end()
        elif execution["state"] == "queued":
            return b"".join(frame("warning", dumps({"type": "warning", "code": "hint", **hint}), entry.index) for hint in execution.get("hints", ()))
        return b""


_GAP = "What came before is no longer kept; the stream goes on with the oldest that is."


def _count(entry: Entry) -> Json:
    with contextlib.suppress(ValueError):
        count = jupyter.decode(entry.body).content.get("execution_count")
        return {"execution_count": count if isinstance(count, int) else None}
    return {"execution_count": None}


def _notice(entry: Entry) -> bytes:
    """A loss changes the generation; every other notice is a warning."""
    notice: dict[str, Any] = json.loads(entry.body)
    if notice.get("kind") == "variables_lost":
        return frame("generation_changed", dumps({**notice, "type": "generation_changed", "next_action": "rebuild"}), entry.index)
    return frame("warning", dumps({**notice, "type": "warning", "code": notice.get("kind", "notice")}), entry.index)


class ExecutionEventsHandler(Streaming):
    async def get(self, session_id: str, execution_id: str) -> None:
        asked = self.resume_point()
        session = await self.session_of(session_id)
        trail = await session.trail(execution_id)
        sink = ExecutionSink(trail, self.deps.screens.of(self.caller.tenant))
        self.sink = sink
        sink.push(f"retry: {RETRY_MS}\n\n".encode())
        attachment = session.attach(f"sse:{secrets.token_hex(8)}", sink, after=max(asked or 0, trail.first), jupyter=False)
        expiry = Expiry(self.deps.clock, self.caller.expires_at, partial(sink.closed, "shutdown" if self.by_cookie else "unauthenticated"))
        try:
            with contextlib.suppress(iostream.StreamClosedError):
                await self.stream(sink, partial(self._finish_if_over, session, attachment, sink, execution_id))
                if sink.done_at and not sink.flow.lost:
                    await self._say_done(session, sink, execution_id, trail)
        finally:
            expiry.cancel()
            sink.lose()
            attachment.detach()

    async def _finish_if_over(self, session: SessionFacade, attachment: Attachment, sink: ExecutionSink, execution_id: str) -> None:
        """Its last word may not be kept any more: whoever has passed all there was of it is told all the same."""
        if sink.done_at or sink.ended:
            return
        trail = await session.trail(execution_id)
        if trail.finished and attachment.cursor >= trail.end:
            sink.done_at = trail.end + 1
            sink.end()

    async def _say_done(self, session: SessionFacade, sink: ExecutionSink, execution_id: str, trail: Trail) -> None:
        execution = await session.execution_json(execution_id, outputs=False)
        now = execution["session"]["generation"]
        if execution["status"] == "lost" and now != execution["generation"]:
            view = session.to_json()
            changed = {
                "type": "generation_changed", "from": execution["generation"], "generation": now, "reason": view.get("lost_because", ""),
                "variables": view.get("lost_variables", []), "next_action": "rebuild",
            }  # fmt: skip
            self.write(frame("generation_changed", dumps(changed)))
        self.write(frame("done", dumps({"type": "done", "execution": execution, "untrusted": True}), sink.done_at))
        await self.flush()


class OutputHandler(Downloading):
    async def get(self, session_id: str, execution_id: str) -> None:
        stream = self.query(OutputQuery).stream or ""
        session = await self.session_of(session_id)
        await self.send_file(f"{execution_id}.{f'{stream}.txt' if stream else 'jsonl'}", session.output(execution_id, stream))
