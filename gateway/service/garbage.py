"""When the interpreter looks for cyclic garbage: in passing among what is young, in more only when nobody would notice.

A look at everything stops the loop: 20 ms after a start, more than a second with 10,000 sessions (measured by ``make bench``), and
every deadline that is due meanwhile is late. So what survives a full round is put aside, and the next one looks only at what came
since. What was put aside may become garbage too (sessions end): a deep round looks at it, rarely, and when no deadline is near.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

LOOK_S = 2.0
FULL_AT_LATEST_S = 900.0
DEEP_S = 3600.0
DEEP_AT_LATEST_S = 6 * 3600.0
GROWN, GROWN_FAR = 2.0, 4.0
"""A deep round is wanted, and at last done, when so many times more is put aside than the last one left."""


def settle() -> None:
    """What is loaded by now is put aside; from now on full rounds are ours to begin."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 1_000_000)


async def keep_tidy(quiet: Callable[[float], bool]) -> None:
    """A full round now and then, when ``quiet(seconds)`` says that nobody needs the loop for as long as the last one took, or at the latest
    after ``FULL_AT_LATEST_S`` all the same; a deep one likewise."""
    loop = asyncio.get_running_loop()
    full_at = deep_at = loop.time()
    full_s = deep_s = 0.0
    left = gc.get_freeze_count()
    aside = left
    while True:
        await asyncio.sleep(LOOK_S)
        now = loop.time()
        deep_age = now - deep_at
        wanted = aside > GROWN * left or deep_age >= DEEP_S
        if deep_age >= DEEP_AT_LATEST_S or aside > GROWN_FAR * left or (wanted and quiet(deep_s)):
            gc.unfreeze()
            left = aside = _round()
            full_at = deep_at = loop.time()
            deep_s = deep_at - now
        elif gc.get_count()[2] and (now - full_at >= FULL_AT_LATEST_S or quiet(full_s)):
            aside = _round()
            full_at = loop.time()
            full_s = full_at - now


def _round() -> int:
    """Returns how much is put aside now."""
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()
