"""Declared files: listed, read out, stored and verified; and put back into the next sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import mimetypes
import secrets
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..domain.files import Declaration, Declarations, PersistLimits, Plan, Stored, plan_persist, stamp
from ..domain.model import Artifact, FileInfo
from ..domain.paths import split_root
from ..errors import Conflict, NotFound, PathRefused, StoreUnavailable
from ..ports import Clock, DeclarationRow, ObjectStore, Records
from .filestream import FileStream
from .link import SandboxLink

log = logging.getLogger("sandglass.files")
LIST_ENTRIES = 25_000
LIST_BYTES = 8 * 1024 * 1024
STORE_S = 60.0
"""A store that takes or gives nothing for so long counts as down."""
STORE_RATE = 8 * 1024 * 1024
"""A commit may take so much longer: bytes a second at the least, for what a store still has to sync or to copy then."""
Json = dict[str, Any]
T = TypeVar("T")


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


async def _entries(link: SandboxLink, root: str) -> tuple[list[FileInfo], bool]:
    stream = link.open_file({"cmd": "list", "root": root, "max_entries": LIST_ENTRIES})
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
    prefix = "in/" if root == "in" else ""
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
    mine, cut = await _entries(link, "workspace")
    given, cut_given = await _entries(link, "in")
    mine = [f for f in mine if f.path != "in" and not f.path.startswith("in/")]
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


async def write_sandbox(link: SandboxLink, path: str, size: int, sha256: str | None, chunks: AsyncIterator[bytes], *, overwrite: bool) -> Json:
    """Put a file; it appears whole or not at all. Returns ``{"size", "sha256"}`` as counted here. Raises Conflict, TooLarge, ..."""
    root, inner = split_root(path)
    command: Json = {"cmd": "put", "root": root, "path": inner, "size": size, "overwrite": overwrite}
    if sha256:
        command["sha256"] = sha256
    stream: FileStream = link.open_file(command)
    digest, sent = hashlib.sha256(), 0
    try:
        async for chunk in chunks:
            digest.update(chunk)
            sent += len(chunk)
            await stream.write(chunk)
        result = await stream.finish()
    except BaseException:
        stream.abort()
        raise
    if result.get("sha256") != digest.hexdigest() or result.get("size") != sent:
        raise Conflict("The sandbox stored something else than was sent.")
    return {"size": sent, "sha256": digest.hexdigest()}


class Keeper:
    """The declared files of one session. ``_known``: what was stored of the present sandbox, to see what changed."""

    def __init__(self, records: Records, store: ObjectStore, clock: Clock, *, session_id: str, tenant: str, user: str, limits: PersistLimits) -> None:
        self._records = records
        self._store = store
        self._clock = clock
        self._session_id = session_id
        self._tenant = tenant
        self._user = user
        self._limits = limits
        self._known: dict[str, Stored] = {}
        self._lock = asyncio.Lock()
        self.store_s, self.store_rate = STORE_S, STORE_RATE
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
        key = f"artifacts/{_opaque(self._tenant)}/{_opaque(self._user)}/{secrets.token_hex(16)}"
        writer = await self._timely(self._store.writer(key))
        digest, size = hashlib.sha256(), 0
        try:
            async for chunk in read_sandbox(link, info.path, self._limits.file_bytes):
                digest.update(chunk)
                size += len(chunk)
                await self._timely(writer.write(chunk))
            sha256 = digest.hexdigest()
            if latest is not None and latest.sha256 == sha256:
                await self._timely(writer.abort())
                self._remember(info, size, read_at)
                return latest
            if await self._timely(writer.commit(), size) != sha256:
                raise StoreUnavailable("The store took something else than was sent.")
        except BaseException:
            with contextlib.suppress(StoreUnavailable):
                await self._timely(writer.abort())
            raise
        if await self._timely(self._store.stat(key)) != size:
            raise StoreUnavailable("The store does not hold what it took.")
        artifact = Artifact(
            artifact_id=key.rsplit("/", 1)[1], session_id=self._session_id, tenant=self._tenant, user=self._user,
            path=info.path, sha256=sha256, size=size, mime=mimetypes.guess_type(info.path)[0] or "application/octet-stream",
            generation=generation, created_at=self._clock.now(), execution_id=execution_id,
        )  # fmt: skip
        await self._records.add_artifact(artifact)
        self._note_input(artifact)
        self._remember(info, size, read_at)
        return artifact

    def _note_input(self, artifact: Artifact) -> None:
        if artifact.path.startswith("in/"):
            self.inputs[artifact.path] = artifact.sha256

    def _remember(self, info: FileInfo, size: int, read_at: float) -> None:
        if size == info.size:
            self._known[info.path] = stamp(info, read_at)

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

    async def read_artifact(self, artifact: Artifact) -> AsyncIterator[bytes]:
        chunks = self._store.read(artifact_key(artifact))
        while chunk := await self._timely(anext(chunks, b"")):
            yield chunk

    async def _timely(self, call: Awaitable[T], size: int = 0) -> T:
        """Raises StoreUnavailable when the store neither answers nor fails: everything that waits for it would hang with it."""
        try:
            return await asyncio.wait_for(call, self.store_s + size / self.store_rate)
        except TimeoutError:
            raise StoreUnavailable("The object store does not answer.") from None

    async def latest(self, path: str) -> Artifact:
        """The newest stored version. Raises NotFound."""
        for artifact in await self._records.list_artifacts(self._session_id):
            if artifact.path == path:
                return artifact
        raise NotFound("There is no such file.")


def artifact_key(artifact: Artifact) -> str:
    return f"artifacts/{_opaque(artifact.tenant)}/{_opaque(artifact.user)}/{artifact.artifact_id}"


def _opaque(name: str) -> str:
    """Object keys carry no names of people or tenants."""
    return hashlib.sha256(name.encode()).hexdigest()[:24]
