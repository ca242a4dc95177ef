"""A gateway on a fake engine, put together as ``gateway.main`` does it: for what no machine has room to try with real sandboxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gateway.backends.records import SqliteRecords
from gateway.domain.model import Lifetimes, Limits, Profile
from gateway.ports import Clock, RuntimeEvent
from gateway.service import garbage
from gateway.service.adoption import Adoption
from gateway.service.deadlines import Deadlines
from gateway.service.gateway import Gateway
from gateway.service.monitor import LEASE_TTL_S, Monitor
from gateway.service.pool import Pool
from gateway.service.sandboxes import Sandboxes
from gateway.service.tasks import Tasks
from gateway.service.world import Caps, World
from gateway.testing.clock import ManualClock
from gateway.testing.runtime import FakeRuntime
from gateway.testing.stores import MemoryStore

IMAGE, TIER = "sandglass-kernel:test", "container"
IDLE_S, WARN_S, MOST = 1200.0, 60.0, 100_000


class Engine(FakeRuntime):
    def _is_of(self, event: RuntimeEvent, instance: str) -> bool:
        return True  # the fake's own search through all it ever made would be what is measured


async def boot(path: Path, clock: Clock, late: Callable[[float], None] = lambda seconds: None) -> tuple[Gateway, Engine]:
    """With everything that runs beside the sessions. ``late``: told by how much each deadline was."""
    records, tasks, runtime, deadlines = SqliteRecords(path / "records.sqlite"), Tasks(), Engine(clock), Deadlines(clock, late)
    await records.open()
    limits = replace(Limits(), interrupt_grace_s=0.3, kill_grace_s=0.3)
    profile = Profile(TIER, TIER, "runc", IMAGE, TIER, limits, Lifetimes(idle_s=IDLE_S, max_s=86400.0, warn_before_s=(WARN_S,), drain_grace_s=0.5))
    instance = await records.instance_id()
    epoch = await records.acquire_lease("bench", clock.now(), LEASE_TTL_S)
    sandboxes = Sandboxes(runtime, records, clock, tasks, instance=instance, epoch=epoch, images={TIER: IMAGE})
    pool = Pool(sandboxes, records, clock, tasks, profiles={TIER: profile}, warm_profiles=[TIER], target=0, max_live=MOST)
    caps = Caps(sessions_a_user=MOST, live_sandboxes_a_user=MOST)
    world = World(clock, records, MemoryStore(), tasks, deadlines, sandboxes, pool, {TIER: profile}, path / "journals", caps)
    gateway = Gateway(world, default_profile=TIER, problems={})
    adoption = Adoption(gateway, instance)
    await adoption.load()
    await adoption.run()
    Monitor(gateway, adoption, instance, "bench", lambda: None).start()
    garbage.settle()
    tasks.spawn(garbage.keep_tidy(gateway.quiet), "garbage")
    if isinstance(clock, ManualClock):
        clock.on_advance(deadlines.run_due)
    return gateway, runtime
