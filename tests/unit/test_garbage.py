"""Full rounds of garbage collection are begun when it is quiet, or when it has been too long."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from gateway.service import garbage


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Loop:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


def old_garbage() -> weakref.ref[Loop]:
    found = weakref.ref(made := Loop())
    gc.collect(1)  # it is old now
    del made
    for _ in range(garbage.WORTH + 1):
        gc.collect(1)
    assert found() is not None
    return found


@pytest.mark.parametrize(("quiet", "latest", "gone"), [(True, 900.0, True), (False, 900.0, False), (False, 0.02, True)])
async def test_a_full_round(monkeypatch: pytest.MonkeyPatch, quiet: bool, latest: float, gone: bool) -> None:
    monkeypatch.setattr(garbage, "LOOK_S", 0.01)
    monkeypatch.setattr(garbage, "FULL_AT_LATEST_S", latest)
    garbage.settle()
    found = old_garbage()
    task = asyncio.get_running_loop().create_task(garbage.keep_tidy(lambda: quiet))
    await asyncio.sleep(0.2)
    task.cancel()
    assert (found() is None) is gone
