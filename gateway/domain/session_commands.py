"""What a session's table asks to be done. Pure values; ``service/effects.py`` carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from .model import ExitReason, NoticeKind


@dataclass(frozen=True, slots=True)
class Command:
    pass


class ObtainSandbox(Command):
    pass


@dataclass(frozen=True, slots=True)
class SandboxCommand(Command):
    sandbox_id: str


class RestoreFiles(SandboxCommand):
    pass


class KillUser(SandboxCommand):
    pass


class Persist(SandboxCommand):
    pass


class Destroy(SandboxCommand):
    pass


class Discard(SandboxCommand):
    """A sandbox that came too late: destroy it, nothing else."""


class RestartKernel(SandboxCommand):
    pass


class OpenForWork(Command):
    """Forward what waits."""


@dataclass(frozen=True, slots=True)
class FailWork(Command):
    """Finish every execution that is known now with this reason, the waiting ones too: none may run on a state not meant."""

    exit_reason: ExitReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LoseVariables(Command):
    """A generation ended: what it held is lost, because of ``reason``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tell(Command):
    """``lead_s``: the seconds that it is about, of a warning those that are left."""

    kind: NoticeKind
    reason: str = ""
    lead_s: float = 0.0
    detail: str = ""


class Finish(Command):
    """The session is over: close attachments, release what it holds."""
