"""``/metrics``: what an operator's Prometheus reads. Never anonymous; the figures tell how much everybody works."""

from __future__ import annotations

import hmac

from ..errors import Forbidden, Unauthenticated, Unavailable
from .auth import header_token, learn_keys, verify
from .base import Base

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsHandler(Base):
    """By the Authorization header alone: a platform admin's token, or the scrape token, which opens nothing else."""

    async def prepare(self) -> None:
        token = header_token(self.request)
        if not token:
            raise Unauthenticated("A token is needed: 'Authorization: Bearer TOKEN', of an admin of the platform or SANDGLASS_METRICS_TOKEN.")
        expected = self.deps.scrape_token
        if expected and hmac.compare_digest(token.encode("utf-8", "surrogateescape"), expected):
            return
        try:
            self.principal = verify(token, self.deps)
        except Unauthenticated:
            if not await learn_keys(self.request, self.deps, query=False):
                raise
            self.principal = verify(token, self.deps)
        if not self.principal.is_platform_admin:
            raise Forbidden("The figures are for admins of the platform; they are of all tenants together.")

    def get(self) -> None:
        if self.deps.figures is None:
            raise Unavailable("This gateway keeps no figures.")
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(self.deps.figures.text())
