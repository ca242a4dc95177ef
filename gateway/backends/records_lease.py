"""Who owns an installation: the names of owners, and whether an owner's process is gone.

A lease runs out by itself, but a gateway that was killed and is started again should not have to wait for that. An
owner's name says which process it is, so that on the same machine, in the same boot and the same space of process
numbers, a successor can see that it is gone. Where that cannot be known the owner counts as alive.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class _Process:
    boot_id: str
    space: str
    pid: int
    started: str


def make_owner(boot_id: str, pid: int | None = None) -> str:
    """A name for this process as the owner of a lease: boot, space of process numbers, number, its start, a nonce."""
    number = os.getpid() if pid is None else pid
    return "/".join((boot_id, _space(), str(number), _started(number) or "", secrets.token_hex(4)))


def is_gone(owner: str, asking: str) -> bool:
    """Whether the process behind ``owner`` has surely ended, as far as the owner ``asking`` can tell."""
    theirs, ours = _parse(owner), _parse(asking)
    if theirs is None or ours is None or (theirs.boot_id, theirs.space) != (ours.boot_id, ours.space):
        return False
    started = _started(theirs.pid)
    if started is None:
        return True
    # A number that lives again is another process when it was started at another time.
    return "" not in (started, theirs.started) and started != theirs.started


def _parse(owner: str) -> _Process | None:
    parts = owner.split("/")
    if len(parts) != 5 or not parts[2].isdigit() or parts[0] in ("", "unknown") or not parts[1]:
        return None
    return _Process(parts[0], parts[1], int(parts[2]), parts[3])


def _space() -> str:
    """The process number namespace: a container beside us counts from 1 as well, and its processes cannot be seen."""
    try:
        return os.readlink("/proc/self/ns/pid").replace("/", "")
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When it was started, in ticks since boot; None when there is no such process (or a zombie), "" if not known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]
