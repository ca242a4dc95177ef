"""Declared files: listed, read out, stored and verified; and put back into the next sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..domain.files import MAX_DECLARATIONS, Declaration, Declarations, PersistLimits, Plan, Stored, plan_persist, stamp
from ..domain.model import Artifact, FileInfo
from ..domain.paths import INPUTS, check_pattern, split_root
from ..errors import Conflict, NotFound, PathRefused, SandglassError
from ..ports import Clock, DeclarationRow, ObjectStore, Records
from .filestream import FileStream
from .link import SandboxLink
from .storing import Digest, NewVersion, Patience, read_stored

log = logging.getLogger("sandglass.files")
LIST_ENTRIES = 25_000
LIST_BYTES = 8 * 1024 * 1024
IN = f"{INPUTS}/"
Json = dict[str, Any]


@dataclass
class Saved:
    """What a persist did. ``lost``: undeclared files, whose contents end with the sandbox."""

    stored: list[Artifact] = field(default_factory=list)
    kept: list[Json] = field(default_factory=list)
    refused: list[Json] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def declarations_of(rows: Iterable[DeclarationRow]) -> Declarations:
    return Declarations([Declaration(r.pattern, r.keep, r.created_at) for r in rows])


def describe(artifact: Artifact) -> Json:
    return {"path": artifact.path, "sha256": artifact.sha256, "size": artifact.size}


def _is_pattern(path: str) -> bool:
    try:
        check_pattern(path)
    except PathRefused:
        return False
    return True


async def entries(link: SandboxLink, root: str, most: int = LIST_ENTRIES) -> tuple[list[FileInfo], bool]:
    """What one root holds; True when the list was cut. Raises SandboxLost, Unavailable, PathRefused."""
    stream = link.open_file({"cmd": "list", "root": root, "max_entries": most})
    data = bytearray()
    try:
        while (chunk := await stream.read()) is not None:
            data += chunk
            if len(data) > LIST_BYTES:
                raise PathRefused("The workspace holds too many names to list.")
        end = await stream.result()
    except BaseException:
        stream.abort()
        raise
    found: list[FileInfo] = []
    prefix = IN if root == INPUTS else ""
    for line in bytes(data).splitlines():
        try:
            item = json.loads(line)
            size, mtime = int(item["size"]), int(item["mtime_ns"])
            info = FileInfo(prefix + str(item["path"]), size, mtime, str(item["kind"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # what the sandbox says is not trusted; a line that makes no sense names no file
        found.append(info)
        if len(found) >= LIST_ENTRIES:
            return found, True
    return found, bool(end.get("truncated"))


async def list_sandbox(link: SandboxLink) -> tuple[list[FileInfo], bool]:
    """Everything in the workspace and in ``in/``; True when the list was cut. Raises SandboxLost, Unavailable."""
    mine, cut = await entries(link, "workspace")
    given, cut_given = await entries(link, INPUTS)
    mine = [f for f in mine if f.path != INPUTS and not f.path.startswith(IN)]
    return mine + given, cut or cut_given


async def read_sandbox(link: SandboxLink, path: str, max_bytes: int) -> AsyncIterator[bytes]:
    """A file's bytes. Raises NotFound, PathRefused, TooLarge, Conflict (it changed meanwhile)."""
    root, inner = split_root(path)
    stream = link.open_file({"cmd": "get", "root": root, "path": inner, "max_bytes": max_bytes})
    try:
        while (chunk := await stream.read()) is not None:
            yield chunk
        await stream.result()
    finally:
        stream.abort()


