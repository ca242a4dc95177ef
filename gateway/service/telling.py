"""Notices: what a user is told about lifetimes, losses, restores and limits, on every surface."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain import texts
from ..domain.model import EndReason, NoticeKind
from ..errors import SandglassError
from ..ports import NoticeRow
from .views import wall

if TYPE_CHECKING:
    from .live import LiveSession

Json = dict[str, Any]
TOLD_FIRST = frozenset({NoticeKind.VARIABLES_LOST, NoticeKind.RESTORED, NoticeKind.FILES_LOST, NoticeKind.QUARANTINED, NoticeKind.START_FAILED})
"""Kinds that open the output of the next execution, so that no client can miss them."""
WARNINGS = frozenset({NoticeKind.IDLE_WARNING, NoticeKind.MAX_WARNING})


class Telling:
    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self.warnings: list[Json] = []
        self._first: deque[NoticeRow] = deque(maxlen=50)
        self.undeclared: list[str] = []
        self.kept: list[Json] = []
        self.refused: list[Json] = []

    async def load(self) -> None:
        """After a restart of the gateway: what has not been told yet."""
        rows = await self._s.world.records.list_notices(self._s.session_id, undelivered_only=True)
        self._first.extend(r for r in rows if r.kind in TOLD_FIRST)

    async def tell(self, kind: NoticeKind, body: Json) -> None:
        """Record it, and say it on the event stream; REST shows it, the next execution opens with it where it must."""
        row = self._s.notice_row(kind, body)
        if kind not in TOLD_FIRST:
            row.delivered = True

        async def add() -> None:
            row.notice_id = await self._s.world.records.add_notice(row)

        await self._s.insist(add)
        if kind in TOLD_FIRST:
            self._first.append(row)
        self._s.write_notice(notice_json(row))

    async def warn(self, kind: NoticeKind, reason: str, lead_s: float) -> None:
        """A timer runs out soon: what will be lost, what is kept, what can be done."""
        s = self._s
        await self.look_at_files()
        idle = kind is NoticeKind.IDLE_WARNING
        deadline = s.row.idle_deadline if idle else s.row.max_deadline
        names = texts.names(v.name for v in s.variables)
        why = "it is idle" if idle else "it reaches its maximum lifetime, which you cannot extend"
        text = f"This sandbox ends in about {texts.duration(lead_s)} because {why}. "
        text += f"Variables that will be lost: {names}. " if names else "No variables are held. "
        if self.undeclared:
            text += f"Files that will be lost unless you keep them: {texts.names(self.undeclared)}. "
        text += "Declared files are kept. " + ("Keep it alive, keep more files, or download them." if idle else "Keep more files, or download them.")
        actions = ["keep_alive", "declare", "download"] if idle else ["declare", "download"]
        body = {
            "text": text, "reason": reason, "deadline": iso(deadline) if deadline else None, "lead_s": lead_s,
            "variables": [asdict(v) for v in s.variables], "undeclared_files": self.undeclared[:200],
            "kept_files": self.kept[:200], "actions": actions,
        }  # fmt: skip
        self.warnings = [w for w in self.warnings if w["kind"] != kind] + [{"kind": kind, "at": iso(s.world.clock.now()), **body}]
        await self.tell(kind, body)
        s.traffic.say_between_cells(f"\n[Sandglass: {text}]\n")
        s.announce()

    async def look_at_files(self) -> None:
        """What a recycle would lose and keep now; best effort, a warning is never late for it."""
        sandbox = self._s.sandbox
        if sandbox is None:
            return
        try:
            plan, _, _ = await self._s.keeper.plan(sandbox.link)
        except SandglassError:
            return
        self.undeclared = [f.path for f in plan.undeclared]
        self.kept = [{"path": f.path, "size": f.size} for f in (*plan.unchanged, *plan.keep)]

    def clear_warnings(self, *, idle_only: bool = False) -> None:
        self.warnings = [w for w in self.warnings if idle_only and w["kind"] != NoticeKind.IDLE_WARNING]

    async def extended(self, seconds: float, text: str) -> None:
        """An admin moved the maximum: what warned of the old one is settled."""
        s = self._s
        self.warnings = [w for w in self.warnings if w["kind"] != NoticeKind.MAX_WARNING]
        until = wall(s, s.core.max_deadline)
        said = f"An administrator extended this sandbox's maximum lifetime by {texts.duration(seconds)}" + (f" ({text})." if text else ".")
        body = {"text": said, "reason": EndReason.ADMIN, "said": text, "seconds": seconds, "deadline": iso(until) if until else None}
        await self.tell(NoticeKind.EXTENDED, body)
        s.traffic.say_between_cells(f"\n[Sandglass: {said}]\n")
        s.announce()

    def take_told_first(self) -> str:
        """The text that opens the next execution's output; empty when there is nothing new."""
        if not self._first:
            return ""
        rows, self._first = list(self._first), deque(maxlen=50)
        ids = [r.notice_id for r in rows]
        self._s.spawn(self._s.insist(lambda: self._s.world.records.mark_delivered(self._s.session_id, ids)), "delivered")
        return "".join(f"[Sandglass: {r.body.get('text', r.kind)}]\n" for r in rows)


def notice_json(row: NoticeRow) -> Json:
    return {
        "type": "notice", "notice_id": row.notice_id, "kind": row.kind, "generation": row.generation, "at": iso(row.at), **row.body,
    }  # fmt: skip
