"""From a sandbox's specification to the engine's create request. Pure; golden-tested for both runtimes.

Every choice here answers an attack that was tried; ``docs/threat-model.md`` has the list. What protects where:

- runc: namespaces, seccomp (``seccomp.json``, an allow-list), three capabilities for init alone, a uid of its own for relay and user
- runsc: the same request; gVisor's own kernel drops what it does not know (sysctls, inode limits), its memory limit then
  covers for it, and the seccomp profile is applied when runsc runs with ``--oci-seccomp``

Fail closed: ``create_body`` refuses a profile that the engine cannot protect, and ``check_created`` tells when the engine took
less than was asked.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from importlib import resources
from typing import Any

from ..domain.model import Limits
from ..errors import ProfileUnavailable
from ..ports import RuntimeInfo, SandboxSpec

LABEL_INSTANCE = "sandglass.instance"
LABEL_SANDBOX = "sandglass.sandbox"
LABEL_TEMPLATE = "sandglass.template"
GVISOR_TIER = "gvisor"

RUN_BYTES = 8 * 1024**2
"""The sockets' directory, which only the relay and the kernel may write."""
ETC_BYTES = 64 * 1024
SPARE_BYTES = 64 * 1024**2
"""What init, relay and kernel need at the least beside full tmpfs mounts."""
CPU_PERIOD_US = 20_000
"""The share of the processors is dealt out in pieces of this. With the engine's 100 ms a sandbox with two busy threads takes both
processors for 50 ms and then stands still, its relay too: neighbours and interrupts wait that long."""
SPARE_PROCESSES = 32
"""Host tasks of init, relay, zygote, helpers and the runtime itself that the user's own limit leaves free: without them a fork
bomb would also keep init from forking the process that kills it."""
GVISOR_PIDS = 4096
"""gVisor's limit counts host threads, about 40 an idle Python: the sandbox's own nproc limit is what counts there."""
SMALL_DIRECTORY_INODES = 1024
THREAD_POOLS = (
    "MKL_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
"""Libraries that otherwise start a thread for each of the host's processors, whatever the limit is."""
MEMLOCK_BYTES = 8 * 1024**2
OOM_SCORE = 500
"""On a host that runs out, sandboxes go before the gateway and the engine. User code stands at 1000."""

# The engine's own list, and what else tells about the host or its other tenants. Missing paths are skipped by the runtime.
MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/buddyinfo",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/schedstat",
    "/proc/scsi",
    "/proc/softirqs",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
    "/sys/class/dmi",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/debug",
    "/sys/kernel/security",
)
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

# System V and POSIX queues outlive their process and stay charged. On runc seccomp refuses the calls as well.
IPC_SYSCTLS = {"kernel.shmmax": "0", "kernel.msgmni": "0", "fs.mqueue.queues_max": "0"}


@lru_cache(maxsize=2)
def seccomp_profile(*, gvisor: bool = False) -> str:
    """The allow-list as one line of JSON, without its comments, the way the engine's API takes it.

    runsc's ``--oci-seccomp`` ignores ``errnoRet``, all it refuses fails with EPERM: with clone3 refused so glibc starts no
    thread, and libzmq aborts when NETLINK_ROUTE is. So gVisor serves these two itself; they reach its kernel, never the host's.
    """
    profile = json.loads(resources.files(__package__).joinpath("seccomp.json").read_text(encoding="utf-8"))
    for rule in profile["syscalls"]:
        rule.pop("comment", None)
        if gvisor and rule.pop("errnoRet", None) is not None:
            rule["action"] = "SCMP_ACT_ALLOW"
    return json.dumps(profile, separators=(",", ":"), sort_keys=True)


def is_gvisor(spec: SandboxSpec) -> bool:
    return spec.profile.tier == GVISOR_TIER


def tmpfs_bytes(limits: Limits) -> int:
    """All bytes that the sandbox's tmpfs mounts can hold together; they count as memory."""
    return limits.workspace_bytes + limits.inputs_bytes + limits.tmp_bytes + limits.shm_bytes + RUN_BYTES + ETC_BYTES


def check_limits(limits: Limits) -> None:
    """Raises ProfileUnavailable, with the sum, for limits that cannot hold together."""
    need = tmpfs_bytes(limits) + SPARE_BYTES
    if need > limits.memory_bytes:
        raise ProfileUnavailable(
            f"memory_bytes is {limits.memory_bytes}, but workspace, inputs, tmp and shm count as memory and need {need} with "
            f"{SPARE_BYTES} for the kernel itself: raise memory_bytes or lower the others"
        )
    if limits.cpus <= 0 or limits.processes < 16 or limits.open_files < 64 or limits.workspace_inodes < 64:
        raise ProfileUnavailable("a kernel needs cpus above 0, at least 16 processes, 64 open files and 64 inodes")


