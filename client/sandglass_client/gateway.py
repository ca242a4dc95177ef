"""A gateway as its caller sees it: profiles, sessions, stored files. ``Sandglass`` is one session of it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self

import httpx2

from . import files
from .errors import BadRequest
from .models import Profile, Session, many, word
from .transport import Token, Transport

PATIENCE_S = 60.0
V1 = "/api/v1"


def address(url: str | None, token: Token | None) -> tuple[str, Token]:
    """What is not given is in ``SANDGLASS_URL`` and ``SANDGLASS_TOKEN``. Raises ValueError."""
    url, token = url or os.environ.get("SANDGLASS_URL", ""), token or os.environ.get("SANDGLASS_TOKEN", "")
    if not url or not token:
        raise ValueError("a gateway needs an address and a token: give them, or set SANDGLASS_URL and SANDGLASS_TOKEN")
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is not the address of a gateway: it begins with http:// or https://")
    return url, token


class Gateway:
    """``patience_s``: for how long a request is tried again while the gateway is away or says to come back later."""

    def __init__(
        self, url: str | None = None, token: Token | None = None, *, patience_s: float = PATIENCE_S,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        self._transport = Transport(*address(url, token), patience_s=patience_s, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._transport.close()

    @property
    def url(self) -> str:
        return self._transport.url

    async def me(self) -> dict[str, Any]:
        """User, tenant, roles, and when the token ends."""
        return await self._transport.json("GET", f"{V1}/me")

    async def profiles(self) -> list[Profile]:
        answer = await self._transport.json("GET", f"{V1}/profiles")
        return [Profile.of(value, word(answer.get("default"))) for value in answer.get("profiles", [])]

    async def sessions(self, *, ended: bool = False, everyone: bool = False) -> list[Session]:
        """One's own, newest first. ``everyone``: an admin's view."""
        params = {name: "1" for name, wanted in (("ended", ended), ("all", everyone)) if wanted}
        return list(many((await self._transport.json("GET", f"{V1}/sessions", params=params)).get("sessions"), Session.of))

    async def session(self, session_id: str) -> Session:
        return Session.of(await self._transport.json("GET", f"{V1}/sessions/{segment(session_id)}"))

    async def create(self, profile: str | None = None, name: str = "") -> Session:
        """A new session, whose sandbox starts."""
        body = {key: value for key, value in (("profile", profile), ("name", name)) if value}
        return Session.of(await self._transport.json("POST", f"{V1}/sessions", body, repeat=False))

    async def end(self, session_id: str) -> Session:
        """Declared files stay downloadable."""
        return Session.of(await self._transport.json("DELETE", f"{V1}/sessions/{segment(session_id)}"))

    async def artifact(self, artifact_id: str) -> bytes:
        """A stored file, also of a session that has ended."""
        return await files.fetch(self._transport, f"{V1}/artifacts/{segment(artifact_id)}")


def segment(identifier: str) -> str:
    """An id as a part of a path. Raises BadRequest, before anything is sent elsewhere than meant."""
    if not identifier or not all(c.isascii() and (c.isalnum() or c in "_.-") for c in identifier) or identifier in (".", ".."):
        raise BadRequest(f"{identifier!r} is no id.")
    return identifier
