"""The process that looks into one archive, in a sandbox or on the host: standard input is the file, standard output one line of JSON.

It imports little, for it is started for each archive. It runs at a low priority, so that nobody's cell waits for somebody's
archive, and cannot write a file larger than an archive may unpack to (nor, unless it is root, start another process).
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import resource
import sys
import tempfile
from dataclasses import asdict
from typing import Any, BinaryIO

from ..domain.archives import ArchiveLimits, check

MEMORY = 768 * 1024**2
"""Address space: the largest xz that is taken needs 128 MiB, and Python some."""

FULL = 28
"""Exit code: what an archive within the archive unpacks to finds no room."""


def main() -> None:
    """``sys.argv``: where the package is, limits as JSON, folder for scratch files."""
    limits, scratch = ArchiveLimits(**json.loads(sys.argv[2])), sys.argv[3]
    confine(limits)

    def scratch_file() -> BinaryIO:
        return tempfile.TemporaryFile(dir=scratch)

    # The gateway shares this place in the file, and waits meanwhile.
    file: Any = io.BufferedReader(io.FileIO(0, closefd=False), 256 * 1024)
    try:
        report = check(file, limits, scratch_file)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(FULL)
    sys.stdout.write(json.dumps(asdict(report)))


def confine(limits: ArchiveLimits) -> None:
    seconds = max(1, round(limits.cpu_s))
    for what, most in (
        (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, limits.unpacked_bytes),
        (resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_NPROC, 0), (resource.RLIMIT_CORE, 0),
    ):  # fmt: skip
        _, hard = resource.getrlimit(what)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, least))
    with contextlib.suppress(PermissionError):  # a service manager's filter of system calls may forbid it; it bounds nothing
        os.nice(10)
