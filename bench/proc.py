"""What /proc says of processes: processor time, memory, descriptors; and which processes belong to an engine and a sandbox."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path
from typing import Any

import docker

from gateway.backends.docker_stream import EngineAddress

TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> tuple[str, list[str]]:
    """Name, and the fields after it (the first one is the state)."""
    text = Path(f"/proc/{pid}/stat").read_text()
    begin, end = text.index("("), text.rindex(")")
    return text[begin + 1 : end], text[end + 2 :].split()


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads; 0 when it is gone."""
    try:
        fields = _stat(pid)[1]
    except OSError:
        return 0.0
    # the sum of the threads' own counters is finer than the ticks of stat
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError, ValueError):
            total += int((task / "schedstat").read_text().split()[0])
    ticks = (int(fields[11]) + int(fields[12])) / TICKS
    return max(ticks, total / 1e9)  # threads that ended are in stat alone


def rss(pid: int) -> int:
    return _member(f"/proc/{pid}/status", "VmRSS")


def pss(pid: int) -> int:
    """Memory with shared pages divided among those that share them; 0 where it may not be read."""
    return _member(f"/proc/{pid}/smaps_rollup", "Pss")


def _member(path: str, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() or _stat(pid)[0]
    except OSError:
        return ""


def parents() -> dict[int, int]:
    """pid -> its parent's."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                found[int(entry)] = int(_stat(int(entry))[1][1])
    return found


def family(root: int, tree: dict[int, int]) -> list[int]:
    """A process and all that descend from it."""
    found = [root]
    for pid in found:
        found += [child for child, parent in tree.items() if parent == pid and child != pid]
    return found


class Engine:
    """The host's processes behind one sandbox. What is not on this machine, or hidden, is simply not there."""

    def __init__(self, docker_host: str, container: str) -> None:
        client = docker.APIClient(base_url=docker_host, version="auto")
        info: Any = client.inspect_container(container)
        client.close()
        self.main = int(info["State"]["Pid"])
        self.runtime = str(info["HostConfig"]["Runtime"])
        self.engine_id = str(info["Id"])
        tree = parents()
        self.shim = tree.get(self.main, 0)
        self.dockerd = _listener(EngineAddress.parse(docker_host).path)
        self.containerd = [pid for pid in tree if _name(pid) == "containerd"]

    def sandbox(self) -> list[int]:
        """What the sandbox's first process (on gVisor: its sentry) began, and gVisor's gofer. What was put in by exec does not count."""
        tree = parents()
        return family(self.main, tree) + [pid for pid, parent in tree.items() if parent == self.shim and "runsc-gofer" in command(pid)]

    def part(self, pid: int) -> str:
        line = command(pid)
        if "runsc-gofer" in line:
            return "gofer"
        if self.runtime == "runsc":
            return "sentry"
        if "zygote" in command(_parent(pid)):
            return "kernel"  # a fork, so its command line is the zygote's
        return next((part for part, word in (("relay", "start_relay"), ("zygote", "zygote"), ("init", "init.py")) if word in line), "other")

    def cpu(self) -> dict[str, float]:
        found = {"dockerd": cpu_s(self.dockerd), "containerd": sum(map(cpu_s, self.containerd)), "shim": cpu_s(self.shim)}
        for pid in self.sandbox():
            part = self.part(pid)
            found[part] = found.get(part, 0.0) + cpu_s(pid)
        return {name: value for name, value in found.items() if value}


def _parent(pid: int) -> int:
    try:
        return int(_stat(pid)[1][1])
    except OSError:
        return 0


def _name(pid: int) -> str:
    try:
        return _stat(pid)[0]
    except OSError:
        return ""


def _listener(path: str) -> int:
    """The process at the other end of a Unix socket."""
    if not path:
        return 0
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
        pid = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return int(pid) if pid > 1 else 0
