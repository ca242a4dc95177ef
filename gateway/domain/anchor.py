"""Times that outlive a process: boot time where it is the same boot, wall time where it is not. Pure; all times in seconds.

Boot time never jumps, so within a boot a record's times hold whatever people set the clock to. After a reboot only the wall clock
says how long it took: one that shows less than when the record was written was put back, and then no time is known to have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment by both clocks. ``boot_id``: which boot ``boottime`` belongs to."""

    boot_id: str
    boottime: float
    wall: float

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Anchor:
        """From a record's ``boot_id``, ``boottime`` and ``wall``; what is not there is no boot of ours, and the epoch."""
        return cls(str(data.get("boot_id") or ""), float(data.get("boottime") or 0.0), float(data.get("wall") or 0.0))

    def same_boot(self, then: Anchor) -> bool:
        """Boot time that went back is another boot, whatever its name says."""
        return self.boot_id == then.boot_id != "" and self.boottime >= then.boottime

    def since(self, then: Anchor) -> float:
        """How long ago ``then`` was; never negative."""
        if self.same_boot(then):
            return self.boottime - then.boottime
        return max(0.0, self.wall - then.wall)

    def carried(self, at: float, then: Anchor, not_before: float | None = None) -> float:
        """A boot time that was recorded at ``then``, in the boot time of now.

        ``not_before``: wall time (the engine's: when the container was started) that bounds it after a reboot.
        """
        if self.same_boot(then):
            return at
        moved = self.boottime - self.since(then) + (at - then.boottime)
        if not_before is None:
            return moved
        shown = max(self.wall, then.wall)  # a clock that was put back does not make the container younger either
        return max(moved, self.boottime - max(0.0, shown - not_before))
