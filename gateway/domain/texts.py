"""The sentences that people read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .execution import SENTENCES
from .model import EndReason, ExitReason, Variable

WHY_ENDED = {
    EndReason.IDLE_TIMEOUT: "it was idle for too long",
    EndReason.MAX_LIFETIME: "it reached its maximum lifetime",
    EndReason.USER: "you ended it",
    EndReason.ADMIN: "an administrator ended it",
    EndReason.OUT_OF_MEMORY: "it ran out of memory",
    EndReason.CRASH: "it crashed",
    EndReason.HOST_LOST: "its host was lost",
    EndReason.POLICY: "a policy ended it",
    EndReason.PROTOCOL_VIOLATION: "it broke the stream protocol",
    EndReason.UPGRADE: "the service was stopped or upgraded",
    EndReason.RETENTION: "its retention time was over",
}


def sentence(exit_reason: str) -> str:
    """The sentence of an exit reason."""
    return SENTENCES[ExitReason(exit_reason)]


def because(reason: str) -> str:
    """``... because <this>``, for an end reason, an exit reason or ``restart``."""
    if reason in WHY_ENDED:
        return f"the sandbox ended: {WHY_ENDED[EndReason(reason)]}"
    if reason == "restart":
        return "the kernel was restarted"
    if reason in {str(r) for r in ExitReason}:
        if reason == ExitReason.KERNEL_DIED:
            return "the kernel process ended"
        words = sentence(reason)
        return "the kernel was ended: " + words[0].lower() + words[1:].rstrip(".")
    return "the kernel ended"


def duration(seconds: float) -> str:
    """``90`` -> ``1 min 30 s``."""
    s = max(0, round(seconds))
    if s < 60:
        return f"{s} s"
    if s < 3600:
        return f"{s // 60} min" + (f" {s % 60} s" if s % 60 else "")
    return f"{s // 3600} h" + (f" {s % 3600 // 60} min" if s % 3600 // 60 else "")


def names(items: Iterable[str], most: int = 12) -> str:
    """``a, b, c and 4 more``; empty for none."""
    listed = list(items)
    head = ", ".join(listed[:most])
    return head + (f" and {len(listed) - most} more" if len(listed) > most else "")


def lost_text(variables: Iterable[Variable], reason: str) -> str:
    listed = names(v.name for v in variables)
    return f"Variables lost ({because(reason)}): {listed}." if listed else f"The session's state was lost: {because(reason)}."


def restored_text(files: Iterable[Mapping[str, Any]], failed: Iterable[Mapping[str, Any]]) -> str:
    good = names(f"{f['path']} (sha256 {str(f['sha256'])[:12]})" for f in files)
    bad = names(str(f["path"]) for f in failed)
    parts = []
    if good:
        parts.append(f"Files restored: {good}.")
    if bad:
        parts.append(f"Files that could not be restored: {bad}.")
    return " ".join(parts)
