"""How long until a first result: warm, cold, after a restart; and how fast a cell ends when it is interrupted."""

from __future__ import annotations

from functools import partial

from ..client import Seen
from ..lab import GATEWAY, PEER, TUNED, Lab, alternate
from ..processes import Server
from ..subjects.web import Web
from .execute import figures

COLD = "gateway, pool off"


async def _one(lab: Lab, server: Server, profile: str) -> list[Seen]:
    await lab.settled(profile)  # also before the peer's turn: the pool that fills up again would slow it
    web = Web(server, profile)
    try:
        return [await web.open()]
    finally:
        await web.close()


async def warm(lab: Lab, profile: str) -> None:
    """From the request of a session (a kernel, over the Jupyter API) to the first result, pool warm"""
    servers = {GATEWAY: lab.gateway(), PEER: lab.peer(), TUNED: lab.tuned()}
    await _one(lab, lab.gateway(), profile)
    found = await alternate({n: partial(_one, lab, s, profile) for n, s in servers.items()}, lab.rounds(12), 0.3)
    lab.report.add("session request to first result, pool warm", profile, "ms", figures(found), under=80 if profile == "gvisor" else 25)


async def cold(lab: Lab, profile: str) -> None:
    """The same with the pool off, the image being present"""
    servers = {COLD: lab.cold_gateway(), TUNED: lab.tuned()}
    try:
        found = await alternate({n: partial(_one, lab, s, profile) for n, s in servers.items()}, lab.rounds(8), 1.0)
    finally:
        lab.end_server("cold")
    lab.report.add("session request to first result, cold", profile, "ms", figures(found), under=1500 if profile == "gvisor" else 600)


async def _fresh(lab: Lab, profile: str) -> dict[str, Web]:
    # sessions of their own: a restart kills what runs in the sandbox, the client inside too
    made = {name: await lab.fresh(server, profile) for name, server in ((GATEWAY, lab.gateway()), (PEER, lab.peer()), (TUNED, lab.tuned()))}
    await lab.settled(profile)
    return made


async def restart(lab: Lab, profile: str) -> None:
    """From the request of a restart to the next result"""
    webs = await _fresh(lab, profile)

    async def turn(web: Web) -> list[Seen]:
        return [await web.restart()]

    try:
        found = await alternate({n: partial(turn, w) for n, w in webs.items()}, lab.rounds(10), 2.0)
    finally:
        for web in webs.values():
            await web.close()
    lab.report.add("kernel restart to next result", profile, "ms", figures(found), under=60)


async def interrupt(lab: Lab, profile: str) -> None:
    """From the request of an interrupt to the end (reply and idle) of the interrupted cell"""
    webs = await _fresh(lab, profile)

    async def turn(web: Web) -> list[Seen]:
        return [await web.interrupt()]

    try:
        found = await alternate({n: partial(turn, w) for n, w in webs.items()}, lab.rounds(8), 0.2)
    finally:
        for web in webs.values():
            await web.close()
    lab.report.add("interrupt to the end of the cell", profile, "ms", figures(found))
