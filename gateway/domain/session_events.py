"""What happens to a session. Pure values.

Results of commands name their sandbox (``SandboxEvent``), so that a stale one can be told.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import EndReason, ExitReason


@dataclass(frozen=True, slots=True)
class Event:
    pass


@dataclass(frozen=True, slots=True)
class SandboxEvent(Event):
    """The result of a command about one sandbox."""

    sandbox_id: str


class Wanted(Event):
    """Work needs a sandbox (a new session, an execution, a restart)."""


@dataclass(frozen=True, slots=True)
class SandboxReady(SandboxEvent):
    """A sandbox was claimed for this session."""


@dataclass(frozen=True, slots=True)
class StartFailed(Event):
    """No sandbox could be had; ``exit_reason`` is what waiting executions are told."""

    exit_reason: ExitReason = ExitReason.PLATFORM_FAULT
    detail: str = ""


class FilesRestored(SandboxEvent):
    """Declared files are back; the session may work."""


class Busy(Event):
    """An execution began and none was running."""


class Idle(Event):
    """The last running execution is complete."""


class Activity(Event):
    """An upload, a declaration or a keep-alive."""


@dataclass(frozen=True, slots=True)
class TimerFired(Event):
    name: str


@dataclass(frozen=True, slots=True)
class RecycleRequested(Event):
    reason: EndReason = EndReason.USER


@dataclass(frozen=True, slots=True)
class EndRequested(Event):
    reason: EndReason = EndReason.USER


@dataclass(frozen=True, slots=True)
class Extended(Event):
    """An admin moves the maximum of the present sandbox; that policy admits so much is the sender's to know."""

    seconds: float = 0.0
    text: str = ""


class RetryRequested(Event):
    """Try now to store what a quarantined sandbox holds."""


@dataclass(frozen=True, slots=True)
class Released(Event):
    """An admin gives up what a quarantined sandbox holds and could not be stored."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class RestartRequested(Event):
    """A kernel restart in the same sandbox. ``exit_reason``: what the running executions are told."""

    exit_reason: ExitReason = ExitReason.INTERRUPTED


@dataclass(frozen=True, slots=True)
class KernelDied(SandboxEvent):
    exit_reason: ExitReason = ExitReason.KERNEL_DIED


@dataclass(frozen=True, slots=True)
class SandboxGone(SandboxEvent):
    """The sandbox ended by itself, broke the protocol, or must be ended at once without persisting."""

    reason: EndReason = EndReason.CRASH


class UserKilled(SandboxEvent):
    """No process of the user is left."""


class Persisted(SandboxEvent):
    """Every declared file is stored and verified."""


class PersistFailed(SandboxEvent):
    """The store cannot take them now."""


class Destroyed(SandboxEvent):
    """The engine confirms that the sandbox is gone."""
