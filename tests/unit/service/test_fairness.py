"""Processor time among tenants: weights follow who works, and who uses much for long is told to admins, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.backends.metrics import Metrics
from gateway.domain.fairness import FULL_WEIGHT, LEAST_WEIGHT, Load, weights
from gateway.domain.model import Principal
from gateway.ports import SessionQuery
from gateway.service import fairness
from gateway.service.fairness import CpuWatch
from tests.unit.service.harness import ALICE, Rig, rig

MALLORY = Principal("mallory", "t2")
ADMIN = Principal("root", "t0", frozenset({"admin"}))


def test_a_tenants_weight_is_split_among_those_that_work() -> None:
    assert weights({}) == {}
    assert weights({"a": "t1"}) == {"a": FULL_WEIGHT}
    made = weights({f"m{n}": "t2" for n in range(8)} | {"a": "t1"})
    assert made.pop("a") == FULL_WEIGHT and set(made.values()) == {FULL_WEIGHT // 8}
    assert set(weights({str(n): "t" for n in range(1000)}).values()) == {LEAST_WEIGHT}


def test_a_load_is_high_from_80_percent_until_below_half() -> None:
    load, used = Load(10.0, 0.0), 10.0
    for at, cores, high in ((10, 0.7, None), (20, 0.9, 10), (30, 0.6, 10), (40, 0.79, 10), (50, 0.4, None), (60, 0.6, None), (70, 1.0, 60)):
        used += cores * 10
        load = load.look(used, float(at), 1.0)
        assert load.cores == pytest.approx(cores) and load.high_since == high
    assert load.sustained(10.0) and not load.sustained(10.1)
    assert load.look(0.0, 80.0, 1.0).cores == load.cores, "a counter that went back says nothing"
    assert load.look(used, load.at, 1.0).cores == load.cores


async def look(r: Rig, watch: CpuWatch, seconds: float, **cores: float) -> None:
    """Time goes by, in which each session's sandbox used so many cores."""
    for session in r.gateway.live.values():
        if session.sandbox is not None:
            r.runtime.sandboxes[session.sandbox.row.engine_id].cpu_s += seconds * cores.get(session.row.user, 0.0)
    r.clock.advance(seconds)  # type: ignore[attr-defined]
    await watch.look()


class Clock:
    """The system's clock, which a test can put forward."""

    def __init__(self, real: Any) -> None:
        self._real, self._more = real, 0.0

    def advance(self, seconds: float) -> None:
        self._more += seconds

    def boottime(self) -> float:
        return self._real.boottime() + self._more

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def test_weights_follow_the_work(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.clock = r.gateway.world.clock = Clock(r.clock)  # type: ignore[assignment]
        alice = await r.session(ALICE)
        many = [await r.session(MALLORY) for _ in range(4)]
        watch = CpuWatch(r.gateway, 600.0)

        def weight(session: Any) -> int:
            live = r.gateway.live[session.session_id]
            assert live.sandbox is not None
            return r.runtime.sandboxes[live.sandbox.row.engine_id].cpu_weight

        await look(r, watch, 10.0)
        await look(r, watch, 10.0, alice=1.0, mallory=1.0)
        assert weight(alice) == FULL_WEIGHT and {weight(m) for m in many} == {FULL_WEIGHT // 4}
        await look(r, watch, 10.0, alice=1.0)
        assert {weight(m) for m in many} == {FULL_WEIGHT}, "who does not work shares with nobody"


async def test_sustained_use_is_told_once_to_admins_and_the_user(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.clock = r.gateway.world.clock = Clock(r.clock)  # type: ignore[assignment]
        alice, mallory = await r.session(ALICE), await r.session(MALLORY)
        watch = CpuWatch(r.gateway, 60.0)
        metrics = Metrics(r.gateway)
        await look(r, watch, 10.0)
        for _ in range(5):
            await look(r, watch, 10.0, mallory=0.95, alice=0.3)
        assert b"sandglass_sandboxes_cpu_sustained 0.0" in metrics.text()
        for _ in range(4):
            await look(r, watch, 10.0, mallory=0.95, alice=0.3)
        assert b"sandglass_sandboxes_cpu_sustained 1.0" in metrics.text() and b"sandglass_cpu_sustained_total 1.0" in metrics.text()
        rows, _ = await r.gateway.oversight.sessions(ADMIN, SessionQuery())
        shown = {row["user"]: row["cpu_sustained"] for row in rows}
        assert shown["alice"] is None and shown["mallory"]["cores"] == 0.95 and shown["mallory"]["since"].endswith("Z")
        told = [n for n in await mallory.notices() if n["kind"] == "cpu_sustained"]
        assert len(told) == 1 and "processor" in told[0]["text"]
        assert not [n for n in await alice.notices() if n["kind"] == "cpu_sustained"]
        detail = await r.gateway.oversight.session(ADMIN, mallory.session_id)
        assert "cpu_sustained" in {n["kind"] for n in detail["notices"]}
        await look(r, watch, 10.0, mallory=0.1)
        rows, _ = await r.gateway.oversight.sessions(ADMIN, SessionQuery())
        assert {row["cpu_sustained"] for row in rows} == {None}
        silent = CpuWatch(r.gateway, 0.0)
        for _ in range(3):
            await look(r, silent, 1000.0, mallory=1.0)
        assert len([n for n in await mallory.notices() if n["kind"] == "cpu_sustained"]) == 1


async def test_an_engine_that_takes_no_weight_is_asked_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with rig(tmp_path) as r:
        r.clock = r.gateway.world.clock = Clock(r.clock)  # type: ignore[assignment]
        for _ in range(2):
            await r.session(MALLORY)
        asked = []

        async def refuse(engine_id: str, weight: int) -> None:
            asked.append(engine_id)
            raise fairness.SandglassError("not supported")

        r.runtime.set_cpu_weight = refuse  # type: ignore[method-assign]
        watch = CpuWatch(r.gateway, 600.0)
        for _ in range(5):
            await look(r, watch, 10.0, mallory=1.0)
        assert len(asked) == 1 and caplog.text.count("weight was not set") == 1
