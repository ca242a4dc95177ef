"""Output out of a kernel: 100 MB flushed and as one print, 20,000 small prints. What did not arrive is counted everywhere."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..client import Seen
from ..lab import GATEWAY, INSIDE, PEER, RELAY, TUNED, Lab, alternate
from ..report import Figure

MB = 1_000_000


async def _row(lab: Lab, profile: str, what: str, unit: str, code: str, text: int, lines: int, amount: float, rounds: int, **target: Any) -> None:
    """``text``: characters that must arrive; ``lines``: the messages that may arrive at the most, 0 for any; ``amount``: of the unit in all."""
    subjects = await lab.subjects(profile, GATEWAY, RELAY, INSIDE, TUNED, PEER)

    async def turn(subject: Any) -> list[Seen]:
        return [await subject.run(code)]

    found = await alternate({name: partial(turn, subject) for name, subject in subjects.items()}, lab.rounds(rounds), 1.0)
    figures = {}
    for name, seen in found.items():
        if seen and isinstance(seen[-1], Exception):
            figures[name] = Figure.failed(seen[-1])
            continue
        # what is lost is not throughput: only what arrived counts
        arrived = [min(1.0, s.text / text) for s in seen]
        lost = 1 - sum(arrived) / len(arrived)
        note = f"{lost:.1%} lost" if lost > 0 else "nothing lost"
        if lines:
            note += f", {seen[-1].messages:,} messages"
        if not all(s.finished for s in seen):
            note += ", did not finish"
        figures[name] = Figure.of([amount * part / s.seconds for part, s in zip(arrived, seen, strict=True)], note)
    lab.report.add(what, profile, unit, figures, **target)


async def flushed(lab: Lab, profile: str) -> None:
    """100 MB as 100 flushed prints of 1 MB"""
    n = lab.size(100, 10)
    code = f"s = 'x' * {MB - 1}\nfor _ in range({n}): print(s, flush=True)"
    await _row(lab, profile, f"{n} x 1 MB printed and flushed", "MB/s", code, n * MB, 0, n, 5, ratio=(RELAY, ">=", 0.7))


async def one_message(lab: Lab, profile: str) -> None:
    """100 MB as one print (one message of the peer's kernel; the image's kernel cuts it)"""
    n = lab.size(100, 10)
    await _row(lab, profile, f"{n} MB in one print", "MB/s", f"print('x' * {n * MB - 1})", n * MB, 0, n, 5, ratio=(RELAY, ">=", 0.7))


async def prints(lab: Lab, profile: str) -> None:
    """20,000 small prints, each flushed"""
    n = lab.size(20_000, 1000)
    code = f"for i in range({n}): print(f'line {{i:06}}', flush=True)"
    await _row(lab, profile, f"{n:,} flushed prints", "prints/s", code, n * 12, n, n, 5, ratio=(INSIDE, ">=", 0.9))
