"""Who is asking, and may a browser of that origin ask: the one place where credentials and origins are checked."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest

from ..domain.model import Principal
from ..errors import Forbidden, Unauthenticated
from .deps import Deps, origin_of
from .gate import QUERY_TOKEN_HEADER
from .headers import is_origin

COOKIE = "sandglass_page"
_SCHEMES = ("bearer", "token")
_SAFE = ("GET", "HEAD", "OPTIONS")
MAX_TOKEN_CHARS = 16 * 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """``by``: ``header``, ``query`` or ``cookie``."""

    principal: Principal
    by: str


def authenticate(request: HTTPServerRequest, deps: Deps, *, query: bool) -> Caller:
    """The caller, by header, then ``?token=`` (where ``query`` admits it), then the page's cookie.

    A credential that is given and does not hold is refused; the next kind is not tried, so that nobody acts under
    another name than the one they gave. Raises Unauthenticated, and Forbidden for a cookie from a foreign origin.
    """
    if token := header_token(request):
        return Caller(verify(token, deps), "header")
    given = request.headers.get(QUERY_TOKEN_HEADER, "")
    if given:
        if not query:
            raise Unauthenticated("?token= is not taken here; use the Authorization header.")
        return Caller(verify(given, deps), "query")
    cookie = request.cookies.get(COOKIE)
    if cookie is not None and cookie.value:
        principal = deps.pages.verify_cookie(cookie.value)
        if request.method not in _SAFE and not same_origin(request, deps, required=True):
            raise Forbidden("A request with the page's cookie must come from the page's own origin.")
        return Caller(principal, "cookie")
    raise Unauthenticated("A token is needed: 'Authorization: Bearer TOKEN'.")


async def learn_keys(request: HTTPServerRequest, deps: Deps, *, query: bool) -> bool:
    """After a refusal: whether the identity provider may have a key by now that lets this request's token pass.

    Raises Unauthenticated, and Unavailable where no token can be checked now.
    """
    if deps.keys is None:
        return False
    token = header_token(request) or (request.headers.get(QUERY_TOKEN_HEADER, "") if query else "")
    return bool(token) and await deps.keys.learn(token)


def header_token(request: HTTPServerRequest) -> str:
    """What the Authorization header holds, not checked; empty where there is none. Raises Unauthenticated."""
    header = request.headers.get("Authorization", "").strip()
    scheme, _, value = header.partition(" ")
    if header and scheme.lower() not in _SCHEMES:
        raise Unauthenticated("The Authorization header must be 'Bearer TOKEN' or 'token TOKEN'.")
    # "token " with nothing behind it is what some clients send when they were given no token.
    return value.strip()


def verify(token: str, deps: Deps) -> Principal:
    if len(token) > MAX_TOKEN_CHARS:
        raise Unauthenticated("The token is too long to be one of ours.")
    return deps.tokens.verify(token)


def same_origin(request: HTTPServerRequest, deps: Deps, *, required: bool) -> bool:
    """Whether the request's Origin is the gateway's own or a configured one. Without an Origin: ``not required``.

    Own means: it names the host and port that the request was sent to. A cookie is bound to its host, so a name that an
    attacker points at us brings no cookie with it; the output frame, on another port, is refused.
    """
    origin = request.headers.get("Origin")
    if origin is None:
        return not required
    origin = origin.lower()
    if origin in deps.origins or (deps.url and origin == origin_of(deps.url).lower()):
        return True
    host = request.headers.get("Host", "").lower()
    return bool(host) and is_origin(origin) and urlsplit(origin).netloc == host
