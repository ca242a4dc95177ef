"""One trial: a user works, something happens at a chosen call to the world, and afterwards everything must be right.

Used by the tests (a thousand random points) and by hand: ``python -m tests.unit.service.kill_points SEED [COUNT]``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from gateway.domain.model import Lifetimes, Limits
from gateway.errors import RecordsUnavailable, StoreUnavailable, Unavailable
from gateway.protocol import jupyter
from gateway.service import live
from gateway.service.access import Access
from gateway.service.journal import EntryKind
from gateway.service.storing import artifact_key
from gateway.testing.stores import MemoryRecords

from .harness import ALICE, Rig, chunks, sha256
from .mortal import Fate, Mortal

log = logging.getLogger("sandglass.trials")
T = TypeVar("T")
SETTLE_S = 60.0
TRIAL_S = 240.0
CALLS = 110
"""About so many calls an undisturbed trial makes; the point is drawn from them."""
BLIP_S = 0.03
FAULTS = ("kill", "kill", "kill", "engine", "records", "store")
ENDS = ("recycle", "idle", "kernel", "restart", "none")


@dataclass
class Trial:
    """``file``: what out/a.txt may hold; ``asked`` executions by their token -> whether the user heard that it is done."""

    seed: int
    fault: str = ""
    struck: str = ""
    session_id: str = ""
    files: dict[str, list[str]] = field(default_factory=dict)
    sure: dict[str, int] = field(default_factory=dict)
    asked: dict[str, bool] = field(default_factory=dict)
    first_sandbox: str = ""
    losses: int = 0
    end: str = ""
    reached: str = ""


class MortalRig(Rig):
    """The records are in memory, and outlive a gateway as the engine and the store do."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.rows = MemoryRecords()
        self.real = (self.runtime, self.store)
        self.fate = Fate(None, False, lambda: None)
        self.booted = False

    def arm(self, fate: Fate) -> None:
        """The next gateway lives under this fate."""
        self.fate = fate

    def make_records(self) -> Any:
        return Mortal(self.rows, self.fate, "records")

    async def boot(self) -> Any:
        runtime, store = self.real
        self.runtime, self.store = Mortal(runtime, self.fate, "engine"), Mortal(store, self.fate, "store")  # type: ignore[assignment]
        try:
            gateway = await super().boot()
            self.booted = True
            return gateway
        finally:
            self.runtime, self.store = runtime, store

    async def bury(self) -> None:
        """The gateway is dead; what is left of it in this process goes."""
        self.fate.die()
        self.fate.buried = True
        alive = self.gateway.live.values() if hasattr(self, "gateway") else ()
        if alive:
            self.gateway.world.deadlines.close()
        for session in alive:
            session.ended.set()
            for timer in (session._save_timer, session._say_timer, session._announce_timer, session.runs._settle_timer):
                if timer is not None:
                    timer.cancel()
        for sandbox in self.real[0].sandboxes.values():
            for stream in list(sandbox.streams):
                await stream.close()
        if hasattr(self, "tasks"):
            await self.tasks.close(0.5)
        for session in alive:
            session.journal.close()


def _plan(rng: random.Random, trial: Trial) -> list[tuple[str, str]]:
    """What the user does."""
    steps: list[tuple[str, str]] = [("run", "set:df\nwrite:out/a.txt:{}")]
    steps += [("upload", "in/data.csv")] if rng.random() < 0.3 else []
    steps += [("run", "write:out/a.txt:{}\nwrite:out/b.txt:{}")]
    steps += [("pause", "")] if rng.random() < 0.5 else []
    trial.end = rng.choice(ENDS)
    steps += [(trial.end, "")]
    steps += [("run", "write:out/c.txt:{}"), ("run", "sleep:0.02\nwrite:out/a.txt:{}")]
    steps += [("recycle", ""), ("run", "print:x")] if rng.random() < 0.5 else []
    return steps


async def _user(rig: MortalRig, trial: Trial, steps: list[tuple[str, str]]) -> None:
    access = await _persevere(trial, lambda: rig.gateway.create_session(ALICE))
    assert isinstance(access, Access)
    trial.session_id = access.session_id
    for number, (what, code) in enumerate(steps):
        trial.reached = f"{number} {what}"
        if what in ("recycle", "idle", "kernel", "restart"):
            trial.losses += 1
        if what == "run":
            await _cell(access, trial, code, number)
        elif what == "upload":
            trial.files.setdefault(code, []).append(f"upload-{number}")
            await _persevere(trial, lambda path=code: _upload(access, path, f"upload-{number}"))  # type: ignore[misc]  # noqa: B023
            trial.sure[code] = len(trial.files[code])
        elif what == "pause":
            await asyncio.sleep(0.05)
        elif what == "recycle":
            access.recycle()
            await _until(lambda: access.to_json()["state"] == "dormant")
        elif what == "idle":
            session = rig.gateway.live[access.session_id]
            session.core = replace(session.core, lifetimes=replace(session.core.lifetimes, idle_s=0.02))
            session.take_timers()
            await _until(lambda: access.to_json()["state"] == "dormant")
            session.core = replace(session.core, lifetimes=rig.lifetimes)
        elif what == "kernel":
            execution_id = await _persevere(trial, lambda: access.execute("die:11"))
            await access.wait_execution(execution_id, SETTLE_S)
        elif what == "restart":
            await _persevere(trial, access.restart)


