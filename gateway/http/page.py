"""The page: login links, its cookie, its files; and the output frame's files on an origin of their own."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from tornado.web import HTTPError, StaticFileHandler

from ..errors import Forbidden, Unauthenticated
from .auth import COOKIE, same_origin
from .base import Base
from .deps import Deps, origin_of
from .headers import frame_headers, page_csp

TEXT_CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class PageBase(Base):
    def say(self, title: str, text: str, *, status: int = 200, refresh: str = "") -> None:
        """A small page of our own words."""
        self.set_status(status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", TEXT_CSP)
        meta = f'<meta http-equiv="refresh" content="0;url={html.escape(refresh)}">' if refresh else ""
        self.finish(
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>{meta}'
            '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
            "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem}"
            f"</style></head><body><main><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></main></body></html>"
        )


class LoginHandler(PageBase):
    def get(self) -> None:
        ticket = self.get_query_argument("ticket", "")
        try:
            if not ticket:
                raise Unauthenticated()
            value, _ = self.deps.pages.redeem(ticket, "login")
        except Unauthenticated:
            self.say(
                "This login link does not work any more",
                "A login link works once, and only for a short time. For a new one, restart the gateway with "
                "'make run' and open the link that it prints, or ask whoever runs this Sandglass.",
                status=401,
            )
            return
        self.set_page_cookie(value)
        self.redirect("/", status=303)


class LogoutHandler(PageBase):
    async def post(self) -> None:
        cookie = self.request.cookies.get(COOKIE)
        if not same_origin(self.request, self.deps, required=cookie is not None):
            raise Forbidden("Only the page itself may log out.")
        if cookie is not None:
            self.deps.pages.end(cookie.value)
            await self.deps.recorded()
        self.clear_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        self.no_content()


class IndexHandler(PageBase):
    """The page's shell holds nobody's data; it asks for that with the cookie."""

    def get(self) -> None:
        cookie = self.request.cookies.get(COOKIE)
        if not self.renew_cookie():
            # After a login link in another site's page the strict cookie is not sent along the redirect; a reload that
            # starts from our own page sends it.
            if cookie is None and self.request.headers.get("Sec-Fetch-Site") == "cross-site":
                self.say("Opening Sandglass", "One moment.", refresh="/")
                return
            self.say(
                "Log in to Sandglass",
                "Open the login link that the gateway printed when it started, or ask whoever runs this Sandglass.",
                status=401,
            )
            return
        index = self.deps.web_dir / "host" / "index.html"
        try:
            content = index.read_bytes()
        except OSError:
            raise HTTPError(404) from None
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", page_csp(origin_of(self.deps.frame_url_for(self.request.host))))
        self.finish(content)


class Files(Base, StaticFileHandler):
    """Files of a directory that we ship: revalidated by ETag, never listed, no hidden files, links not followed out."""

    def initialize(self, gateway: Any, deps: Deps, part: str) -> None:  # type: ignore[override]
        Base.initialize(self, gateway, deps)
        StaticFileHandler.initialize(self, path=str(deps.web_dir / part))

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")

    def compute_etag(self) -> str | None:
        return StaticFileHandler.compute_etag(self)

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        inside = os.path.relpath(absolute_path, root)
        if "\0" in inside or any(part.startswith(".") for part in Path(inside).parts):
            raise HTTPError(404)
        return super().validate_absolute_path(root, absolute_path)


class StaticHandler(Files):
    def set_extra_headers(self, path: str) -> None:
        super().set_extra_headers(path)
        # A worker or a file that is opened by itself gets the page's own rules.
        self.set_header("Content-Security-Policy", page_csp(origin_of(self.deps.frame_url_for(self.request.host))))


class FrameHandler(Files):
    """The output frame's server: no cookie is read, nothing but files is answered."""

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        if hasattr(self, "deps"):  # again, on the way to an error; the first time there are no deps yet
            self.prepare()

    def prepare(self) -> None:
        own = origin_of(self.deps.frame_url_for(self.request.host))
        for name, value in frame_headers(own, self.deps.host_origins_for(self.request.host)).items():
            self.set_header(name, value)

    def parse_url_path(self, url_path: str) -> str:
        return super().parse_url_path(url_path or "index.html")
