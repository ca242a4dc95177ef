"""Bearer tokens: what holds, what does not, and that no key ever serves another's algorithm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.auth import AuthSettings, BadKey, Revocations, TokenVerifier
from gateway.auth.keys import load_keys, parse_jwks, parse_keys
from gateway.errors import Forbidden, Unauthenticated, Unavailable
from gateway.testing.clock import ManualClock

NOW = 1_800_000_000.0
SECRET = b"0123456789abcdefghijklmnopqrstuvwxyz"
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PRIVATE: dict[str, Any] = {"HS256": SECRET, "RS256": RSA, "ES256": EC, "EdDSA": ED}


def pem(key: Any) -> bytes:
    return key.public_key().public_bytes(  # type: ignore[no-any-return]
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


MATERIAL = {"HS256": SECRET, "RS256": pem(RSA), "ES256": pem(EC), "EdDSA": pem(ED)}
ALL = tuple(MATERIAL)


def clock() -> ManualClock:
    return ManualClock(now=NOW)


def verifier(*families: str, revocations: Revocations | None = None, leeway_s: float = 30.0) -> TokenVerifier:
    families = families or ALL
    keys = [key for family in families for key in parse_keys(MATERIAL[family])]
    return TokenVerifier(keys, families, "me", "us", clock(), leeway_s=leeway_s, revocations=revocations)


def claims(**more: Any) -> dict[str, Any]:
    made = {"iss": "me", "aud": "us", "sub": "alice", "tenant": "t1", "exp": NOW + 60} | more
    return {name: value for name, value in made.items() if value is not ...}


def token(family: str = "HS256", key: Any = None, headers: dict[str, Any] | None = None, **more: Any) -> str:
    """Signed by the library's lower layer, which lets odd claims pass."""
    payload = json.dumps(claims(**more)).encode()
    return jwt.PyJWS().encode(payload, key or PRIVATE[family], algorithm=family, headers=headers)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize("family", ALL)
def test_each_family_serves(family: str) -> None:
    principal = verifier().verify(token(family, roles=["user", "tenant_admin"], scope="execute files:read", jti="j1"))
    assert (principal.user, principal.tenant, principal.expires_at) == ("alice", "t1", NOW + 60)
    assert principal.roles == {"user", "tenant_admin"}
    assert principal.scopes == {"execute", "files:read"}
    assert principal.token_id == "j1"


def test_what_a_token_may_leave_out() -> None:
    first = verifier().verify(token())
    assert first.roles == {"user"}
    assert first.scopes == frozenset()
    assert len(first.token_id) == 32
    assert verifier().verify(token(sub="bob")).token_id != first.token_id
    assert verifier().verify(token(aud=["others", "us"])).user == "alice"
    assert verifier().verify(token(scopes=["a", "b"], roles="admin")).scopes == {"a", "b"}


@pytest.mark.parametrize("more", [{"scope": ""}, {"scopes": []}, {"scope": " "}])
def test_an_empty_scope_is_no_scope_and_not_all_of_them(more: dict[str, Any]) -> None:
    assert verifier().verify(token(**more)).scopes == {"none"}


