"""What a gateway finds when it starts: its sessions in the records, its containers in the engine, and what to make of both.

Known sandboxes are taken up again and go on; unknown containers of this instance, and half-done removals, are finished;
nothing else in the engine is touched.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from ..domain.model import EndReason, Profile, SandboxState, SessionState, Variable
from ..domain.session_commands import KillUser, Persist
from ..domain.session_events import SandboxGone, StartFailed
from ..domain.session_state import Phase, Session
from ..errors import SandglassError
from ..ports import SandboxFacts, SandboxRow, SessionRow
from . import rebuild, unfinished
from .gateway import Gateway
from .live import LiveSession
from .session_record import core_of

log = logging.getLogger("sandglass.adoption")
Json = dict[str, Any]


def _variables(items: object) -> list[Variable]:
    return [Variable(**item) for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _why_gone(fact: SandboxFacts | None) -> EndReason:
    if fact is None:
        return EndReason.HOST_LOST
    return EndReason.OUT_OF_MEMORY if fact.oom_killed else EndReason.CRASH


class Adoption:
    def __init__(self, gateway: Gateway, instance: str) -> None:
        self._gateway = gateway
        self._world = gateway.world
        self._instance = instance

    async def load(self) -> None:
        """Take up every session that has not ended, from the records alone; the engine is not asked yet."""
        rows = await self._world.records.list_sessions(live_only=True, limit=100_000)
        for row in rows:
            profile = self._world.profiles.get(row.profile)
            if profile is None:
                log.error("a session's profile is not configured any more", extra={"session": row.session_id, "profile": row.profile})
                continue
            await self._load(row, profile)
        for sandbox in await self._world.records.list_sandboxes():
            self._world.sandboxes.occupy(sandbox)

    async def _load(self, row: SessionRow, profile: Profile) -> None:
        session = self._gateway.open(row, core_of(row, self._world.clock, None), profile)
        data = row.data
        session.variables, session.variables_at = _variables(data.get("variables")), data.get("variables_at")
        session.lost_variables, session.lost_because = _variables(data.get("lost")), data.get("lost_because", "")
        session.restored, session.kernel_info = data.get("restored") or [], data.get("kernel_info") or {}
        session.store_problem = str(data.get("store_problem", ""))
        session.ran, session.marked = bool(data.get("ran")), row.sandbox_id
        session.over_life = int(data.get("over_life", 0))
        session.taken_up.clear()
        session.transcript.forget_before = data.get("forget_before", 0)
        rebuild.restored(session, data.get("rebuild"))
        await session.telling.load()

    async def run(self) -> None:
        """Compare with the engine, once it answers; tries until it does."""
        delay = 0.5
        while True:
            try:
                facts = {f.sandbox_id: f for f in await self._world.sandboxes.runtime.list(self._instance)}
                break
            except SandglassError as error:
                self._gateway.engine_problem = error.detail
                log.warning("waiting for the engine", extra={"why": error.detail})
                await asyncio.sleep(delay)
                delay = min(delay * 2, 10.0)
        self._gateway.engine_problem = ""
        rows = {r.sandbox_id: r for r in await self._world.records.list_sandboxes()}
        adopted: set[str] = set()
        for session in list(self._gateway.live.values()):
            sandbox_id = session.core.sandbox_id
            if sandbox_id:
                adopted.add(sandbox_id)
                self._world.pool.live += 1
        await asyncio.gather(*(self._adopt(s, rows, facts) for s in list(self._gateway.live.values())))
        for sandbox_id, row in rows.items():
            if sandbox_id not in adopted:
                self._world.tasks.spawn(self._world.sandboxes.destroy(row), f"reconcile-{sandbox_id[:8]}")
        for sandbox_id, fact in facts.items():
            if sandbox_id not in rows:
                log.info("an unknown container of this instance is removed", extra={"sandbox": sandbox_id})
                self._world.tasks.spawn(self._remove(fact), f"orphan-{sandbox_id[:8]}")
        self._gateway.adopted.set()

    async def _remove(self, fact: SandboxFacts) -> None:
        try:
            await self._world.sandboxes.runtime.remove(fact.engine_id)
        except SandglassError as error:
            log.warning("an orphan was not removed, the next look will", extra={"why": error.detail})

    async def sweep(self) -> None:
        """Remove containers of this instance that nobody knows (on a schedule, and after the engine came back)."""
        known = {r.sandbox_id for r in await self._world.records.list_sandboxes()}
        for fact in await self._world.sandboxes.runtime.list(self._instance):
            row = None if fact.sandbox_id in known else await self._world.records.get_sandbox(fact.sandbox_id)
            if fact.sandbox_id not in known and (row is None or row.state == SandboxState.GONE):
                log.warning("an orphan is removed", extra={"sandbox": fact.sandbox_id})
                await self._remove(fact)

    async def _adopt(self, session: LiveSession, rows: dict[str, SandboxRow], facts: dict[str, SandboxFacts]) -> None:
        sandbox_id = session.core.sandbox_id
        row, fact = rows.get(sandbox_id), facts.get(sandbox_id)
        left = await self._world.records.list_executions(session.session_id, unfinished_only=True, limit=2000)
        running = row is not None and fact is not None and fact.running and row.marker
        sandbox, gone = None, None
        if running and session.core.state in (SessionState.ACTIVE, SessionState.DRAINING, SessionState.QUARANTINED):
            assert row is not None and fact is not None
            session.core = core_of(session.row, self._world.clock, fact.started_at)
            found = await session.mending.find(row, session.received(), lambda: True)
            if isinstance(found, EndReason):
                log.warning("a sandbox could not be taken up", extra={"session": session.session_id, "why": found})
                gone = found
            else:
                sandbox = found
        if sandbox is not None:
            numbers = sandbox.link.hello["received"]
            unfinished.load(session, left, numbers[1])
            session.mending.resume(sandbox)
            unfinished.resume(session)
            self._go_on(session)
        else:
            unfinished.load(session, left, None)
            self._without_sandbox(session, gone or _why_gone(fact))
        session.take_timers()
        session.taken_up.set()
        session.wake()
        if session.core.state is SessionState.ACTIVE:
            session.traffic.go_on()
        if session.runs.open and session.core.state not in (SessionState.STARTING, SessionState.ENDED):
            session.want()
        log.info("session taken up", extra={"session": session.session_id, "state": session.core.state})

    def _go_on(self, session: LiveSession) -> None:
        """The commands that were under way when the last gateway stopped are given again; each may be repeated."""
        core, sandbox_id = session.core, session.core.sandbox_id
        if core.state is SessionState.DRAINING:
            if core.phase is Phase.KILLING:
                session.effects.carry_out(KillUser(sandbox_id))
            elif core.phase is Phase.PERSISTING:
                session.effects.carry_out(Persist(sandbox_id))
            elif core.phase is Phase.DESTROYING:
                session.draining.redo_destroy(sandbox_id)
        elif core.state is SessionState.QUARANTINED and core.retry_at is None:
            session.effects.carry_out(Persist(sandbox_id))
        elif core.state is SessionState.ACTIVE:
            session.sync_busy()

    def _without_sandbox(self, session: LiveSession, gone: EndReason) -> None:
        core = session.core
        if core.state is SessionState.STARTING:
            # a claim that was not finished: that sandbox never ran anything of the user's
            if core.sandbox_id:
                self._world.pool.live -= 1
                rows_of = core.sandbox_id
                session.core = core = Session(core.lifetimes, SessionState.STARTING, core.generation)
                self._world.tasks.spawn(self._drop(rows_of), "drop-claim")
            if session.runs.open:
                session.effects.begin_again()
            else:
                session.dispatch(StartFailed(detail="The gateway was restarted while the sandbox was started."))
        elif core.state is SessionState.NEW:
            # its creation may not even have been answered: a sandbox is opened once something is to run
            session.core = replace(core, state=SessionState.DORMANT)
            session.save()
        elif core.state is SessionState.DRAINING and core.phase is Phase.DESTROYING:
            session.draining.redo_destroy(core.sandbox_id)
        elif core.sandbox_id:
            session.dispatch(SandboxGone(core.sandbox_id, gone))

    async def _drop(self, sandbox_id: str) -> None:
        row = await self._world.records.get_sandbox(sandbox_id)
        if row is not None:
            await self._world.sandboxes.destroy(row)
