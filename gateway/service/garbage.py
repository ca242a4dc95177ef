"""When the interpreter looks for cyclic garbage: in passing among what is young, in all that lives only when nobody would notice.

A look at everything stops the loop: 20 ms after a start, more than a second with 10,000 sessions (measured by ``make bench``).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

LOOK_S = 10.0
FULL_AT_LATEST_S = 900.0
WORTH = 5
"""Rounds among the young since the last full one: fewer, and there is nothing to find."""


def settle() -> None:
    """What is loaded by now stays, and is never looked at again; from now on full rounds are ours to begin."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 1_000_000)


async def keep_tidy(quiet: Callable[[], bool]) -> None:
    """A full round now and then, when ``quiet`` says that no cell runs, or after ``FULL_AT_LATEST_S`` all the same."""
    since = 0.0
    while True:
        await asyncio.sleep(LOOK_S)
        since += LOOK_S
        if gc.get_count()[2] >= WORTH and (since >= FULL_AT_LATEST_S or quiet()):
            gc.collect()
            since = 0.0