@pytest.mark.parametrize(
    "more",
    [
        {"exp": ...},
        {"exp": NOW - 31},
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": float("inf")},
        {"exp": 1e300},
        {"exp": None},
        {"nbf": NOW + 31},
        {"nbf": "x"},
        {"iat": NOW + 31},
        {"iss": ...},
        {"iss": "you"},
        {"iss": ["me"]},
        {"aud": ...},
        {"aud": "them"},
        {"aud": ["them"]},
        {"aud": {"us": 1}},
        {"aud": "us2"},
        {"sub": ...},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a" * 256},
        {"sub": "a\nb"},
        {"tenant": ...},
        {"tenant": ""},
        {"tenant": None},
        {"roles": 7},
        {"roles": {"admin": True}},
        {"roles": ["admin", 7]},
        {"roles": ["a b"]},
        {"roles": ["r"] * 65},
        {"scope": ["a", None]},
        {"jti": 7},
        {"jti": ""},
    ],
)
def test_what_does_not_hold(more: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        verifier().verify(token(**more))


def test_clocks_may_differ_by_the_leeway() -> None:
    for made in (token(exp=NOW - 29), token(nbf=NOW + 29), token(iat=NOW + 29)):
        verifier().verify(made)
        with pytest.raises(Unauthenticated):
            verifier(leeway_s=0.0).verify(made)


def test_expiry_is_told_apart() -> None:
    with pytest.raises(Unauthenticated) as caught:
        verifier().verify(token(exp=NOW - 100))
    assert caught.value.extra == {"expired": True}
    with pytest.raises(Unauthenticated) as caught:
        verifier().verify(token(key=SECRET + b"x", exp=NOW - 100))
    assert caught.value.extra == {}


# ---------------------------------------------------------------- forged tokens


def test_unsigned_tokens() -> None:
    body = b64(json.dumps(claims()).encode())
    for algorithm in ("none", "None", "NONE", "nOnE", "", None):
        head = b64(json.dumps({"alg": algorithm, "typ": "JWT"}).encode())
        for signature in ("", "AA", b64(b"x" * 32)):
            with pytest.raises(Unauthenticated):
                verifier().verify(f"{head}.{body}.{signature}")


@pytest.mark.parametrize("family", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("known", [ALL, ("HS256", "RS256"), ("RS256", "ES256", "EdDSA")])
def test_a_public_key_is_never_a_shared_secret(family: str, known: tuple[str, ...]) -> None:
    spki = PRIVATE[family].public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    for secret in (MATERIAL[family], MATERIAL[family].strip(), spki, MATERIAL[family].replace(b"\n", b"")):
        for named in ("HS256", "HS384", family):
            head = b64(json.dumps({"alg": named, "typ": "JWT"}).encode())
            signed = f"{head}.{b64(json.dumps(claims()).encode())}"
            forged = f"{signed}.{b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"
            with pytest.raises(Unauthenticated):
                verifier(*known).verify(forged)


@given(
    signing=st.sampled_from(ALL),
    named=st.sampled_from([*ALL, "HS384", "HS512", "RS512", "PS256", "ES384", "none"]),
    known=st.sets(st.sampled_from(ALL), min_size=1),
)
@settings(max_examples=150, deadline=None)
def test_only_the_right_key_under_its_own_name_is_taken(signing: str, named: str, known: set[str]) -> None:
    honest = token(signing)
    _, body, _ = honest.split(".")
    head = b64(json.dumps({"alg": named, "typ": "JWT"}).encode())
    algorithm = jwt.get_algorithm_by_name(signing)
    signature = algorithm.sign(f"{head}.{body}".encode(), algorithm.prepare_key(PRIVATE[signing]))
    forged = f"{head}.{body}.{b64(signature)}"
    if signing == named and signing in known:
        verifier(*known).verify(forged)
    else:
        with pytest.raises(Unauthenticated):
            verifier(*known).verify(forged)


def test_keys_in_the_header_are_not_used() -> None:
    other = rsa.generate_private_key(65537, 2048)
    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(other.public_key()))
    for header in (
        {"jwk": jwk},
        {"jku": "http://127.0.0.1/keys"},
        {"x5u": "http://127.0.0.1/"},
        {"kid": "../../dev/null"},
    ):
        with pytest.raises(Unauthenticated):
            verifier().verify(token("RS256", key=other, headers=header))


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"b64": False, "crit": ["b64"]}, {"crit": []}])
def test_extensions_that_must_be_understood_are_not(header: dict[str, Any]) -> None:
    head = b64(json.dumps({"alg": "HS256", "typ": "JWT"} | header).encode())
    signed = f"{head}.{b64(json.dumps(claims()).encode())}"
    with pytest.raises(Unauthenticated):
        verifier().verify(f"{signed}.{b64(hmac.new(SECRET, signed.encode(), hashlib.sha256).digest())}")


@given(st.text(max_size=60) | st.from_regex(r"[A-Za-z0-9_-]{1,40}(\.[A-Za-z0-9_-]{0,40}){1,3}", fullmatch=True))
@settings(deadline=None)
def test_any_other_text_is_unauthenticated(text: str) -> None:
    with pytest.raises(Unauthenticated):
        verifier().verify(text)


