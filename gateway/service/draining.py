"""The end of a sandbox: the user's processes killed, declared files stored, the sandbox destroyed and that verified."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..domain.model import EndReason
from ..domain.session_events import Destroyed, Persisted, PersistFailed, UserKilled
from ..errors import SandboxLost, SandglassError
from .sandboxes import Sandbox

if TYPE_CHECKING:
    from .live import LiveSession

log = logging.getLogger("sandglass.draining")
KILL_TRIES = 2
STREAM_TRIES = 5
"""So often a file may be begun again because the stream broke; then the sandbox waits in quarantine for the next try."""


class Draining:
    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self._survivors = False
        """The user's processes were not seen to end."""

    async def kill_user(self, sandbox_id: str) -> None:
        sandbox = await self._s.mending.linked(sandbox_id)
        if sandbox is None:
            return  # it is gone, and whoever found that has said so
        self._survivors = not await self._kill(sandbox_id)
        # what cannot be killed ends with the sandbox, but the declared files come out first
        self._s.dispatch(UserKilled(sandbox_id))

    async def _kill(self, sandbox_id: str) -> bool:
        s, refusals = self._s, 0
        while refusals < KILL_TRIES and (sandbox := await s.mending.linked(sandbox_id)) is not None:
            try:
                result = await sandbox.link.call("kill_user", timeout_s=10.0 + s.profile.limits.kill_grace_s)
                if result.get("remaining") == 0:
                    return True
                refusals += 1
            except SandglassError as error:
                refusals += sandbox.link.lost is None
                log.warning("user processes were not killed", extra={"session": s.session_id, "why": error.code})
        return False

    async def persist(self, sandbox_id: str) -> None:
        s = self._s
        if self._survivors:
            self._survivors = not await self._kill(sandbox_id)
        for _ in range(STREAM_TRIES):
            sandbox = await s.mending.linked(sandbox_id)
            if sandbox is None:
                return  # as above
            try:
                await self._store(sandbox)
            except SandboxLost as error:
                log.warning("the stream broke while declared files were read", extra={"session": s.session_id, "why": error.detail})
                s.store_problem = error.detail
                if sandbox.link.lost is None:
                    break  # it is mute, not gone
            except SandglassError as error:
                log.error("declared files cannot be stored", extra={"session": s.session_id, "why": error.code, "detail": error.detail})
                s.store_problem = error.detail
                break
            else:
                s.dispatch(Persisted(sandbox_id))
                return
        s.dispatch(PersistFailed(sandbox_id))

    async def _store(self, sandbox: Sandbox) -> None:
        s = self._s
        with s.world.tally.files("persist", s.world.clock):
            saved = await s.keeper.persist(sandbox.link, generation=s.core.generation - 1, execution_id="")
        s.telling.kept, s.telling.undeclared, s.telling.refused = saved.kept, [], saved.refused
        s.teller.lost_files = saved.lost

    async def destroy(self, sandbox_id: str) -> None:
        s = self._s
        self._survivors = False
        sandbox, s.sandbox = s.sandbox, None
        if sandbox is not None:
            await sandbox.link.close()
            row = sandbox.row
        else:
            found = await s.world.records.get_sandbox(sandbox_id)
            if found is None:
                s.dispatch(Destroyed(sandbox_id))
                return
            row = found
        row.reason = EndReason.CRASH if s.effects.start_error is not None else s.core.reason
        s.world.tally.sandboxes_ended[s.profile.name, row.reason] += 1
        await s.world.sandboxes.destroy(row)
        s.world.pool.released()
        s.keeper.forget_sandbox()
        s.dispatch(Destroyed(sandbox_id))

    def redo_destroy(self, sandbox_id: str) -> None:
        """An earlier gateway did not finish it."""
        self._s.spawn(self.destroy(sandbox_id), "destroy")
