"""The handler that every route builds on: headers, errors in one shape, logs without secrets, bodies, the caller."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

from tornado import iostream
from tornado.web import HTTPError, RequestHandler

from ..domain.model import Principal
from ..errors import SandglassError, Unauthenticated
from ..service.api import GatewayFacade, SessionFacade
from . import errors
from .access import shown
from .auth import COOKIE, authenticate, learn_keys
from .deps import Deps
from .gate import Connection
from .headers import SECURITY_HEADERS
from .models.base import B, Q, only_known, parse_body, parse_query
from .scopes import require

log = logging.getLogger("sandglass.http")


class Base(RequestHandler):
    """No authentication yet: errors, headers and logs. Every handler of ours comes from here."""

    gateway: GatewayFacade
    deps: Deps
    principal: Principal | None = None
    by_cookie = False
    refusal: dict[str, Any] | None = None
    """The problem that was answered, for the access log."""

    def initialize(self, gateway: GatewayFacade, deps: Deps) -> None:
        self.gateway = gateway
        self.deps = deps
        self.gone = False

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in SECURITY_HEADERS.items():
            self.set_header(name, value)
        self.set_header("Cache-Control", "no-store")

    def compute_etag(self) -> str | None:
        return None  # answers change from one second to the next; hashing them would only cost time

    def on_connection_close(self) -> None:
        """The client is gone before its answer."""
        self.gone = True
        super().on_connection_close()

    # -- the page's cookie

    def set_page_cookie(self, value: str) -> None:
        self.set_cookie(COOKIE, value, path="/", httponly=True, samesite="Strict", secure=self.deps.secure)

    def renew_cookie(self) -> bool:
        """Whether the page's cookie holds. When it is time, it is set again: an open page stays logged in."""
        cookie = self.request.cookies.get(COOKIE)
        if cookie is None or not cookie.value:
            return False
        try:
            self.deps.pages.verify_cookie(cookie.value)
            renewed = self.deps.pages.renew(cookie.value)
        except Unauthenticated:
            return False
        if renewed is not None:
            self.set_page_cookie(renewed)
        return True

    # -- answers

    def answer(self, value: Any, status: int = 200) -> None:
        """Finish with a JSON value (an object or an array)."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(errors.encode(value))

    def no_content(self) -> None:
        self.set_status(204)
        self.finish()

    # -- errors

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, HTTPError):
            body = errors.problem_of_status(status_code)
        else:
            status_code, body = errors.problem(error or RuntimeError())
        self.refusal = body
        self.set_status(status_code)
        for name, value in errors.headers_of(status_code, body).items():
            self.set_header(name, value)
        if status_code == 405:
            self.set_header("Allow", ", ".join(self._allowed()))
        self.finish(errors.encode(body))

    def _allowed(self) -> list[str]:
        stub = RequestHandler._unimplemented_method
        return [m for m in self.SUPPORTED_METHODS if getattr(type(self), m.lower(), stub) is not stub]

    def log_exception(self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        """Only what is not in the error tree is a defect, with its traceback; refusals stand in the access log."""
        what = {"method": self.request.method, "path": shown(self.request.path)}
        if isinstance(value, SandglassError) and value.code != SandglassError.code:
            log.debug("refused", extra={**what, "code": value.code})
        elif isinstance(value, HTTPError):
            log.debug("refused", extra={**what, "status": value.status_code})
        elif isinstance(value, iostream.StreamClosedError):
            log.debug("the client went away", extra=what)
        else:
            log.error("a request failed", extra=what, exc_info=(typ, value, tb) if typ and value else None)

    def _request_summary(self) -> str:
        return f"{self.request.method} {shown(self.request.path)}"


class NotFoundHandler(Base):
    """Everything outside the route table, without authentication: probes such as ``/hub/api`` want a prompt answer."""

    def prepare(self) -> None:
        raise HTTPError(404)


class Authenticated(Base):
    """Knows the caller, and that its token permits this, before anything else happens (``scopes.py`` says what is needed)."""

    query_token_methods: tuple[str, ...] = ("GET", "HEAD")

    async def prepare(self) -> None:
        method = self.request.method or ""
        query = method in self.query_token_methods
        try:
            caller = authenticate(self.request, self.deps, query=query)
        except Unauthenticated:
            if not await learn_keys(self.request, self.deps, query=query):
                raise
            caller = authenticate(self.request, self.deps, query=query)
        self.principal = caller.principal
        self.by_cookie = caller.by == "cookie"
        self.deps.presence.enter(self)
        needed = self.settings["scopes"][type(self)].get(method)
        if needed is None:
            raise HTTPError(405)  # no such method here: the table has all that are
        require(caller.principal, needed)
        asks = self.settings["queries"].get((type(self), method))
        if asks is not None:
            only_known(self.request.query_arguments, asks, "query argument")

    @property
    def caller(self) -> Principal:
        if self.principal is None:
            raise Unauthenticated()
        return self.principal

    def cut_off(self) -> None:
        """The caller may not be here any more (``Presence``)."""
        if not self._finished and isinstance(self.request.connection, Connection):
            self.request.connection.abort()

    async def session_of(self, session_id: str, *, ended: bool = False, admin: bool = False) -> SessionFacade:
        """The caller's session. Raises NotFound, and SessionEnded unless ``ended``."""
        return await self.gateway.session(self.caller, session_id, ended=ended, admin=admin)

    def body(self, model: type[B]) -> B:
        """The request's JSON object as ``model``. Raises BadRequest."""
        return parse_body(self.request.body, model)

    def query(self, model: type[Q]) -> Q:
        """The request's query arguments as ``model``; of one that is given twice the last counts. Raises BadRequest."""
        return parse_query({name: self.get_query_argument(name, strip=False) for name in self.request.query_arguments}, model)
