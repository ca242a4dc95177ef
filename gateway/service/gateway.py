"""The whole service (``api.GatewayFacade``): all sessions of this gateway, found by their owners."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from ..domain.audit import Tag
from ..domain.model import EndReason, Principal, Profile, SessionState
from ..domain.quota import Key, Quota, Scope
from ..domain.session_events import RecycleRequested, Wanted
from ..domain.session_state import Session
from ..errors import Forbidden, InvalidTransition, NotFound, ProfileUnavailable, RecordsUnavailable, SandglassError, SessionEnded
from ..ports import AuditRow, SessionRow
from .access import Access, artifact_json, remove_from_sandbox
from .api import SessionFacade
from .disposal import Disposal
from .ended import EndedAccess
from .live import LiveSession
from .oversight import Oversight
from .sandboxes import profile_json
from .users import Users
from .views import ended_json
from .world import World

log = logging.getLogger("sandglass.gateway")
Json = dict[str, Any]
MAX_NAME = 200
FREE_AGAIN_S = 30.0
"""Said where nobody can know when one is free again."""


class Gateway:
    """``problems``: profile name -> why it cannot be served (absent: it can)."""

    def __init__(self, world: World, *, default_profile: str, problems: dict[str, str]) -> None:
        self.world = world
        self.live: dict[str, LiveSession] = {}
        self._by_user: dict[tuple[str, str], dict[str, LiveSession]] = {}
        self.problems = problems
        self.forbidden: frozenset[str] = frozenset()
        """Profiles that policy does not admit (any more), whatever the engine offers."""
        self.default_profile = default_profile
        self.started_at = world.clock.now()
        self.adopted = asyncio.Event()
        self.engine_problem = ""
        self.disposal = Disposal(world)
        self.users = Users(self, world)
        self.oversight = Oversight(self, world)
        world.check_user_quota = self._check_user_quota
        world.quotas.count, world.quotas.limit_at_once = self._count, self._limit_at_once

    # --- finding ------------------------------------------------------------------------------------------------------

    async def session(self, principal: Principal, session_id: str, *, admin: bool = False, ended: bool = False) -> SessionFacade:
        live = self.live.get(session_id)
        row = live.row if live is not None else await self.world.records.get_session(session_id)
        if row is None or not (principal.may_see(row.tenant, row.user) if admin else principal.owns(row.tenant, row.user)):
            raise NotFound("There is no such session.")
        if live is not None:
            return Access(live)
        if not ended:
            raise SessionEnded("The session has ended.", reason_ended=row.reason)
        return EndedAccess(self.world, row, self._tier(row.profile))

    def by_sandbox(self, sandbox_id: str) -> LiveSession | None:
        return next((s for s in self.live.values() if s.core.sandbox_id == sandbox_id), None)

    def quiet(self, seconds: float) -> bool:
        """True when the loop may stand still for so long: no cell runs, and no deadline is due meanwhile."""
        return self.world.deadlines.none_within(2 * seconds) and not any(s.core.busy for s in self.live.values())

    async def sessions(self, principal: Principal, *, everyone: bool = False, ended: bool = False) -> list[Json]:
        rows = await self._rows(principal, everyone=everyone, ended=ended)
        return [self.show(row) for row in rows]

    async def _rows(self, principal: Principal, *, everyone: bool, ended: bool) -> list[SessionRow]:
        if everyone and not principal.is_tenant_admin:
            raise Forbidden("Only an administrator may list the sessions of others.")
        tenant = None if everyone and principal.is_platform_admin else principal.tenant
        user = None if everyone else principal.user
        return await self.world.records.list_sessions(tenant=tenant, user=user, live_only=not ended)

    def show(self, row: SessionRow) -> Json:
        """Its representation, living or ended."""
        live = self.live.get(row.session_id)
        return live.to_json() if live is not None else ended_json(row, self._tier(row.profile), self.world.clock.now())

    def _tier(self, profile: str) -> str:
        known = self.world.profiles.get(profile)
        return known.tier if known else ""

    async def live_sessions(self, principal: Principal) -> list[SessionFacade]:
        mine = self.sessions_of(principal.tenant, principal.user)
        return [Access(s) for s in sorted(mine, key=lambda s: -s.row.created_at)]

    async def record(self, principal: Principal, tag: Tag, session_id: str = "", **detail: Any) -> None:
        """Write to the audit."""
        await self.world.records.add_audit(AuditRow(self.world.clock.now(), tag, principal.tenant, principal.user, session_id, detail))

    # --- making -------------------------------------------------------------------------------------------------------

    async def create_session(self, principal: Principal, *, profile: str | None = None, name: str = "", source: str = "rest") -> SessionFacade:
        asked = self.world.clock.boottime()
        chosen = self._known(profile)
        if not self.world.pool.has_warm(chosen.name):
            # said at once and by its name, before anything is promised
            await self.world.sandboxes.runtime.info()
            await self.world.sandboxes.runtime.image_digest(chosen.image)
        self._refuse_unavailable(chosen)
        mine = self.sessions_of(principal.tenant, principal.user)
        if len(mine) >= self.world.caps.sessions_a_user:
            detail = f"You have {len(mine)} sessions, as many as one user may have. End one to go on."
            raise self.world.quotas.refusal(Quota.SESSIONS, Scope.USER, self.world.caps.sessions_a_user, FREE_AGAIN_S, detail)
        self._count_sandboxes(principal.tenant, principal.user, None)
        self.users.refuse(principal.tenant, principal.user)
        now = self.world.clock.now()
        row = SessionRow(
            session_id=_session_id(), tenant=principal.tenant, user=principal.user, name=(name or "session")[:MAX_NAME],
            profile=chosen.name, state=SessionState.NEW, generation=1, created_at=now, last_activity=now,
        )  # fmt: skip
        session = self.open(row, Session(chosen.lifetimes), chosen)
        session.asked_at = asked
        try:
            await self.world.records.put_session(session.snapshot())
        except BaseException:
            session.forget()
            raise
        audit = partial(self.record, principal, Tag(f"{source}:session:create"), row.session_id, profile=chosen.name)
        try:
            await audit()
        except RecordsUnavailable:
            # the session stands in the records, so it is; its audit follows when they take it
            session.spawn(session.insist(audit), "audit")
        self.world.tally.sessions_created[(chosen.name,)] += 1
        session.dispatch(Wanted())
        return Access(session)

    def open(self, row: SessionRow, core: Session, profile: Profile) -> LiveSession:
        session = LiveSession(self.world, row, core, profile, self._ended)
        self.live[row.session_id] = session
        self._by_user.setdefault((row.tenant, row.user), {})[row.session_id] = session
        return session

    def _ended(self, session: LiveSession) -> None:
        self.live.pop(session.session_id, None)
        mine = self._by_user.get((session.row.tenant, session.row.user), {})
        mine.pop(session.session_id, None)
        if not mine:
            self._by_user.pop((session.row.tenant, session.row.user), None)

    def sessions_of(self, tenant: str, user: str) -> list[LiveSession]:
        """A user's living sessions, however many others have."""
        return list(self._by_user.get((tenant, user), {}).values())

    def _known(self, name: str | None) -> Profile:
        chosen = name or self.default_profile
        if chosen not in self.world.profiles:
            raise NotFound(f"There is no profile {chosen!r}.", profiles=sorted(self.world.profiles))
        return self.world.profiles[chosen]

    def _refuse_unavailable(self, profile: Profile) -> None:
        problem = self.problems.get(profile.name)
        if problem:
            raise ProfileUnavailable(f"The profile {profile.name} cannot be served here: {problem}")

    def _count_sandboxes(self, tenant: str, user: str, but: LiveSession | None) -> None:
        for scope, whose in ((Scope.USER, "You have"), (Scope.TENANT, "Your tenant has")):
            limit = self._limit_at_once(Quota.SANDBOXES, scope)
            held = [s for s in self._sessions_within(tenant, user if scope is Scope.USER else "") if s is not but and _holds(s)] if limit else []
            if limit and len(held) >= limit:
                ends = [s.row.idle_deadline for s in held if s.row.idle_deadline]
                wait = max(1.0, min(ends) - self.world.clock.now()) if ends else FREE_AGAIN_S
                detail = f"{whose} {len(held)} sandboxes running, as many as one {scope} may have. End one, or wait until one runs out."
                raise self.world.quotas.refusal(Quota.SANDBOXES, scope, limit, wait, detail)

    def _sessions_within(self, tenant: str, user: str) -> list[LiveSession]:
        """A user's, or with ``""`` all of a tenant's."""
        return self.sessions_of(tenant, user) if user else [s for s in self.live.values() if s.row.tenant == tenant]

    def _limit_at_once(self, quota: Quota, scope: Scope) -> int:
        caps = self.world.caps
        own = {Quota.SANDBOXES: caps.live_sandboxes_a_user, Quota.SESSIONS: caps.sessions_a_user}
        return own[quota] if scope is Scope.USER and quota in own else self.world.quotas.limits.of(quota, scope)

    def _count(self, quota: Quota, key: Key) -> int:
        sessions = self._sessions_within(*key)
        if quota is Quota.OPEN:
            return sum(len(s.runs.open) for s in sessions)
        return sum(map(_holds, sessions)) if quota is Quota.SANDBOXES else len(sessions)

    def usage(self, principal: Principal) -> list[Json]:
        return self.world.quotas.usage(principal.tenant, principal.user)

    def enforce_policy(self) -> None:
        """After a restart with another policy: sandboxes of profiles that it does not admit end. Their declared files are stored."""
        for session in [s for s in self.live.values() if s.profile.name in self.forbidden and s.core.sandbox_id]:
            log.warning("policy does not admit a session's profile any more", extra={"session": session.session_id, "profile": session.profile.name})
            with contextlib.suppress(InvalidTransition):
                session.dispatch(RecycleRequested(EndReason.POLICY))

    def _check_user_quota(self, session: LiveSession) -> None:
        self.users.refuse(session.row.tenant, session.row.user)
        if session.profile.name in self.forbidden:
            self._refuse_unavailable(session.profile)
        self._count_sandboxes(session.row.tenant, session.row.user, session)

    # --- the rest of the facade ---------------------------------------------------------------------------------------

    def profiles(self) -> Json:
        shown = [profile_json(p, self.problems.get(p.name, "")) for p in self.world.profiles.values()]
        return {"profiles": shown, "default": self.default_profile}

    async def artifact(self, principal: Principal, artifact_id: str) -> tuple[Json, AsyncIterator[bytes]]:
        found = await self.world.records.get_artifact(artifact_id)
        if found is None or not principal.owns(found.tenant, found.user):
            raise NotFound("There is no such artifact.")
        size, chunks = await self.world.handed_out(found)
        return artifact_json(found) | {"size": size}, chunks

    async def delete_artifact(self, principal: Principal, artifact_id: str) -> None:
        """At once, by its owner or an admin: nobody finds it any more when this returns. The newest version's path goes with it.

        Raises NotFound, RecordsUnavailable.
        """
        found = await self.world.records.get_artifact(artifact_id)
        if found is None or not principal.may_see(found.tenant, found.user):
            raise NotFound("There is no such artifact.")
        latest = {a.path: a.artifact_id for a in await self.world.records.list_artifacts(found.session_id)}
        newest = latest.get(found.path) == artifact_id
        if newest:
            await self.world.records.drop_artifact_path(found.session_id, found.path, self.world.clock.now())
        tag = Tag.USER_ARTIFACT_DELETE if principal.owns(found.tenant, found.user) else Tag.ADMIN_ARTIFACT_DELETE
        await self.disposal.doom(
            tag, [artifact_id], tenant=found.tenant, user=found.user, session_id=found.session_id, bytes=found.size, by=principal.user
        )
        self.disposal.finish_soon(found)
        live = self.live.get(found.session_id)
        if newest and live is not None:
            try:
                await remove_from_sandbox(live, found.path)
            except SandglassError as error:
                log.warning("a deleted artifact's file stays in the sandbox", extra={"session": live.session_id, "why": error.code})

    async def health(self) -> tuple[bool, Json]:
        checks: Json = {}
        for name, check in (
            ("engine", self.world.sandboxes.runtime.info), ("records", self.world.records.instance_id), ("store", self.world.store.check),
        ):  # fmt: skip
            try:
                await check()
                checks[name] = "ok"
            except SandglassError as error:
                checks[name] = error.code
        checks["adopted"] = "ok" if self.adopted.is_set() else "pending"
        checks["pool"] = self.world.pool.statistics()
        good = all(checks[name] == "ok" for name in ("engine", "records", "store", "adopted"))
        return good, {"status": "ok" if good else "degraded", "checks": checks}

    def statistics(self) -> Json:
        states: dict[str, int] = {}
        for session in self.live.values():
            states[session.core.state] = states.get(session.core.state, 0) + 1
        return {
            "sessions": states, "pool": self.world.pool.statistics(), "sandboxes": self.world.sandboxes.statistics(),
            "deadlines": len(self.world.deadlines), "tasks": len(self.world.tasks), "task_failures": self.world.tasks.failures,
        }  # fmt: skip


def _holds(session: LiveSession) -> bool:
    return bool(session.core.sandbox_id) or session.core.state in (SessionState.NEW, SessionState.STARTING)


def _session_id() -> str:
    """A uuid-shaped id: Jupyter clients expect kernel ids to look like one."""
    import uuid

    return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
