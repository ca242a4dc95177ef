"""What a session's commands do: sandboxes obtained, restored, killed, persisted, destroyed; kernels restarted; users told."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ..domain.audit import Tag
from ..domain.files import MAX_DECLARATIONS
from ..domain.model import EndReason, ExitReason, NoticeKind, SessionState
from ..domain.paths import check_pattern
from ..domain.session_commands import (
    Command,
    Destroy,
    Discard,
    FailWork,
    Finish,
    KillUser,
    LoseVariables,
    ObtainSandbox,
    OpenForWork,
    Persist,
    RestartKernel,
    RestoreFiles,
    Tell,
)
from ..domain.session_events import (
    EndRequested,
    FilesRestored,
    KernelDied,
    RecycleRequested,
    RestartRequested,
    SandboxReady,
    StartFailed,
)
from ..domain.session_state import Phase
from ..errors import (
    CapacityExhausted,
    ImageChanged,
    ImageUnavailable,
    ProfileUnavailable,
    QuotaExceeded,
    SandglassError,
    SessionEnded,
    Unavailable,
    UserDisabled,
)
from ..ports import DeclarationRow
from .pool import UNCLAIMED
from .sandboxes import Sandbox

if TYPE_CHECKING:
    from .live import LiveSession

log = logging.getLogger("sandglass.effects")
Json = dict[str, Any]
OOM_WAIT_S = 0.5
READY_TIMEOUT_S = 90.0
MOST_REFUSALS = 10
RESTART_S = 20.0
"""Beside the grace of a kill: a relay that has not answered a restart by then hangs, and its sandbox ends."""

_START_FAILURES: dict[type[SandglassError], ExitReason] = {
    CapacityExhausted: ExitReason.CAPACITY_EXHAUSTED,
    QuotaExceeded: ExitReason.CAPACITY_EXHAUSTED,
    ImageUnavailable: ExitReason.IMAGE_UNAVAILABLE,
    ImageChanged: ExitReason.IMAGE_UNAVAILABLE,
    ProfileUnavailable: ExitReason.POLICY_DENIED,
    UserDisabled: ExitReason.POLICY_DENIED,
}


class Effects:
    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self.start_error: SandglassError | None = None
        self._declaring = asyncio.Lock()
        self._refused = ("", 0)
        """Of which cell, and how many times it was told that a pattern is not kept."""

    def at_once(self, command: Command) -> bool:
        """Some must be seen by whatever happens next in the same turn; they touch memory and the journal only."""
        if isinstance(command, LoseVariables):
            self._lose(command.reason)
        elif isinstance(command, FailWork):
            self._s.runs.fail_all(command.exit_reason, command.detail)
        else:
            return False
        return True

    def carry_out(self, command: Command) -> None:
        s = self._s
        match command:
            case ObtainSandbox():
                s.spawn(self._obtain(), "obtain")
            case RestoreFiles():
                s.spawn(self._restore(command.sandbox_id), "restore")
            case OpenForWork():
                s.traffic.go_on()
            case KillUser():
                s.spawn(s.draining.kill_user(command.sandbox_id), "kill-user")
            case Persist():
                s.spawn(s.draining.persist(command.sandbox_id), "persist")
            case Destroy():
                s.spawn(s.draining.destroy(command.sandbox_id), "destroy")
            case Discard():
                log.info("a sandbox came too late", extra={"session": s.session_id, "sandbox": command.sandbox_id})
            case RestartKernel():
                s.spawn(self._restart_kernel(command.sandbox_id), "restart-kernel")
            case Tell():
                s.teller.queue(command)
            case Finish():
                s.row.ended_at = s.world.clock.now()
                s.save()
                s.spawn(self._finish(), "finish")

    # --- a sandbox for the session ------------------------------------------------------------------------------------

    async def _obtain(self) -> None:
        s = self._s
        self.start_error = None
        try:
            s.world.check_user_quota(s)
            sandbox = await s.world.pool.obtain(s.profile.name)
        except SandglassError as error:
            self.start_error = error
            log.warning("no sandbox for a session", extra={"session": s.session_id, "why": error.code, "detail": error.detail})
            reason = next((r for kind, r in _START_FAILURES.items() if isinstance(error, kind)), ExitReason.PLATFORM_FAULT)
            s.dispatch(StartFailed(reason, error.detail))
            return
        if s.core.state is not SessionState.STARTING or s.core.sandbox_id:
            s.world.tally.sandboxes_ended[s.profile.name, UNCLAIMED] += 1
            await sandbox.link.close()
            await s.world.sandboxes.destroy(sandbox.row)
            s.world.pool.released()
            return
        sandbox.row.session_id = s.session_id
        s.mending.bind(sandbox)
        s.dispatch(SandboxReady(sandbox.sandbox_id))
        await s.insist(lambda: s.world.records.put_sandbox(sandbox.row))

    async def _restore(self, sandbox_id: str) -> None:
        s = self._s
        sandbox = self._s.mending.mine(sandbox_id)
        if sandbox is None:
            return
        try:
            with s.world.tally.files("restore", s.world.clock):
                s.restored, failed = await s.keeper.restore(sandbox.link)
        except SandglassError as error:
            self.start_error = error
            s.dispatch(StartFailed(ExitReason.PLATFORM_FAULT, f"Kept files could not be restored: {error.detail}"))
            return
        s.teller.failed_files = failed
        s.dispatch(FilesRestored(sandbox_id))

    def begin_again(self) -> None:
        """A claim that an earlier gateway did not finish."""
        self._s.spawn(self._obtain(), "obtain")

    def check_kernel(self, sandbox: Sandbox) -> None:
        """After an attach: a kernel that is over but was not replaced yet is replaced; one that died unheard is counted."""
        s = self._s
        kernel = sandbox.link.hello.get("kernel")
        if s.core.state is not SessionState.ACTIVE or not isinstance(kernel, dict):
            return
        if sandbox.life <= s.over_life:
            s.spawn(self._restart_kernel(sandbox.sandbox_id), "restart-kernel")
        elif kernel.get("state") in ("dead", "none"):
            # the event that says why is on its way, or was heard and is lost
            s.spawn(self._kernel_exited(sandbox, sandbox.life, {"signal": 9}), "kernel-exited")

    # --- what the relay and the engine report -------------------------------------------------------------------------

    def on_event(self, name: str, event: Json) -> None:
        s = self._s
        sandbox = s.sandbox
        if sandbox is None:
            return
        life = event["life"] if isinstance(event.get("life"), int) else sandbox.life
        if name == "ready":
            if life <= s.over_life:
                return  # told again after a restart of the gateway: that kernel is to be replaced
            sandbox.life = life
            info = event.get("kernel_info")
            if isinstance(info, dict) and info:
                s.kernel_info = info
            s.kernel_ready = True
            s.wake()
            s.traffic.kick()
        elif name == "exited" and not event.get("expected") and life > s.over_life:
            sandbox.life = max(sandbox.life, life)
            s.kernel_ready = False
            s.spawn(self._kernel_exited(sandbox, life, event), "kernel-exited")
        elif name == "start_failed":
            s.dispatch(RecycleRequested(EndReason.CRASH))
        elif name in ("truncated", "dropped"):
            s.traffic.relay_dropped(event)

    async def _kernel_exited(self, sandbox: Sandbox, life: int, event: Json) -> None:
        """A loss is counted once, however often it is told (``over_life``). Memory is the cause when the engine's oom event stands beside the death.

        A kernel killed for memory shows signal 9 on runc, and exit code 1 without a signal on gVisor's systrap.
        """
        reason = ExitReason.KERNEL_DIED
        if event.get("signal") == 9 or event.get("code"):
            try:
                await asyncio.wait_for(self._s.mending.oom.wait(), OOM_WAIT_S)
                reason = ExitReason.MEMORY_LIMIT
            except TimeoutError:
                pass
            self._s.mending.oom.clear()
        log.info("kernel died", extra={"session": self._s.session_id, "signal": event.get("signal"), "exit_code": event.get("code")})
        if life > self._s.over_life:
            self._s.dispatch(KernelDied(sandbox.sandbox_id, reason))

    # --- the kernel ---------------------------------------------------------------------------------------------------

    async def interrupt(self) -> None:
        run = self._s.runs.at_the_kernel
        if run is not None:
            self._s.runs.impose(run, ExitReason.INTERRUPTED)
        await self.interrupt_kernel()

    async def interrupt_kernel(self) -> None:
        sandbox = self._s.sandbox
        core = self._s.core
        if sandbox is not None and (core.state is SessionState.ACTIVE or core.phase is Phase.FINISHING):
            await sandbox.link.call("interrupt", grace_ms=500)

    async def restart(self) -> None:
        """At its owner's wish. Raises Unavailable (with what hinders it), SessionEnded."""
        s = self._s
        if s.core.state is SessionState.ENDED:
            raise SessionEnded("The session has ended.")
        await s.when_taken_up(READY_TIMEOUT_S)
        s.dispatch(RestartRequested())
        s.audit_soon(Tag.USER_SESSION_RESTART)
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        while not (s.core.state is SessionState.ACTIVE and s.kernel_ready):
            if s.core.state in (SessionState.DORMANT, SessionState.ENDED):
                raise self.start_error or Unavailable("The kernel did not start.")
            changed = s.changed
            try:
                await asyncio.wait_for(changed.wait(), max(0.0, deadline - asyncio.get_running_loop().time()))
            except TimeoutError:
                raise Unavailable("The kernel did not start in time.") from None

    async def _restart_kernel(self, sandbox_id: str) -> None:
        sandbox = self._s.mending.mine(sandbox_id)
        if sandbox is None or sandbox.replaced >= self._s.over_life:
            return
        sandbox.replaced = self._s.over_life
        try:
            patience_s = RESTART_S + self._s.profile.limits.kill_grace_s
            await sandbox.link.call("restart_kernel", patience_s, after=sandbox.link.last_kernel_number)
        except SandglassError as error:
            if sandbox.link.lost is None:
                self._s.runs.sandbox_hangs(error)
            # else the kernel is looked at again when the stream is mended

    def end(self, reason: EndReason = EndReason.USER, text: str = "") -> None:
        """``text``: an admin's own words for the user's notice."""
        self._s.teller.end_text = text
        self._s.dispatch(EndRequested(reason))

    async def _finish(self) -> None:
        await self._s.teller.done()
        self._s.finish()

    # --- files --------------------------------------------------------------------------------------------------------

    async def checkpoint(self, execution_id: str) -> None:
        """Store changed declared files now, within a budget, so that a crash loses nothing stored."""
        s = self._s
        sandbox = s.sandbox
        if sandbox is None or s.core.state is not SessionState.ACTIVE or s.core.busy:
            return
        try:
            with s.world.tally.files("checkpoint", s.world.clock):
                saved = await s.keeper.persist(
                    sandbox.link, generation=s.core.generation, execution_id=execution_id, budget=s.world.caps.checkpoint_bytes
                )
        except SandglassError as error:
            log.warning("checkpoint failed", extra={"session": s.session_id, "why": error.code})
            return
        s.telling.kept, s.telling.undeclared, s.telling.refused = saved.kept, saved.lost, saved.refused
        if saved.stored:
            s.announce()
            if execution_id:
                await s.runs.produced(execution_id, [{"sha256": a.sha256, "size": a.size} for a in saved.stored])

    async def declare(self, row: DeclarationRow) -> None:
        """One at a time, or the bound would not hold. Raises QuotaExceeded."""
        async with self._declaring:
            rows = await self._s.world.records.list_declarations(row.session_id)
            if len(rows) >= MAX_DECLARATIONS and row.pattern not in {r.pattern for r in rows}:
                raise QuotaExceeded(f"A session may have at most {MAX_DECLARATIONS} declarations.")
            await self._s.world.records.put_declaration(row)

    async def keep_from_code(self, patterns: list[str]) -> None:
        """``sandglass.keep(...)`` in a cell, or whatever its code sends in its place."""
        s = self._s
        for pattern in patterns:
            try:
                await self.declare(DeclarationRow(s.session_id, check_pattern(pattern), True, "code", s.world.clock.now()))
            except SandglassError as error:
                self._tell_refused(error.detail)
        s.announce()

    def _tell_refused(self, why: str) -> None:
        """A few times a cell: what the gateway says is in no output limit."""
        run = self._s.runs.running
        asker = run.row.execution_id if run is not None else ""
        self._refused = (asker, self._refused[1] + 1 if self._refused[0] == asker else 1)
        if self._refused[1] <= MOST_REFUSALS:
            self._s.traffic.say_between_cells(f"[Sandglass: sandglass.keep: {why}]\n")

    def _lose(self, reason: str) -> None:
        s = self._s
        had = bool(s.variables) or s.ran
        s.lose_variables(reason)
        s.ran = False
        s.telling.clear_warnings()
        if had or reason == "restart":
            s.teller.queue(Tell(NoticeKind.VARIABLES_LOST, reason))
        if reason != "restart":
            s.traffic.say_status("restarting")
