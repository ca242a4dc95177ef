"""A recycle with declared files, from its request to "destroyed and verified"; and a dormant session's way back to a first result."""

from __future__ import annotations

import asyncio
import time

from ..client import Seen
from ..lab import GATEWAY, Lab
from ..report import Figure
from ..subjects.web import Web
from .execute import figures

FILES, MB = 10, 1_000_000
WRITE = f"import os\nos.makedirs('out', exist_ok=True)\nfor n in range({FILES}): open(f'out/{{n}}', 'wb').write(os.urandom({MB}))"
CAME = f"import os; print('-' * sum(os.path.getsize(f'out/{{n}}') == {MB} for n in range({FILES})), end='')"


async def _recycle(web: Web) -> float:
    """Seconds until the session is dormant: stored, verified, the sandbox destroyed and seen to be gone."""
    path, begun = f"/api/v1/sessions/{web.kernel_id}", time.perf_counter()
    await asyncio.to_thread(web.api.call, "POST", f"{path}/recycle", {})
    while (await asyncio.to_thread(web.api.call, "GET", path))["state"] != "dormant":
        await asyncio.sleep(0.005)
    return time.perf_counter() - begun


async def recycle(lab: Lab, profile: str) -> None:
    """A recycle with 10 declared files of 1 MB that were just written, and the way back with those files, pool warm"""
    web = await lab.fresh(lab.gateway(), profile)
    away, back = list[float](), list[Seen]()
    try:
        for _ in range(lab.rounds(8)):
            await web.run(WRITE)
            away.append(await _recycle(web))
            await lab.settled(profile)
            back.append(await web.run("1+1"))
            came = (await web.run(CAME)).text
            if came != FILES:
                raise RuntimeError(f"{came} of {FILES} files came back")
            await lab.settled(profile)
    finally:
        await web.close()
    lab.report.add("recycle with 10 files of 1 MB, to destroyed and verified", profile, "s", {GATEWAY: Figure.of(away)}, under=1.5)
    lab.report.add("dormant to first result with those files, pool warm", profile, "ms", figures({GATEWAY: back}), under=400)
