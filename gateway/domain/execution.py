"""An execution's life as one pure table, and the evidence that decides its exit reason."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ..errors import InvalidTransition
from .model import ExecutionState, ExitReason, NextAction

_SYNTAX = frozenset({"SyntaxError", "IndentationError", "TabError"})
_BY_ERRNO = {
    errno.ENOSPC: ExitReason.DISK_LIMIT,
    errno.EDQUOT: ExitReason.DISK_LIMIT,
    errno.EAGAIN: ExitReason.PROCESS_LIMIT,
    errno.ENOMEM: ExitReason.MEMORY_LIMIT,
    errno.ENETUNREACH: ExitReason.NETWORK_DENIED,
    errno.EHOSTUNREACH: ExitReason.NETWORK_DENIED,
    errno.ENETDOWN: ExitReason.NETWORK_DENIED,
    errno.EADDRNOTAVAIL: ExitReason.NETWORK_DENIED,
}


@dataclass(frozen=True, slots=True)
class Execution:
    """``imposed``: what the platform did to it (a timeout, an interrupt, a cancel): it outranks what the kernel replied.

    ``mro``: type names of the exception, from the kernel's hook; ``errno`` likewise, None if it has none.
    Complete only with both the reply and idle.
    """

    execution_id: str
    msg_id: str
    state: ExecutionState = ExecutionState.QUEUED
    reply: str = ""
    ename: str = ""
    mro: tuple[str, ...] = ()
    errno: int | None = None
    idle: bool = False
    imposed: ExitReason | None = None
    truncated: bool = False
    rejected: bool = False
    """Its value is not what was asked for."""
    exit_reason: ExitReason | None = None

    @property
    def complete(self) -> bool:
        return bool(self.reply) and self.idle


class ExecutionEvent(StrEnum):
    """What happens to an execution."""

    STARTED = "started"
    """The kernel is busy with it."""
    REPLIED = "replied"
    """The kernel's ``execute_reply``; it may be the first that is heard of it."""
    IDLED = "idled"
    """The kernel's idle; where its busy was lost, before anything else."""
    IMPOSED = "imposed"
    """The platform does something to it."""
    COMPLETED = "completed"
    """Both the reply and idle are there: what they say decides."""
    CUT = "cut"
    """It ends now, whatever is there."""


_S, _E = ExecutionState, ExecutionEvent

TABLE: dict[tuple[ExecutionState, ExecutionEvent], ExecutionState] = {
    (_S.QUEUED, _E.STARTED): _S.RUNNING,
    (_S.QUEUED, _E.REPLIED): _S.RUNNING,
    (_S.QUEUED, _E.IDLED): _S.QUEUED,
    (_S.QUEUED, _E.IMPOSED): _S.QUEUED,
    (_S.QUEUED, _E.CUT): _S.FINISHED,
    (_S.RUNNING, _E.STARTED): _S.RUNNING,
    (_S.RUNNING, _E.REPLIED): _S.RUNNING,
    (_S.RUNNING, _E.IDLED): _S.RUNNING,
    (_S.RUNNING, _E.IMPOSED): _S.RUNNING,
    (_S.RUNNING, _E.COMPLETED): _S.FINISHED,
    (_S.RUNNING, _E.CUT): _S.FINISHED,
    # what comes late changes nothing any more
    (_S.FINISHED, _E.STARTED): _S.FINISHED,
    (_S.FINISHED, _E.REPLIED): _S.FINISHED,
    (_S.FINISHED, _E.IDLED): _S.FINISHED,
    (_S.FINISHED, _E.IMPOSED): _S.FINISHED,
    (_S.FINISHED, _E.COMPLETED): _S.FINISHED,
    (_S.FINISHED, _E.CUT): _S.FINISHED,
}


def _step(e: Execution, event: ExecutionEvent, **facts: Any) -> Execution:
    """The state after ``event``, with what it adds to what is known; a finished one takes nothing. Raises ``InvalidTransition``."""
    after = TABLE.get((e.state, event))
    if after is None or (event is ExecutionEvent.COMPLETED and not e.complete):
        raise InvalidTransition(f"{event} is not possible while an execution is {e.state}")
    return e if e.state is ExecutionState.FINISHED else replace(e, state=after, **facts)


def started(e: Execution) -> Execution:
    return _step(e, ExecutionEvent.STARTED)


def replied(e: Execution, status: str, ename: str = "") -> Execution:
    """The first reply counts."""
    return _step(e, ExecutionEvent.REPLIED, **({} if e.reply else {"reply": status or "error", "ename": ename}))


def idled(e: Execution) -> Execution:
    return _step(e, ExecutionEvent.IDLED, idle=True)


def imposed(e: Execution, reason: ExitReason) -> Execution:
    """The first cause counts: a timeout that is followed by a kill stays a timeout."""
    return _step(e, ExecutionEvent.IMPOSED, imposed=e.imposed or reason)


def finished(e: Execution, forced: ExitReason | None = None) -> Execution:
    """Finish it, by what is known or, when it was cut short, by ``forced``. Raises ``InvalidTransition`` when it is neither."""
    if forced is None:
        return _step(e, ExecutionEvent.COMPLETED, exit_reason=classify(e))
    return _step(e, ExecutionEvent.CUT, exit_reason=e.imposed or forced)


