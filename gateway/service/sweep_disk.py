"""What may lie on disks with no record that wants it: journals of ended sessions, objects without a row."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path

from ..domain.audit import Tag
from ..domain.model import SessionState
from ..domain.retention import ORPHAN_S, cut, old
from ..errors import StoreUnavailable
from ..ports import AuditRow
from .disposal import Disposal
from .gateway import Gateway
from .world import World

log = logging.getLogger("sandglass.retention")
KEYS = 500
FEW = 20
"""So many objects without a row are never too many."""
PREFIX = "artifacts/"


async def sweep_journals(gateway: Gateway, now: float, batch: int) -> None:
    """Remove the journals of sessions that ended long enough ago, and those of no session. Raises StoreUnavailable."""
    world = gateway.world
    due: list[str] = []
    for place, (name, changed_at) in enumerate(await asyncio.to_thread(_folders, world.journals)):
        if name not in gateway.live:
            row = await world.records.get_session(name)
            if row is None:
                due += [name] if old(changed_at, ORPHAN_S, now) else []
            elif row.state == SessionState.ENDED and old(row.ended_at, world.retention.journals_s, now):
                due.append(name)
        if len(due) >= batch:
            await _remove(world, due, now)
            due = []
        if place % batch == 0:
            await asyncio.sleep(0)
    if due:
        await _remove(world, due, now)


async def _remove(world: World, names: list[str], now: float) -> None:
    """Recorded first: a kill in between has it recorded twice rather than never."""
    await world.records.add_audit(AuditRow(now, Tag.RETENTION_JOURNAL_DELETE, "", "", "", {"count": len(names), "ids": names}))
    for name in names:
        await asyncio.to_thread(_remove_folder, world.journals / name)


def _folders(journals: Path) -> list[tuple[str, float]]:
    try:
        with os.scandir(journals) as found:
            return [(entry.name, entry.stat(follow_symlinks=False).st_mtime) for entry in found if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise StoreUnavailable(f"The journals cannot be listed ({os.strerror(exc.errno or 0)}).") from exc


def _remove_folder(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise StoreUnavailable(f"A journal cannot be removed ({os.strerror(exc.errno or 0)}).") from exc


class Strays:
    """Objects without a row: what is left of a kill between an object and its row. They go once they were known for a day."""

    def __init__(self, world: World, disposal: Disposal) -> None:
        self._world = world
        self._disposal = disposal

    async def sweep(self, now: float) -> bool:
        """False when too many have no row: then these are not the records of this store, and nothing is removed."""
        known = strays = 0
        batch: dict[str, str] = {}
        async for key in self._world.store.list(PREFIX):
            batch[key] = key.rpartition("/")[2]
            if len(batch) >= KEYS:
                found = await self._note(batch, now)
                known, strays = known + len(batch) - found, strays + found
                batch = {}
                await asyncio.sleep(0)
        found = await self._note(batch, now)
        known, strays = known + len(batch) - found, strays + found
        if strays > max(FEW, known):
            log.error("most objects of the store have no record; none is removed", extra={"without": strays, "with": known})
            return False
        while keys := await self._world.records.orphans(cut(ORPHAN_S, now), KEYS):
            for key in keys:
                if not await self._remove(key, now):
                    return False
        return True

    async def _note(self, batch: dict[str, str], now: float) -> int:
        strays = await self._world.records.unknown_objects(batch) if batch else []
        if strays:
            await self._world.records.note_orphans(strays, now)
        return len(strays)

    async def _remove(self, key: str, now: float) -> bool:
        audit = AuditRow(now, Tag.RETENTION_OBJECT_DELETE, "", "", "", {"count": 1, "ids": [key.rpartition("/")[2]]})
        if not await self._world.records.unknown_objects({key: key.rpartition("/")[2]}):
            await self._world.records.forget_orphan(key, None)
            return True
        if not await self._disposal.remove_object(key):
            return False
        await self._world.records.forget_orphan(key, audit)
        return True