@given(st.binary(max_size=80), st.integers(0, 3))
@settings(deadline=None)
def test_odd_payloads_with_a_good_signature(payload: bytes, kind: int) -> None:
    body = [payload, json.dumps(payload.decode("latin-1")).encode(), b"[" * 3000, b'{"exp":' + b"9" * 5000 + b"}"][kind]
    signed = f"{b64(json.dumps({'alg': 'HS256'}).encode())}.{b64(body)}"
    with pytest.raises(Unauthenticated):
        verifier().verify(f"{signed}.{b64(hmac.new(SECRET, signed.encode(), hashlib.sha256).digest())}")


@given(st.integers(min_value=0), st.integers(1, 255))
@settings(deadline=None)
def test_a_changed_byte_breaks_a_token(place: int, change: int) -> None:
    good = token("EdDSA", jti="x")
    head, body, signature = good.split(".")
    parts = [base64.urlsafe_b64decode(part + "==") for part in (head, body, signature)]
    which = place % 3
    changed = bytearray(parts[which])
    changed[place % len(changed)] ^= change
    parts[which] = bytes(changed)
    with pytest.raises(Unauthenticated):
        verifier().verify(".".join(map(b64, parts)))


def test_a_long_token() -> None:
    with pytest.raises(Unauthenticated):
        verifier().verify(token(filler="x" * 9000))


# ---------------------------------------------------------------- which keys are taken


@pytest.mark.parametrize(
    ("material", "says"),
    [
        (b"short", "32"),
        (b"a" * 64, "random"),
        (b"ab" * 32, "random"),
        (pem(rsa.generate_private_key(65537, 1024)), "1024 bits"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "P-256"),
        (pem(rsa.generate_private_key(65537, 2048))[:200], "cut off"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "no public key"),
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBx", "PEM"),
        (b'{"keys": []} and some more text here', "PEM"),
    ],
)
def test_weak_or_odd_keys_are_refused(material: bytes, says: str) -> None:
    with pytest.raises(BadKey, match=says) as caught:
        parse_keys(material)
    assert material.decode()[:20] not in str(caught.value) or len(material) < 6


def test_a_private_key_is_refused() -> None:
    private = RSA.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with pytest.raises(BadKey, match="private"):
        parse_keys(private)


def test_several_keys_in_one_file() -> None:
    keys = parse_keys(pem(RSA) + b"\n" + pem(EC))
    assert [key.algorithm for key in keys] == ["RS256", "ES256"]
    assert "BEGIN" not in repr(keys)
    assert SECRET.decode() not in repr(parse_keys(SECRET))


def jwks(*members: dict[str, Any]) -> str:
    return json.dumps({"keys": list(members)})


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        made = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        made = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    else:
        made = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key()))
    made.pop("key_ops", None)
    return made | more  # type: ignore[no-any-return]


def test_a_jwk_set_chooses_by_kid() -> None:
    second = rsa.generate_private_key(65537, 2048)
    keys = parse_jwks(jwks(jwk(RSA, kid="1"), jwk(second, kid="2", alg="RS256"), jwk(EC, kid="3"), jwk(ED, kid="4")))
    assert [(key.algorithm, key.kid) for key in keys] == [
        ("RS256", "1"),
        ("RS256", "2"),
        ("ES256", "3"),
        ("EdDSA", "4"),
    ]
    checker = TokenVerifier(keys, ALL[1:], "me", "us", clock())
    checker.verify(token("RS256", key=second, headers={"kid": "2"}))
    checker.verify(token("RS256", key=second))
    checker.verify(token("EdDSA", headers={"kid": "4"}))
    for headers in ({"kid": "1"}, {"kid": "3"}, {"kid": "unknown"}):
        with pytest.raises(Unauthenticated):
            checker.verify(token("RS256", key=second, headers=headers))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "JSON"),
        ("[]", "JSON"),
        ('{"keys": {}}', "JSON"),
        ("[" * 100_000, "JSON"),
        (jwks(), "no signing key"),
        ('{"keys": [7]}', "no key"),
        (jwks({"kty": "oct", "k": b64(SECRET)}), "secret"),
        (jwks(json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA))), "private"),
        (jwks(jwk(RSA, kid="1"), jwk(ED, kid="1")), "same kid"),
        (jwks(jwk(RSA, alg="ES256")), "another family"),
        (jwks(jwk(RSA, kid=7)), "no text"),
        (jwks(jwk(RSA, use="enc"), jwk(RSA, alg="RS512")), "no signing key"),
        (jwks(jwk(rsa.generate_private_key(65537, 1024))), "1024"),
    ],
)
def test_a_bad_jwk_set_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadKey, match=says):
        parse_jwks(text)


