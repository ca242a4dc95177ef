"""Whether the wall clock may be believed when things are deleted by age. Pure.

The clock is compared with what it should show: what it showed at the last look, and the boot time that went by since.

- Behind that, it is believed: nothing is due early by a clock that is slow.
- Ahead by up to ``STEP_S`` (a correction), or by up to ``AWAY_S`` over a reboot (the machine was off), it is believed.
- Further ahead it is refused, until it is right again, or has stood by its word for ``HOLDS_S`` of running time: so long
  the operator had an error every hour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .retention import DAY_S, MARGIN_S

STEP_S = MARGIN_S
AWAY_S = 7 * DAY_S
HOLDS_S = 3 * DAY_S


@dataclass(frozen=True, slots=True)
class Seen:
    """The last look. ``wall``: the last time believed, as of ``boottime``. ``claim``: what is not believed; ``held_s``: for how long."""

    wall: float
    boottime: float
    boot_id: str
    claim: float | None = None
    held_s: float = 0.0


def look(last: Seen | None, now: float, boottime: float, boot_id: str) -> tuple[Seen, bool]:
    """What to remember, and whether ``now`` is believed."""
    believed = Seen(now, boottime, boot_id)
    if last is None:
        return believed, True
    same = last.boot_id == boot_id
    went = max(boottime - last.boottime, 0.0) if same else 0.0
    if now - (last.wall + went) <= (STEP_S if same else AWAY_S):
        return believed, True
    steady = last.claim is not None and -STEP_S <= now - (last.claim + went) <= (STEP_S if same else AWAY_S)
    held = last.held_s + went if steady else 0.0
    if held >= HOLDS_S:
        return believed, True
    return replace(last, wall=last.wall + went, boottime=boottime, boot_id=boot_id, claim=now, held_s=held), False
