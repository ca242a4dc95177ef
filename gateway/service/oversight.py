"""What admins see of sessions and do to them: extend within policy, try again to store, give up. Each act is in the audit first.

Whatever a method is given, a tenant's admin reaches that tenant only; the rest answers as if it were not there.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain.audit import Tag
from ..domain.model import EndReason, Principal, SessionState
from ..domain.session import step
from ..domain.session_events import EndRequested, Event, Extended, Released, RetryRequested
from ..domain.texts import duration
from ..errors import BadRequest, Forbidden, NotFound, SandglassError
from ..ports import AuditQuery, AuditRow, ExecutionQuery, ExecutionRow, SandboxRow, SessionQuery, SessionRow
from .live import LiveSession
from .telling import notice_json
from .usage import Usage
from .world import World

if TYPE_CHECKING:
    from .gateway import Gateway

log = logging.getLogger("sandglass.oversight")
Json = dict[str, Any]
NAMES = 200
"""Files that are named."""
LOOK_S = 5.0


class Oversight:
    def __init__(self, gateway: Gateway, world: World) -> None:
        self._gateway = gateway
        self._world = world
        self._usage = Usage(world.sandboxes.runtime, world.clock, world.tasks)
        self._extending = asyncio.Lock()
        """One at a time, so that two together do not exceed what policy admits."""

    # --- looking ------------------------------------------------------------------------------------------------------

    async def sessions(self, admin: Principal, query: SessionQuery) -> tuple[list[Json], tuple[float, str] | None]:
        query = replace(query, tenant=_tenant(admin, query.tenant))
        rows = await self._world.records.find_sessions(query)
        used = await self._used([row.session_id for row in rows])
        more = len(rows) == query.limit
        return [self._show(row, used) for row in rows], (rows[-1].created_at, rows[-1].session_id) if more else None

    async def session(self, admin: Principal, session_id: str) -> Json:
        """With all that led to its present state."""
        row = await self._world.records.get_session(session_id)
        if row is None or not admin.is_tenant_admin or not admin.may_see(row.tenant, row.user):
            raise NotFound("There is no such session.")
        records, live = self._world.records, self._gateway.live.get(session_id)
        sandboxes = await records.list_sandboxes(session_id=session_id, live_only=False)
        return self._show(row, await self._used([session_id])) | {
            "history": [_sandbox_json(s) for s in sandboxes],
            "notices": [{k: v for k, v in notice_json(n).items() if k in _SHOWN_OF_NOTICES} for n in await records.list_notices(session_id)],
            "audit": [audit_json(r) for r in await records.list_audit(session_id=session_id)],
            "would_lose": None if live is None else await would_lose(live),
        }

    async def audit(self, admin: Principal, query: AuditQuery) -> tuple[list[Json], int | None]:
        rows, behind = await self._world.records.find_audit(replace(query, tenant=_tenant(admin, query.tenant)))
        return [audit_json(r) for r in rows], behind

    async def executions(self, admin: Principal, query: ExecutionQuery) -> tuple[list[Json], int | None]:
        query = replace(query, tenant=_tenant(admin, query.tenant))
        for session in list(self._gateway.live.values()):
            session.runs.settle()  # what is complete is shown as finished
        rows, behind = await self._world.records.find_executions(query)
        return [trace_json(r) for r in rows], behind

    def _show(self, row: SessionRow, used: dict[str, Json]) -> Json:
        live = self._gateway.live.get(row.session_id)
        shown = self._gateway.show(row)
        if live is None:
            return shown
        left = max(0.0, self._world.caps.extension_s - live.core.extended_s) if live.core.state is SessionState.ACTIVE else 0.0
        return shown | {
            "sandbox_id": live.core.sandbox_id, "resources": used.get(row.session_id, {}), "extension_left_s": left,
            "cpu_sustained": live.cpu_sustained,
        }  # fmt: skip

    async def _used(self, session_ids: list[str]) -> dict[str, Json]:
        """Session id -> what its sandbox uses."""
        engine_ids = {s.session_id: s.sandbox.row.engine_id for s in self._gateway.live.values() if s.sandbox is not None}
        asked = {s: engine_ids[s] for s in session_ids if s in engine_ids}
        found = await self._usage.of(list(asked.values()), set(engine_ids.values()))
        return {s: found[e] for s, e in asked.items() if e in found}

    # --- acting -------------------------------------------------------------------------------------------------------

    async def end(self, admin: Principal, session_id: str, text: str) -> Json:
        """End the session; declared files are stored first. ``text``: the admin's own words, for the audit and the user's notice."""
        session = await self._named(admin, session_id)
        await self._act(admin, session, EndRequested(EndReason.ADMIN), Tag.ADMIN_SESSION_END, text=text)
        session.teller.end_text = text  # before the notice, which follows in a task
        return session.to_json()

    async def extend(self, admin: Principal, session_id: str, seconds: float, text: str) -> Json:
        """Move the maximum of its present sandbox. Raises Forbidden (policy), InvalidTransition (none is active)."""
        session, cap = await self._named(admin, session_id), self._world.caps.extension_s
        if not (seconds > 0 and math.isfinite(seconds)):
            raise BadRequest("'seconds' must be more than 0.")
        if cap <= 0:
            raise Forbidden("Policy admits no extension here.", extension_left_s=0.0)
        async with self._extending:
            left = max(0.0, cap - session.core.extended_s)
            if seconds > left:
                raise Forbidden(f"Policy admits {duration(cap)} of extension for one sandbox; {duration(left)} are left.", extension_left_s=left)
            await self._act(admin, session, Extended(seconds, text), Tag.ADMIN_SESSION_EXTEND, text=text, seconds=seconds)
        return session.to_json()

    async def retry(self, admin: Principal, session_id: str, text: str) -> Json:
        """Try now to store what a quarantined sandbox holds. Raises InvalidTransition (it is not quarantined)."""
        session = await self._named(admin, session_id)
        await self._act(admin, session, RetryRequested(), Tag.ADMIN_SESSION_RETRY, text=text)
        return session.to_json()

    async def release(self, admin: Principal, session_id: str, text: str) -> Json:
        """Give up what a quarantined sandbox holds, and destroy it. Raises InvalidTransition (it is not quarantined)."""
        session = await self._named(admin, session_id)
        lost = await would_lose(session)
        names = [f["path"] for f in (*lost["files"], *lost["undeclared"])] if lost is not None else []
        count = None if lost is None else len(names) + lost["more"]
        await self._act(admin, session, Released(text), Tag.ADMIN_SESSION_RELEASE, text=text, files=count)
        session.teller.given_up = names  # before the notice, which follows in a task
        return session.to_json()

    async def _named(self, admin: Principal, session_id: str) -> LiveSession:
        """Raises Forbidden, NotFound, SessionEnded."""
        if not admin.is_tenant_admin:
            raise Forbidden("This is for administrators.")
        await self._gateway.session(admin, session_id, admin=True)
        return self._gateway.live[session_id]

    async def _act(self, admin: Principal, session: LiveSession, event: Event, tag: Tag, **detail: Any) -> None:
        """Recorded first; what the state refuses, and what cannot be recorded, does not happen."""
        step(session.core, event, self._world.clock.boottime())  # raises what dispatch would
        row, now = session.row, self._world.clock.now()
        detail = {"by": admin.user, "by_tenant": admin.tenant, **detail}
        await self._world.records.add_audit(AuditRow(now, tag, row.tenant, row.user, session.session_id, detail))
        session.dispatch(event)


async def would_lose(session: LiveSession) -> Json | None:
    """What is in a quarantined sandbox and nowhere else; None where there is none, or it cannot be asked.

    ``{"files": declared ones that are not stored as they are now, "undeclared"}``, each ``[{"path", "size"}]``. After a restart of the
    gateway files that are stored may be among them: that is found out by storing them again.
    """
    sandbox = session.sandbox
    if session.core.state is not SessionState.QUARANTINED or sandbox is None or sandbox.link.lost is not None:
        return None
    try:
        async with asyncio.timeout(LOOK_S):
            plan, _, _ = await session.keeper.plan(sandbox.link)
    except (SandglassError, TimeoutError) as error:
        log.info("a quarantined sandbox does not say what it holds", extra={"session": session.session_id, "why": type(error).__name__})
        return None
    return {
        "files": [{"path": f.path, "size": f.size} for f in plan.keep[:NAMES]],
        "undeclared": [{"path": f.path, "size": f.size} for f in plan.undeclared[:NAMES]],
        "more": max(0, len(plan.keep) - NAMES) + max(0, len(plan.undeclared) - NAMES),
    }


_SHOWN_OF_NOTICES = ("notice_id", "kind", "generation", "at", "reason", "text")


def audit_json(row: AuditRow) -> Json:
    return {"at": iso(row.at), "tag": row.tag, "tenant": row.tenant, "user": row.user, "session_id": row.session_id, "detail": row.detail}


_OF_THE_TRACE = ("profile", "image", "lock", "runtime", "network_policy", "cpu_s", "dropped_bytes", "inputs", "outputs")


def trace_json(row: ExecutionRow) -> Json:
    """P34. Members of the trace are chosen by name: what a later release adds to a row is not shown by that alone."""
    trace, output = row.data.get("trace", {}), row.data.get("output", {})
    return {
        "execution_id": row.execution_id, "session_id": row.session_id, "sandbox_id": row.sandbox_id, "tenant": row.tenant, "user": row.user,
        "source": row.source, "state": row.state, "generation": row.generation, "code_sha256": row.code_sha256,
        "exit_reason": row.exit_reason or None, "next_action": row.data.get("next_action"), "created_at": iso(row.created_at),
        "started_at": iso(row.started_at) if row.started_at else None, "finished_at": iso(row.finished_at) if row.finished_at else None,
        "output_bytes": output.get("bytes", 0), "output_messages": output.get("messages", 0), **{k: trace.get(k) for k in _OF_THE_TRACE},
    }  # fmt: skip


def _sandbox_json(s: SandboxRow) -> Json:
    return {
        "sandbox_id": s.sandbox_id, "state": s.state, "claimed_at": iso(s.claimed_at) if s.claimed_at else None,
        "ended_at": iso(s.ended_at) if s.ended_at else None, "reason": s.reason,
    }  # fmt: skip


def _tenant(admin: Principal, tenant: str | None) -> str | None:
    """Which tenant an admin looks at; None: all of them. Raises Forbidden."""
    if not admin.is_tenant_admin:
        raise Forbidden("This is for administrators.")
    if admin.is_platform_admin:
        return tenant
    if tenant not in (None, admin.tenant):
        raise Forbidden("An administrator of a tenant sees that tenant only.")
    return admin.tenant
