"""``/api/v1``: who am I, profiles, and sessions with what can be done to them."""

from __future__ import annotations

from ..clock import iso
from ..service.api import Json
from .base import Authenticated
from .models import bodies, queries


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
                "scopes": sorted(me.scopes) if me.scopes else None,
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
        asked = self.query(queries.Sessions)
        sessions = await self.gateway.sessions(self.caller, everyone=asked.all, ended=asked.ended)
        self.answer({"sessions": sessions})

    async def post(self) -> None:
        body = self.body(bodies.NewSession)
        session = await self.gateway.create_session(self.caller, profile=body.profile, name=body.name, source="rest")
        self.set_header("Location", f"/api/v1/sessions/{session.session_id}")
        self.answer(session.to_json(), 201)


class SessionHandler(Authenticated):
    async def get(self, session_id: str) -> None:
        self.answer((await self.session_of(session_id, ended=True)).to_json())

    async def delete(self, session_id: str) -> None:
        session = await self.session_of(session_id)
        session.end(by=self.caller.user)
        self.answer(session.to_json(), 202)


class KeepAliveHandler(Authenticated):
    async def post(self, session_id: str) -> None:
        self.body(bodies.Nothing)
        session = await self.session_of(session_id)
        session.keep_alive()
        self.answer(session.to_json())


class RecycleHandler(Authenticated):
    async def post(self, session_id: str) -> None:
        self.body(bodies.Nothing)
        session = await self.session_of(session_id)
        session.recycle()
        self.answer(session.to_json(), 202)


class InterruptHandler(Authenticated):
    async def post(self, session_id: str) -> None:
        self.body(bodies.Nothing)
        await (await self.session_of(session_id)).interrupt()
        self.no_content()


class RestartHandler(Authenticated):
    async def post(self, session_id: str) -> None:
        self.body(bodies.Nothing)
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
        body = self.body(bodies.NewDeclaration)
        session = await self.session_of(session_id)
        declared: Json = await session.declare(body.pattern, body.keep, "user")
        self.answer(declared, 201)

    async def delete(self, session_id: str) -> None:
        pattern = self.query(queries.OnePattern).pattern
        await (await self.session_of(session_id)).undeclare(pattern)
        self.no_content()
