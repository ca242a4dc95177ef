"""What the engine can protect, from its own description: a profile whose protection is missing is refused, never weakened."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..ports import RuntimeInfo
from .hardening import GVISOR_TIER

DEFAULT_TIERS = {"container": "runc", GVISOR_TIER: "runsc"}
"""Tier -> the OCI runtime's name in the engine."""

_VERSION = re.compile(r"^(runsc|runc) version (\S+)", re.MULTILINE)
_LIMITS = {
    "MemoryLimit": "memory",
    "SwapLimit": "swap (boot the host with swapaccount=1, or use cgroup v2)",
    "CpuCfsQuota": "cpu quota",
    "PidsLimit": "process",
}


def describe(version: dict[str, Any], info: dict[str, Any], tiers: Mapping[str, str], *, local: bool) -> RuntimeInfo:
    """Join ``/version`` and ``/info``. ``local``: the engine's files are this machine's, so its runtimes can be asked."""
    found = runtime_versions(info, local=local)
    runtimes = {name: text.rpartition(" ")[2] for name, text in found.items()}
    return RuntimeInfo(
        version=str(version.get("Version", "")),
        runtimes=runtimes,
        problems=problems(info, tiers, found),
        cgroup_version=int(info["CgroupVersion"]) if str(info.get("CgroupVersion", "")).isdigit() else 0,
    )


def runtime_versions(info: dict[str, Any], *, local: bool) -> dict[str, str]:
    """Name -> ``"runsc release-20240729.0"``, or ``""`` where nobody says. Blocks for each local runtime a moment."""
    out: dict[str, str] = {}
    for name, entry in (info.get("Runtimes") or {}).items():
        path = str((entry or {}).get("path", ""))
        out[name] = _ask_runtime(path) if local and path.startswith("/") else ""
        if not out[name] and name == "runc" and path in ("runc", ""):
            out[name] = f"runc {(info.get('RuncCommit') or {}).get('ID', '')}".strip()
    return out


def _ask_runtime(path: str) -> str:
    """The engine runs this program as root for every container, so asking it for its version adds no trust."""
    if not Path(path).is_file():
        return ""
    try:
        out = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = _VERSION.search(out.stdout)
    return f"{match[1]} {match[2]}" if match else ""


def problems(info: dict[str, Any], tiers: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, str]:
    """Tier -> one sentence that says what is missing and how to mend it. A tier that is not in it can be served."""
    general = _general_problem(info)
    out: dict[str, str] = {}
    for tier, runtime in tiers.items():
        if general:
            out[tier] = general
        elif runtime not in versions:
            out[tier] = f"the engine has no runtime {runtime!r}: {_how_to_get(tier, runtime)}"
        elif tier == GVISOR_TIER and versions[runtime].startswith("runc"):
            # the worst case: believed to be behind gVisor's kernel, and on the host's
            out[tier] = f"the engine's runtime {runtime!r} is not gVisor but {versions[runtime]}: correct its path"
    return out


def _how_to_get(tier: str, runtime: str) -> str:
    if tier == GVISOR_TIER:
        return f'install gVisor and add {runtime!r} under "runtimes" in the engine\'s daemon.json with --network=none'
    return f'install it and add {runtime!r} under "runtimes" in the engine\'s daemon.json'


def _general_problem(info: dict[str, Any]) -> str:
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    if info.get("OSType", "linux") != "linux":
        return "the engine does not run Linux containers"
    if not any(option.startswith("name=seccomp") for option in options):
        return "the engine has no seccomp: use a kernel with CONFIG_SECCOMP_FILTER and an engine built with it"
    for option in ("rootless", "userns"):
        if f"name={option}" in options:
            return f"the engine runs with {option}, where sandboxes cannot have uids of their own: use an engine without it"
    for key, what in _LIMITS.items():
        if info.get(key) is False:
            return f"the engine's kernel has no {what} limit"
    return ""