def test_keys_and_algorithms_must_fit() -> None:
    assert load_keys(b"", "", ALL) == ()
    with pytest.raises(BadKey, match="RS256"):
        load_keys(pem(RSA), "", ["HS256"])
    keys = load_keys(pem(RSA), jwks(jwk(EC, kid="1")), ALL)
    assert [key.algorithm for key in keys] == ["RS256", "ES256"]
    for bad in (["none"], ["HS256", "none"], [], ["HS512"]):
        with pytest.raises(BadKey):
            TokenVerifier(keys, bad, "me", "us", clock())
    for issuer, audience in (("", "us"), ("me", "")):
        with pytest.raises(BadKey):
            TokenVerifier(keys, ALL, issuer, audience, clock())
    with pytest.raises(BadKey):
        TokenVerifier(keys, ["EdDSA"], "me", "us", clock())


# ---------------------------------------------------------------- development tokens and revocation


def test_development_tokens(tmp_path: Path) -> None:
    settings = AuthSettings(issuer="me", audience="us", state=tmp_path / "state")
    made = settings.issue_dev_token("alice", "t1", ["user"], 60, NOW, scopes=["execute"])
    found = TokenVerifier.from_settings(settings, clock()).verify(made)
    assert (found.user, found.tenant, found.expires_at) == ("alice", "t1", NOW + 60)
    assert found.roles == {"user"}
    assert found.scopes == {"execute"}
    for other in (replace(settings, state=tmp_path / "other"), replace(settings, secret=b"t" * 32)):
        with pytest.raises(Unauthenticated):
            TokenVerifier.from_settings(other, clock()).verify(made)
    configured = replace(settings, key=pem(RSA))
    with pytest.raises(Unauthenticated):
        TokenVerifier.from_settings(configured, clock()).verify(made)
    with pytest.raises(Forbidden):
        configured.issue_dev_token("alice", "t1", [], 60, NOW)


def test_the_secret_is_made_once_and_private(tmp_path: Path) -> None:
    settings = AuthSettings(state=tmp_path / "state")
    secret = settings.page_secret
    assert len(secret) == 32
    assert settings.page_secret == secret
    (file,) = (tmp_path / "state").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    file.chmod(0o644)
    assert settings.page_secret == secret
    assert file.stat().st_mode & 0o777 == 0o600
    for damage in ("", "00ff", "not hex"):
        file.write_text(damage)
        with pytest.raises(Unavailable) as caught:
            _ = settings.page_secret
        assert str(tmp_path) not in caught.value.detail
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable):
        _ = AuthSettings(state=tmp_path / "file").page_secret


def test_two_makers_of_the_secret_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: AuthSettings(state=tmp_path / "s").page_secret, range(32)))
    assert len(found) == 1


def test_revocation() -> None:
    revocations = Revocations()
    told: list[object] = []
    revocations.listeners.append(told.append)
    checker = verifier(revocations=revocations)
    first, second = token(jti="1", iat=NOW - 5), token(jti="2", iat=NOW - 5)
    checker.verify(first)
    revocations.revoke_token("1", NOW, NOW + 60)
    with pytest.raises(Unauthenticated, match="revoked"):
        checker.verify(first)
    checker.verify(second)
    revocations.revoke_user("t1", "alice", NOW, NOW + 60)
    for old in (second, token(jti="3"), token(jti="4", iat=NOW)):
        with pytest.raises(Unauthenticated):
            checker.verify(old)
    checker.verify(token(jti="5", iat=NOW + 1))
    checker.verify(token(jti="6", tenant="t2", iat=NOW - 5))
    assert len(told) == 2
    again = verifier(revocations=Revocations(revocations.entries()))
    with pytest.raises(Unauthenticated):
        again.verify(second)
    revocations.revoke_token("9", NOW + 61, NOW + 100)
    assert len(revocations.entries()) == 1
