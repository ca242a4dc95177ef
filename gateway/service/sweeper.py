"""Retention: removes what is old enough, once an hour and at the start, a few rows at a time.

What is due is decided by ``domain.retention``, whether the clock may be believed by ``domain.trust``. Nothing is kept in
memory from one look to the next: a gateway that is killed in the middle goes on where the records say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from itertools import groupby

from ..domain.audit import Tag
from ..domain.model import EndReason, SessionState
from ..domain.retention import DAY_S, Due, Rows, StoredPath, cut, due_versions, only_marks
from ..domain.trust import Seen, look
from ..errors import SandglassError
from ..ports import AuditRow
from .gateway import Gateway
from .sweep_disk import Strays, sweep_journals

log = logging.getLogger("sandglass.retention")
EVERY_S = 3600.0
AGAIN_S = 300.0
"""After a look that something hindered."""
STRAYS_EVERY = 6
"""Looks, between two listings of the whole store."""
BATCH = 50
"""Paths, artifacts or journals at a time."""
ROWS = 500
ENABLED_S = 2 * DAY_S
"""Longer than any page session from before a user was disabled."""
CLOCK = "retention_clock"

_ORDER = (
    (Rows.EXECUTIONS, "history_s", Tag.RETENTION_EXECUTION_DELETE),
    (Rows.NOTICES, "history_s", Tag.RETENTION_NOTICE_DELETE),
    (Rows.SANDBOXES, "history_s", Tag.RETENTION_SANDBOX_DELETE),
    (Rows.CELLS, "transcripts_s", Tag.RETENTION_CELL_DELETE),
    (Rows.SESSIONS, "sessions_s", Tag.RETENTION_SESSION_DELETE),
    (Rows.AUDIT, "audit_s", Tag.RETENTION_AUDIT_DELETE),
)
"""What a session's row waits for comes before it."""


class Sweeper:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._world = gateway.world
        self._strays = Strays(gateway.world, gateway.disposal)
        self._looks = 0

    async def run(self) -> None:
        await self._gateway.adopted.wait()
        while True:
            try:
                good = await self.sweep()
            except Exception:
                # a defect in one look must not be the last one
                log.exception("a look at what is old failed")
                good = False
            await asyncio.sleep(EVERY_S if good else AGAIN_S)

    async def sweep(self) -> bool:
        """One look at everything; False when something hindered a part of it, or the clock is not believed."""
        now = self._world.clock.now()
        good = await self._tried("deleted artifacts", self._doomed)  # whatever the clock says: somebody wanted it
        if not await self._tried("clock", lambda: self._believe(now)):
            return False
        for name, part in (
            ("dormant sessions", lambda: self._dormant(now)),
            ("artifacts", lambda: self._versions(now)),
            ("journals", lambda: sweep_journals(self._gateway, now, BATCH)), ("rows", lambda: self._rows(now)),
            ("enabled users", lambda: self._world.records.forget_enabled(now - ENABLED_S)),
            ("revocations", lambda: self._world.records.forget_revocations(now - ENABLED_S)),
        ):  # fmt: skip
            good &= await self._tried(name, part)
        if self._looks % STRAYS_EVERY == 0:
            good &= await self._tried("objects", lambda: self._strays.sweep(now))
        self._looks += good
        return good

    async def _tried(self, name: str, part: Callable[[], Awaitable[object]]) -> bool:
        try:
            return await part() is not False
        except SandglassError as error:
            log.warning("retention is hindered, will try again", extra={"part": name, "why": error.code, "detail": error.detail})
            return False

    async def _believe(self, now: float) -> bool:
        """See ``domain.trust``. The first look ever compares with the newest entry of the audit."""
        clock, records = self._world.clock, self._world.records
        note = await records.get_note(CLOCK)
        last = Seen(**note) if note else None
        if last is None and (newest := await records.list_audit(limit=1)):
            last = Seen(newest[0].at, 0.0, "")
        seen, believed = look(last, now, clock.boottime(), clock.boot_id())
        await records.put_note(CLOCK, asdict(seen))
        if not believed:
            log.error(
                "the clock is far ahead of what it should be; nothing is removed by age until it is set right, or has stayed so for three days",
                extra={"ahead_days": round((now - seen.wall) / DAY_S, 1), "held_days": round(seen.held_s / DAY_S, 2)},
            )
        return believed

    async def _dormant(self, now: float) -> None:
        kept_s = self._world.retention.dormant_s
        if not kept_s:
            return
        for session in list(self._gateway.live.values()):
            row = session.row
            if session.core.state is SessionState.DORMANT and not session.runs.open and row.last_activity < cut(kept_s, now):
                detail = {"reason": EndReason.RETENTION, "idle_days": round((now - row.last_activity) / DAY_S, 1)}
                await self._world.records.add_audit(AuditRow(now, Tag.RETENTION_SESSION_END, row.tenant, row.user, row.session_id, detail))
                if session.core.state is SessionState.DORMANT:  # nobody woke it while that was written
                    session.effects.end(EndReason.RETENTION)

    # ------------------------------------------------------------------ stored versions

    async def _doomed(self) -> bool:
        """Finish what was begun: here, by a user, or by a gateway that was killed."""
        after, good = 0, True
        while batch := await self._world.records.doomed_artifacts(after, BATCH):
            after = batch[-1][0]
            good &= await self._gateway.disposal.finish([artifact for _, artifact in batch]) == len(batch)
        return good

    async def _versions(self, now: float) -> bool:
        after, doomed = ("", ""), 0
        while page := await self._world.records.stored_paths(after, BATCH):
            after = (page[-1].session_id, page[-1].path)
            for session_id, paths in groupby(page, key=lambda path: path.session_id):
                doomed += await self._doom(session_id, list(paths), now)
            await asyncio.sleep(0)
        return await self._doomed() if doomed else True

    async def _doom(self, session_id: str, paths: list[StoredPath], now: float) -> int:
        due: list[Due] = []
        for path in paths:
            due += due_versions(path, self._world.retention, now)
            if path.versions and only_marks(path):
                await self._world.records.drop_marks(session_id, path.path)
        if not due:
            return 0
        why = {str(each.why) for each in due}
        return await self._gateway.disposal.doom(
            Tag.RETENTION_ARTIFACT_DELETE, [each.version.artifact_id for each in due], tenant=paths[0].tenant, user=paths[0].user,
            session_id=session_id, bytes=sum(each.version.size for each in due), why=sorted(why),
        )  # fmt: skip

    # ------------------------------------------------------------------ rows

    async def _rows(self, now: float) -> None:
        for rows, member, tag in _ORDER:
            before, after = cut(getattr(self._world.retention, member), now), 0
            while True:
                done = await self._world.records.purge(rows, before, after, ROWS, AuditRow(now, tag, "", ""))
                await asyncio.sleep(0)
                if done.next is None:
                    break
                after = done.next