def tmpfs_mounts(spec: SandboxSpec) -> dict[str, str]:
    """Mount point -> options. gVisor takes ``size`` and the owner, and drops ``nr_inodes`` silently.

    ``exec`` throughout: noexec stops nobody (memfd, ``ld.so FILE``), and a wheel's or numba's shared object in it would not map.
    """
    limits = spec.profile.limits
    user, relay, group, inodes = spec.user_uid, spec.relay_uid, spec.group_id, limits.workspace_inodes

    def options(size: int, mode: str, uid: int, gid: int, nr_inodes: int) -> str:
        return f"rw,exec,nosuid,nodev,size={size},nr_inodes={nr_inodes},mode={mode},uid={uid},gid={gid}"

    return {
        # set-group-id: what either of the two makes here belongs to the group that both are in
        "/run/sandglass": options(RUN_BYTES, "2771", relay, group, SMALL_DIRECTORY_INODES),
        "/run/sandglass-etc": options(ETC_BYTES, "755", 0, 0, 64),
        "/workspace": options(limits.workspace_bytes, "755", user, group, inodes),
        "/workspace/in": options(limits.inputs_bytes, "755", relay, group, inodes),
        "/tmp": options(limits.tmp_bytes, "1777", 0, 0, inodes),  # noqa: S108 - mount points of the sandbox
        "/dev/shm": options(limits.shm_bytes, "1777", 0, 0, SMALL_DIRECTORY_INODES),  # noqa: S108
        # over the engine's writable one
        "/dev/mqueue": "ro,noexec,nosuid,nodev,size=4096,nr_inodes=2,mode=555",
    }


def environment(spec: SandboxSpec) -> list[str]:
    """Numbers only: on gVisor process 1's environment can be read by everybody in the sandbox."""
    limits = spec.profile.limits
    threads = max(1, math.ceil(limits.cpus))
    numbers = {
        "SANDGLASS_RELAY_UID": spec.relay_uid,
        "SANDGLASS_USER_UID": spec.user_uid,
        "SANDGLASS_GROUP_ID": spec.group_id,
        "SANDGLASS_USER_PROCESSES": limits.processes,
        "SANDGLASS_THREADS": threads,
    }
    numbers |= dict.fromkeys(THREAD_POOLS, threads)
    return [f"{name}={value}" for name, value in sorted(numbers.items())]


def _host_config(spec: SandboxSpec, info: RuntimeInfo) -> dict[str, Any]:
    limits = spec.profile.limits
    config: dict[str, Any] = {
        "Runtime": spec.profile.runtime,
        "NetworkMode": "none",
        # otherwise the host's resolv.conf is copied in
        "Dns": ["127.0.0.1"],
        "DnsSearch": ["."],
        "DnsOptions": [],
        # "none" and not "private": the engine would mount a /dev/shm without an inode limit
        "IpcMode": "none",
        "PidMode": "",
        "UTSMode": "",
        "UsernsMode": "",
        "Privileged": False,
        "ReadonlyRootfs": True,
        "Binds": [],
        "Mounts": [],
        "Devices": [],
        "VolumesFrom": [],
        "Tmpfs": tmpfs_mounts(spec),
        "CapDrop": ["ALL"],
        "CapAdd": ["KILL", "SETGID", "SETUID"],
        "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile(gvisor=is_gvisor(spec))}"],
        "MaskedPaths": list(MASKED_PATHS),
        "ReadonlyPaths": list(READONLY_PATHS),
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "OomScoreAdj": OOM_SCORE,
        "CpuPeriod": CPU_PERIOD_US,
        "CpuQuota": round(limits.cpus * CPU_PERIOD_US),
        "PidsLimit": GVISOR_PIDS if is_gvisor(spec) else limits.processes + SPARE_PROCESSES,
        "Ulimits": [
            # no core file in the workspace, which a user could declare and which shows the relay's or zygote's memory
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "memlock", "Soft": MEMLOCK_BYTES, "Hard": MEMLOCK_BYTES},
            {"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files},
        ],
        "Init": False,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        # standard output is a protocol; the engine's log would only multiply it on the host's disk
        "LogConfig": {"Type": "none", "Config": {}},
        "PublishAllPorts": False,
        "PortBindings": {},
    }
    if not is_gvisor(spec):
        config["Sysctls"] = dict(IPC_SYSCTLS)
    if info.cgroup_version == 2:
        config["CgroupnsMode"] = "private"
    return config


