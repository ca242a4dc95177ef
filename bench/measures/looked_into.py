"""What looking into a file costs: a workbook on its way in, a picture on its way out."""

from __future__ import annotations

import asyncio
import io
import random
import time
import zipfile

from ..lab import GATEWAY, Lab
from ..processes import Server, start_gateway
from ..report import Figure
from ..subjects.web import Web

CHART = """
import os
from PIL import Image
os.makedirs('out', exist_ok=True)
for n in range({count}): Image.effect_noise((1000, 700), 60).save(f'out/{{n}}.png')
"""


def workbook() -> bytes:
    """A ZIP of ten tables of 100 KB."""
    rng, data = random.Random(8), io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for sheet in range(10):
            archive.writestr(f"xl/worksheets/sheet{sheet}.xml", "".join(f"<v>{rng.random()}</v>" for _ in range(4000)))
    return data.getvalue()


async def _timed(web: Web, method: str, path: str, body: bytes | None = None) -> float:
    begun = time.perf_counter()
    await asyncio.to_thread(web.api.raw, method, f"/api/v1/sessions/{web.kernel_id}/files/{path}", body)
    return (time.perf_counter() - begun) * 1e3


def _start(lab: Lab, profile: str, **settings: str) -> Server:
    return start_gateway(lab.docker_host, lab.image, SANDGLASS_DEFAULT_PROFILE=profile, **settings)


async def looked_into(lab: Lab, profile: str) -> None:
    """An uploaded workbook unpacked in a disposable sandbox and on the host; a picture encoded anew, and as it is stored"""
    count, data = lab.rounds(10), workbook()
    books: dict[str, Figure] = {}
    pictures: dict[str, Figure] = {}
    for name, settings in ((GATEWAY, {}), ("on the host, as stored", {"SANDGLASS_UNPACK": "host", "SANDGLASS_PICTURES": "stored"})):
        server = _start(lab, profile, **settings)
        try:
            web = await lab.fresh(server, profile)
            await web.run(CHART.format(count=count + 1))
            await lab.settled(profile, server)
            up = [await _timed(web, "PUT", f"in/{n}.xlsx", data) for n in range(count + 1)]
            down = [await _timed(web, "GET", f"out/{n}.png") for n in range(count + 1)]
            await web.close()
        finally:
            server.stop()
        for row, values in ((books, up), (pictures, down)):
            row[name] = Figure.of(values[1:])
            row[f"{name}: first"] = Figure.of(values[:1])
    lab.report.add(f"upload of a workbook of {len(data) // 1000} KB", profile, "ms", books, compare=("on the host, as stored",))
    lab.report.add("download of a picture of 1000 x 700", profile, "ms", pictures, compare=("on the host, as stored",))
