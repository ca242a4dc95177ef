"""Everything a call to the engine can raise has its place in the error tree; the engine's documents are read as they come."""

from __future__ import annotations

import inspect
import json
from typing import Any

import docker.errors
import pytest
import requests
import requests.exceptions
import urllib3.exceptions

from gateway.backends.docker import facts_of, typed_error, usage_of
from gateway.backends.docker_info import describe, problems, runtime_versions
from gateway.errors import (
    CapacityExhausted,
    Conflict,
    EngineUnavailable,
    ImageUnavailable,
    ProfileUnavailable,
    SandboxLost,
    SandglassError,
)


def answer(status: int, words: str, kind: type[docker.errors.APIError] = docker.errors.APIError) -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    return kind("engine", response=response, explanation=words)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answer(404, "No such image: x", docker.errors.ImageNotFound), ImageUnavailable),
        (answer(404, "No such container: x", docker.errors.NotFound), SandboxLost),
        (answer(404, "something else"), SandboxLost),
        (answer(409, "removal of container x is already in progress"), Conflict),
        (answer(400, "Unknown runtime specified runsc"), ProfileUnavailable),
        (answer(400, "unknown or invalid runtime name: runsc"), ProfileUnavailable),
        (answer(400, "OCI runtime create failed: ... executable file not found in $PATH"), ImageUnavailable),
        (answer(500, "OCI runtime create failed: runsc ..."), ProfileUnavailable),
        (answer(500, "Decoding seccomp profile failed"), ProfileUnavailable),
        (answer(500, "write /var/lib/x: no space left on device"), CapacityExhausted),
        (answer(500, "fork/exec: cannot allocate memory"), CapacityExhausted),
        (answer(500, "driver failed"), EngineUnavailable),
        (answer(503, ""), EngineUnavailable),
        (requests.exceptions.ReadTimeout(), EngineUnavailable),
        (ConnectionRefusedError(), EngineUnavailable),
        (TimeoutError(), EngineUnavailable),
        (json.JSONDecodeError("x", "", 0), EngineUnavailable),
        (docker.errors.DockerException("Error while fetching server API version"), EngineUnavailable),
        (SandboxLost("x"), SandboxLost),
    ],
)
def test_each_kind_of_failure(error: BaseException, expected: type[SandglassError]) -> None:
    assert type(typed_error(error)) is expected


def instances(module: Any) -> list[BaseException]:
    """One of every exception class that a module defines."""
    found: list[BaseException] = []
    for _, kind in inspect.getmembers(module, inspect.isclass):
        if not issubclass(kind, Exception) or issubclass(kind, Warning) or kind.__module__ != module.__name__:
            continue
        if module is urllib3.exceptions and not issubclass(kind, urllib3.exceptions.HTTPError):
            # its few others are about proxies, which are never used here
            continue
        error = kind.__new__(kind)
        if isinstance(error, docker.errors.APIError):
            error = answer(500, "", kind)
        found.append(error)
    return found


@pytest.mark.parametrize("module", [docker.errors, requests.exceptions, urllib3.exceptions], ids=lambda m: m.__name__)
def test_every_exception_of_the_libraries_is_mapped(module: Any) -> None:
    for error in instances(module):
        assert isinstance(typed_error(error), SandglassError), type(error)


def test_a_defect_of_our_own_stays_one() -> None:
    for error in (TypeError("x"), KeyError("x"), AttributeError("x"), AssertionError()):
        assert typed_error(error) is None


def test_no_word_of_the_engine_reaches_a_client() -> None:
    for status in (400, 404, 409, 500):
        typed = typed_error(answer(status, "secret /var/lib/docker/overlay2/abc: no such file or directory"))
        assert typed is not None
        assert "/var" not in typed.detail


# ---------------------------------------------------------------- what the engine offers

INFO: dict[str, Any] = {
    "OSType": "linux",
    "CgroupVersion": "2",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
    "Runtimes": {"runc": {"path": "runc"}, "runsc": {"path": "/no/such/runsc", "runtimeArgs": []}, "io.containerd.runc.v2": {"path": "runc"}},
    "RuncCommit": {"ID": "v1.2.5"},
    "MemoryLimit": True,
    "SwapLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
}
TIERS = {"container": "runc", "gvisor": "runsc"}


