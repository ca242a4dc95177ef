"""How an installation checks tokens: what the configuration says, and the secret that the installation makes itself.

Where no key is configured the gateway has a *development key*, derived from its secret: ``sandglass token`` signs with
it. Where one is, nobody here can make tokens.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt

from ..domain.model import Principal
from ..errors import Forbidden, Unavailable
from .keys import ALGORITHMS, MIN_SECRET_BYTES, VerifyKey, derive, load_keys, secret_key

DEVELOPMENT_KID = "development"
SECRET_FILE = "secret"  # noqa: S105 - a file's name
LOCAL_USER, LOCAL_TENANT = "local", "default"


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """``key``: a shared secret, or public keys in PEM. ``jwks``: a JWK set. ``jwks_url``: where one is, asked for every
    ``jwks_refresh_s``. ``secret``: made in ``state`` if empty.

    ``leeway_s``: by how many seconds the token maker's clock may differ from ours.
    """

    algorithms: tuple[str, ...] = ALGORITHMS
    issuer: str = "sandglass"
    audience: str = "sandglass"
    leeway_s: float = 30.0
    key: bytes = field(default=b"", repr=False)
    jwks: str = field(default="", repr=False)
    jwks_url: str = ""
    jwks_refresh_s: float = 600.0
    secret: bytes = field(default=b"", repr=False)
    state: Path = Path(".sandglass")

    @property
    def development(self) -> bool:
        """No key is configured."""
        return not self.key and not self.jwks and not self.jwks_url

    def verify_keys(self) -> tuple[VerifyKey, ...]:
        """Those that are configured; a provider's come later. Raises BadKey, and Unavailable where the secret cannot be read or made."""
        if self.development:
            return (development_key(self.page_secret),)
        return load_keys(self.key, self.jwks, self.algorithms)

    @property
    def page_secret(self) -> bytes:
        """The installation's secret, made at first use. Raises Unavailable."""
        return self.secret or load_or_make_secret(self.state / SECRET_FILE)

    def local_admin(self) -> Principal:
        """Whom the link at the start logs in: the person who started the gateway."""
        return Principal(LOCAL_USER, LOCAL_TENANT, frozenset({"user", "admin"}))

    def issue_dev_token(self, user: str, tenant: str, roles: Iterable[str], ttl_s: float, now: float, scopes: Iterable[str] = ()) -> str:
        """A token for trying things out. Raises Forbidden where keys are configured: others make the tokens there."""
        if not self.development:
            raise Forbidden(
                "This gateway takes the tokens of your identity provider (SANDGLASS_JWT_KEY, SANDGLASS_JWT_JWKS_FILE or "
                "SANDGLASS_JWT_JWKS_URL is set); it makes none itself."
            )
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": user,
            "tenant": tenant,
            "roles": sorted(roles),
            "iat": int(now),
            "exp": int(now + ttl_s),
            "jti": secrets.token_hex(16),
        }
        if words := sorted(scopes):
            claims["scope"] = " ".join(words)
        key = development_key(self.page_secret)
        return jwt.encode(claims, key.key, algorithm=key.algorithm, headers={"kid": key.kid})


def development_key(secret: bytes) -> VerifyKey:
    return secret_key(derive(secret, "development token"), kid=DEVELOPMENT_KID)


def load_or_make_secret(path: Path) -> bytes:
    """32 random bytes in a file that only its owner reads; whoever comes first makes it. Raises Unavailable."""
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                _make(path)
        path.chmod(0o600)
        secret = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as exc:
        raise Unavailable(f"The installation's secret cannot be read or made ({type(exc).__name__}).") from exc
    if len(secret) < MIN_SECRET_BYTES:
        raise Unavailable("The installation's secret is damaged; without it remove the file, and everybody logs in anew.")
    return secret


def _make(path: Path) -> None:
    """Written beside and linked, so that nobody ever reads half of it and the first of two wins."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, secrets.token_hex(32).encode() + b"\n")
        os.fsync(fd)
        os.link(fresh, path)
    finally:
        os.close(fd)
        fresh.unlink()
