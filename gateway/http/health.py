"""``/healthz``: this process answers. ``/readyz``: and what it needs does too."""

from __future__ import annotations

from .base import Base


class HealthHandler(Base):
    """Always 200 while the loop turns: a gateway whose engine is away must not be killed for it, it holds sessions."""

    async def get(self) -> None:
        _, body = await self.gateway.health()
        self.answer(body)


class ReadyHandler(Base):
    async def get(self) -> None:
        ok, body = await self.gateway.health()
        self.answer(body, 200 if ok else 503)