def classify(e: Execution) -> ExitReason:
    """The exit reason of an execution that completed."""
    if e.reply == "ok":
        # an interrupt that came too late to matter changes nothing
        if e.rejected:
            return ExitReason.ARTIFACT_REJECTED
        return ExitReason.OUTPUT_LIMIT if e.truncated else ExitReason.OK
    if e.imposed is not None:
        return e.imposed
    if e.reply in ("aborted", "abort"):
        return ExitReason.INTERRUPTED
    names = {e.ename, *e.mro}
    if names & _SYNTAX:
        return ExitReason.SYNTAX_ERROR
    if "ModuleNotFoundError" in names:
        return ExitReason.DEPENDENCY_MISSING
    if "gaierror" in names:
        return ExitReason.NETWORK_DENIED
    if "MemoryError" in names:
        return ExitReason.MEMORY_LIMIT
    if e.errno is not None and e.errno in _BY_ERRNO:
        return _BY_ERRNO[e.errno]
    return ExitReason.CODE_ERROR


_STATUS = {
    ExitReason.OK: "ok",
    ExitReason.OUTPUT_LIMIT: "ok",
    ExitReason.INTERRUPTED: "interrupted",
    ExitReason.TIMEOUT: "timeout",
    ExitReason.CPU_LIMIT: "timeout",
    ExitReason.KERNEL_DIED: "lost",
    ExitReason.SANDBOX_ENDED: "lost",
    ExitReason.PLATFORM_FAULT: "lost",
}

_NEXT = {
    ExitReason.OK: None,
    ExitReason.CODE_ERROR: NextAction.FIX_CODE,
    ExitReason.SYNTAX_ERROR: NextAction.FIX_CODE,
    ExitReason.DEPENDENCY_MISSING: NextAction.FIX_CODE,
    ExitReason.NETWORK_DENIED: NextAction.USE_TOOL,
    ExitReason.INTERRUPTED: NextAction.ASK_USER,
    ExitReason.TIMEOUT: NextAction.SPLIT,
    ExitReason.CPU_LIMIT: NextAction.SPLIT,
    ExitReason.MEMORY_LIMIT: NextAction.REDUCE_DATA,
    ExitReason.PROCESS_LIMIT: NextAction.FIX_CODE,
    ExitReason.DISK_LIMIT: NextAction.REDUCE_DATA,
    ExitReason.OUTPUT_LIMIT: NextAction.REDUCE_DATA,
    ExitReason.POLICY_DENIED: NextAction.STOP,
    ExitReason.APPROVAL_REQUIRED: NextAction.REQUEST_APPROVAL,
    ExitReason.ARTIFACT_REJECTED: NextAction.FIX_CODE,
    ExitReason.KERNEL_DIED: NextAction.REBUILD,
    ExitReason.SANDBOX_ENDED: NextAction.REBUILD,
    ExitReason.GENERATION_MISMATCH: NextAction.REBUILD,
    ExitReason.CAPACITY_EXHAUSTED: NextAction.RETRY_AFTER,
    ExitReason.IMAGE_UNAVAILABLE: NextAction.STOP,
    ExitReason.PLATFORM_FAULT: NextAction.RETRY_AFTER,
}

SENTENCES = {
    ExitReason.OK: "It ran to its end.",
    ExitReason.CODE_ERROR: "The code raised an error.",
    ExitReason.SYNTAX_ERROR: "The code is not valid Python.",
    ExitReason.DEPENDENCY_MISSING: "A module that the code imports is not in the image.",
    ExitReason.NETWORK_DENIED: "The sandbox has no network.",
    ExitReason.INTERRUPTED: "It was interrupted.",
    ExitReason.TIMEOUT: "It ran longer than its time limit.",
    ExitReason.CPU_LIMIT: "It used more processor time than allowed.",
    ExitReason.MEMORY_LIMIT: "It needed more memory than the sandbox has.",
    ExitReason.PROCESS_LIMIT: "It started more processes or threads than allowed.",
    ExitReason.DISK_LIMIT: "The workspace is full.",
    ExitReason.OUTPUT_LIMIT: "It ran to its end, but its output was cut at the limit.",
    ExitReason.POLICY_DENIED: "A policy forbids this.",
    ExitReason.APPROVAL_REQUIRED: "A person must approve this first.",
    ExitReason.ARTIFACT_REJECTED: "A produced file or value was refused.",
    ExitReason.KERNEL_DIED: "The kernel process ended; its variables are lost.",
    ExitReason.SANDBOX_ENDED: "The sandbox ended; its variables are lost.",
    ExitReason.GENERATION_MISMATCH: "The variables meant are gone.",
    ExitReason.CAPACITY_EXHAUSTED: "No sandbox could be had.",
    ExitReason.IMAGE_UNAVAILABLE: "The kernel image is missing.",
    ExitReason.PLATFORM_FAULT: "A fault of the platform, not of the code.",
}


def status(reason: ExitReason) -> str:
    """``ok``, ``error``, ``interrupted``, ``timeout`` or ``lost``."""
    return _STATUS.get(reason, "error")


def next_action(reason: ExitReason, failures_in_a_row: int = 1) -> NextAction | None:
    """What to offer; the same failure for the third time in a row answers ``stop``."""
    if reason is not ExitReason.OK and failures_in_a_row >= 3:
        return NextAction.STOP
    return _NEXT[reason]
