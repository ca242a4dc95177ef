"""An execution's life, and the evidence that decides its exit reason. Pure."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace

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
    exit_reason: ExitReason | None = None

    @property
    def complete(self) -> bool:
        return bool(self.reply) and self.idle


def started(e: Execution) -> Execution:
    return replace(e, state=ExecutionState.RUNNING) if e.state is ExecutionState.QUEUED else e


def replied(e: Execution, status: str, ename: str = "") -> Execution:
    return e if e.reply else replace(started(e), reply=status or "error", ename=ename)


def idled(e: Execution) -> Execution:
    return replace(e, idle=True)


def imposed(e: Execution, reason: ExitReason) -> Execution:
    """The first cause counts: a timeout that is followed by a kill stays a timeout."""
    return e if e.imposed or e.state is ExecutionState.FINISHED else replace(e, imposed=reason)


def finished(e: Execution, forced: ExitReason | None = None) -> Execution:
    """Finish it, by what is known or, when it was cut short, by ``forced``."""
    if e.state is ExecutionState.FINISHED:
        return e
    reason = (e.imposed or forced) if forced is not None else classify(e)
    return replace(e, state=ExecutionState.FINISHED, exit_reason=reason)


def classify(e: Execution) -> ExitReason:
    """The exit reason of an execution that completed."""
    if e.reply == "ok":
        # an interrupt that came too late to matter changes nothing
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
