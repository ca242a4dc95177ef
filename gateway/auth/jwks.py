"""Keys of an identity provider that changes them: its JWK set, asked for on a schedule and when a token names a new key.

How it is asked is not known here (``fetch``). What a stranger can cause by sending tokens is bounded: one question in
``AGAIN_S`` whatever the tokens say, none for a name that was asked for lately, and so many names are remembered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import jwt

from ..errors import SandglassError, Unavailable
from ..ports import Clock
from .keys import BadKey, VerifyKey, parse_jwks
from .tokens import MAX_TOKEN_CHARS, TokenVerifier

log = logging.getLogger("sandglass.auth")
REFRESH_S = 600.0
AGAIN_S = 10.0
"""Between two questions that tokens cause."""
UNKNOWN_S = 60.0
"""So long a name that the provider did not know is not asked for again."""
STALE_S = 24 * 3600.0
"""So long the last keys serve while the provider does not answer; then none does."""
MAX_UNKNOWN = 1024
MAX_KEYS = 64
MAX_KID_CHARS = 256
Fetch = Callable[[], Awaitable[bytes]]


class ProviderKeys:
    """Gives ``verifier`` the provider's keys besides ``fixed`` ones. Each answer replaces all of the one before."""

    def __init__(
        self, fetch: Fetch, verifier: TokenVerifier, clock: Clock, spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        *, algorithms: Iterable[str], fixed: Iterable[VerifyKey] = (), refresh_s: float = REFRESH_S,
    ) -> None:  # fmt: skip
        self._fetch, self._verifier, self._clock, self._spawn = fetch, verifier, clock, spawn
        self._algorithms, self._fixed, self._refresh_s = frozenset(algorithms), tuple(fixed), refresh_s
        self._kids: frozenset[tuple[str, str]] = frozenset()
        self._unknown: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = self._answered_at = float("-inf")
        self._good = False
        """What the last question brought."""
        self.questions = 0

    @property
    def has_keys(self) -> bool:
        return bool(self._kids or self._fixed)

    async def keep_fresh(self) -> None:
        """Ask again and again, sooner after a failure. For a task of the gateway's, after a first ``ask``."""
        while True:
            await asyncio.sleep(self._refresh_s if self._good else min(AGAIN_S, self._refresh_s))
            await self.ask()

    async def learn(self, token: str) -> bool:
        """Whether asking the provider may let this token pass, and it was asked: check the token again then.

        Raises Unavailable while there is no key at all: the token may be a good one.
        """
        name = self._named(token)
        if name is None:
            return False
        now = self._clock.boottime()
        if name not in self._kids:
            if self._unknown.get(name, float("-inf")) > now:
                return self._refused()
            if self._asking is None and now - self._asked_at < AGAIN_S:
                return self._refused()
            answered = await self.ask()
            if name in self._kids:
                return True
            if answered:
                self._remember(name)
        return self._refused()

    def _refused(self) -> bool:
        if not self.has_keys:
            raise Unavailable("The identity provider's keys cannot be read now; no token can be checked.")
        return False

    async def ask(self) -> bool:
        """One question at a time, whoever waits for it; False when there was no good answer."""
        if self._asking is None:
            self._asking = self._spawn(self._ask(), "jwks")
            self._asking.add_done_callback(self._asked)
        asking = self._asking
        await asyncio.wait({asking})  # whoever leaves takes nobody's answer along
        return self._good

    def _asked(self, _: asyncio.Task[None]) -> None:
        self._asking = None

    async def _ask(self) -> None:
        self._asked_at = self._clock.boottime()
        self.questions += 1
        self._good = False
        try:
            text = (await self._fetch()).decode("utf-8")
            keys = tuple(key for key in parse_jwks(text) if key.algorithm in self._algorithms)
            if not 0 < len(keys) <= MAX_KEYS:
                raise BadKey(f"it must have 1 to {MAX_KEYS} keys for the allowed algorithms")
        except (SandglassError, BadKey, UnicodeDecodeError) as error:
            log.error("the identity provider gave no keys", extra={"why": error.detail if isinstance(error, SandglassError) else str(error)})
            if self._kids and self._clock.boottime() - self._answered_at > STALE_S:
                log.critical("the identity provider gave no keys for a day; its last ones serve no longer")
                self._take(())
            return
        self._answered_at, self._good = self._clock.boottime(), True
        if {(key.algorithm, key.kid) for key in keys} != self._kids:
            log.info("the identity provider's keys changed", extra={"keys": len(keys)})
        self._take(keys)

    def _take(self, keys: tuple[VerifyKey, ...]) -> None:
        self._kids = frozenset((key.algorithm, key.kid) for key in keys)
        for name in self._kids:
            self._unknown.pop(name, None)
        self._verifier.replace_keys((*self._fixed, *keys))

    def _remember(self, name: tuple[str, str]) -> None:
        self._unknown[name] = self._clock.boottime() + UNKNOWN_S
        self._unknown.move_to_end(name)
        while len(self._unknown) > MAX_UNKNOWN:
            self._unknown.popitem(last=False)

    def _named(self, token: str) -> tuple[str, str] | None:
        """Algorithm and name of the key that the token says signed it, not checked; None for what no answer would help."""
        if len(token) > MAX_TOKEN_CHARS:
            return None
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms or algorithm == "HS256" or not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID_CHARS:
            return None
        return algorithm, kid

    def statistics(self) -> dict[str, int]:
        return {"keys": len(self._kids), "unknown": len(self._unknown), "questions": self.questions}
