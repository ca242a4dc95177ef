"""Keys that check tokens: each serves one algorithm, and a weak one is refused at the start.

A key is bound to its algorithm when it is read, and a token's header can only choose among the keys of the algorithm
that it names. So no token makes a public key serve as a shared secret, or one family's key another's.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")
MIN_SECRET_BYTES = 32
MIN_SECRET_VARIETY = 10
"""Different bytes in a shared secret: 32 times the same letter is no secret."""
MIN_RSA_BITS = 2048
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


class BadKey(ValueError):
    """A key that must not be used; the text says why and never what it is."""


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """``key``: what PyJWT takes for ``algorithm``. ``kid``: empty for a key without a name."""

    algorithm: str
    key: Any = field(repr=False)
    kid: str = ""


def parse_keys(material: bytes) -> tuple[VerifyKey, ...]:
    """A shared secret, or one or more public keys or certificates in PEM. Raises BadKey."""
    material = material.strip()
    if b"-----BEGIN" not in material:
        if material.startswith((b"ssh-", b"ecdsa-sha2", b"{")):
            raise BadKey("the key must be a shared secret or a public key in PEM form")
        return (secret_key(material),)
    if b"PRIVATE KEY" in material:
        raise BadKey("it holds a private key; the gateway needs the public one and must not have the other")
    keys = tuple(_public_key(block.group(0)) for block in _PEM.finditer(material))
    if not keys:
        raise BadKey("the PEM text is cut off")
    return keys


def secret_key(secret: bytes, kid: str = "") -> VerifyKey:
    """A key for HS256. Raises BadKey when it is short or plainly no secret."""
    if len(secret) < MIN_SECRET_BYTES:
        raise BadKey(f"the shared secret has {len(secret)} bytes; it needs {MIN_SECRET_BYTES} random ones")
    if len(set(secret)) < MIN_SECRET_VARIETY:
        raise BadKey("the shared secret repeats a few characters; it must be random")
    return VerifyKey("HS256", secret, kid)


def _public_key(pem: bytes) -> VerifyKey:
    try:
        if b"BEGIN CERTIFICATE" in pem:
            return _checked(x509.load_pem_x509_certificate(pem).public_key())
        return _checked(load_pem_public_key(pem))
    except (ValueError, TypeError) as exc:
        raise exc if isinstance(exc, BadKey) else BadKey("the PEM text is no public key") from None


def _checked(key: object, kid: str = "") -> VerifyKey:
    if isinstance(key, RSAPublicKey):
        if key.key_size < MIN_RSA_BITS:
            raise BadKey(f"the RSA key has {key.key_size} bits; it needs {MIN_RSA_BITS}")
        return VerifyKey("RS256", key, kid)
    if isinstance(key, EllipticCurvePublicKey):
        if not isinstance(key.curve, SECP256R1):
            raise BadKey(f"the curve is {key.curve.name}; ES256 needs P-256 (secp256r1)")
        return VerifyKey("ES256", key, kid)
    if isinstance(key, Ed25519PublicKey):
        return VerifyKey("EdDSA", key, kid)
    raise BadKey("only RSA, P-256 and Ed25519 keys are taken")


def parse_jwks(text: str) -> tuple[VerifyKey, ...]:
    """The public signing keys of a JWK set; those for other uses or algorithms are left out. Raises BadKey."""
    try:
        members = json.loads(text)["keys"]
        if not isinstance(members, list):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadKey('the JWK set must be JSON of the form {"keys": [...]}') from None
    found = [key for member in members if (key := _jwk(member)) is not None]
    names = [key.kid for key in found]
    if len(set(names)) < len(names):
        raise BadKey("two keys of the JWK set have the same kid (or none); each needs its own")
    if not found:
        raise BadKey(f"the JWK set has no signing key for any of {', '.join(ALGORITHMS[1:])}")
    return tuple(found)


def _jwk(member: object) -> VerifyKey | None:
    if not isinstance(member, dict):
        raise BadKey("the JWK set has an entry that is no key")
    if member.get("kty") == "oct" or "d" in member or "k" in member:
        raise BadKey("the JWK set holds a secret or private key; it must have public keys only")
    if member.get("use", "sig") != "sig" or member.get("alg", ALGORITHMS[1]) not in ALGORITHMS:
        return None
    kid = member.get("kid", "")
    if not isinstance(kid, str):
        raise BadKey("a kid of the JWK set is no text")
    try:
        key = jwt.PyJWK({name: value for name, value in member.items() if name != "alg"}).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    found = _checked(key, kid)
    if member.get("alg", found.algorithm) != found.algorithm:
        raise BadKey("a key of the JWK set names an algorithm of another family")
    return found


def load_keys(material: bytes, jwks: str, algorithms: Iterable[str]) -> tuple[VerifyKey, ...]:
    """What the configuration gives; either may be empty. Raises BadKey, also for keys that no algorithm would use.

    A provider's JWK set may have keys of more families than are allowed here; those are left out.
    """
    allowed = tuple(algorithms)
    keys = parse_keys(material) if material else ()
    for key in keys:
        if key.algorithm not in allowed:
            raise BadKey(f"it is for {key.algorithm}, which the allowed algorithms ({', '.join(allowed)}) leave out")
    if not jwks:
        return keys
    of_set = tuple(key for key in parse_jwks(jwks) if key.algorithm in allowed)
    if not of_set:
        raise BadKey(f"the JWK set has no key for the allowed algorithms ({', '.join(allowed)})")
    return keys + of_set


def derive(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose from the installation's secret: one never leads to another, nor back."""
    return hmac.new(secret, f"sandglass {purpose}".encode(), hashlib.sha256).digest()