def create_body(spec: SandboxSpec, info: RuntimeInfo) -> dict[str, Any]:
    """The body of ``POST /containers/create``. Process 1 is the image's entry point.

    Raises ProfileUnavailable when the engine lacks the runtime or a protection, or the limits contradict each other.
    """
    profile = spec.profile
    problem = info.problems.get(profile.tier)
    if problem:
        raise ProfileUnavailable(problem)
    if profile.runtime not in info.runtimes:
        raise ProfileUnavailable(f"the engine has no runtime {profile.runtime!r}, which profile {profile.name!r} needs")
    check_limits(profile.limits)
    if len({0, spec.relay_uid, spec.user_uid}) < 3 or spec.group_id == 0:
        raise ProfileUnavailable("init, relay and user need three different uids and a group that is not root's")
    labels = dict(spec.labels)
    labels[LABEL_INSTANCE] = spec.instance
    labels[LABEL_SANDBOX] = spec.sandbox_id
    return {
        "Image": spec.image,
        # init starts as root, whatever user the image names
        "User": "0:0",
        "Hostname": "sandbox",
        "Domainname": "",
        "Env": environment(spec),
        "Labels": labels,
        "OpenStdin": True,
        # the stream is attached again after a gateway's restart
        "StdinOnce": False,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(spec, info),
    }


_NEVER = ("DeviceCgroupRules", "DeviceRequests", "ExtraHosts", "GroupAdd", "Links", "OomKillDisable")
"""What a sandbox is never given, and what no request of ours names."""


def check_created(body: dict[str, Any], inspected: dict[str, Any], warnings: list[str] | None) -> None:
    """Compare what the engine says it made with what was asked, member by member: most have no behaviour that shows their absence in time.

    Raises ProfileUnavailable when it dropped or changed a protection; the caller removes the container.
    """
    for warning in warnings or ():
        # e.g. "Your kernel does not support swap limit capabilities ... Memory limited without swap."
        if "does not support" in warning or "discarded" in warning or "without swap" in warning:
            raise ProfileUnavailable("the engine's kernel lacks a limit that a sandbox needs (memory, swap, cpu or pids)")
    asked, made = body["HostConfig"], inspected.get("HostConfig") or {}
    for key, value in asked.items():
        wanted, found = _plain(key, value), _plain(key, made.get(key))
        # more of what hides or forbids is no harm
        if not (wanted <= found if key in ("MaskedPaths", "ReadonlyPaths") else wanted == found):
            raise ProfileUnavailable(f"the engine did not take {key} as asked")
    for key in _NEVER:
        if made.get(key):
            raise ProfileUnavailable(f"the engine added {key}, which a sandbox must not have")
    if any(mount.get("Type") != "tmpfs" for mount in inspected.get("Mounts") or ()):
        raise ProfileUnavailable("the image declares a volume; a sandbox has no mount of the host")
    config = inspected.get("Config") or {}
    if config.get("Tty") or config.get("User", body["User"]) != body["User"]:
        raise ProfileUnavailable("the engine did not take user and terminal as asked")
    # the image's own variables are there as well, but none of ours may have another value or come twice
    ours = [item for item in config.get("Env", body["Env"]) if item.startswith("SANDGLASS_")]
    if sorted(ours) != sorted(item for item in body["Env"] if item.startswith("SANDGLASS_")):
        raise ProfileUnavailable("the engine did not take the environment as asked")


def _plain(key: str, value: Any) -> Any:
    """A member in one form, for engines differ: nothing may be null, false or empty, and newer ones say ``CAP_KILL`` for ``KILL``."""
    if not value:
        return set() if key in ("MaskedPaths", "ReadonlyPaths") else None
    if key == "Ulimits":
        return {str(u["Name"]).lower().removeprefix("rlimit_"): (u["Soft"], u["Hard"]) for u in value}
    if key == "Tmpfs":
        return {place: frozenset(options.split(",")) for place, options in value.items()}
    if key == "LogConfig":
        return value.get("Type")
    if key == "RestartPolicy":
        return value.get("Name") or "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return {item.removeprefix("CAP_") for item in value}
    return value