async def _upload(access: Access, path: str, text: str) -> None:
    await access.write_file(path, len(text), chunks(text.encode()), overwrite=True)


async def _persevere(trial: Trial, call: Callable[[], Awaitable[T]]) -> T:
    """A failing world may refuse, in its own words; the user asks again."""
    for _ in range(5):
        try:
            return await call()
        except Unavailable:
            assert trial.fault != "kill"
            await asyncio.sleep(2 * BLIP_S)
    raise AssertionError("refused five times in a row")


async def _cell(access: Access, trial: Trial, code: str, number: int) -> None:
    for attempt in range(5):
        if await _cell_once(access, trial, code, f"tok-{number}-{attempt}-"):
            return
        await asyncio.sleep(2 * BLIP_S)
    raise AssertionError("five times in a row a cell was not run")


async def _cell_once(access: Access, trial: Trial, code: str, token: str) -> bool:
    writes = [line.split(":")[1] for line in code.splitlines() if line.startswith("write:")]
    for path in writes:
        trial.files.setdefault(path, []).append(token)
    trial.asked[token] = False
    execution_id = await _persevere(trial, lambda: access.execute(f"print:{token}\n" + code.replace("{}", token)))
    assert await _persevere(trial, lambda: access.wait_execution(execution_id, SETTLE_S))
    result = await _persevere(trial, lambda: access.execution_json(execution_id))
    if result["exit_reason"] != "ok":
        assert trial.fault != "kill" and result["exit_reason"] == "platform_fault", (result["exit_reason"], result.get("reason_text"))
        return False
    trial.asked[token] = True
    for path in writes:
        trial.sure[path] = len(trial.files[path])
    if not trial.first_sandbox:
        trial.first_sandbox = access._s.core.sandbox_id
    return True


