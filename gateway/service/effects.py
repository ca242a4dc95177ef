"""What a session's commands do: sandboxes obtained, restored, killed, persisted, destroyed; kernels restarted; users told."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

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
    Destroyed,
    EndRequested,
    FilesRestored,
    KernelDied,
    Persisted,
    PersistFailed,
    RestartRequested,
    SandboxGone,
    SandboxReady,
    StartFailed,
    UserKilled,
)
from ..errors import (
    CapacityExhausted,
    EngineUnavailable,
    ImageUnavailable,
    ProfileUnavailable,
    ProtocolViolation,
    QuotaExceeded,
    RecordsUnavailable,
    SandboxLost,
    SandglassError,
    SessionEnded,
    StoreUnavailable,
    Unavailable,
    UserDisabled,
)
from ..ports import DeclarationRow
from .keeping import describe
from .pool import UNCLAIMED
from .sandboxes import Sandbox

if TYPE_CHECKING:
    from .live import LiveSession

log = logging.getLogger("sandglass.effects")
Json = dict[str, Any]
OOM_WAIT_S = 0.5
REATTACH_TRIES = 5
READY_TIMEOUT_S = 90.0

_START_FAILURES: dict[type[SandglassError], ExitReason] = {
    CapacityExhausted: ExitReason.CAPACITY_EXHAUSTED,
    QuotaExceeded: ExitReason.CAPACITY_EXHAUSTED,
    ImageUnavailable: ExitReason.IMAGE_UNAVAILABLE,
    ProfileUnavailable: ExitReason.POLICY_DENIED,
    UserDisabled: ExitReason.POLICY_DENIED,
}


class Effects:
    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self._oom = asyncio.Event()
        self.start_error: SandglassError | None = None

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
                s.traffic.open_for_work()
            case KillUser():
                s.spawn(self._kill_user(command.sandbox_id), "kill-user")
            case Persist():
                s.spawn(self._persist(command.sandbox_id), "persist")
            case Destroy():
                s.spawn(self._destroy(command.sandbox_id), "destroy")
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
        self.bind(sandbox)
        s.dispatch(SandboxReady(sandbox.sandbox_id))
        await s.insist(lambda: s.world.records.put_sandbox(sandbox.row))

    def bind(self, sandbox: Sandbox) -> None:
        """From here on its messages are this session's."""
        s = self._s
        s.sandbox = sandbox
        s.mark_sandbox(sandbox)
        self._oom.clear()
        sandbox.link.on_kernel = s.traffic.from_kernel
        sandbox.link.on_event = self._on_event

        def on_lost(error: SandglassError) -> None:
            s.spawn(self._stream_lost(sandbox, error), "stream-lost")

        sandbox.link.on_lost = on_lost
        if sandbox.kernel_info:
            s.kernel_info = s.world.kernel_info[s.profile.name] = sandbox.kernel_info
        s.kernel_ready = True

    async def _restore(self, sandbox_id: str) -> None:
        s = self._s
        sandbox = self._mine(sandbox_id)
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

    def _mine(self, sandbox_id: str) -> Sandbox | None:
        sandbox = self._s.sandbox
        return sandbox if sandbox is not None and sandbox.sandbox_id == sandbox_id else None

    def begin_again(self) -> None:
        """A claim that an earlier gateway did not finish."""
        self._s.spawn(self._obtain(), "obtain")

    def redo_destroy(self, sandbox_id: str) -> None:
        self._s.spawn(self._destroy(sandbox_id), "destroy")

    def kernel_was_dead(self) -> None:
        """It died while no gateway was attached; signal and cause came as an event, or are lost with it."""
        if self._s.sandbox is not None:
            self._s.dispatch(KernelDied(self._s.sandbox.sandbox_id))

    # --- what the relay and the engine report -------------------------------------------------------------------------

    def _on_event(self, name: str, event: Json) -> None:
        s = self._s
        sandbox = s.sandbox
        if sandbox is None:
            return
        if name == "ready":
            sandbox.life = event["life"] if isinstance(event.get("life"), int) else sandbox.life
            info = event.get("kernel_info")
            if isinstance(info, dict) and info:
                s.kernel_info = info
            s.kernel_ready = True
            s.wake()
            s.traffic.kick()
        elif name == "exited" and not event.get("expected"):
            s.kernel_ready = False
            s.spawn(self._kernel_exited(sandbox, event), "kernel-exited")
        elif name == "start_failed":
            s.dispatch(SandboxGone(sandbox.sandbox_id, EndReason.CRASH))
        elif name in ("truncated", "dropped"):
            s.traffic.relay_dropped(event)

    def oom(self) -> None:
        """The engine reports that memory ran out in this session's sandbox."""
        self._oom.set()

    async def _kernel_exited(self, sandbox: Sandbox, event: Json) -> None:
        """Memory is the cause when the engine's oom event stands beside the death.

        A kernel killed for memory shows signal 9 on runc, and exit code 1 without a signal on gVisor's systrap.
        """
        reason = ExitReason.KERNEL_DIED
        if event.get("signal") == 9 or event.get("code"):
            try:
                await asyncio.wait_for(self._oom.wait(), OOM_WAIT_S)
                reason = ExitReason.MEMORY_LIMIT
            except TimeoutError:
                pass
            self._oom.clear()
        log.info("kernel died", extra={"session": self._s.session_id, "signal": event.get("signal"), "exit_code": event.get("code")})
        self._s.dispatch(KernelDied(sandbox.sandbox_id, reason))

    async def _stream_lost(self, sandbox: Sandbox, error: SandglassError) -> None:
        """The stream ended or broke: find out whether the sandbox lives, and take it up again if it does."""
        s = self._s
        if isinstance(error, ProtocolViolation):
            s.dispatch(SandboxGone(sandbox.sandbox_id, EndReason.PROTOCOL_VIOLATION))
            return
        await sandbox.link.close()
        delay, tries = 0.1, 0
        while self._mine(sandbox.sandbox_id) is sandbox and tries < REATTACH_TRIES:
            try:
                facts = await s.world.sandboxes.runtime.inspect(sandbox.row.engine_id)
                if facts is None:
                    s.dispatch(SandboxGone(sandbox.sandbox_id, EndReason.HOST_LOST))
                    return
                if not facts.running:
                    memory = facts.oom_killed or self._oom.is_set()
                    s.dispatch(SandboxGone(sandbox.sandbox_id, EndReason.OUT_OF_MEMORY if memory else EndReason.CRASH))
                    return
                tries += 1
                await self.take_up(sandbox)
                return
            except EngineUnavailable as down:
                log.warning("engine does not answer", extra={"session": s.session_id, "why": down.detail})
            except ProtocolViolation:
                break
            except SandglassError as lost:
                log.info("re-attach failed", extra={"session": s.session_id, "why": lost.detail})
            await asyncio.sleep(delay)
            delay = min(delay * 2, 5.0)
        if self._mine(sandbox.sandbox_id) is sandbox:
            s.dispatch(SandboxGone(sandbox.sandbox_id, EndReason.CRASH))

    async def take_up(self, old: Sandbox) -> None:
        """Attach again to the same sandbox. Raises SandglassError."""
        s = self._s
        sandbox = await s.world.sandboxes.reattach(old.row, s.profile, old.link.received)
        sandbox.kernel_info = old.kernel_info
        self.resume(sandbox)
        sandbox.link.carry_over(old.link)
        s.traffic.kick()

    def resume(self, sandbox: Sandbox) -> None:
        """A sandbox that went on while nobody was attached: from here on its messages come in."""
        s = self._s
        self.bind(sandbox)
        kernel = sandbox.link.hello.get("kernel")
        s.kernel_ready = isinstance(kernel, dict) and kernel.get("state") == "ready"
        sandbox.link.go()
        s.wake()

    # --- the kernel ---------------------------------------------------------------------------------------------------

    async def interrupt(self) -> None:
        run = self._s.runs.running
        if run is not None:
            self._s.runs.impose(run, ExitReason.INTERRUPTED)
        await self.interrupt_kernel()

    async def interrupt_kernel(self) -> None:
        sandbox = self._s.sandbox
        if sandbox is not None and self._s.core.state is SessionState.ACTIVE:
            await sandbox.link.call("interrupt", grace_ms=500)

    async def restart(self) -> None:
        """Raises Unavailable (with what hinders it), SessionEnded."""
        s = self._s
        if s.core.state is SessionState.ENDED:
            raise SessionEnded("The session has ended.")
        s.dispatch(RestartRequested())
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
        sandbox = self._mine(sandbox_id)
        if sandbox is None:
            return
        try:
            await sandbox.link.call("restart_kernel", after=sandbox.link.last_kernel_number, timeout_s=20.0 + self._s.profile.limits.kill_grace_s)
        except SandglassError as error:
            if sandbox.link.lost is None:
                self._s.runs.sandbox_hangs(error)
            # else the lost stream has its own way to find out

    def end(self, reason: EndReason = EndReason.USER, text: str = "") -> None:
        """``text``: an admin's own words for the user's notice."""
        self._s.teller.end_text = text
        self._s.dispatch(EndRequested(reason))

    # --- the end of a sandbox -----------------------------------------------------------------------------------------

    async def _linked(self, sandbox_id: str) -> Sandbox | None:
        """The session's sandbox with a link that works; waits a little for a broken one to be mended."""
        for _ in range(100):
            sandbox = self._mine(sandbox_id)
            if sandbox is None or sandbox.link.lost is None:
                return sandbox
            await asyncio.sleep(0.1)
        return None

    async def _kill_user(self, sandbox_id: str) -> None:
        s = self._s
        sandbox = await self._linked(sandbox_id)
        for _ in range(2):
            if sandbox is None:
                break
            try:
                result = await sandbox.link.call("kill_user", timeout_s=10.0 + s.profile.limits.kill_grace_s)
                if result.get("remaining") == 0:
                    s.dispatch(UserKilled(sandbox_id))
                    return
            except SandglassError as error:
                log.warning("user processes were not killed", extra={"session": s.session_id, "why": error.code})
                sandbox = await self._linked(sandbox_id)
        # nothing of the user may run on: the sandbox ends without its last changes, and that is told
        s.dispatch(SandboxGone(sandbox_id, EndReason.CRASH))

    async def _persist(self, sandbox_id: str) -> None:
        s = self._s
        sandbox = await self._linked(sandbox_id)
        if sandbox is None:
            s.dispatch(SandboxGone(sandbox_id, EndReason.CRASH))
            return
        try:
            with s.world.tally.files("persist", s.world.clock):
                saved = await s.keeper.persist(sandbox.link, generation=s.core.generation - 1, execution_id="")
        except (StoreUnavailable, RecordsUnavailable) as error:
            log.error("declared files cannot be stored", extra={"session": s.session_id, "why": error.detail})
            s.store_problem = error.detail
            s.dispatch(PersistFailed(sandbox_id))
        except SandboxLost:
            s.dispatch(SandboxGone(sandbox_id, EndReason.CRASH))
        except SandglassError as error:
            log.error("declared files cannot be read", extra={"session": s.session_id, "why": error.detail})
            s.store_problem = error.detail
            s.dispatch(PersistFailed(sandbox_id))
        else:
            s.telling.kept, s.telling.undeclared, s.telling.refused = saved.kept, [], saved.refused
            s.teller.lost_files = saved.lost
            s.dispatch(Persisted(sandbox_id))

    async def _destroy(self, sandbox_id: str) -> None:
        s = self._s
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
        row.reason = s.core.reason
        s.world.tally.sandboxes_ended[s.profile.name, row.reason] += 1
        await s.world.sandboxes.destroy(row)
        s.world.pool.released()
        s.keeper.forget_sandbox()
        s.dispatch(Destroyed(sandbox_id))

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
                await s.runs.produced(execution_id, [describe(a) for a in saved.stored])

    async def keep_from_code(self, patterns: list[str]) -> None:
        """``sandglass.keep(...)`` in a cell."""
        s = self._s
        for pattern in patterns:
            try:
                row = DeclarationRow(s.session_id, check_pattern(pattern), True, "code", s.world.clock.now())
                await s.world.records.put_declaration(row)
            except SandglassError as error:
                s.traffic.say_between_cells(f"[Sandglass: sandglass.keep: {error.detail}]\n")
        s.announce()

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