def test_an_engine_with_everything_has_no_problems() -> None:
    info = describe({"Version": "28.0"}, INFO, TIERS, local=False)
    assert (info.version, info.problems, info.cgroup_version) == ("28.0", {}, 2)
    assert info.runtimes == {"runc": "v1.2.5", "runsc": "", "io.containerd.runc.v2": ""}


def test_a_missing_runtime_is_a_problem_of_its_tier_alone() -> None:
    info = INFO | {"Runtimes": {"runc": {"path": "runc"}}}
    found = problems(info, TIERS, runtime_versions(info, local=False))
    assert set(found) == {"gvisor"}
    assert "daemon.json" in found["gvisor"]


def test_a_runtime_that_only_has_gvisors_name_is_refused() -> None:
    assert "is not gVisor" in problems(INFO, TIERS, {"runc": "runc 1.2", "runsc": "runc 1.2"})["gvisor"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"SecurityOptions": ["name=apparmor"]}, "seccomp"),
        ({"SecurityOptions": None}, "seccomp"),
        ({"SecurityOptions": [*INFO["SecurityOptions"], "name=rootless"]}, "rootless"),
        ({"SecurityOptions": [*INFO["SecurityOptions"], "name=userns"]}, "userns"),
        ({"SwapLimit": False}, "swap"),
        ({"PidsLimit": False}, "process"),
        ({"MemoryLimit": False}, "memory"),
        ({"CpuCfsQuota": False}, "cpu"),
        ({"OSType": "windows"}, "Linux"),
    ],
)
def test_a_missing_protection_refuses_every_tier(change: dict[str, Any], word: str) -> None:
    info = INFO | change
    found = problems(info, TIERS, runtime_versions(info, local=False))
    assert set(found) == set(TIERS)
    assert all(word in sentence for sentence in found.values())


# ---------------------------------------------------------------- its documents


def test_facts_of_containers_in_each_state() -> None:
    labels = {"sandglass.sandbox": "sb", "sandglass.instance": "i"}
    base = {"Id": "a" * 64, "Config": {"Labels": labels}}
    never, at = "0001-01-01T00:00:00Z", "2026-03-01T10:00:00.123456789Z"
    created = facts_of(base | {"State": {"Running": False, "ExitCode": 0, "StartedAt": never, "FinishedAt": never}})
    assert (created.running, created.exit_code, created.started_at, created.finished_at) == (False, None, 0.0, 0.0)
    running = facts_of(base | {"State": {"Running": True, "ExitCode": 0, "StartedAt": at, "FinishedAt": never}})
    assert (running.running, running.exit_code, running.sandbox_id) == (True, None, "sb")
    assert running.started_at == pytest.approx(1772359200.123456789)
    state = {"Running": False, "ExitCode": 137, "OOMKilled": True, "StartedAt": at, "FinishedAt": "2026-03-01T12:00:01+02:00"}
    ended = facts_of(base | {"State": state})
    assert (ended.exit_code, ended.oom_killed, ended.finished_at) == (137, True, 1772359201.0)
    assert facts_of({"Id": "b"}).labels == {}


def test_usage_in_both_cgroup_versions() -> None:
    cpu = {"cpu_usage": {"total_usage": 1_500_000_000}}
    one = {"memory_stats": {"usage": 300, "stats": {"total_inactive_file": 100, "inactive_file": 1}}, "cpu_stats": cpu, "pids_stats": {"current": 7}}
    assert usage_of(one) == {"memory_bytes": 200.0, "cpu_s": 1.5, "pids": 7.0}
    two = {"memory_stats": {"usage": 300, "stats": {"inactive_file": 50, "file": 80}}, "cpu_stats": cpu, "pids_stats": {"current": 7, "limit": 9}}
    assert usage_of(two) == {"memory_bytes": 250.0, "cpu_s": 1.5, "pids": 7.0}


def test_usage_of_a_container_that_does_not_run() -> None:
    assert usage_of({"memory_stats": {}, "cpu_stats": {"cpu_usage": {"total_usage": 0}}, "pids_stats": {}}) == {}
    assert usage_of({}) == {}
