"""Links to one artifact: signed, for minutes, for one user, and no better than the credential that they were asked for with.

Whoever follows one must be that user, so a link that leaks into a chat or a log opens nothing to anybody else. It dies with
the credential (a logout, a revoked token, a disabled user) and with the process, whose key it is signed with: what a restart
forgets of revocations it cannot forget of links.
"""

from __future__ import annotations

import secrets
from typing import Any

import jwt

from ..domain.model import Principal
from ..errors import NotFound, SandglassError, Unauthenticated
from ..ports import Clock
from .keys import secret_key
from .revocation import Revocations
from .tokens import TokenVerifier

LINK_S = 300.0
_AUDIENCE = "sandglass-link"


class Links:
    def __init__(self, clock: Clock, *, ttl_s: float = LINK_S, revocations: Revocations | None = None) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._revocations = Revocations() if revocations is None else revocations
        self._key = secret_key(secrets.token_urlsafe(48).encode())
        self._verifier = TokenVerifier([self._key], ["HS256"], _AUDIENCE, _AUDIENCE, clock, leeway_s=0.0, revocations=self._revocations)

    def issue(self, principal: Principal, artifact_id: str) -> tuple[str, float]:
        """``(link, when it expires)``, not after the principal's own credential."""
        now = self._clock.now()
        expires = min(now + self._ttl_s, principal.expires_at or now + self._ttl_s)
        claims: dict[str, Any] = {
            "iss": _AUDIENCE, "aud": _AUDIENCE, "sub": principal.user, "tenant": principal.tenant, "iat": now, "exp": expires,
            "jti": principal.token_id or "none", "artifact": artifact_id,
        }  # fmt: skip
        return jwt.encode(claims, self._key.key, algorithm="HS256"), expires

    def check(self, link: str, principal: Principal, artifact_id: str) -> None:
        """Raises NotFound when the link does not lead this caller to this artifact; it does not say why."""
        try:
            claims = self._verifier.claims(link)
            issued_to = self._verifier.principal(claims, link)
            if self._revocations.page_is_over(issued_to, float(claims["iat"])):
                raise Unauthenticated("It was made before its user was disabled.")
        except SandglassError:
            raise _dead() from None
        if not principal.owns(issued_to.tenant, issued_to.user) or claims.get("artifact") != artifact_id:
            raise _dead()


def _dead() -> NotFound:
    return NotFound("The link does not hold any more, or is not for you.")
