"""What the parts of the service share: the ports and the values from the configuration, as one object handed down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..domain.files import PersistLimits
from ..domain.model import Profile
from ..domain.retention import Retention
from ..domain.transcript import Transcripts
from ..ports import Clock, ObjectStore, Records
from .deadlines import Deadlines
from .pool import Pool
from .sandboxes import Sandboxes
from .tally import Tally
from .tasks import Tasks

if TYPE_CHECKING:
    from .live import LiveSession


@dataclass(frozen=True, slots=True)
class Caps:
    """Counts that bound what one user, one session and the gateway may hold."""

    sessions_a_user: int = 64
    live_sandboxes_a_user: int = 8
    queued_executions: int = 32
    jupyter_queue: int = 1000
    attachments: int = 32
    checkpoint_bytes: int = 64 * 1024**2
    journal_bytes: int = 64 * 1024**2
    upload_bytes: int = 256 * 1024**2
    artifact_bytes: int = 256 * 1024**2
    transcript_bytes: int = 16 * 1024**2
    cell_bytes: int = 1024**2
    """Of output; code is kept whole."""


@dataclass(slots=True)
class World:
    """``trace``: members of every trace record (P34) by profile name: image digest, lock hash, runtime version."""

    clock: Clock
    records: Records
    store: ObjectStore
    tasks: Tasks
    deadlines: Deadlines
    sandboxes: Sandboxes
    pool: Pool
    profiles: dict[str, Profile]
    journals: Path
    caps: Caps = field(default_factory=Caps)
    keep: PersistLimits = field(default_factory=PersistLimits)
    trace: dict[str, dict[str, str]] = field(default_factory=dict)
    kernel_info: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Profile -> what its kernels answered last; the image is the same, so a session that only starts can answer with it."""
    retention: Retention = field(default_factory=Retention)
    transcripts: Transcripts = field(default_factory=Transcripts)
    check_user_quota: Callable[[LiveSession], None] = lambda session: None
    """Raises QuotaExceeded when this session's user may not have one more live sandbox."""

    @property
    def tally(self) -> Tally:
        return self.sandboxes.tally
