"""What a session's transcript keeps: its policy, and one cell's record. Pure.

A transcript is the user's own document (P34): no log, no trace and no audit entry has a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .execution import status
from .model import ExitReason

MAX_CELLS = 2000
"""A session's; the oldest go."""


class Policy(StrEnum):
    """``HASH``: hashes, sizes and how each cell ended, but neither code nor output."""

    OFF = "off"
    HASH = "hash"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Transcripts:
    """The policy of an installation; ``tenants`` holds those that have one of their own."""

    policy: Policy = Policy.FULL
    tenants: Mapping[str, Policy] = field(default_factory=dict)

    def of(self, tenant: str) -> Policy:
        return Policy(self.tenants.get(tenant, self.policy))


@dataclass(slots=True)
class Cell:
    """One finished execution. Times in seconds since the epoch, sizes in bytes of JSON.

    ``code``: None where the policy keeps none. ``outputs``: nbformat's, in order; ``left_out``: bytes of output over the
    bound. ``place`` grows with every cell of the installation; 0 before it is recorded.
    """

    execution_id: str
    session_id: str
    generation: int
    source: str
    exit_reason: str
    created_at: float
    started_at: float | None
    finished_at: float
    execution_count: int | None
    code_sha256: str
    outputs_sha256: str
    code_bytes: int
    output_bytes: int
    left_out: int = 0
    code: str | None = None
    outputs: list[dict[str, Any]] = field(default_factory=list)
    place: int = 0

    @property
    def succeeded(self) -> bool:
        return status(ExitReason(self.exit_reason)) == "ok"
