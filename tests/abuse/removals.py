"""One hardening flag or rule taken out of the create request at a time: what, how, and which slow cases have to be asked about it.

Where the engine itself refuses a request without the rule, or the sandbox does not start, the absence is noticed, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.backends import hardening

Body = dict[str, Any]
TIERS_ALL = ("container", "gvisor")


@dataclass(frozen=True)
class Removal:
    name: str
    change: Callable[[Body], object]
    slow: tuple[str, ...] = ()
    tiers: tuple[str, ...] = TIERS_ALL
    ci: bool = False
    """Among the few that every commit tries."""


def _set(key: str, value: Any) -> Callable[[Body], object]:
    return lambda body: body["HostConfig"].__setitem__(key, value)


def _drop(key: str) -> Callable[[Body], object]:
    return lambda body: body["HostConfig"].pop(key, None)


def _security(without: str, instead: str = "") -> Callable[[Body], object]:
    def change(body: Body) -> None:
        options = [o for o in body["HostConfig"]["SecurityOpt"] if not o.startswith(without)]
        body["HostConfig"]["SecurityOpt"] = options + ([instead] if instead else [])

    return change


def _seccomp(edit: Callable[[list[Body]], object]) -> Callable[[Body], object]:
    def change(body: Body) -> None:
        options = body["HostConfig"]["SecurityOpt"]
        at = next(i for i, o in enumerate(options) if o.startswith("seccomp="))
        profile = json.loads(options[at].partition("=")[2])
        edit(profile["syscalls"])
        options[at] = "seccomp=" + json.dumps(profile, separators=(",", ":"), sort_keys=True)

    return change


def _allow(*names: str) -> Callable[[Body], object]:
    """These calls whatever their arguments are; rules about them go."""

    def edit(rules: list[Body]) -> None:
        rules[:] = [rule for rule in rules if not set(rule["names"]) & set(names) or set(rule["names"]) - set(names)]
        rules.append({"names": list(names), "action": "SCMP_ACT_ALLOW"})

    return _seccomp(edit)


def _tmpfs(place: str, *without: str) -> Callable[[Body], object]:
    def change(body: Body) -> None:
        options = body["HostConfig"]["Tmpfs"][place].split(",")
        body["HostConfig"]["Tmpfs"][place] = ",".join(o for o in options if o.partition("=")[0] not in without)

    return change


def _limit(name: str) -> Callable[[Body], object]:
    return lambda body: body["HostConfig"].__setitem__("Ulimits", [u for u in body["HostConfig"]["Ulimits"] if u["Name"] != name])


def _environment(**values: str) -> Callable[[Body], object]:
    def change(body: Body) -> None:
        body["Env"] = [f"{n}={values.get(n, v)}" for n, _, v in (item.partition("=") for item in body["Env"])]

    return change


def _one_uid(body: Body) -> None:
    """Relay and user as one."""
    numbers = dict(item.split("=", 1) for item in body["Env"])
    relay, user = numbers["SANDGLASS_RELAY_UID"], numbers["SANDGLASS_USER_UID"]
    _environment(SANDGLASS_RELAY_UID=user)(body)
    mounts = body["HostConfig"]["Tmpfs"]
    for place, options in mounts.items():
        mounts[place] = options.replace(f"uid={relay}", f"uid={user}")


def _host_names(body: Body) -> None:
    body["HostConfig"]["UTSMode"] = "host"
    body["Hostname"] = ""


def _no_mqueue(body: Body) -> None:
    body["HostConfig"]["Tmpfs"].pop("/dev/mqueue")


RUNC = ("container",)
GVISOR = ("gvisor",)
# fmt: off
REMOVALS: tuple[Removal, ...] = (
    Removal("network none", _set("NetworkMode", "host")),
    Removal("resolver of its own", _drop("Dns")),
    Removal("no host's processes", _set("PidMode", "host"), tiers=RUNC),
    Removal("no host's names", _host_names),
    Removal("ipc none", _set("IpcMode", "host")),
    Removal("not privileged", _set("Privileged", True), tiers=RUNC),
    Removal("no bind mount", _set("Binds", ["/etc:/mnt:ro"]), ci=True),
    Removal("read-only root", _set("ReadonlyRootfs", False)),
    Removal("no new privileges", _security("no-new-privileges")),
    Removal("capabilities dropped", lambda body: body["HostConfig"].update(CapDrop=[], CapAdd=[])),
    Removal("no capability added", _set("CapAdd", ["KILL", "SETGID", "SETUID", "SYS_ADMIN"])),
    Removal("seccomp allow-list (engine's own instead)", _security("seccomp=")),
    Removal("seccomp at all", _security("seccomp=", "seccomp=unconfined")),
    Removal("masked paths", _set("MaskedPaths", []), ci=True),
    Removal("read-only paths", _set("ReadonlyPaths", [])),
    Removal("memory limit", lambda body: body["HostConfig"].update(Memory=0, MemorySwap=0), slow=("memory_bomb",)),
    Removal("no swap", lambda body: body["HostConfig"].update(MemorySwap=-1)),
    Removal("out-of-memory order", _set("OomScoreAdj", 0)),
    Removal("processor share", lambda body: body["HostConfig"].update(CpuQuota=0, CpuPeriod=0), slow=("cpu_share",)),
    Removal("process limit of the container", _set("PidsLimit", 0), slow=("fork_bomb",)),
    Removal("process limit of the user", _environment(SANDGLASS_USER_PROCESSES="100000"), slow=("fork_bomb",)),
    Removal("core limit", _limit("core"), slow=("core_dump",)),
    Removal("memlock limit", _limit("memlock")),
    Removal("descriptor limit", _limit("nofile")),
    Removal("queue settings", _drop("Sysctls"), tiers=RUNC),
    Removal("log driver none", _drop("LogConfig")),
    Removal("private cgroup view", _set("CgroupnsMode", "host")),
    Removal("three identities", _one_uid, ci=True),
    Removal("numbers only in the environment", lambda body: body["Env"].append("SANDGLASS_TOKEN=eyJsecret")),
    Removal("threads as processors", lambda body: body.__setitem__("Env", [e for e in body["Env"] if "THREADS" not in e or "SANDGLASS" in e])),
    *(Removal(f"size of {place}", _tmpfs(place, "size")) for place in ("/workspace", "/tmp", "/dev/shm", "/workspace/in", "/run/sandglass", "/run/sandglass-etc")),
    *(Removal(f"inodes of {place}", _tmpfs(place, "nr_inodes")) for place in ("/workspace", "/tmp", "/dev/shm")),
    Removal("no set-uid in the workspace", _tmpfs("/workspace", "nosuid")),
    Removal("no device in the workspace", _tmpfs("/workspace", "nodev")),
    Removal("owner of the inputs", _tmpfs("/workspace/in", "uid", "gid", "mode")),
    Removal("owner of the sockets", _tmpfs("/run/sandglass", "uid", "gid", "mode")),
    Removal("mqueue covered", _no_mqueue),
    Removal("seccomp: socket families", _allow("socket")),
    Removal("seccomp: clone without namespaces", _allow("clone")),
    Removal("seccomp: clone3 refused", _allow("clone3"), tiers=RUNC),
    Removal("seccomp: limits of oneself", _allow("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam")),
    Removal("seccomp: priority of oneself", _allow("setpriority")),
    Removal("seccomp: signals but process 1", _allow("kill", "tgkill", "tkill")),
    Removal("seccomp: named pipes only", _allow("mknod", "mknodat")),
    Removal("seccomp: no namespaces", _allow("unshare", "setns")),
    Removal("seccomp: no mounts", _allow("mount", "umount2", "pivot_root", "chroot", "fsopen", "fsmount", "fspick", "open_tree", "move_mount", "mount_setattr")),
    Removal("seccomp: no keyrings", _allow("keyctl", "add_key", "request_key")),
    Removal("seccomp: no bpf", _allow("bpf")),
    Removal("seccomp: no io_uring", _allow("io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup", "io_submit"), ci=True),
    Removal("seccomp: no perf", _allow("perf_event_open")),
    Removal("seccomp: no userfaultfd", _allow("userfaultfd", "memfd_secret", "process_madvise", "vmsplice")),
    Removal("seccomp: no tracing", _allow("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd")),
    Removal("seccomp: no System V or POSIX objects", _allow("shmget", "shmat", "msgget", "semget", "mq_open", "mq_unlink")),
    Removal("seccomp: no control of the kernel", _allow("init_module", "kexec_load", "reboot", "swapon", "clock_adjtime", "adjtimex", "sethostname", "syslog", "acct")),
    Removal("seccomp: no file handles", _allow("name_to_handle_at", "open_by_handle_at", "fanotify_init")),
    Removal("seccomp: no machine state", _allow("personality", "modify_ldt", "iopl", "ioperm", "mbind", "set_mempolicy", "migrate_pages", "move_pages")),
)
# fmt: on


def readback(asked: Body, inspected: Body, warnings: list[str]) -> str:
    """What the gateway itself says to a container like this; empty when it would take it."""
    try:
        hardening.check_created(asked, inspected, warnings)
    except Exception as error:
        return str(getattr(error, "detail", "") or error)
    return ""
