"""The only place that asks what time it is (the linter forbids it elsewhere)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path


class SystemClock:
    """Wall time for people and records, boot time for deadlines.

    Boot time goes on while the machine sleeps and never jumps; it means nothing after a reboot, which ``boot_id`` tells.
    """

    def now(self) -> float:
        """Seconds since the epoch (UTC)."""
        return time.time()  # noqa: TID251 - this is the clock

    def boottime(self) -> float:
        """Seconds since this machine booted, suspended time included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """A name for this boot of the machine."""
        return _boot_id()


@cache
def _boot_id() -> str:
    """Read once: a process does not outlive its boot, and every record of an execution names it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def iso(ts: float) -> str:
    """RFC 3339 with microseconds and ``Z``: exactly the form that Jupyter clients parse. (``strftime`` asks the file system for the zone.)"""
    return datetime.fromtimestamp(ts, UTC).isoformat(timespec="microseconds")[:-6] + "Z"
