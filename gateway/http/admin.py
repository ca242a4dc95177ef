"""``/api/v1/admin`` and tickets: what an admin sees and ends, and links that log somebody in."""

from __future__ import annotations

from typing import Any

from ..clock import iso
from ..errors import BadRequest, Forbidden
from .base import Authenticated
from .body import Field

PURPOSES = ("login", "attach")


class Admin(Authenticated):
    """A tenant's admin or the platform's; which sessions that covers is the service's to decide."""

    def prepare(self) -> None:
        super().prepare()
        if not self.caller.is_tenant_admin:
            raise Forbidden("This is for admins.")


class AdminSessionsHandler(Admin):
    async def get(self) -> None:
        self.answer({"sessions": await self.gateway.admin_sessions(self.caller)})


class AdminEndHandler(Admin):
    async def post(self, session_id: str) -> None:
        body = self.json_body({"reason_text": Field(str, default="", max_chars=1000)})
        session = await self.session_of(session_id, admin=True)
        session.end(reason="admin", by=self.caller.user, text=body["reason_text"])
        self.answer(session.to_json(), 202)


class AdminAuditHandler(Admin):
    async def get(self) -> None:
        self.answer({"audit": await self.gateway.audit(self.caller)})


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
