"""``/api/v1``: who am I, profiles, and sessions with what can be done to them."""

from __future__ import annotations

from ..clock import iso
from ..errors import BadRequest
from ..service.api import Json
from .auth import require_scope
from .base import Authenticated
from .body import Field

NAME_CHARS = 200


class MeHandler(Authenticated):
    def get(self) -> None:
        me = self.caller
        if self.by_cookie:
            self.renew_cookie()
        self.answer(
            {
                "user": me.user,
                "tenant": me.tenant,
                "roles": sorted(me.roles),
                "expires_at": iso(me.expires_at) if me.expires_at else None,
                "frame_url": self.deps.frame_url_for(self.request.host),
                "server_time": iso(self.deps.clock.now()),
                "quotas": self.gateway.usage(me),
            }
        )


class ProfilesHandler(Authenticated):
    def get(self) -> None:
        self.answer(self.gateway.profiles())


class SessionsHandler(Authenticated):
    async def get(self) -> None:
        everyone, ended = self.flag("all"), self.flag("ended")
        sessions = await self.gateway.sessions(self.caller, everyone=everyone, ended=ended)
        self.answer({"sessions": sessions})

    async def post(self) -> None:
        require_scope(self.caller, "sessions:write")
        body = self.json_body({"profile": Field(str, max_chars=100), "name": Field(str, default="", max_chars=NAME_CHARS)})
        session = await self.gateway.create_session(self.caller, profile=body["profile"], name=body["name"], source="rest")
        self.set_header("Location", f"/api/v1/sessions/{session.session_id}")
        self.answer(session.to_json(), 201)


class SessionHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        self.answer((await self.session_of(session_id, ended=True)).to_json())

    async def delete(self, session_id: str) -> None:
        require_scope(self.caller, "sessions:write")
        session = await self.session_of(session_id)
        session.end(by=self.caller.user)
        self.answer(session.to_json(), 202)


class KeepAliveHandler(Authenticated):
    scope = "sessions:write"

    async def post(self, session_id: str) -> None:
        self.json_body({})
        session = await self.session_of(session_id)
        session.keep_alive()
        self.answer(session.to_json())


class RecycleHandler(Authenticated):
    scope = "sessions:write"

    async def post(self, session_id: str) -> None:
        self.json_body({})
        session = await self.session_of(session_id)
        session.recycle()
        self.answer(session.to_json(), 202)


class InterruptHandler(Authenticated):
    scope = "execute"

    async def post(self, session_id: str) -> None:
        self.json_body({})
        await (await self.session_of(session_id)).interrupt()
        self.no_content()


class RestartHandler(Authenticated):
    scope = "execute"

    async def post(self, session_id: str) -> None:
        self.json_body({})
        session = await self.session_of(session_id)
        await session.restart()
        self.answer(session.to_json())


class NoticesHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        self.answer({"notices": await (await self.session_of(session_id, ended=True)).notices()})


class DeclarationsHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        self.answer({"declarations": await (await self.session_of(session_id, ended=True)).declarations()})

    async def post(self, session_id: str) -> None:
        require_scope(self.caller, "files:write")
        fields = {"pattern": Field(str, required=True, max_chars=1024), "keep": Field(bool, default=True)}
        body = self.json_body(fields)
        session = await self.session_of(session_id)
        declared: Json = await session.declare(body["pattern"], body["keep"], "user")
        self.answer(declared, 201)

    async def delete(self, session_id: str) -> None:
        require_scope(self.caller, "files:write")
        pattern = self.get_query_argument("pattern", "", strip=False)
        if not pattern:
            raise BadRequest("Say which: ?pattern=PATTERN.")
        await (await self.session_of(session_id)).undeclare(pattern)
        self.no_content()
