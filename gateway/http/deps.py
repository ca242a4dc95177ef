"""What the HTTP layer is given: small values and narrow protocols, made by ``gateway.main``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from ..domain.model import Principal
from ..domain.sensitive import Screens
from ..ports import Clock
from ..service.tally import Tally
from ..service.tasks import Tasks
from .cache import ByteCache
from .headers import is_origin
from .notebooks import Notebooks
from .presence import Presence

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
"""``(scope, receive, send)``."""


class Tokens(Protocol):
    def verify(self, token: str) -> Principal:
        """Check a bearer token. Raises Unauthenticated (also for an expired one)."""
        ...


class Keys(Protocol):
    """Keys of an identity provider that changes them."""

    async def learn(self, token: str) -> bool:
        """Whether it was asked for a key that this token names: check it again then. Raises Unavailable."""
        ...


class Pages(Protocol):
    """Login links, page sessions and download links."""

    def issue_ticket(self, principal: Principal, purpose: str) -> tuple[str, float]:
        """A single-use ticket and when it expires, in seconds since the epoch. Raises QuotaExceeded."""
        ...

    def redeem(self, ticket: str, purpose: str) -> tuple[str, Principal]:
        """Use up a ticket: the value for the page's cookie, and whose it is. Raises Unauthenticated."""
        ...

    def verify_cookie(self, value: str) -> Principal:
        """Whose page this is. Raises Unauthenticated."""
        ...

    def renew(self, value: str) -> str | None:
        """A longer-lived value for the cookie, when it is time for one. Raises Unauthenticated."""
        ...

    def issue_link(self, principal: Principal, artifact_id: str) -> tuple[str, float]:
        """A signed download link, and when it expires, in seconds since the epoch."""
        ...

    def check_link(self, link: str, principal: Principal, artifact_id: str) -> None:
        """Raises NotFound when the link does not lead this caller to this artifact."""
        ...

    def end(self, value: str) -> None:
        """Forget a page session; nothing happens when there is none."""
        ...


class Figures(Protocol):
    def text(self) -> bytes:
        """Every figure, in Prometheus' text format."""
        ...


@dataclass(slots=True)
class HttpLimits:
    """Bounds of the HTTP layer. Bytes, seconds and counts."""

    json_bytes: int = 4 * 1024**2
    upload_bytes: int = 256 * 1024**2
    message_bytes: int = 64 * 1024**2
    wait_s: float = 300.0
    heartbeat_s: float = 15.0
    ping_s: float = 30.0
    silence_s: float = 150.0
    """A websocket from which nothing came for so long, though it was asked, is dropped."""
    bad_messages: int = 20


async def _nothing_to_record() -> None:
    pass


@dataclass(slots=True)
class Deps:
    """``url`` and ``frame_url`` are known once the sockets are bound. ``origins`` (in lower case): where a browser may
    come from besides the origin it was served from. ``frame_fixed``: the frame's address was configured, not derived.
    """

    tokens: Tokens
    pages: Pages
    clock: Clock
    url: str = ""
    frame_url: str = ""
    frame_fixed: bool = False
    origins: frozenset[str] = frozenset()
    web_dir: Path = Path("web")
    limits: HttpLimits = field(default_factory=HttpLimits)
    converted: ByteCache = field(default_factory=ByteCache)
    notebooks: Notebooks = field(default_factory=Notebooks)
    presence: Presence = field(default_factory=Presence)
    tasks: Tasks = field(default_factory=Tasks)
    tally: Tally = field(default_factory=Tally)
    screens: Screens = field(default_factory=Screens)
    keys: Keys | None = None
    figures: Figures | None = None
    mcp: AsgiApp | None = None
    """Answers ``/mcp``; the caller stands in the scope as ``sandglass.principal``. Without: there is no such page."""
    recorded: Callable[[], Awaitable[None]] = _nothing_to_record
    """Returns when revocations are recorded."""
    scrape_token: bytes = field(default=b"", repr=False)
    """Opens ``/metrics`` and nothing else; empty: only an admin's token does."""

    @property
    def secure(self) -> bool:
        """Whether browsers reach us over TLS (a proxy in front ends it)."""
        return self.url.startswith("https://")

    def frame_url_for(self, host: str) -> str:
        """The frame's address as seen by a browser that reached us as ``host`` (a Host header).

        The same machine has several names (``localhost``, an address, a DNS name); page and frame use the same one.
        """
        if self.frame_fixed or not self.frame_url:
            return self.frame_url
        return _with_name_of(self.frame_url, host)

    def host_origins_for(self, host: str) -> list[str]:
        """Where the page may stand that frames us, as seen by a browser that reached the frame's server as ``host``."""
        return sorted({_origin(self.url), _origin(_with_name_of(self.url, host)), *self.origins} - {""})


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _with_name_of(url: str, host: str) -> str:
    """``url`` with its host name replaced by that of a Host header; unchanged when the header is not a plain host."""
    if not is_origin(f"http://{host}"):
        return url
    name = host if host.endswith("]") else host.rsplit(":", 1)[0] if ":" in host else host
    parts = urlsplit(url)
    return parts._replace(netloc=f"{name}:{parts.port}" if parts.port else name).geturl()


def origin_of(url: str) -> str:
    """``scheme://host[:port]`` of an address; empty when it has none."""
    return _origin(url)