async def write_sandbox(
    link: SandboxLink, path: str, size: int, sha256: str | Digest | None, chunks: AsyncIterator[bytes], *, overwrite: bool
) -> Json:
    """Put a file; it appears whole or not at all. Returns ``{"size", "sha256"}``. Raises Conflict, TooLarge, ...

    ``sha256``: what ``chunks`` is known to have and the sandbox must find, a digest of what has passed, or None: counted here.
    """
    root, inner = split_root(path)
    command: Json = {"cmd": "put", "root": root, "path": inner, "size": size, "overwrite": overwrite}
    if isinstance(sha256, str):
        command["sha256"] = sha256
    stream: FileStream = link.open_file(command)
    counted = hashlib.sha256() if sha256 is None else None
    sent = 0
    try:
        async for chunk in chunks:
            if counted is not None:
                counted.update(chunk)
            sent += len(chunk)
            await stream.write(chunk)
        result = await stream.finish()
    except BaseException:
        stream.abort()
        raise
    known = sha256 or counted
    right = known if known is None or isinstance(known, str) else known.hexdigest()
    if result.get("sha256") != right or result.get("size") != sent:
        raise Conflict("The sandbox stored something else than was sent.")
    return {"size": sent, "sha256": right}


class Keeper:
    """The declared files of one session. ``_known``: what was stored of the present sandbox, to see what changed.

    ``judge`` is told of artifacts that are still to be looked into.
    """

    def __init__(
        self, records: Records, store: ObjectStore, clock: Clock, *,
        session_id: str, tenant: str, user: str, limits: PersistLimits, judge: Callable[[Artifact], None],
    ) -> None:  # fmt: skip
        self._records = records
        self._store = store
        self._clock = clock
        self._session_id = session_id
        self._tenant = tenant
        self._user = user
        self._limits = limits
        self._judge = judge
        self._known: dict[str, Stored] = {}
        self._lock = asyncio.Lock()
        self.patience = Patience()
        self.inputs: dict[str, str] = {}
        """Uploads as stored, path -> SHA-256: what executions may have read, for their trace."""

    def forget_sandbox(self) -> None:
        self._known.clear()

    async def plan(self, link: SandboxLink) -> tuple[Plan, list[FileInfo], bool]:
        """What would be kept now. Raises SandboxLost, Unavailable."""
        listing, cut = await list_sandbox(link)
        declared = declarations_of(await self._records.list_declarations(self._session_id))
        if len(listing) > 1000:
            # names come from the sandbox and can be made to match slowly: not on everybody's loop
            return await asyncio.to_thread(plan_persist, listing, declared, dict(self._known), self._limits), listing, cut
        return plan_persist(listing, declared, self._known, self._limits), listing, cut

    async def persist(self, link: SandboxLink, *, generation: int, execution_id: str, budget: int | None = None) -> Saved:
        """Store every declared file that changed, verified. ``budget``: bytes at the most (a checkpoint); None = everything.

        Raises StoreUnavailable, RecordsUnavailable, SandboxLost: then what is missing is tried again by the caller.
        """
        async with self._lock:
            plan, _, _ = await self.plan(link)
            saved = Saved(
                refused=[{"path": path, "reason": str(why), "detail": why.sentence} for path, why in plan.refused],
                lost=[f.path for f in plan.undeclared],
            )
            latest = {a.path: a for a in await self._records.list_artifacts(self._session_id)}
            for info in plan.keep:
                if budget is not None and info.size > budget:
                    continue
                try:
                    artifact = await self._store_one(link, info, latest.get(info.path), generation, execution_id)
                except (NotFound, PathRefused, Conflict) as error:
                    saved.refused.append({"path": info.path, "reason": error.code, "detail": error.detail})
                    continue
                if budget is not None:
                    budget -= artifact.size
                if artifact.path not in latest or latest[artifact.path].artifact_id != artifact.artifact_id:
                    saved.stored.append(artifact)
                saved.kept.append(describe(artifact))
            saved.kept += [describe(latest[f.path]) for f in plan.unchanged if f.path in latest]
            return saved

    async def _store_one(self, link: SandboxLink, info: FileInfo, latest: Artifact | None, generation: int, execution_id: str) -> Artifact:
        read_at = self._clock.now()
        version = await self.begin(info.path)
        try:
            async for chunk in read_sandbox(link, info.path, self._limits.file_bytes):
                await version.write(chunk)
            artifact = await self._keep(version, latest, generation, execution_id)
        except BaseException:
            await version.drop()
            raise
        if version.size == info.size:
            self._known[info.path] = stamp(info, read_at)
        return artifact

    async def begin(self, path: str, digest: Digest | None = None) -> NewVersion:
        """Raises StoreUnavailable."""
        return await NewVersion.begin(self._store, self.patience, path, tenant=self._tenant, user=self._user, digest=digest)

    async def _keep(self, version: NewVersion, latest: Artifact | None, generation: int, execution_id: str) -> Artifact:
        """The version's artifact; the one before it where the bytes are the same."""
        if latest is not None and latest.sha256 == version.sha256:
            await version.drop()
            return latest
        artifact = await version.keep(self._records, self._clock, self._session_id, self._tenant, self._user, generation, execution_id)
        self._note_input(artifact)
        if not artifact.verdict:
            self._judge(artifact)
        return artifact

    async def keep_upload(self, link: SandboxLink, version: NewVersion, generation: int) -> Artifact:
        """What was written into the sandbox as ``version`` was filled. Raises StoreUnavailable, RecordsUnavailable.

        Waits for a persist under way: one that read the file before the upload must not write its row behind this one.
        """
        path = version.path
        rows = await self._records.list_declarations(self._session_id)
        if not declarations_of(rows).decide(path)[0]:
            await self._records.put_declaration(DeclarationRow(self._session_id, check_pattern(path), True, "upload", self._clock.now()))
        async with self._lock:
            latest = {a.path: a for a in await self._records.list_artifacts(self._session_id)}.get(path)
            artifact = await self._keep(version, latest, generation, "")
        if path.startswith(IN):
            # Only uploads write there, so what is there now is what was stored, and need not be read back.
            with contextlib.suppress(SandglassError):
                found = next((f for f in (await entries(link, INPUTS))[0] if f.path == path), None)
                if found is not None and found.size == artifact.size:
                    self._known[path] = Stored(found.size, found.mtime_ns)
        return artifact

    async def counts_as_kept(self, path: str, size: int) -> bool:
        """Whether an upload there is to be stored: it counts as declared until its user says otherwise, within the session's total."""
        rows = await self._records.list_declarations(self._session_id)
        kept, own = declarations_of(rows).decide(path)
        others = [a.size for a in await self._records.list_artifacts(self._session_id) if a.path != path]
        if size > self._limits.file_bytes or len(others) >= self._limits.files or sum(others) + size > self._limits.session_bytes:
            return False
        return kept or (not own and len(rows) < MAX_DECLARATIONS and "*" not in path and _is_pattern(path))

    def _note_input(self, artifact: Artifact) -> None:
        if artifact.path.startswith(IN):
            self.inputs[artifact.path] = artifact.sha256

    async def restore(self, link: SandboxLink) -> tuple[list[Json], list[Json]]:
        """Put the newest version of every kept file back; returns (restored, failed). Raises SandboxLost, StoreUnavailable."""
        restored: list[Json] = []
        failed: list[Json] = []
        for artifact in await self._records.list_artifacts(self._session_id):
            try:
                result = await write_sandbox(link, artifact.path, artifact.size, artifact.sha256, self.read_artifact(artifact), overwrite=True)
                if result["sha256"] != artifact.sha256:
                    raise Conflict("The stored object is not what was stored.")
            except (NotFound, Conflict, PathRefused) as error:
                log.warning("a file was not restored", extra={"session": self._session_id, "why": error.code})
                failed.append({"path": artifact.path, "reason": error.code, "detail": error.detail})
            else:
                restored.append(describe(artifact))
                self._note_input(artifact)
        if restored:
            listing, _ = await list_sandbox(link)
            sizes = {item["path"]: item["size"] for item in restored}
            self._known.update({f.path: Stored(f.size, f.mtime_ns) for f in listing if sizes.get(f.path) == f.size})
        return restored, failed

    def read_artifact(self, artifact: Artifact) -> AsyncIterator[bytes]:
        return read_stored(self._store, self.patience, artifact)

    async def latest(self, path: str) -> Artifact:
        """The newest stored version. Raises NotFound."""
        for artifact in await self._records.list_artifacts(self._session_id):
            if artifact.path == path:
                return artifact
        raise NotFound("There is no such file.")
