"""Users who may not come in: recorded first, then everything of theirs ends at once.

``listeners`` are told of each change, to refuse tokens and to close what is open. A gateway that was killed in the middle
of it finds the row when it starts and ends what still runs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..clock import iso
from ..domain.audit import Tag
from ..domain.model import EndReason, Principal
from ..domain.session_events import RecycleRequested
from ..errors import Conflict, Forbidden, InvalidTransition, NotFound, UserDisabled
from ..ports import AuditRow, DisabledRow
from .live import LiveSession
from .world import World

if TYPE_CHECKING:
    from .gateway import Gateway

log = logging.getLogger("sandglass.users")
Json = dict[str, Any]
RECYCLE, END = "recycle", "end"


class Users:
    """``listeners``: called with the row of a user who was disabled, or (``enabled_at`` set) enabled again."""

    def __init__(self, gateway: Gateway, world: World) -> None:
        self._gateway = gateway
        self._world = world
        self._disabled: dict[tuple[str, str], DisabledRow] = {}
        self.listeners: list[Callable[[DisabledRow], None]] = []

    async def load(self) -> list[DisabledRow]:
        """What the records say, at the start; with those enabled again, whose page sessions from before stay ended."""
        rows = await self._world.records.list_disabled(enabled_too=True)
        self._disabled = {(row.tenant, row.user): row for row in rows if row.enabled_at is None}
        return rows

    def refuse(self, tenant: str, user: str) -> None:
        """For what began before. Raises UserDisabled."""
        if (tenant, user) in self._disabled:
            raise UserDisabled("This user has been disabled by an administrator.")

    async def disable(self, admin: Principal, user: str, *, tenant: str | None = None, sessions: str = RECYCLE, text: str = "") -> Json:
        """Raises Forbidden, Conflict (oneself), RecordsUnavailable (then nothing happened)."""
        place = _tenant(admin, tenant)
        if admin.owns(place, user):
            raise Conflict("You cannot disable yourself.")
        row = DisabledRow(place, user, self._world.clock.now(), admin.user, text, sessions)
        detail = {"by": admin.user, "by_tenant": admin.tenant, "sessions": sessions, "text": text}
        await self._world.records.disable_user(row, AuditRow(row.at, Tag.ADMIN_USER_DISABLE, place, user, "", detail))
        self._disabled[place, user] = row
        for listener in self.listeners:
            listener(row)
        ended = self._end(row)
        log.info("a user was disabled", extra={"user": user, "tenant": place, "sessions": len(ended)})
        return _shown(row) | {"session_ids": ended}

    async def enable(self, admin: Principal, user: str, *, tenant: str | None = None) -> Json:
        """Raises Forbidden, NotFound (not disabled)."""
        place, now = _tenant(admin, tenant), self._world.clock.now()
        detail = {"by": admin.user, "by_tenant": admin.tenant}
        if not await self._world.records.enable_user(place, user, now, AuditRow(now, Tag.ADMIN_USER_ENABLE, place, user, "", detail)):
            raise NotFound("There is no such disabled user.")
        row = self._disabled.pop((place, user), None)
        if row is not None:
            row.enabled_at = now
            for listener in self.listeners:
                listener(row)
        return {"user": user, "tenant": place, "disabled": False}

    async def disabled(self, admin: Principal) -> list[Json]:
        """Those whom this admin may enable, newest first."""
        if not admin.is_tenant_admin:
            raise Forbidden("Only an administrator may list disabled users.")
        rows = await self._world.records.list_disabled()
        return [_shown(row) for row in rows if admin.is_platform_admin or row.tenant == admin.tenant]

    async def end_sessions(self, admin: Principal, user: str, *, tenant: str | None = None, text: str = "") -> Json:
        """End every session of a user, as ``admin``. Raises Forbidden."""
        place = _tenant(admin, tenant)
        mine = self._gateway.sessions_of(place, user)
        ids = [session.session_id for session in mine]
        detail = {"by": admin.user, "by_tenant": admin.tenant, "text": text, "count": len(ids), "ids": ids}
        await self._world.records.add_audit(AuditRow(self._world.clock.now(), Tag.ADMIN_USER_END_SESSIONS, place, user, "", detail))
        for session in mine:
            session.effects.end(EndReason.ADMIN, text)
        return {"user": user, "tenant": place, "session_ids": ids}

    def enforce(self) -> None:
        """After adoption: what a gateway that was killed did not end any more."""
        for row in self._disabled.values():
            self._end(row)

    def _end(self, row: DisabledRow) -> list[str]:
        """The user's sandboxes (or sessions) begin to end, declared files are stored; returns the sessions concerned."""
        mine = [s for s in self._gateway.sessions_of(row.tenant, row.user) if row.sessions == END or _has_sandbox(s)]
        for session in mine:
            if row.sessions == END:
                session.effects.end(EndReason.ADMIN, row.text)
            else:
                with contextlib.suppress(InvalidTransition):
                    session.dispatch(RecycleRequested(EndReason.ADMIN))
        return [session.session_id for session in mine]


def _has_sandbox(session: LiveSession) -> bool:
    return bool(session.core.sandbox_id) or session.core.state == "starting"


def _tenant(admin: Principal, tenant: str | None) -> str:
    """Whose user is meant: in the admin's own tenant, or, for a platform admin, in the one named."""
    if not admin.is_tenant_admin:
        raise Forbidden("This is for administrators.")
    if tenant not in (None, admin.tenant) and not admin.is_platform_admin:
        raise Forbidden("An administrator of a tenant acts within that tenant only.")
    return admin.tenant if tenant is None else tenant


def _shown(row: DisabledRow) -> Json:
    return {
        "user": row.user, "tenant": row.tenant, "disabled": True, "disabled_at": iso(row.at), "by": row.by, "reason_text": row.text,
        "sessions": row.sessions,
    }  # fmt: skip
