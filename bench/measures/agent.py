"""What an agent sees: an execution over REST beside the websocket of the same kernel, and an execution's event stream."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..client import Seen
from ..lab import GATEWAY, Lab, alternate
from ..report import Figure
from ..subjects.agent import Events, Rest
from .execute import figures

REST, EVENTS = "REST, with wait", "an execution's event stream"


async def execute(lab: Lab, profile: str) -> None:
    """`pass` over REST with `?wait`, beside the websocket of the same kernel"""
    web = (await lab.subjects(profile, GATEWAY))[GATEWAY]
    rest = Rest(lab.gateway(), profile, web)
    await rest.open()
    subjects: dict[str, Any] = {REST: rest, GATEWAY: web}
    count = lab.size(40, 10)

    async def turn(name: str) -> list[Seen]:
        # what the kernel said for the other one waits at the websocket: taken off before it counts
        await subjects[name].runs("pass", 3)
        found: list[Seen] = await subjects[name].runs("pass", count)
        return found

    found = await alternate({name: partial(turn, name) for name in subjects}, lab.rounds(10))
    lab.report.add("execute `pass` over REST", profile, "ms", figures(found), over=(GATEWAY, 1.5))


async def stream(lab: Lab, profile: str) -> None:
    """20,000 small prints, each flushed, read from the execution's event stream"""
    n = lab.size(20_000, 1000)
    code = f"for i in range({n}): print(f'line {{i:06}}', flush=True)"
    web = (await lab.subjects(profile, GATEWAY))[GATEWAY]
    events = Events(lab.gateway(), profile)
    await events.open()
    subjects: dict[str, Any] = {EVENTS: events, GATEWAY: web}

    async def turn(name: str) -> list[Seen]:
        return [await subjects[name].run(code)]

    try:
        found = await alternate({name: partial(turn, name) for name in subjects}, lab.rounds(5), 1.0)
    finally:
        await events.close()
    rows = {}
    for name, seen in found.items():
        if seen and isinstance(seen[-1], Exception):
            rows[name] = Figure.failed(seen[-1])
            continue
        arrived = [min(1.0, s.text / (n * 12)) for s in seen]
        lost = 1 - sum(arrived) / len(arrived)
        note = (f"{lost:.1%} lost" if lost > 0 else "nothing lost") + f", {seen[-1].messages:,} messages"
        note += "" if all(s.finished for s in seen) else ", did not finish"
        rows[name] = Figure.of([n * part / s.seconds for part, s in zip(arrived, seen, strict=True)], note)
    lab.report.add(f"{n:,} flushed prints as events", profile, "prints/s", rows, ratio=(GATEWAY, ">=", 0.8))
