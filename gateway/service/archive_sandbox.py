"""Looking into an archive in a disposable sandbox: the same program as on the host, sent there as a file of Python's own kind.

What the sandbox says of the archive is all that comes back. Whoever takes over the program there can at worst have their own archive
called fine, which a restore would bring back into their sandbox in any case.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import zipfile
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from ..domain.archives import ArchiveLimits, Report
from ..domain.inspection import Rule
from ..domain.paths import printable
from .archive_child import FULL
from .archive_worker import MAX_ANSWER, PATIENCE, cannot, verdict_of
from .disposable import Disposables, Given, Job, Owner, WorkFailed, once

log = logging.getLogger("sandglass.files")
CHUNK = 256 * 1024
MODULES = (
    "errors", "domain.archive_streams", "domain.archive_tar", "domain.archive_zip", "domain.archives", "domain.filetypes",
    "domain.inspection", "domain.paths", "service.archive_child",
)  # fmt: skip
"""All that the program imports of ours; ``tests/unit/service/test_archive_sandbox.py`` runs it from nothing else."""
START = "import sys; sys.path.insert(0, sys.argv[1]); from gateway.service.archive_child import main; main()"
CODE = """
def look_into():
    import json, os, subprocess, sys
    with open("in/archive", "rb") as archive:
        command = [sys.executable, "-I", "-S", "-c", {start!r}, os.path.abspath("in/look.zip"), {limits!r}, os.getcwd()]
        done = subprocess.run(command, stdin=archive, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={{}})
    with open("report", "w") as report:
        json.dump([done.returncode, done.stdout[:{most}].decode("utf-8", "replace")], report)
look_into()
"""


@functools.cache
def program() -> bytes:
    """The modules as one file that Python can import from."""
    root, data = Path(__file__).parents[1], io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for package in ("", "domain/", "service/"):
            archive.writestr(f"gateway/{package}__init__.py", "")
        for module in MODULES:
            name = f"{module.replace('.', '/')}.py"
            archive.writestr(f"gateway/{name}", (root / name).read_bytes())
    return data.getvalue()


class ArchiveSandbox:
    def __init__(self, disposables: Disposables, limits: ArchiveLimits) -> None:
        self._disposables, self._limits = disposables, limits
        self._code = CODE.format(start=START, limits=json.dumps(asdict(limits)), most=MAX_ANSWER)

    async def check(self, file: BinaryIO, owner: Owner) -> Report:
        """Raises Unavailable when it could not be looked into now; that says nothing about the archive."""
        size = file.seek(0, io.SEEK_END)
        look = program()
        given = (Given("in/look.zip", len(look), once(look)), Given("in/archive", size, _chunks(file)))
        # the process is bounded in processor time; the clock is for what it takes to get there
        within_s = self._limits.cpu_s * PATIENCE + size / (4 * 1024**2) + 30.0
        job = Job(self._code, given, "report", 2 * MAX_ANSWER, within_s, lambda said: _report(said) is not None)
        try:
            report = _report(await self._disposables.run(owner, job))
        except WorkFailed as error:
            if str(error) == "too_large":
                return Report(Rule.SIZE)  # more than a sandbox takes in
            log.error("an archive could not be looked into", extra={"why": str(error)})
            raise cannot() from None
        assert report is not None
        return report


def _report(said: bytes) -> Report | None:
    try:
        code, answer = json.loads(said)
        if code == FULL:
            return Report(Rule.SIZE)  # an archive within it unpacks to more than fits into a sandbox
        found = verdict_of(code, answer.encode())
        return found and Report(found.rule, printable(found.where), found.entries, found.unpacked_bytes)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk
