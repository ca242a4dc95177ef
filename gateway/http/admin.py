"""``/api/v1/admin`` and tickets: what an admin sees and ends, and links that log somebody in."""

from __future__ import annotations

from typing import Any

from ..clock import iso
from ..domain.model import EndReason, ExitReason, SessionState
from ..errors import BadRequest, Forbidden
from ..ports import AuditQuery, ExecutionQuery, SessionQuery
from .base import Authenticated
from .models import bodies, queries
from .paging import cursor, place_of, time_of, words


class Admin(Authenticated):
    """A tenant's admin or the platform's; which sessions that covers is the service's to decide. A token with scopes needs ``admin``."""

    async def prepare(self) -> None:
        await super().prepare()
        if not self.caller.is_tenant_admin:
            raise Forbidden("This is for admins.")


class AdminSessionsHandler(Admin):
    async def get(self) -> None:
        asked = self.query(queries.AdminSessions)
        query = SessionQuery(
            asked.tenant, asked.user, words("state", asked.state, SessionState), words("reason", asked.reason, EndReason),
            time_of("since", asked.since), place_of(asked.cursor), asked.limit,
        )  # fmt: skip
        sessions, behind = await self.gateway.oversight.sessions(self.caller, query)
        self.answer({"sessions": sessions, "next": None if behind is None else cursor(behind)})


class AdminSessionHandler(Admin):
    async def get(self, session_id: str) -> None:
        self.answer(await self.gateway.oversight.session(self.caller, session_id))


class AdminEndHandler(Admin):
    async def post(self, session_id: str) -> None:
        body = self.body(bodies.WithReason)
        self.answer(await self.gateway.oversight.end(self.caller, session_id, body.reason_text), 202)


class AdminExtendHandler(Admin):
    async def post(self, session_id: str) -> None:
        body = self.body(bodies.Extension)
        self.answer(await self.gateway.oversight.extend(self.caller, session_id, body.seconds, body.reason_text))


class AdminRetryHandler(Admin):
    async def post(self, session_id: str) -> None:
        body = self.body(bodies.WithReason)
        self.answer(await self.gateway.oversight.retry(self.caller, session_id, body.reason_text), 202)


class AdminReleaseHandler(Admin):
    """Loses what could not be stored, so it is asked for twice: ``confirm`` must be true."""

    async def post(self, session_id: str) -> None:
        body = self.body(bodies.Release)
        self.answer(await self.gateway.oversight.release(self.caller, session_id, body.reason_text), 202)


class AdminUserHandler(Admin):
    """One user: of the admin's tenant, or for a platform admin of the ``tenant`` in the body."""

    def named(self, name: str) -> str:
        if not 0 < len(name) <= bodies.NAME_CHARS or not name.isprintable():
            raise BadRequest("The path must hold the user's name.")
        return name


class AdminDisableHandler(AdminUserHandler):
    async def post(self, user: str) -> None:
        body = self.body(bodies.Disabling)
        users = self.gateway.users
        self.answer(await users.disable(self.caller, self.named(user), tenant=body.tenant, sessions=body.sessions, text=body.reason_text))


class AdminEnableHandler(AdminUserHandler):
    async def post(self, user: str) -> None:
        body = self.body(bodies.OfTenant)
        self.answer(await self.gateway.users.enable(self.caller, self.named(user), tenant=body.tenant))


class AdminEndSessionsHandler(AdminUserHandler):
    async def post(self, user: str) -> None:
        body = self.body(bodies.EndingSessions)
        users = self.gateway.users
        self.answer(await users.end_sessions(self.caller, self.named(user), tenant=body.tenant, text=body.reason_text), 202)


class AdminDisabledUsersHandler(Admin):
    async def get(self) -> None:
        self.answer({"users": await self.gateway.users.disabled(self.caller)})


class AdminAuditHandler(Admin):
    async def get(self) -> None:
        asked = self.query(queries.Audit)
        since = time_of("since", asked.since)
        query = AuditQuery(asked.tenant, asked.user, asked.session, asked.tag, since, asked.cursor, asked.limit)
        entries, behind = await self.gateway.oversight.audit(self.caller, query)
        self.answer({"audit": entries, "next": None if behind is None else str(behind)})


class AdminExecutionsHandler(Admin):
    async def get(self) -> None:
        asked = self.query(queries.AdminExecutions)
        query = ExecutionQuery(
            asked.tenant, asked.user, asked.session, words("reason", asked.reason, ExitReason), time_of("since", asked.since),
            time_of("until", asked.until), asked.cursor, asked.limit,
        )  # fmt: skip
        executions, behind = await self.gateway.oversight.executions(self.caller, query)
        self.answer({"executions": executions, "next": None if behind is None else str(behind)})


class TicketsHandler(Authenticated):
    """For the caller's own name only. A ticket never outlives, nor outranks, the credential it was asked for with."""

    def post(self) -> None:
        purpose = self.body(bodies.NewTicket).purpose
        ticket, expires_at = self.deps.pages.issue_ticket(self.caller, purpose)
        answer: dict[str, Any] = {"ticket": ticket, "expires_at": iso(expires_at)}
        if purpose == "login":
            answer["url"] = f"{self.deps.url.rstrip('/')}/login?ticket={ticket}"
        self.answer(answer, 201)
