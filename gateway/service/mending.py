"""A session and its sandbox's stream: bound, lost, found again. A lost stream says nothing of the sandbox, which may well go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..domain.model import EndReason
from ..domain.session_events import SandboxGone
from ..errors import EngineUnavailable, ProtocolViolation, RecordsUnavailable, SandglassError
from ..ports import SandboxRow
from .sandboxes import Sandbox

if TYPE_CHECKING:
    from .live import LiveSession

log = logging.getLogger("sandglass.mending")
REATTACH_TRIES = 8
"""Refusals of a sandbox that runs; while engine or records are away nothing counts, for they come back."""
RETRY_S = 0.1
RETRY_MAX_S = 5.0
LOOK_AGAIN_S = 1.0
REMOVAL_S = 0.5
"""A container that somebody removes by force is seen dead before it is gone."""


class Mending:
    """``oom``: set when the engine reports that memory ran out in this session's sandbox."""

    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self.oom = asyncio.Event()

    def mine(self, sandbox_id: str) -> Sandbox | None:
        """The session's sandbox, if it is still that one."""
        sandbox = self._s.sandbox
        return sandbox if sandbox is not None and sandbox.sandbox_id == sandbox_id else None

    def bind(self, sandbox: Sandbox) -> None:
        """From here on its messages are this session's."""
        s = self._s
        s.sandbox = sandbox
        s.mark_sandbox(sandbox)
        self.oom.clear()
        sandbox.link.on_kernel = s.traffic.from_kernel
        sandbox.link.on_event = s.effects.on_event

        def on_lost(error: SandglassError) -> None:
            s.spawn(self._mend(sandbox, error), "stream-lost")

        sandbox.link.on_lost = on_lost
        if sandbox.kernel_info:
            s.kernel_info = s.world.kernel_info[s.profile.name] = sandbox.kernel_info
        s.kernel_ready = True
        if sandbox.link.lost is not None:
            on_lost(sandbox.link.lost)  # it broke before anybody listened

    def resume(self, sandbox: Sandbox) -> None:
        """A sandbox that went on while nobody was attached: from here on its messages come in."""
        s = self._s
        self.bind(sandbox)
        kernel = sandbox.link.hello.get("kernel")
        s.kernel_ready = isinstance(kernel, dict) and kernel.get("state") == "ready" and sandbox.life > s.over_life
        sandbox.link.go()
        s.effects.check_kernel(sandbox)
        s.wake()

    async def find(self, row: SandboxRow, received: tuple[int, int, int], wanted: Callable[[], bool]) -> Sandbox | EndReason:
        """Attach to a sandbox that may live, or say why it is over. Waits for an engine that is away; ``wanted``: False ends that.

        ``received``: the relay numbers that stand in the journal.
        """
        s = self._s
        delay, refusals, dead = RETRY_S, 0, False
        while wanted() and refusals < REATTACH_TRIES:
            running = False
            try:
                facts = await s.world.sandboxes.runtime.inspect(row.engine_id)
                if facts is None:
                    return EndReason.HOST_LOST
                if not facts.running and (facts.oom_killed or self.oom.is_set()):
                    return EndReason.OUT_OF_MEMORY
                if not facts.running and dead:
                    return EndReason.CRASH
                if not facts.running:
                    dead = True
                    await asyncio.sleep(REMOVAL_S)
                    continue
                running = True
                return await s.world.sandboxes.reattach(row, s.profile, received)
            except ProtocolViolation:
                return EndReason.PROTOCOL_VIOLATION
            except RecordsUnavailable as away:
                log.warning("records do not answer", extra={"session": s.session_id, "why": away.detail})
            except SandglassError as error:
                refusals += running or not isinstance(error, EngineUnavailable)
                log.warning("not attached", extra={"session": s.session_id, "why": error.code, "detail": error.detail})
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MAX_S)
        return EndReason.CRASH

    async def _mend(self, old: Sandbox, error: SandglassError) -> None:
        s = self._s
        if isinstance(error, ProtocolViolation):
            s.dispatch(SandboxGone(old.sandbox_id, EndReason.PROTOCOL_VIOLATION))
            return
        await old.link.close()
        found = await self.find(old.row, old.link.received, lambda: self.mine(old.sandbox_id) is old)
        if self.mine(old.sandbox_id) is not old:
            if isinstance(found, Sandbox):
                await found.link.close()
        elif isinstance(found, EndReason):
            s.dispatch(SandboxGone(old.sandbox_id, found))
        else:
            found.kernel_info = old.kernel_info
            self.resume(found)
            found.link.carry_over(old.link)
            s.traffic.go_on()

    async def linked(self, sandbox_id: str) -> Sandbox | None:
        """The session's sandbox with a stream that works, however long the engine is away; None once it is given up."""
        while (sandbox := self.mine(sandbox_id)) is not None and sandbox.link.lost is not None:
            try:
                await asyncio.wait_for(self._s.changed.wait(), LOOK_AGAIN_S)
            except TimeoutError:
                continue
        return sandbox
