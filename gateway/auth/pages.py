"""Login links and the page's own sessions.

A ticket is 256 random bits that work once, within minutes, for one purpose; only its hash is kept. Taking one gives
the page a cookie: a token of our own, signed with a key that nothing else uses and for an audience that nothing else
has, so that it is no API token and no API token is one. It never outlives, nor outranks, what it was made from.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import jwt

from ..domain.model import Principal
from ..errors import QuotaExceeded, Unauthenticated
from ..ports import Clock
from .keys import derive, secret_key
from .links import Links
from .revocation import Revocation, Revocations
from .tokens import Claims, TokenVerifier

LOGIN_S = 600.0
ATTACH_S = 60.0
TTL_S = {"login": LOGIN_S, "attach": ATTACH_S}
MAX_TICKETS = 10_000
MAX_TICKETS_A_USER = 32
PAGE_S = 8 * 3600.0
"""A page session without renewal."""
PAGE_MAX_S = 24 * 3600.0
"""A page session with all its renewals."""
_AUDIENCE = "sandglass-page"


@dataclass(frozen=True, slots=True)
class _Ticket:
    principal: Principal
    purpose: str
    expires_at: float


class Tickets:
    """Tickets in memory: a restart forgets them, which costs one click on a new link."""

    def __init__(self, clock: Clock, *, most: int = MAX_TICKETS, most_a_user: int = MAX_TICKETS_A_USER) -> None:
        self._clock = clock
        self._most, self._most_a_user = most, most_a_user
        self._open: dict[bytes, _Ticket] = {}

    def issue(self, principal: Principal, purpose: str, ttl_s: float | None = None) -> tuple[str, float]:
        """``(ticket, when it expires)``, not after the principal's own credential. Raises QuotaExceeded."""
        now = self._clock.now()
        self._forget_old(now)
        expires = now + (TTL_S[purpose] if ttl_s is None else ttl_s)
        if principal.expires_at:
            expires = min(expires, principal.expires_at)
        owners = Counter((t.principal.tenant, t.principal.user) for t in self._open.values())
        if len(self._open) >= self._most or owners[principal.tenant, principal.user] >= self._most_a_user:
            raise QuotaExceeded("Too many tickets are waiting to be used.", retry_after=ATTACH_S)
        ticket = secrets.token_urlsafe(32)
        self._open[_hash(ticket)] = _Ticket(principal, purpose, expires)
        return ticket, expires

    def redeem(self, ticket: str, purpose: str) -> Principal:
        """Whose it is. It is used up by this, for the wrong purpose too. Raises Unauthenticated."""
        found = self._open.pop(_hash(ticket), None)
        if found is None or found.purpose != purpose or found.expires_at <= self._clock.now():
            raise Unauthenticated("This ticket was used already, or has expired.")
        return found.principal

    def revoked(self, entry: Revocation) -> None:
        """Forget the tickets that this token or user asked for."""
        for key in [key for key, ticket in self._open.items() if entry.concerns(ticket.principal, None)]:
            del self._open[key]

    def _forget_old(self, now: float) -> None:
        for key in [key for key, ticket in self._open.items() if ticket.expires_at <= now]:
            del self._open[key]

    def __len__(self) -> int:
        return len(self._open)


def _hash(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).digest()


