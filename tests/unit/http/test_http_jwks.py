"""Keys of an identity provider over HTTP: rotation under a running gateway, and what strangers and a broken provider cannot cause."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from http_served import Served, assert_problem, js, served
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from gateway.auth import ProviderKeys, TokenVerifier
from gateway.auth import jwks as policy
from gateway.auth.keys import secret_key
from gateway.http.provider import MAX_BYTES, fetcher
from gateway.testing.clock import ManualClock

OLD, NEW, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
LARGE = rsa.generate_private_key(65537, 2048)


def jwk(key: Any, kid: str) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if key is LARGE else jwt.algorithms.ECAlgorithm
    return json.loads(kind.to_jwk(key.public_key())) | {"kid": kid, "use": "sig"}


class Provider:
    """What it answers may be changed; every question is counted."""

    def __init__(self) -> None:
        self.keys = [jwk(OLD, "old")]
        self.body: bytes | None = None
        self.status, self.delay_s, self.headers, self.asked = 200, 0.0, dict[str, str](), 0

    async def answer(self, handler: RequestHandler) -> None:
        self.asked += 1
        await asyncio.sleep(self.delay_s)
        handler.set_status(self.status)
        for name, value in self.headers.items():
            handler.set_header(name, value)
        handler.finish(json.dumps({"keys": self.keys}).encode() if self.body is None else self.body)


@asynccontextmanager
async def provided(s: Served) -> AsyncIterator[tuple[Provider, ProviderKeys, ManualClock]]:
    """The served gateway checks tokens with the keys of a real server."""
    provider, clock = Provider(), ManualClock()

    class Handler(RequestHandler):
        async def get(self) -> None:
            await provider.answer(self)

    (socket,) = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(Application([("/keys", Handler)]))
    server.add_socket(socket)
    fetch, close = fetcher(f"http://127.0.0.1:{socket.getsockname()[1]}/keys")
    verifier = TokenVerifier([], ("ES256", "RS256"), "me", "us", clock, keys_follow=True)
    keys = ProviderKeys(fetch, verifier, clock, s.deps.tasks.spawn, algorithms=("ES256", "RS256"))
    s.deps.tokens, s.deps.keys = verifier, keys
    try:
        await keys.ask()
        yield provider, keys, clock
    finally:
        close()
        server.stop()
        await server.close_all_connections()


def token(clock: ManualClock, key: Any, kid: str | None, algorithm: str = "ES256", **more: Any) -> str:
    claims = {"iss": "me", "aud": "us", "sub": "alice", "tenant": "t1", "exp": clock.now() + 60} | more
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid} if kid is not None else None)


async def me(s: Served, made: str) -> Any:
    return await s.call("GET", "/api/v1/me", user=made)


@served()
async def test_a_key_that_is_new_serves_at_once_and_one_that_is_gone_no_longer(s: Served) -> None:
    async with provided(s) as (provider, keys, clock):
        old, new = token(clock, OLD, "old"), token(clock, NEW, "new")
        assert js(await me(s, old))["user"] == "alice" and provider.asked == 1
        provider.keys = [jwk(OLD, "old"), jwk(NEW, "new"), jwk(LARGE, "large")]
        clock.advance(policy.AGAIN_S)
        assert (await me(s, new)).code == 200 and provider.asked == 2
        assert (await me(s, token(clock, LARGE, "large", "RS256"))).code == 200 and provider.asked == 2
        assert (await me(s, old)).code == 200
        provider.keys = [jwk(NEW, "new")]
        await keys.ask()
        assert_problem(await me(s, old), 401, "unauthenticated")
        assert (await me(s, new)).code == 200


@served()
async def test_a_websocket_comes_in_with_a_new_key(s: Served) -> None:
    async with provided(s) as (provider, _, clock):
        session = await s.gateway.create_session(s.deps.tokens.verify(token(clock, OLD, "old")))
        provider.keys.append(jwk(NEW, "new"))
        clock.advance(policy.AGAIN_S)
        ws = await s.ws(session.session_id, query=f"token={token(clock, NEW, 'new')}")
        assert ws.close_code is None and provider.asked == 2


@served()
async def test_wrong_tokens_ask_seldom_and_leave_little(s: Served) -> None:
    async with provided(s) as (provider, keys, clock):
        clock.advance(policy.AGAIN_S)
        for n in range(50):
            assert_problem(await me(s, token(clock, OTHER, f"made-up-{n}")), 401, "unauthenticated")
        assert provider.asked == 2
        # a name that was asked for is not asked for again, though time goes on
        clock.advance(policy.AGAIN_S)
        assert_problem(await me(s, token(clock, OTHER, "made-up-0")), 401, "unauthenticated")
        assert provider.asked == 2
        for n in range(policy.MAX_UNKNOWN + 50):
            clock.advance(policy.AGAIN_S)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(keys, "_fetch", as_before)
                await keys.learn(token(clock, OTHER, f"other-{n}"))
        assert keys.statistics()["unknown"] == policy.MAX_UNKNOWN
        # the right name with the wrong key, another family under it, none at all: nothing to ask for
        before = provider.asked
        clock.advance(1000)
        for made in (
            token(clock, OTHER, "old"), token(clock, OTHER, None), token(clock, OTHER, "k" * 300),
            token(clock, OTHER, ""), token(clock, "s" * 40, "x", "HS256"), "x.y.z", "a" * 9000,
        ):  # fmt: skip
            assert_problem(await me(s, made), 401, "unauthenticated")
        assert provider.asked == before


async def as_before() -> bytes:
    return json.dumps({"keys": [jwk(OLD, "old")]}).encode()


@served()
async def test_one_question_serves_all_who_wait(s: Served) -> None:
    async with provided(s) as (provider, _, clock):
        provider.keys.append(jwk(NEW, "new"))
        provider.delay_s = 0.2
        clock.advance(policy.AGAIN_S)
        answers = await asyncio.gather(*(me(s, token(clock, NEW, "new")) for _ in range(8)))
        assert [a.code for a in answers] == [200] * 8 and provider.asked == 2


@served()
async def test_a_provider_that_fails_lies_or_floods_changes_nothing_for_a_day(s: Served) -> None:
    async with provided(s) as (provider, keys, clock):
        good = {"keys": [jwk(NEW, "new")]}
        for status, body in (
            (500, b"{}"), (302, b""), (200, b""), (200, b"no json"), (200, b'{"keys": []}'), (200, b"\xff"), (200, b"[" * 10_000),
            (200, b"x" * (MAX_BYTES + 1)), (200, json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "old"}]}).encode()),
            (200, json.dumps({"keys": [jwk(OTHER, "old"), jwk(NEW, "old")]}).encode()), (404, json.dumps(good).encode()),
            (200, json.dumps({"keys": [jwk(NEW, f"{n}") for n in range(policy.MAX_KEYS + 1)]}).encode()),
        ):  # fmt: skip
            provider.status, provider.body, provider.headers = status, body, {"Location": "/elsewhere"} if status == 302 else {}
            assert await keys.ask() is False, body[:40]
            assert (await me(s, token(clock, OLD, "old"))).code == 200
        clock.advance(policy.STALE_S + 1)
        await keys.ask()
        assert_problem(await me(s, token(clock, OLD, "old")), 503, "unavailable")
        provider.status, provider.body = 200, None
        clock.advance(policy.AGAIN_S)
        assert (await me(s, token(clock, OLD, "old"))).code == 200


@served()
async def test_claims_are_checked_all_the_same(s: Served) -> None:
    async with provided(s) as (_, _, clock):
        for more in ({"aud": "them"}, {"iss": "you"}, {"exp": clock.now() - 60}, {"nbf": clock.now() + 60}, {"tenant": ""}):
            assert_problem(await me(s, token(clock, OLD, "old", **more)), 401, "unauthenticated")


def test_fixed_keys_stay_beside_those_of_a_provider() -> None:
    async def run() -> None:
        clock = ManualClock()
        fixed = secret_key(b"0123456789abcdefghijklmnopqrstuvwxyz")
        verifier = TokenVerifier([fixed], ("HS256", "ES256"), "me", "us", clock, keys_follow=True)
        spawn = lambda job, name: asyncio.ensure_future(job)  # noqa: E731

        async def fetch() -> bytes:
            return json.dumps({"keys": [jwk(OLD, "old")]}).encode()

        keys = ProviderKeys(fetch, verifier, clock, spawn, algorithms=("HS256", "ES256"), fixed=[fixed])
        assert await keys.ask()
        assert verifier.verify(token(clock, fixed.key, None, "HS256")).user == "alice"
        assert verifier.verify(token(clock, OLD, "old")).user == "alice"

    asyncio.run(run())
