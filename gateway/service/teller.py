"""Turns what the session's table wants told into notices, one after the other, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from ..domain import texts
from ..domain.model import EndReason, NoticeKind
from ..domain.session_commands import Tell

if TYPE_CHECKING:
    from .live import LiveSession

Json = dict[str, Any]


class Teller:
    """``lost_files``, ``failed_files``, ``given_up``, ``end_text``: what the next notices of their kind will name."""

    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self._waiting: deque[Tell] = deque()
        self._task: asyncio.Task[None] | None = None
        self.lost_files: list[str] = []
        self.failed_files: list[Json] = []
        self.given_up: list[str] = []
        self.end_text = ""

    def queue(self, tell: Tell) -> None:
        self._waiting.append(tell)
        if self._task is None:
            self._task = self._s.spawn(self._run(), "tell")

    async def done(self, timeout_s: float | None = None) -> None:
        """Wait until everything queued so far is told."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._tell(self._waiting.popleft())
        finally:
            self._task = None

    async def _tell(self, tell: Tell) -> None:
        s, kind = self._s, tell.kind
        body: Json = {"reason": tell.reason, "text": tell.detail}
        if kind in (NoticeKind.IDLE_WARNING, NoticeKind.MAX_WARNING):
            await s.telling.warn(kind, tell.reason, tell.lead_s)
            return
        if kind is NoticeKind.EXTENDED:
            await s.telling.extended(tell.lead_s, tell.detail)
            return
        if kind is NoticeKind.VARIABLES_LOST:
            body["variables"] = [{"name": v.name, "type": v.type, "size": v.size} for v in s.lost_variables]
            body["text"] = texts.lost_text(s.lost_variables, tell.reason)
        elif kind is NoticeKind.RESTORED:
            if not s.restored and not self.failed_files:
                return
            body |= {"files": s.restored, "failed": self.failed_files}
            body["text"] = texts.restored_text(s.restored, self.failed_files)
        elif kind is NoticeKind.RECYCLED:
            body["kept_files"] = s.telling.kept
            body["text"] = (
                f"The sandbox ended because {texts.WHY_ENDED.get(EndReason(tell.reason), 'it ended')}." if tell.reason else "The sandbox ended."
            )
            await s.telling.tell(kind, body)
            s.traffic.say_between_cells(f"\n[Sandglass: {body['text']} The next execution opens a new one.]\n")
            s.traffic.say_status("idle")
            if self.lost_files:
                lost, self.lost_files = self.lost_files, []
                text = f"Files lost because they were not declared: {texts.names(lost)}."
                await s.telling.tell(NoticeKind.FILES_LOST, {"reason": tell.reason, "files": lost[:200], "text": text})
            return
        elif kind is NoticeKind.FILES_LOST and tell.detail:
            files, self.given_up = self.given_up, []
            body |= {"files": files[:200], "said": tell.detail}
            body["text"] = f"An administrator gave up what could not be stored ({tell.detail}). "
            body["text"] += f"Lost: {texts.names(files)}." if files else "Changes to files since they were last stored are lost."
        elif kind is NoticeKind.FILES_LOST:
            body["files"] = []
            body["text"] = "Changes to files since they were last stored are lost: " + texts.because(tell.reason) + "."
        elif kind is NoticeKind.KERNEL_DIED:
            body["text"] = f"{texts.sentence(tell.reason)} A new kernel starts in the same sandbox; files are still there."
        elif kind is NoticeKind.KERNEL_RESTARTED:
            body["text"] = "The kernel was restarted in the same sandbox; files are still there."
        elif kind is NoticeKind.QUARANTINED:
            body["text"] = "Declared files cannot be stored now. The sandbox is kept without any process until they can; "
            body["text"] += "you can list and download its files."
        elif kind is NoticeKind.START_FAILED:
            body["text"] = "No sandbox could be started. " + tell.detail
        elif kind is NoticeKind.ENDED:
            body |= {"said": self.end_text} if self.end_text else {}
            who = "An administrator ended the session. " if tell.reason == EndReason.ADMIN else "The session has ended. "
            body["text"] = who + (f"({self.end_text}) " if self.end_text else "") + "Stored files can still be downloaded."
        await s.telling.tell(kind, body)
