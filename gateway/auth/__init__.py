"""Who is asking: bearer tokens, login links and page sessions. No HTTP in it; imports errors, domain and ports only."""

from .jwks import ProviderKeys
from .kept import KeptRevocations
from .keys import BadKey
from .links import Links
from .pages import Pages, PageSessions, Tickets
from .revocation import Revocation, Revocations
from .settings import AuthSettings
from .tokens import TokenVerifier

__all__ = [
    "AuthSettings",
    "BadKey",
    "KeptRevocations",
    "Links",
    "PageSessions",
    "Pages",
    "ProviderKeys",
    "Revocation",
    "Revocations",
    "Tickets",
    "TokenVerifier",
]
