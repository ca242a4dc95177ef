"""Four busy sandboxes of one tenant beside one of another, on the cores there are: without weights a fifth each, with them half and an eighth."""

from __future__ import annotations

import asyncio
import os
import time

import docker
import pytest

from gateway.backends.docker import DockerRuntime
from gateway.domain.fairness import FULL_WEIGHT, weights
from gateway.errors import SandglassError
from tests.integration.docker_probe import HOST, IMAGE, Probe, spec_for

pytestmark = [pytest.mark.asyncio, pytest.mark.skipif(not HOST or not IMAGE, reason="needs SANDGLASS_TEST_DOCKER_HOST and _IMAGE")]
SPIN = """
import os, time
print("spinning", flush=True); os.close(1)
until = time.monotonic() + 60
while time.monotonic() < until: pass
"""


async def shares(runtime: DockerRuntime, probes: list[Probe], seconds: float) -> list[float]:
    """Cores that each took. An engine with busy cores answers late: each has its own clock."""

    async def look() -> list[tuple[float, float]]:
        return [((await runtime.stats(p.engine_id))["cpu_s"], time.monotonic()) for p in probes]

    before = await look()
    await asyncio.sleep(seconds)
    return [(used - used_before) / (at - at_before) for (used_before, at_before), (used, at) in zip(before, await look(), strict=True)]


@pytest.mark.parametrize("kind", ["runc", "runsc"])
async def test_a_tenant_with_many_sandboxes_starves_nobody(kind: str) -> None:
    runtime = DockerRuntime(HOST)
    cores = os.cpu_count() or 1
    many = 2 * cores
    probes = [Probe(runtime, spec_for(kind)) for _ in range(many + 1)] if kind in (await runtime.info()).runtimes else []
    try:
        if not probes:
            pytest.skip(f"the engine has no {kind}")
        for probe in probes:
            await probe.start()
        wanted = weights({p.engine_id: "t2" for p in probes[1:]} | {probes[0].engine_id: "t1"})
        try:
            for engine_id, weight in wanted.items():
                await runtime.set_cpu_weight(engine_id, weight)
        except SandglassError as error:
            pytest.skip(f"{kind} takes no weight for a running sandbox: {error.detail}")
        client = docker.APIClient(HOST, version="auto")
        assert client.inspect_container(probes[0].engine_id)["HostConfig"]["CpuShares"] in (FULL_WEIGHT, 0)
        assert client.inspect_container(probes[1].engine_id)["HostConfig"]["CpuShares"] == FULL_WEIGHT // many
        client.close()
        await asyncio.gather(*(p.order(code=SPIN, background=True) for p in probes))
        one, *rest = await shares(runtime, probes, 5.0)
        assert one > 2 * max(rest), (one, rest)
        assert one <= 1.15, "its own cap holds, too"
    finally:
        for probe in probes:
            await probe.remove()
        await runtime.close()
