"""``/api/v1/admin`` and tickets: what an admin sees and ends, and links that log somebody in."""

from __future__ import annotations

from typing import Any

from ..clock import iso
from ..domain.model import EndReason, SessionState
from ..errors import BadRequest, Forbidden
from ..ports import AuditQuery, SessionQuery
from .base import Authenticated
from .body import Field
from .paging import cursor, limit_of, number_of, place_of, time_of, words

PURPOSES = ("login", "attach")
AFTERWARDS = ("recycle", "end")
"""What becomes of a disabled user's sessions; either way declared files are stored."""
NAME_CHARS = 255
REASON = Field(str, default="", max_chars=1000)
WHY = Field(str, required=True, max_chars=1000)
AUDIT_LIMIT = 200
TENANT = Field(str, max_chars=NAME_CHARS)


def why(body: dict[str, Any]) -> str:
    """The admin's reason. Raises BadRequest when there is none in it."""
    text = str(body["reason_text"]).strip()
    if not text:
        raise BadRequest("A reason is needed: the user is told, and it is recorded.", key="reason_text")
    return text


class Admin(Authenticated):
    """A tenant's admin or the platform's; which sessions that covers is the service's to decide. A token with scopes needs ``admin``."""

    scope = "admin"

    async def prepare(self) -> None:
        await super().prepare()
        if not self.caller.is_tenant_admin:
            raise Forbidden("This is for admins.")

    def one(self, name: str) -> str | None:
        """A query argument; None when absent or empty."""
        return self.get_query_argument(name, "") or None


class AdminSessionsHandler(Admin):
    async def get(self) -> None:
        one = self.one
        query = SessionQuery(
            one("tenant"), one("user"), words("state", one("state"), SessionState), words("reason", one("reason"), EndReason),
            time_of("since", one("since")), place_of(one("cursor")), limit_of(one("limit")),
        )  # fmt: skip
        sessions, behind = await self.gateway.oversight.sessions(self.caller, query)
        self.answer({"sessions": sessions, "next": None if behind is None else cursor(behind)})


class AdminSessionHandler(Admin):
    async def get(self, session_id: str) -> None:
        self.answer(await self.gateway.oversight.session(self.caller, session_id))


class AdminEndHandler(Admin):
    async def post(self, session_id: str) -> None:
        body = self.json_body({"reason_text": REASON})
        self.answer(await self.gateway.oversight.end(self.caller, session_id, body["reason_text"]), 202)


class AdminExtendHandler(Admin):
    async def post(self, session_id: str) -> None:
        body = self.json_body({"seconds": Field(float, required=True), "reason_text": WHY})
        self.answer(await self.gateway.oversight.extend(self.caller, session_id, body["seconds"], why(body)))


class AdminRetryHandler(Admin):
    async def post(self, session_id: str) -> None:
        body = self.json_body({"reason_text": REASON})
        self.answer(await self.gateway.oversight.retry(self.caller, session_id, body["reason_text"]), 202)


class AdminReleaseHandler(Admin):
    """Loses what could not be stored, so it is asked for twice: ``confirm`` must be true."""

    async def post(self, session_id: str) -> None:
        body = self.json_body({"confirm": Field(bool, default=False), "reason_text": WHY})
        if not body["confirm"]:
            raise BadRequest("What could not be stored will be lost; say so with 'confirm': true.", key="confirm")
        self.answer(await self.gateway.oversight.release(self.caller, session_id, why(body)), 202)


class AdminUserHandler(Admin):
    """One user: of the admin's tenant, or for a platform admin of the ``tenant`` in the body."""

    def named(self, name: str) -> str:
        if not 0 < len(name) <= NAME_CHARS or not name.isprintable():
            raise BadRequest("The path must hold the user's name.")
        return name


class AdminDisableHandler(AdminUserHandler):
    async def post(self, user: str) -> None:
        body = self.json_body({"tenant": TENANT, "reason_text": REASON, "sessions": Field(str, default=AFTERWARDS[0], max_chars=20)})
        if body["sessions"] not in AFTERWARDS:
            raise BadRequest(f"'sessions' must be one of: {', '.join(AFTERWARDS)}.")
        users = self.gateway.users
        self.answer(await users.disable(self.caller, self.named(user), tenant=body["tenant"], sessions=body["sessions"], text=body["reason_text"]))


class AdminEnableHandler(AdminUserHandler):
    async def post(self, user: str) -> None:
        body = self.json_body({"tenant": TENANT})
        self.answer(await self.gateway.users.enable(self.caller, self.named(user), tenant=body["tenant"]))


class AdminEndSessionsHandler(AdminUserHandler):
    async def post(self, user: str) -> None:
        body = self.json_body({"tenant": TENANT, "reason_text": REASON})
        users = self.gateway.users
        self.answer(await users.end_sessions(self.caller, self.named(user), tenant=body["tenant"], text=body["reason_text"]), 202)


class AdminDisabledUsersHandler(Admin):
    async def get(self) -> None:
        self.answer({"users": await self.gateway.users.disabled(self.caller)})


class AdminAuditHandler(Admin):
    async def get(self) -> None:
        one = self.one
        query = AuditQuery(
            one("tenant"), one("user"), one("session"), one("tag"), time_of("since", one("since")), number_of(one("cursor")),
            limit_of(one("limit"), AUDIT_LIMIT),
        )  # fmt: skip
        entries, behind = await self.gateway.oversight.audit(self.caller, query)
        self.answer({"audit": entries, "next": None if behind is None else str(behind)})


class TicketsHandler(Authenticated):
    """For the caller's own name only. A ticket never outlives, nor outranks, the credential it was asked for with."""

    def post(self) -> None:
        purpose = self.json_body({"purpose": Field(str, required=True, max_chars=20)})["purpose"]
        if purpose not in PURPOSES:
            raise BadRequest(f"The purpose must be one of: {', '.join(PURPOSES)}.")
        ticket, expires_at = self.deps.pages.issue_ticket(self.caller, purpose)
        answer: dict[str, Any] = {"ticket": ticket, "expires_at": iso(expires_at)}
        if purpose == "login":
            answer["url"] = f"{self.deps.url.rstrip('/')}/login?ticket={ticket}"
        self.answer(answer, 201)
