"""Whether a pool that fills up again slows the sessions that are at work."""

from __future__ import annotations

import asyncio

from ..client import Seen
from ..lab import GATEWAY, Lab
from ..subjects.web import Api, Web
from .execute import figures

FULL = "pool full"


def _filling(api: Api, profile: str) -> bool:
    pool = api.call("GET", "/healthz")["checks"]["pool"]
    return bool(pool["creating"].get(profile, 0)) or not pool["warm"].get(profile, 0)


async def neighbour(lab: Lab, profile: str) -> None:
    """`pass` of one session while the pool replaces what another claimed, and while it is full"""
    server = lab.gateway()
    api, web = Api(server), await lab.fresh(server, profile)
    found: dict[str, list[Seen]] = {GATEWAY: [], FULL: []}
    try:
        for _ in range(lab.rounds(8)):
            await lab.settled(profile)
            found[FULL] += await web.runs("pass", 60)
            claimed = Web(server, profile)
            await claimed.open()
            for _ in range(200):
                if await asyncio.to_thread(_filling, api, profile):
                    break
                await asyncio.sleep(0.02)
            while await asyncio.to_thread(_filling, api, profile):
                found[GATEWAY] += await web.runs("pass", 20)
            await claimed.close()
    finally:
        await web.close()
    lab.report.add("`pass` while the pool fills up", profile, "ms", figures(found))
