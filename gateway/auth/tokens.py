"""Who a bearer token stands for. PyJWT checks the signature; the times are checked here, against the injected clock.

A token is refused unless it is signed by one of our keys with that key's own algorithm, and names our issuer and
audience, an expiry, a subject and a tenant. What is wrong with it is told only once the signature holds.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jwt
from jwt.types import Options

from ..domain.model import Principal
from ..errors import Unauthenticated, UserDisabled
from ..ports import Clock
from .keys import ALGORITHMS, BadKey, VerifyKey
from .revocation import Revocations
from .settings import AuthSettings

MAX_TOKEN_CHARS = 8192
MAX_NAME_CHARS = 255
MAX_WORDS = 64
"""Roles or scopes in one token."""
NO_SCOPE = "none"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_WORD = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
Claims = Mapping[str, Any]


class TokenVerifier:
    """Checks tokens against ``keys``; raises BadKey where it must not start. ``leeway_s``: how much clocks differ."""

    def __init__(
        self,
        keys: Iterable[VerifyKey],
        algorithms: Iterable[str],
        issuer: str,
        audience: str,
        clock: Clock,
        *,
        leeway_s: float = 30.0,
        revocations: Revocations | None = None,
        keys_follow: bool = False,
    ) -> None:
        """``keys_follow``: others come by ``replace_keys``; without any yet no token holds."""
        self._algorithms = frozenset(algorithms)
        if not self._algorithms or not self._algorithms <= set(ALGORITHMS):
            raise BadKey(f"the allowed algorithms must be some of {', '.join(ALGORITHMS)}")
        if not issuer or not audience:
            raise BadKey("an issuer and an audience are needed, or tokens made for others would be taken")
        self.replace_keys(keys)
        if not self._keys and not keys_follow:
            raise BadKey("there is no key for any of the allowed algorithms")
        self._issuer, self._audience = issuer, audience
        self._clock = clock
        self._leeway_s = leeway_s
        self._revocations = revocations

    @classmethod
    def from_settings(cls, settings: AuthSettings, clock: Clock, *, revocations: Revocations | None = None) -> TokenVerifier:
        """With the keys that are configured, or else the development key. Raises BadKey."""
        return cls(
            settings.verify_keys(),
            settings.algorithms,
            settings.issuer,
            settings.audience,
            clock,
            leeway_s=settings.leeway_s,
            revocations=revocations,
            keys_follow=bool(settings.jwks_url),
        )

    def replace_keys(self, keys: Iterable[VerifyKey]) -> None:
        """What others signed with holds no longer."""
        self._keys = [key for key in keys if key.algorithm in self._algorithms]

    def verify(self, token: str) -> Principal:
        """Raises Unauthenticated."""
        return self.principal(self.claims(token), token)

    def claims(self, token: str) -> Claims:
        """The claims of a token whose signature, issuer, audience and times hold. Raises Unauthenticated."""
        if len(token) > MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
            raise Unauthenticated("The token is not valid.")
        claims = self._decode(token)
        if claims.get("iss") != self._issuer:
            raise Unauthenticated("The token is from another issuer.")
        audience = claims.get("aud")
        if self._audience not in (audience if isinstance(audience, list) else [audience]):
            raise Unauthenticated("The token is for another audience.")
        now = self._clock.now()
        expires = _number(claims, "exp")
        if expires is None:
            raise Unauthenticated("The token has no expiry.")
        if expires + self._leeway_s <= now:
            raise Unauthenticated("The token has expired.", expired=True)
        for name in ("nbf", "iat"):
            begins = _number(claims, name)
            if begins is not None and begins > now + self._leeway_s:
                raise Unauthenticated("The token is not valid yet.")
        return claims

    def principal(self, claims: Claims, token: str) -> Principal:
        """Raises Unauthenticated when a name is missing or odd, or the token or its user was revoked; UserDisabled."""
        principal = Principal(
            user=_name(claims, "sub"),
            tenant=_name(claims, "tenant"),
            roles=_words(claims, "roles") or frozenset({"user"}),
            scopes=_scopes(claims),
            expires_at=_number(claims, "exp") or 0.0,
            token_id=_name(claims, "jti") if "jti" in claims else hashlib.sha256(token.encode()).hexdigest()[:32],
        )
        if self._revocations is not None and self._revocations.is_disabled(principal):
            raise UserDisabled("This user has been disabled by an administrator.")
        if self._revocations is not None and self._revocations.is_revoked(principal, _number(claims, "iat")):
            raise Unauthenticated("The token was revoked.")
        return principal

    def _decode(self, token: str) -> Claims:
        """The claims when one of our keys signed them. Nothing of them is looked at before that."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            if algorithm not in self._algorithms or "crit" in header or "b64" in header:
                raise Unauthenticated("The token is not valid.")
            for key in self._candidates(algorithm, kid):
                try:
                    claims: Claims = jwt.decode(token, key.key, algorithms=[algorithm], options=_SIGNATURE_ONLY)
                except jwt.InvalidSignatureError:
                    continue
                return claims
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            pass
        raise Unauthenticated("The token is not valid.")

    def _candidates(self, algorithm: object, kid: object) -> list[VerifyKey]:
        """A token that names a key is checked with that one, or with keys that have no name."""
        return [key for key in self._keys if key.algorithm == algorithm and (not kid or key.kid in ("", kid))]


# PyJWT would ask the machine's clock. What it leaves to us is checked in ``claims`` and ``principal``.
_SIGNATURE_ONLY: Options = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


def _number(claims: Claims, name: str) -> float | None:
    """A time in seconds since the epoch. Raises Unauthenticated for anything else under that name."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 1e12:
        raise Unauthenticated(f"The token's {name} is not a time.")
    return float(value)


def _name(claims: Claims, name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS or not value.isprintable():
        raise Unauthenticated(f"The token's {name} is missing or not a name.")
    return value


def _words(claims: Claims, name: str) -> frozenset[str]:
    """A list of words, or words separated by spaces."""
    value = claims.get(name)
    if value is None:
        return frozenset()
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or len(words) > MAX_WORDS:
        raise Unauthenticated(f"The token's {name} are not a list of words.")
    if not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words):
        raise Unauthenticated(f"The token's {name} are not a list of words.")
    return frozenset(words)


def _scopes(claims: Claims) -> frozenset[str]:
    """No claim at all means every scope, an empty one none: that is told as ``none``, which opens nothing."""
    found = _words(claims, "scope") | _words(claims, "scopes")
    given = claims.get("scope") is not None or claims.get("scopes") is not None
    return frozenset({NO_SCOPE}) if given and not found else found
