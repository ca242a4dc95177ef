"""Deleting stored versions: first nobody finds them (recorded in the audit), then the object goes, then the row.

A kill at any point leaves a doomed row, which the sweeper finishes; the row goes only once the store says that the object
is not there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ..domain.audit import Tag
from ..domain.model import Artifact
from ..errors import NotFound, SandglassError
from ..ports import AuditRow
from .pictures import KINDS
from .storing import artifact_key, derived_key
from .world import World

log = logging.getLogger("sandglass.disposal")


class Disposal:
    def __init__(self, world: World) -> None:
        self._world = world

    async def doom(self, tag: Tag, artifact_ids: Sequence[str], *, tenant: str, user: str, session_id: str, **detail: object) -> int:
        """From here on nobody finds them. Returns how many were there."""
        now = self._world.clock.now()
        audit = AuditRow(now, tag, tenant, user, session_id, {"count": len(artifact_ids), "ids": list(artifact_ids), **detail})
        return await self._world.records.doom_artifacts(list(artifact_ids), now, audit)

    async def finish(self, artifacts: Iterable[Artifact]) -> int:
        """Remove the objects and rows of doomed artifacts; returns how many. Raises StoreUnavailable, RecordsUnavailable."""
        done = 0
        for artifact in artifacts:
            copy_gone = artifact.mime not in KINDS or await self.remove_object(derived_key(artifact))
            if copy_gone and await self.remove_object(artifact_key(artifact)):
                await self._world.records.forget_artifact(artifact.artifact_id)
                done += 1
        return done

    async def remove_object(self, key: str) -> bool:
        """True when the store says that it is not there any more."""
        await self._world.store.delete(key)
        try:
            await self._world.store.stat(key)
        except NotFound:
            return True
        log.error("the store kept an object that was deleted; it is tried again later")
        return False

    def finish_soon(self, artifact: Artifact) -> None:
        """Without waiting; what does not work now is the sweeper's."""

        async def attempt() -> None:
            try:
                await self.finish([artifact])
            except SandglassError as error:
                log.warning("an object was not deleted yet", extra={"why": error.code})

        self._world.tasks.spawn(attempt(), "dispose")
