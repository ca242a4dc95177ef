"""Files looked into as they pass, and verdicts on those that are stored; the rules are ``domain.inspection``'s."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from ..domain.archives import ArchiveLimits
from ..domain.filetypes import CHECKABLE
from ..domain.inspection import OK, Downloads, Rule, held_back
from ..domain.model import Artifact
from ..domain.paths import printable
from ..errors import ArtifactRejected, SandglassError
from ..ports import ObjectStore, Records
from .archive_sandbox import ArchiveSandbox
from .archive_worker import ArchiveChecks, cannot
from .disposable import Owner
from .pictures import Pictures
from .sniffing import Look
from .storing import Patience, read_stored
from .tasks import Tasks

log = logging.getLogger("sandglass.files")
CHUNK = 256 * 1024
MAX_WAITING = 10_000
"""Artifacts that wait to be looked into; what is more waits until somebody wants to download it."""


@dataclass(frozen=True, slots=True)
class InspectionRules:
    """From the configuration."""

    archives: ArchiveLimits = field(default_factory=ArchiveLimits)
    downloads: Downloads = Downloads.CHECKED
    pictures: bool = False
    """Pictures are encoded anew in a disposable sandbox; else they are handed out as they were stored."""
    unpack_apart: bool = False
    """Archives are unpacked in a disposable sandbox; else in a bounded process on the gateway's host."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``rule``: what it breaks, or None. ``where``: the entry of an archive."""

    mime: str
    rule: Rule | None = None
    where: str = ""

    def refusal(self, path: str) -> ArtifactRejected:
        assert self.rule is not None
        extra: dict[str, Any] = {"rule": str(self.rule), "path": printable(path), "mime": self.mime}
        if self.rule is Rule.TYPE:
            name = printable(path.rpartition("/")[2])
            return ArtifactRejected(f"{self.rule.sentence} {name} holds {self.mime}; give it the ending of that type.", **extra)
        if self.where:
            return ArtifactRejected(f"{self.rule.sentence} It is about {self.where}.", **extra, entry=self.where)
        return ArtifactRejected(self.rule.sentence, **extra)


class Inspection:
    """One file as it passes: ``feed`` every chunk, then ask for the ``finding``; ``close`` in any case.

    An archive is put aside in a file without a name, for it cannot be judged before its end has been seen.
    """

    def __init__(self, checks: ArchiveChecks, path: str, owner: Owner) -> None:
        self._checks, self._path, self._owner = checks, path, owner
        self._look = Look(path)
        self._aside: BinaryIO | None = None
        self._aside_bytes = 0
        self._begun: list[bytes] = []
        self._known = False

    def feed(self, chunk: bytes) -> bool:
        """True once its type is known. Raises Unavailable."""
        if self._known:
            if self._aside is not None:
                self._write(chunk)
            return True
        self._begun.append(chunk)
        if self._look.feed(chunk):
            self._decide()
        return self._known

    def _decide(self) -> None:
        self._known = True
        begun, self._begun = self._begun, []
        if self._look.archive in CHECKABLE:
            self._aside = self._checks.scratch_file()
            for chunk in begun:
                self._write(chunk)

    def _write(self, chunk: bytes) -> None:
        assert self._aside is not None
        self._checks.reserve(len(chunk))
        self._aside_bytes += len(chunk)
        try:
            self._aside.write(chunk)
        except OSError as error:
            raise cannot(error) from None

    @property
    def is_archive(self) -> bool:
        """Known once ``feed`` said so."""
        return self._aside is not None

    def early(self) -> Finding:
        """What its beginning says."""
        return Finding(self._look.mime, self._look.rule)

    async def finding(self) -> Finding:
        """What all of it says. Raises Unavailable when an archive cannot be looked into now."""
        if not self._known:
            self._decide()
        found = self.early()
        if self._aside is None:
            return replace(found, rule=Rule.UNSUPPORTED) if self._look.archive else found
        report = await self._checks.check(self._aside, self._owner)
        return replace(found, rule=report.rule, where=report.where) if report.rule else found

    def content(self) -> AsyncIterator[bytes]:
        """An archive's bytes again, from the beginning."""
        return _read(self._aside)

    def close(self) -> None:
        if self._aside is not None:
            self._aside.close()
            self._checks.release(self._aside_bytes)
            self._aside_bytes = 0


async def _read(file: BinaryIO | None) -> AsyncIterator[bytes]:
    assert file is not None
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk


