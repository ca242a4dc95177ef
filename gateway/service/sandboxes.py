"""Sandboxes as living things: created, reached through their link, destroyed for good."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..domain import sandbox as machine
from ..domain.model import Limits, Profile, SandboxState
from ..domain.sandbox import SandboxEvent
from ..errors import EngineUnavailable, SandboxLost, SandglassError, code_of
from ..ports import ByteStream, Clock, Records, SandboxRow, SandboxRuntime, SandboxSpec
from .link import SandboxLink
from .tally import Tally
from .tasks import Tasks

log = logging.getLogger("sandglass.sandboxes")

UID_BASE = 200_000
UID_SLOTS = 100_000
UIDS_A_SLOT = 4
START_TIMEOUT_S = 60.0
REMOVE_RETRY_S = (0.5, 1, 2, 5, 10, 30)
Json = dict[str, Any]


def relay_limits(limits: Limits) -> Json:
    """What ATTACH tells the relay (``docs/stream-protocol.md``)."""
    return {
        "message_bytes": limits.message_bytes,
        "retain_bytes": limits.retain_bytes,
        "output_bytes": limits.output_bytes,
        "output_messages": limits.output_messages,
    }


@dataclass(eq=False)
class Sandbox:
    """One sandbox with its open link. ``ready_at``: boot time at which its first kernel answered; 0 for one that was taken up."""

    row: SandboxRow
    profile: Profile
    link: SandboxLink
    kernel_info: Json = field(default_factory=dict)
    life: int = 0
    replaced: int = 0
    """Up to which life its kernels were asked to be replaced."""
    ready_at: float = 0.0

    @property
    def sandbox_id(self) -> str:
        return self.row.sandbox_id


class Sandboxes:
    """Creates, re-attaches and removes; knows which uids are in use."""

    def __init__(
        self, runtime: SandboxRuntime, records: Records, clock: Clock, tasks: Tasks, *, instance: str, epoch: int,
        images: dict[str, str], tally: Tally | None = None,
    ) -> None:  # fmt: skip
        """``images``: profile name -> image reference."""
        self._runtime = runtime
        self._records = records
        self._clock = clock
        self._tasks = tasks
        self._instance = instance
        self._epoch = epoch
        self._images = images
        self._slots: set[int] = set()
        self.tally = Tally() if tally is None else tally
        self.removing = 0
        self.created = 0
        self.create_failures = 0

    @property
    def runtime(self) -> SandboxRuntime:
        return self._runtime

    def occupy(self, row: SandboxRow) -> None:
        """A sandbox found in the records at start keeps its uids."""
        self._slots.add((row.relay_uid - UID_BASE) // UIDS_A_SLOT)

    def _free_slot(self) -> int:
        while True:
            slot = secrets.randbelow(UID_SLOTS)
            if slot not in self._slots:
                self._slots.add(slot)
                return slot

    async def create(self, profile: Profile, *, warm: bool = False) -> Sandbox:
        """``warm``: nobody waits, so the kernel is forked after the scientific stack is loaded.

        A ready sandbox with a running kernel that holds nothing of anybody. Raises EngineUnavailable, ImageUnavailable, ..."""
        uid = UID_BASE + UIDS_A_SLOT * self._free_slot()
        row = SandboxRow(
            sandbox_id=secrets.token_hex(12), engine_id="", session_id="", profile=profile.name, state=SandboxState.CREATING,
            relay_uid=uid, user_uid=uid + 1, marker="", epoch=self._epoch, created_at=self._clock.now(),
        )  # fmt: skip
        link: SandboxLink | None = None
        kind, began = "warm" if warm else "cold", self._clock.boottime()
        try:
            await self._records.put_sandbox(row)
            spec = SandboxSpec(row.sandbox_id, self._instance, profile, self._images[profile.name], uid, uid + 1, uid + 2, {})
            row.engine_id = await self._runtime.create(spec)
            await self._records.put_sandbox(row)
            stream = await self._runtime.attach(row.engine_id)
            link = self._link(stream, row.sandbox_id, self._epoch, profile)
            await self._runtime.start(row.engine_id)
            await link.open_fresh(START_TIMEOUT_S)
            row.marker = link.marker.hex()
            sandbox = Sandbox(row, profile, link)
            await self._first_kernel(sandbox, warm)
            row.state = machine.step(row.state, SandboxEvent.READY)
            sandbox.ready_at = self._clock.boottime()
            await self._records.put_sandbox(row)
        except BaseException as error:
            self.create_failures += 1
            if isinstance(error, Exception):
                self.tally.start_failures[profile.name, kind, code_of(error)] += 1
            if link is not None:
                await link.close()
            self._tasks.spawn(self.destroy(row), f"destroy-{row.sandbox_id[:8]}")
            if isinstance(error, SandglassError) or not isinstance(error, Exception):
                raise
            raise EngineUnavailable("a sandbox could not be created") from error
        self.created += 1
        self.tally.start_seconds[profile.name, kind].observe(self._clock.boottime() - began)
        return sandbox

    def _link(self, stream: ByteStream, sandbox_id: str, epoch: int, profile: Profile) -> SandboxLink:
        return SandboxLink(stream, self._tasks, sandbox_id, epoch, relay_limits(profile.limits), self.tally)

    async def _first_kernel(self, sandbox: Sandbox, warm: bool) -> None:
        ready: asyncio.Future[Json] = asyncio.get_running_loop().create_future()

        def on_event(name: str, event: Json) -> None:
            if ready.done():
                return
            if name == "ready":
                ready.set_result(event)
            elif name in ("start_failed", "exited"):
                how = {k: event[k] for k in ("signal", "code", "detail") if k in event}
                ready.set_exception(SandboxLost(f"the first kernel did not start {how}"))

        def on_lost(error: SandglassError) -> None:
            if not ready.done():
                ready.set_exception(error)

        sandbox.link.on_event, sandbox.link.on_lost = on_event, on_lost
        sandbox.link.go()
        await sandbox.link.call("start_kernel", warm=warm)
        event = await asyncio.wait_for(ready, START_TIMEOUT_S)
        sandbox.kernel_info = event.get("kernel_info") or {}
        sandbox.life = int(event.get("life", 1))

    def claim(self, sandbox: Sandbox) -> None:
        """Give it to a session, once. Raises InvalidTransition when it was given before or is on its way out."""
        sandbox.row.state = machine.step(sandbox.row.state, SandboxEvent.CLAIM)
        sandbox.row.claimed_at = self._clock.now()

    async def reattach(self, row: SandboxRow, profile: Profile, received: tuple[int, int, int]) -> Sandbox:
        """Take over a running sandbox of an earlier gateway (or after the engine came back).

        Raises SandboxLost, InvalidTransition (it is being removed), ..."""
        row.state = machine.step(row.state, SandboxEvent.TAKE_UP)
        row.epoch = max(self._epoch, row.epoch + 1)
        await self._records.put_sandbox(row)
        stream = await self._runtime.attach(row.engine_id)
        link = self._link(stream, row.sandbox_id, row.epoch, profile)
        try:
            await link.open_again(bytes.fromhex(row.marker), received, 20.0)
        except BaseException:
            await link.close()
            raise
        kernel = link.hello.get("kernel")
        life = kernel.get("life", 0) if isinstance(kernel, dict) else 0
        return Sandbox(row, profile, link, life=life if isinstance(life, int) else 0)

    async def destroy(self, row: SandboxRow) -> None:
        """Remove it and return only when the engine confirms; tries until it does. One that is gone already needs nothing."""
        row.state = machine.step(row.state, SandboxEvent.REMOVE)
        if row.state is SandboxState.GONE:
            return  # its uids may be another's by now
        self.removing += 1
        try:
            attempt = 0
            while row.state is not SandboxState.GONE:
                try:
                    await self._records.put_sandbox(row)
                    if engine_id := row.engine_id or await self._engine_id(row.sandbox_id):
                        await self._runtime.remove(engine_id)
                    gone = replace(row, state=machine.step(row.state, SandboxEvent.CONFIRMED_GONE), ended_at=self._clock.now())
                    await self._records.put_sandbox(gone)
                    row.state, row.ended_at = gone.state, gone.ended_at
                except SandglassError as error:
                    delay = REMOVE_RETRY_S[min(attempt, len(REMOVE_RETRY_S) - 1)]
                    attempt += 1
                    self.tally.removal_retries[(error.code,)] += 1
                    log.warning("removal failed, will try again", extra={"sandbox": row.sandbox_id, "why": error.code})
                    await asyncio.sleep(delay)
            self._slots.discard((row.relay_uid - UID_BASE) // UIDS_A_SLOT)
        finally:
            self.removing -= 1

    async def _engine_id(self, sandbox_id: str) -> str:
        """Of one that the engine may have created without anybody hearing of it; empty when it has none."""
        found = await self._runtime.list(self._instance)
        return next((fact.engine_id for fact in found if fact.sandbox_id == sandbox_id), "")

    def statistics(self) -> Json:
        return {"created": self.created, "create_failures": self.create_failures, "removing": self.removing}


def profile_json(profile: Profile, problem: str) -> Json:
    """The profile as the API shows it; empty ``problem`` = it can be served here."""
    limits = {k: (v if not isinstance(v, float) or math.isfinite(v) else None) for k, v in asdict(profile.limits).items()}
    return {
        "name": profile.name, "tier": profile.tier, "runtime": profile.runtime, "available": not problem, "problem": problem,
        "display_name": profile.display_name or profile.name, "limits": limits, "lifetimes": asdict(profile.lifetimes),
    }  # fmt: skip
