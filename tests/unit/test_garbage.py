"""Full rounds of garbage collection are begun when it is quiet, or when it has been too long."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

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
    gc.collect(1)
    assert found() is not None
    return found


async def tidied(quiet: Callable[[float], bool]) -> None:
    task = asyncio.get_running_loop().create_task(garbage.keep_tidy(quiet))
    await asyncio.sleep(0.2)
    task.cancel()


@pytest.mark.parametrize(("quiet", "latest", "gone"), [(True, 900.0, True), (False, 900.0, False), (False, 0.02, True)])
async def test_a_full_round(monkeypatch: pytest.MonkeyPatch, quiet: bool, latest: float, gone: bool) -> None:
    monkeypatch.setattr(garbage, "LOOK_S", 0.01)
    monkeypatch.setattr(garbage, "FULL_AT_LATEST_S", latest)
    garbage.settle()
    found = old_garbage()
    await tidied(lambda seconds: quiet)
    assert (found() is None) is gone


async def test_what_survives_a_full_round_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "LOOK_S", 0.01)
    garbage.settle()
    many = [[] for _ in range(50_000)]
    before = gc.get_freeze_count()
    gc.collect(1)
    asked: list[float] = []
    monkeypatch.setattr(garbage, "GROWN", 1e9)
    await tidied(lambda seconds: asked.append(seconds) or True)  # type: ignore[func-returns-value]
    assert gc.get_freeze_count() >= before + len(many)
    assert asked and all(seconds < 60 for seconds in asked), "it is asked for the time that the last one took"


@pytest.mark.parametrize(
    ("quiet", "changed", "gone"),
    [
        (True, {"GROWN": 1e-9}, True), (True, {"DEEP_S": 0.02}, True), (True, {}, False), (False, {"GROWN": 1e-9}, False),
        (False, {"GROWN_FAR": 1e-9}, True), (False, {"DEEP_AT_LATEST_S": 0.02}, True),
    ],
)  # fmt: skip
async def test_a_deep_round_finds_what_was_put_aside(monkeypatch: pytest.MonkeyPatch, quiet: bool, changed: dict[str, float], gone: bool) -> None:
    monkeypatch.setattr(garbage, "LOOK_S", 0.01)
    for name, value in changed.items():
        monkeypatch.setattr(garbage, name, value)
    found = weakref.ref(made := Loop())
    garbage.settle()
    del made
    gc.collect()
    assert found() is not None, "it was put aside while it lived"
    await tidied(lambda seconds: quiet)
    assert (found() is None) is gone