async def _until(condition: Callable[[], Any], timeout_s: float = SETTLE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


async def run_trial(trial: Trial, path: Path) -> None:
    """Raises AssertionError when something is lost, told wrongly, or left behind."""
    rng = random.Random(trial.seed)
    trial.fault = rng.choice(FAULTS)
    lifetimes = Lifetimes(idle_s=60.0, max_s=600.0, warn_before_s=(), drain_grace_s=0.5)
    rig = MortalRig(path, lifetimes=lifetimes, limits=replace(Limits(), interrupt_grace_s=0.3, kill_grace_s=0.3), target=rng.choice((0, 1)))
    steps = _plan(rng, trial)
    fate = Fate(rng.randrange(CALLS), rng.random() < 0.5, lambda: _strike(rig, trial.fault))
    rig.arm(fate)
    work = asyncio.ensure_future(_work(rig, trial, steps))
    death = asyncio.ensure_future(fate.died.wait())
    await asyncio.wait((work, death), return_when=asyncio.FIRST_COMPLETED)
    if fate.dead:
        fate.buried = True  # what cleans up behind a cancelled call must not wait for the dead
        work.cancel()
        await asyncio.wait((work,))
        await rig.bury()
        await asyncio.sleep(rng.choice((0, 0, 0.05)))
        rig.arm(Fate(None, False, lambda: None))
        await rig.boot()
    else:
        await work
        fate.at = None
    death.cancel()
    trial.struck = fate.struck
    try:
        await asyncio.sleep(2 * BLIP_S)
        await _check(rig, trial)
    finally:
        await rig.bury()
        await rig.real[0].close()


async def _work(rig: MortalRig, trial: Trial, steps: list[tuple[str, str]]) -> None:
    await rig.boot()
    await _user(rig, trial, steps)


def _strike(rig: MortalRig, fault: str) -> None:
    loop = asyncio.get_running_loop()
    runtime, store = rig.real
    if fault == "kill":
        rig.fate.die()
    elif not rig.booted:
        rig.fate.struck = ""  # one that cannot read its records does not start
    elif fault == "engine":
        runtime.stop_engine()
        loop.call_later(BLIP_S, runtime.start_engine)
    elif fault == "records":
        rig.rows.failing = RecordsUnavailable("The records are locked.")
        loop.call_later(BLIP_S, lambda: setattr(rig.rows, "failing", None))
    else:
        store.failing = StoreUnavailable("The store is down.")
        loop.call_later(BLIP_S, lambda: setattr(store, "failing", None))


async def _check(rig: MortalRig, trial: Trial) -> None:
    """Right state, every declared file, the true reason, each output once, no orphan, no half object."""
    runtime, _ = rig.real
    assert not trial.session_id or await rig.rows.get_session(trial.session_id), "a session that was promised is not recorded"
    for row in await rig.rows.list_sessions(live_only=True):
        found = await rig.gateway.session(ALICE, row.session_id)
        assert isinstance(found, Access)
        trial.session_id = row.session_id
        await _check_session(rig, trial, found)
    await _until(lambda: not rig.gateway.world.sandboxes.removing and not rig.gateway.world.pool._fills)
    known = {r.sandbox_id for r in await rig.rows.list_sandboxes()}
    running = {f.sandbox_id for f in await runtime.list(await rig.rows.instance_id())}
    assert running == known, f"orphans: {running - known}, missing: {known - running}"
    held = sum(1 for s in rig.gateway.live.values() if s.core.sandbox_id)
    assert len(running) == held + len(rig.gateway.world.pool.links()), "a sandbox that nobody holds"
    for artifact in await rig.rows.list_artifacts(trial.session_id, latest_only=False) if trial.session_id else ():
        data = b"".join([chunk async for chunk in rig.gateway.world.store.read(artifact_key(artifact))])
        assert sha256(data) == artifact.sha256, "a listed artifact is not what was stored"


async def _check_session(rig: MortalRig, trial: Trial, access: Access) -> None:
    session = rig.gateway.live[access.session_id]
    session.core = replace(session.core, lifetimes=rig.lifetimes)
    session.take_timers()
    await _until(lambda: access.to_json()["state"] in ("dormant", "active") and not session.runs.open)
    assert access.to_json()["reason"] in ("", "user", "idle_timeout"), f"a false reason: {access.to_json()['reason']}"
    execution_id = await access.execute("print:after")
    assert await access.wait_execution(execution_id, SETTLE_S), "the session does not work any more"
    assert (await access.execution_json(execution_id))["exit_reason"] == "ok"
    inside = rig.real[0].sandbox(session.core.sandbox_id).files.roots
    for path, versions in trial.files.items():
        root, _, inner = ("in", "", path[3:]) if path.startswith("in/") else ("workspace", "", path)
        data = inside[root].get(inner, (b"", 0))[0].decode()
        allowed = versions[max(trial.sure.get(path, 0) - 1, 0) :] if trial.sure.get(path) else ["", *versions]
        assert data in allowed, f"{path} holds {data!r}, not one of {allowed}"
    if trial.first_sandbox:
        view = access.to_json()
        lost = view["generation"] - 1
        assert lost <= trial.losses or trial.end == "idle", f"{lost} losses, {trial.losses} causes"
        assert (session.core.sandbox_id != trial.first_sandbox) <= (lost >= 1), "variables were lost and nothing says so"
    text = "".join(
        m.content["text"]
        for e in session.journal.read(0, max_entries=100_000)
        if e.kind == EntryKind.MESSAGE and (m := jupyter.decode(bytes(e.body))).msg_type == "stream" and m.content["name"] == "stdout"
    )
    for token, done in trial.asked.items():
        assert text.count(token) <= 1, f"{token} ran or is told {text.count(token)} times"
        assert not done or text.count(token) == 1, f"the output of {token} is lost"


async def run_trials(seeds: range, at_once: int = 6) -> tuple[list[str], Counter[str]]:
    """Returns what failed, a line each with its seed, and how often each point was struck."""
    failed, points, turn = list[str](), Counter[str](), asyncio.Semaphore(at_once)

    async def one(trial: Trial) -> None:
        async with turn:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    async with asyncio.timeout(TRIAL_S):
                        await run_trial(trial, Path(folder))
                except (Exception, asyncio.CancelledError) as error:
                    where = f"seed {trial.seed}: {trial.fault} {trial.struck} in {trial.reached}"
                    failed.append(f"{where}: {type(error).__name__}: {error}")
                    log.debug(where, exc_info=True)
            points[trial.struck or "not reached"] += 1

    with mock.patch.object(live, "CHECKPOINT_AFTER_S", 0.01), mock.patch.object(live, "RELEASE_AFTER_S", 0.05):
        await asyncio.gather(*(one(Trial(seed)) for seed in seeds))
    return failed, points


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    logging.basicConfig(level=logging.DEBUG if count == 1 else logging.CRITICAL)
    failures, struck = asyncio.run(run_trials(range(first, first + count)))
    print(*failures, f"{count} trials, {len(failures)} failed", *(f"{n:6} {name}" for name, n in struck.most_common()), sep="\n")
    sys.exit(bool(failures))