class Inspector:
    """``apart``: looks into archives elsewhere than on this host."""

    def __init__(
        self, records: Records, store: ObjectStore, tasks: Tasks, scratch: Path, rules: InspectionRules, apart: ArchiveSandbox | None = None
    ) -> None:
        self._records, self._store, self._tasks = records, store, tasks
        self._checks = ArchiveChecks(rules.archives, scratch, apart=apart)
        self._patience = Patience()
        self._downloads = rules.downloads
        self._waiting: deque[Artifact] = deque(maxlen=MAX_WAITING)
        self._at_work = False

    def begin(self, path: str, owner: Owner) -> Inspection:
        return Inspection(self._checks, path, owner)

    # --- what is stored -----------------------------------------------------------------------------------------------

    def judge_soon(self, artifact: Artifact) -> None:
        """Without waiting; what is not done when the gateway ends is done when somebody wants to download it."""
        self._waiting.append(artifact)
        if not self._at_work:
            self._at_work = True
            self._tasks.spawn(self._work(), "inspection")

    async def _work(self) -> None:
        artifact: Artifact | None = None
        try:
            while self._waiting:
                artifact = self._next(artifact)
                try:
                    await self.judged(artifact)
                except SandglassError as error:
                    log.warning("an artifact was not looked into yet", extra={"session": artifact.session_id, "why": error.code})
        finally:
            self._at_work = False

    def _next(self, last: Artifact | None) -> Artifact:
        """One of the same user first, where there is one: their sandbox is still there."""
        same = (a for a in self._waiting if last is not None and (a.tenant, a.user) == (last.tenant, last.user))
        artifact = next(same, self._waiting[0])
        self._waiting.remove(artifact)
        return artifact

    async def judged(self, artifact: Artifact) -> Artifact:
        """The artifact with its verdict. Raises Unavailable, NotFound (its object is gone)."""
        if artifact.verdict:
            return artifact
        known = await self._records.get_artifact(artifact.artifact_id)
        if known is not None and known.verdict:
            return known
        inspection = self.begin(artifact.path, (artifact.tenant, artifact.user))
        try:
            async with aclosing(read_stored(self._store, self._patience, artifact)) as chunks:
                async for chunk in chunks:
                    if inspection.feed(chunk) and not inspection.is_archive:
                        break
            found = await inspection.finding()
        finally:
            inspection.close()
        judged = replace(artifact, mime=found.mime, verdict=str(found.rule or OK))
        await self._records.judge_artifact(artifact.artifact_id, judged.mime, judged.verdict)
        if found.rule is not None:
            log.info("an artifact breaks a rule", extra={"session": artifact.session_id, "rule": judged.verdict})
        return judged

    # --- what may be downloaded ---------------------------------------------------------------------------------------

    async def admit(self, artifact: Artifact) -> Artifact:
        """With its verdict. Raises ArtifactRejected when the policy holds it back, Unavailable when that cannot be said now."""
        if self._downloads is Downloads.ALL:
            return artifact
        judged = await self.judged(artifact)
        self._refuse(artifact.path, Finding(judged.mime, None if judged.verdict == OK else Rule(judged.verdict)))
        return judged

    def held_back(self, artifact: Artifact) -> str:
        """Why it would not be handed out, a sentence; empty where it would be, or is still to be looked into."""
        rule = held_back(self._downloads, artifact.mime, artifact.verdict) if artifact.verdict else None
        return rule.sentence if rule is not None else ""

    def _refuse(self, path: str, found: Finding) -> None:
        rule = held_back(self._downloads, found.mime, str(found.rule or OK))
        if rule is not None:
            raise replace(found, rule=rule).refusal(path)

    async def admitted(self, path: str, chunks: AsyncIterator[bytes], pictures: Pictures, owner: Owner) -> AsyncIterator[bytes]:
        """A file's bytes, once it is known that it may be downloaded: an archive after all of it was looked into, a picture anew.

        Raises ArtifactRejected or Unavailable before the first of them.
        """
        if self._downloads is Downloads.ALL and not pictures.concerns_any:
            async for chunk in chunks:
                yield chunk
            return
        inspection = self.begin(path, owner)
        held: list[bytes] = []
        let_in = False
        try:
            async for chunk in chunks:
                if let_in:
                    yield chunk
                    continue
                known = inspection.feed(chunk)
                if inspection.is_archive:
                    continue
                held.append(chunk)
                if known:
                    self._refuse(path, inspection.early())
                    let_in = True
                    if pictures.concerns(inspection.early().mime):
                        yield await pictures.clean(path, inspection.early().mime, _chained(held, chunks), owner)
                        return
                    for each in held:
                        yield each
                    held.clear()
            if not let_in:
                found = await inspection.finding()
                self._refuse(path, found)
                if pictures.concerns(found.mime):
                    yield await pictures.clean(path, found.mime, _all(held), owner)
                    return
                async for chunk in inspection.content() if inspection.is_archive else _all(held):
                    yield chunk
        finally:
            inspection.close()


async def _chained(held: list[bytes], chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in held:
        yield chunk
    async for chunk in chunks:
        yield chunk


async def _all(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