class PageSessions:
    """The page's cookie values. ``secret``: the installation's; the key is derived from it."""

    def __init__(
        self,
        secret: bytes,
        clock: Clock,
        *,
        ttl_s: float = PAGE_S,
        max_s: float = PAGE_MAX_S,
        revocations: Revocations | None = None,
    ) -> None:
        self._key = secret_key(derive(secret, "page session"))
        self._clock = clock
        self._ttl_s, self._max_s = ttl_s, max_s
        self.revocations = Revocations() if revocations is None else revocations
        self._verifier = TokenVerifier([self._key], ["HS256"], _AUDIENCE, _AUDIENCE, clock, leeway_s=0.0, revocations=self.revocations)

    def issue(self, principal: Principal) -> str:
        """A new page session."""
        until = self._clock.now() + self._max_s
        if principal.expires_at:
            until = min(until, principal.expires_at)
        return self._sign(replace(principal, token_id=secrets.token_hex(16)), until, principal.token_id)

    def verify(self, value: str) -> Principal:
        """Raises Unauthenticated, also when what the session was made from was revoked."""
        return self._verify(value)[0]

    def _verify(self, value: str) -> tuple[Principal, Claims]:
        claims = self._verifier.claims(value)
        principal = self._verifier.principal(claims, value)
        if self.revocations.page_is_over(principal, float(claims["iat"])):
            raise Unauthenticated("The page session is over.")
        origin = str(claims["origin"])
        if origin and self.revocations.is_revoked(replace(principal, token_id=origin), float(claims["iat"])):
            raise Unauthenticated("The token was revoked.")
        return principal, claims

    def renew(self, value: str) -> str | None:
        """A longer-lived value of the same session, when half the time of this one is over and there is more to give.

        Raises Unauthenticated.
        """
        principal, claims = self._verify(value)
        until = float(claims["until"])
        if principal.expires_at - self._clock.now() > self._ttl_s / 2 or until <= principal.expires_at:
            return None
        return self._sign(principal, until, str(claims["origin"]))

    def end(self, value: str) -> None:
        """Revoke this session with all its renewals; nothing happens when the value does not hold."""
        try:
            claims = self._verifier.claims(value)
        except Unauthenticated:
            return
        self.revocations.revoke_token(str(claims["jti"]), self._clock.now(), float(claims["until"]))

    def _sign(self, principal: Principal, until: float, origin: str) -> str:
        now = self._clock.now()
        claims: dict[str, Any] = {
            "iss": _AUDIENCE,
            "aud": _AUDIENCE,
            "sub": principal.user,
            "tenant": principal.tenant,
            "roles": sorted(principal.roles),
            "iat": now,
            "exp": min(now + self._ttl_s, until),
            "until": until,
            "origin": origin,
            "jti": principal.token_id,
        }
        if principal.scopes:
            claims["scope"] = " ".join(sorted(principal.scopes))
        return jwt.encode(claims, self._key.key, algorithm="HS256")


class Pages:
    """Tickets, page sessions and download links together, as the HTTP layer takes them. ``secret``: the installation's."""

    def __init__(self, secret: bytes, clock: Clock, *, revocations: Revocations | None = None) -> None:
        self.tickets = Tickets(clock)
        self.sessions = PageSessions(secret, clock, revocations=revocations)
        self.sessions.revocations.listeners.append(self.tickets.revoked)
        self.links = Links(clock, revocations=self.sessions.revocations)

    def issue_ticket(self, principal: Principal, purpose: str) -> tuple[str, float]:
        """``purpose``: ``login`` or ``attach``; ``(ticket, when it expires)``. Raises QuotaExceeded."""
        return self.tickets.issue(principal, purpose)

    def redeem(self, ticket: str, purpose: str) -> tuple[str, Principal]:
        """The cookie's value and whose it is. Raises Unauthenticated."""
        value = self.sessions.issue(self.tickets.redeem(ticket, purpose))
        return value, self.sessions.verify(value)

    def verify_cookie(self, value: str) -> Principal:
        """Raises Unauthenticated."""
        return self.sessions.verify(value)

    def renew(self, value: str) -> str | None:
        """A fresh value when it is time for one. Raises Unauthenticated."""
        return self.sessions.renew(value)

    def issue_link(self, principal: Principal, artifact_id: str) -> tuple[str, float]:
        """A download link and when it expires."""
        return self.links.issue(principal, artifact_id)

    def check_link(self, link: str, principal: Principal, artifact_id: str) -> None:
        """Raises NotFound when it does not lead this caller there."""
        self.links.check(link, principal, artifact_id)

    def end(self, value: str) -> None:
        """Log out; nothing happens when the value does not hold."""
        self.sessions.end(value)
