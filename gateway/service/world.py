"""What the parts of the service share: the ports and the values from the configuration, as one object handed down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..domain.files import PersistLimits
from ..domain.model import Artifact, Profile
from ..domain.quota import QuotaLimits
from ..domain.retention import Retention
from ..domain.sensitive import Screens
from ..domain.transcript import Transcripts
from ..ports import Clock, ObjectStore, Records
from .archive_sandbox import ArchiveSandbox
from .deadlines import Deadlines
from .disposable import Disposables
from .inspection import InspectionRules, Inspector
from .pictures import Pictures
from .pool import Pool
from .quotas import Quotas
from .sandboxes import Sandboxes
from .storing import artifact_key
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
    extension_s: float = 4 * 3600.0
    """By how much admins may extend one sandbox's maximum lifetime, in all; 0: not at all."""
    cpu_sustained_s: float = 600.0
    """So long near its processor cap, and a sandbox is told of to admins; 0: never."""
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
    packages: tuple[str, ...] = ()
    """What users find installed in the image; empty: not known."""
    kernel_info: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Profile -> what its kernels answered last; the image is the same, so a session that only starts can answer with it."""
    retention: Retention = field(default_factory=Retention)
    transcripts: Transcripts = field(default_factory=Transcripts)
    check_user_quota: Callable[[LiveSession], None] = lambda session: None
    """Raises QuotaExceeded when this session's user may not have one more live sandbox."""
    inspection: InspectionRules = field(default_factory=InspectionRules)
    quota_limits: QuotaLimits = field(default_factory=QuotaLimits)
    disposables: Disposables = field(init=False)
    screens: Screens = field(default_factory=Screens)
    inspector: Inspector = field(init=False)
    pictures: Pictures = field(init=False)
    quotas: Quotas = field(init=False)

    def __post_init__(self) -> None:
        self.disposables = Disposables(self)
        apart = ArchiveSandbox(self.disposables, self.inspection.archives) if self.inspection.unpack_apart else None
        self.inspector = Inspector(self.records, self.store, self.tasks, self.journals.parent / "scratch", self.inspection, apart)
        self.pictures = Pictures(self, self.inspection.pictures)
        self.quotas = Quotas(self.quota_limits, self.clock, self.tally)

    async def handed_out(self, artifact: Artifact) -> tuple[int, AsyncIterator[bytes]]:
        """Size and bytes of a stored file as a download gives them. Raises ArtifactRejected, Unavailable, NotFound."""
        judged = await self.inspector.admit(artifact)
        if self.pictures.concerns(judged.mime):
            return await self.pictures.derived(judged)
        return artifact.size, self.store.read(artifact_key(artifact))

    @property
    def tally(self) -> Tally:
        return self.sandboxes.tally
