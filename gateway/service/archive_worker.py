"""Looking into an archive: in a disposable sandbox (``archive_sandbox``), or in a process of its own on the gateway's host.

The process (``archive_child``) gets the file as its standard input and nothing else: no environment, no other descriptor. It is bounded
in memory and processor time, and killed when it is not done.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..domain.archives import ArchiveLimits, Report
from ..domain.inspection import Rule
from ..errors import Unavailable
from .disposable import Owner

if TYPE_CHECKING:
    from .archive_sandbox import ArchiveSandbox

log = logging.getLogger("sandglass.files")
PATIENCE = 4.0
"""So many times its processor time a check may take by the clock, for machines that are busy."""
MAX_ANSWER = 64 * 1024
MAX_ASIDE = 4 * 1024**3
"""Bytes of archives on the gateway's disk at once, those that still come in included."""
_ROOT = str(Path(__file__).parents[2])
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from gateway.service.archive_child import main; main()"


class ArchiveChecks:
    """``scratch``: a folder of the gateway's own, for files without a name. ``at_once``: processes. ``apart``: instead of processes."""

    def __init__(
        self, limits: ArchiveLimits, scratch: Path, at_once: int = max(1, (os.cpu_count() or 1) // 2), apart: ArchiveSandbox | None = None
    ) -> None:
        self.limits, self.scratch, self._apart = limits, scratch, apart
        self._turns = asyncio.Semaphore(at_once)
        self.aside_bytes = 0

    def reserve(self, size: int) -> None:
        """Count bytes that are put aside; ``release`` them. Raises Unavailable when there are too many."""
        if self.aside_bytes + size > MAX_ASIDE:
            raise Unavailable("Too many archives are being looked into just now.")
        self.aside_bytes += size

    def release(self, size: int) -> None:
        self.aside_bytes -= size

    def scratch_file(self) -> BinaryIO:
        """An empty file without a name: whatever happens to the gateway, it leaves nothing. Raises Unavailable."""
        try:
            self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            return tempfile.TemporaryFile(dir=self.scratch)
        except OSError as error:
            raise cannot(error) from None

    async def check(self, file: BinaryIO, owner: Owner) -> Report:
        """Raises Unavailable when it could not be looked into now; that says nothing about the archive."""
        file.flush()
        if self._apart is not None:
            return await self._apart.check(file, owner)
        async with self._turns:
            return await self._check(file)

    async def _check(self, file: BinaryIO) -> Report:
        process = await self._start(file)
        try:
            async with asyncio.timeout(self.limits.cpu_s * PATIENCE):
                assert process.stdout is not None
                answer = await process.stdout.read(MAX_ANSWER)
                code = await process.wait()
        except TimeoutError:
            return Report(Rule.SLOW)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if (report := verdict_of(code, answer)) is None:
            log.error("an archive check ended without an answer", extra={"exit_code": code})
            raise cannot()
        return report

    async def _start(self, file: BinaryIO) -> asyncio.subprocess.Process:
        arguments = (json.dumps(asdict(self.limits)), str(self.scratch.resolve()))
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", _CODE, _ROOT, *arguments,
                stdin=file, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env={}, close_fds=True,
            )  # fmt: skip
        except OSError as error:
            raise cannot(error) from None


def verdict_of(code: int, answer: bytes) -> Report | None:
    """What the process found, by its exit code and what it wrote; None where it says nothing about the archive."""
    if code in (-24, -9):  # SIGXCPU, and what follows it
        return Report(Rule.SLOW)
    try:
        said = json.loads(answer)
        return Report(Rule(said["rule"]) if said["rule"] else None, str(said["where"]), int(said["entries"]), int(said["unpacked_bytes"]))
    except (ValueError, KeyError, TypeError):
        return None


def cannot(error: OSError | None = None) -> Unavailable:
    if error is not None:
        log.error("an archive cannot be looked into", extra={"why": error.strerror or type(error).__name__})
    return Unavailable("Archives cannot be looked into now.")
