"""One module a group; ``MEASURES`` says the order. A measure gets the lab and a profile (empty when it has none)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..lab import Lab
from . import abuse, agent, agents, execute, fakes, files, flood, idle, lifetimes, looked_into, output, payload, refill, start


@dataclass(frozen=True)
class Measure:
    work: Callable[[Lab, str], Awaitable[None]]
    each_profile: bool = True

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return (self.work.__doc__ or "").strip().splitlines()[0] if self.work.__doc__ else ""


MEASURES: list[tuple[str, Measure]] = [
    ("memory", Measure(fakes.memory, each_profile=False)),
    ("sessions", Measure(fakes.sessions, each_profile=False)),
    ("execute", Measure(execute.roundtrip)),
    ("rest", Measure(agent.execute)),
    ("events", Measure(agent.stream)),
    ("cpu", Measure(execute.cpu)),
    ("eight", Measure(execute.eight)),
    ("warm", Measure(start.warm)),
    ("cold", Measure(start.cold)),
    ("restart", Measure(start.restart)),
    ("interrupt", Measure(start.interrupt)),
    ("output", Measure(output.flushed)),
    ("onemessage", Measure(output.one_message)),
    ("prints", Measure(output.prints)),
    ("display", Measure(payload.display)),
    ("comm", Measure(payload.comm)),
    ("inward", Measure(payload.inward)),
    ("files", Measure(files.updown)),
    ("inspect", Measure(looked_into.looked_into)),
    ("recycle", Measure(lifetimes.recycle)),
    ("idle", Measure(idle.sandbox)),
    ("flood", Measure(flood.neighbour)),
    ("attacks", Measure(abuse.resources)),
    ("outputattacks", Measure(abuse.outputs)),
    ("refill", Measure(refill.neighbour)),
    ("agents", Measure(agents.queue)),
]
