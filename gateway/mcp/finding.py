"""Which session a call is about: by name or id, found again on every connection, made where there is none; and what it is told anew."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from ..domain.model import NoticeKind, Principal
from ..errors import NotFound
from ..service.api import GatewayFacade, SessionFacade

Json = dict[str, Any]
LOSSES = frozenset(
    {NoticeKind.VARIABLES_LOST, NoticeKind.FILES_LOST, NoticeKind.RESTORED, NoticeKind.KERNEL_DIED, NoticeKind.KERNEL_RESTARTED, NoticeKind.RECYCLED}
)
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOST_NOTICES = 20
MOST_CONNECTIONS = 10_000


class Finder:
    """A user's session by its name: the newest that lives. Whoever made it, over whatever connection, it is the same one."""

    def __init__(self, gateway: GatewayFacade) -> None:
        self._gateway = gateway
        self._making: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()
        """So that two calls that come together make one session."""

    async def living(self, principal: Principal, name: str) -> SessionFacade | None:
        for session in await self._gateway.live_sessions(principal):
            if not session.ending and name in (session.session_id, session.to_json()["name"]):
                return session
        return None

    async def find(self, principal: Principal, name: str) -> SessionFacade:
        """Raises NotFound, which says why where the latest one of that name has ended."""
        found = await self.living(principal, name)
        if found is not None:
            return found
        ended = await self.ended(principal, name)
        how = f" The last one of that name ended ({ended['reason']})." if ended else ""
        extra: dict[str, Any] = {"ended": ended} if ended else {}
        raise NotFound(f"There is no session {name!r:.120} now. run_code makes one.{how}", **extra)

    async def obtain(
        self, principal: Principal, name: str, profile: str | None, may_make: Callable[[], None]
    ) -> tuple[SessionFacade, Json | None]:
        """The session, and where it had to be made, how the last one of that name ended.

        ``may_make`` raises where the caller must not make one. Raises QuotaExceeded, ProfileUnavailable, NotFound, Unavailable.
        """
        if _ID.fullmatch(name):
            return await self.find(principal, name), None  # an id names one that is there, or nothing
        lock = self._making.setdefault((principal.tenant, principal.user, name), asyncio.Lock())
        async with lock:
            found = await self.living(principal, name)
            if found is not None:
                return found, None
            may_make()
            ended = await self.ended(principal, name)
            return await self._gateway.create_session(principal, profile=profile, name=name, source="mcp"), ended

    async def ended(self, principal: Principal, name: str) -> Json | None:
        """The one of that name that ended last."""
        ending = [s.session_id for s in await self._gateway.live_sessions(principal) if s.ending]
        known = await self._gateway.sessions(principal, ended=True)
        over = [s for s in known if name in (s["name"], s["session_id"]) and (s["state"] == "ended" or s["session_id"] in ending)]
        if not over:
            return None
        last = max(over, key=lambda s: s["ended_at"] or "9")  # one that is on its way to its end is the latest
        return {name: last[name] for name in ("session_id", "reason", "ended_at", "generation")}


class Told:
    """Which notices each connection has had of a session. In memory: after a restart of the gateway losses are told once more."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str], int] = OrderedDict()

    def fresh(self, connection: str, session_id: str, notices: list[Json], generation: int) -> list[Json]:
        """Those that are new to it. On its first call: what the loss before the present generation was."""
        key = connection, session_id
        last = self._last.pop(key, None)
        self._last[key] = max([last or 0, *(n["notice_id"] for n in notices)])
        if len(self._last) > MOST_CONNECTIONS:
            self._last.popitem(last=False)
        if last is not None:
            return [n for n in notices if n["notice_id"] > last][-MOST_NOTICES:]
        return [n for n in notices if n["kind"] in LOSSES and n["generation"] >= generation - 1][-MOST_NOTICES:]
