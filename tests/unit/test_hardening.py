"""The create request, golden for both runtimes; and that a profile which cannot be protected is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.backends import hardening
from gateway.domain.model import Limits, Profile
from gateway.errors import ProfileUnavailable
from gateway.ports import RuntimeInfo, SandboxSpec

GOLDEN = Path(__file__).parent / "golden"
INFO = RuntimeInfo("20.10.24", {"runc": "1.1.5", "runsc": ""}, {}, 1)


def spec(runtime: str = "runc", **limits: Any) -> SandboxSpec:
    tier = {"runc": "container", "runsc": "gvisor"}[runtime]
    return SandboxSpec(
        sandbox_id="sb0123",
        instance="inst0",
        profile=Profile(tier, tier, runtime, limits=Limits(**limits)),
        image="sandglass-kernel:abc",
        relay_uid=210001,
        user_uid=210002,
        group_id=210003,
        labels={"sandglass.template": "t0"},
    )


@pytest.mark.parametrize("cgroups", [1, 2])
@pytest.mark.parametrize("runtime", ["runc", "runsc"])
def test_create_body_is_the_golden_one(runtime: str, cgroups: int) -> None:
    """After a wanted change: delete the file, run once, read the difference in review."""
    body = hardening.create_body(spec(runtime), replace(INFO, cgroup_version=cgroups))
    # the profile is a golden file of its own: gateway/backends/seccomp.json
    options = body["HostConfig"]["SecurityOpt"]
    assert options.pop() == f"seccomp={hardening.seccomp_profile(gvisor=runtime == 'runsc')}"
    text = json.dumps(body, indent=1, sort_keys=True) + "\n"
    path = GOLDEN / f"create_{runtime}_cgroup{cgroups}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"wrote {path.name}: read and commit it")
    assert json.loads(text) == json.loads(path.read_text())


def test_environment_is_numbers_only() -> None:
    for item in hardening.create_body(spec("runsc"), INFO)["Env"]:
        assert item.partition("=")[2].isdigit()


def test_the_request_does_not_depend_on_the_template_of_another() -> None:
    one, two = hardening.create_body(spec(), INFO), hardening.create_body(spec(), INFO)
    assert one == two
    one["HostConfig"]["CapAdd"].append("SYS_ADMIN")
    one["HostConfig"]["MaskedPaths"].clear()
    assert hardening.create_body(spec(), INFO) == two


def test_labels_of_the_specification_cannot_hide_whose_sandbox_it_is() -> None:
    forged = replace(spec(), labels={hardening.LABEL_INSTANCE: "other", hardening.LABEL_SANDBOX: "other"})
    labels = hardening.create_body(forged, INFO)["Labels"]
    assert (labels[hardening.LABEL_INSTANCE], labels[hardening.LABEL_SANDBOX]) == ("inst0", "sb0123")


def test_a_tier_with_a_problem_is_refused_with_that_sentence() -> None:
    info = replace(INFO, problems={"gvisor": "the engine has no runsc: install it"})
    with pytest.raises(ProfileUnavailable, match="install it"):
        hardening.create_body(spec("runsc"), info)
    hardening.create_body(spec("runc"), info)


def test_a_missing_runtime_is_refused() -> None:
    with pytest.raises(ProfileUnavailable, match="runsc"):
        hardening.create_body(spec("runsc"), replace(INFO, runtimes={"runc": ""}))


def test_mounts_that_do_not_fit_into_memory_are_refused_with_the_sum() -> None:
    with pytest.raises(ProfileUnavailable, match=str(hardening.tmpfs_bytes(Limits()) + hardening.SPARE_BYTES)):
        hardening.create_body(spec(memory_bytes=512 * 1024**2), INFO)


@pytest.mark.parametrize("limits", [{"cpus": 0.0}, {"processes": 4}, {"open_files": 8}, {"workspace_inodes": 1}])
def test_limits_under_which_no_kernel_runs_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ProfileUnavailable):
        hardening.create_body(spec(**limits), INFO)


@pytest.mark.parametrize("uids", [{"relay_uid": 0}, {"user_uid": 0}, {"relay_uid": 210002}, {"group_id": 0}])
def test_identities_must_differ(uids: dict[str, int]) -> None:
    with pytest.raises(ProfileUnavailable, match="three different uids"):
        hardening.create_body(replace(spec(), **uids), INFO)


def test_fractional_cpus_round_the_threads_up() -> None:
    assert "SANDGLASS_THREADS=2" in hardening.create_body(spec(cpus=1.5), INFO)["Env"]
    host = hardening.create_body(spec(cpus=0.5), INFO)["HostConfig"]
    assert host["CpuQuota"] / host["CpuPeriod"] == 0.5


def inspected(body: dict[str, Any]) -> dict[str, Any]:
    return {"HostConfig": json.loads(json.dumps(body["HostConfig"])), "Mounts": []}


def test_what_the_engine_made_is_compared() -> None:
    body = hardening.create_body(spec(), INFO)
    made = inspected(body)
    made["HostConfig"]["CapAdd"] = ["CAP_SETUID", "CAP_KILL", "CAP_SETGID"]
    # as engines say the same: nothing, in another order, and more of what hides
    made["HostConfig"] |= {"Binds": None, "Init": None, "Ulimits": made["HostConfig"]["Ulimits"][::-1]}
    made["HostConfig"]["MaskedPaths"] = [*hardening.MASKED_PATHS, "/proc/x"]
    made["HostConfig"]["LogConfig"] = {"Type": "none", "Config": None}
    made["Config"] = {"User": "0:0", "Env": ["PATH=/bin", *reversed(body["Env"])], "Tty": False}
    hardening.check_created(body, made, [])


@pytest.mark.parametrize(
    "config",
    [
        {"User": "1000"},
        {"Tty": True},
        {"Env": ["SANDGLASS_TOKEN=eyJ"]},
        {"Env": []},
    ],
)
def test_who_it_runs_as_and_what_it_is_told_is_compared(config: dict[str, Any]) -> None:
    body = hardening.create_body(spec(), INFO)
    with pytest.raises(ProfileUnavailable, match="as asked"):
        hardening.check_created(body, inspected(body) | {"Config": config}, [])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Runtime", "runc-other"),
        ("MemorySwap", -1),
        ("PidsLimit", None),
        ("ReadonlyRootfs", False),
        ("SecurityOpt", ["no-new-privileges"]),
        ("CapDrop", []),
        ("CapAdd", ["KILL", "SETGID", "SETUID", "SYS_ADMIN"]),
        ("PidMode", "host"),
        ("Binds", ["/etc:/mnt"]),
        ("Devices", [{"PathOnHost": "/dev/sda"}]),
        ("Dns", None),
        ("MaskedPaths", ["/proc/kcore"]),
        ("ReadonlyPaths", []),
        ("OomScoreAdj", 0),
        ("Ulimits", [{"Name": "core", "Soft": 0, "Hard": -1}]),
        ("Tmpfs", {"/workspace": "rw"}),
        ("Sysctls", {}),
        ("LogConfig", {"Type": "json-file", "Config": {}}),
        ("RestartPolicy", {"Name": "always", "MaximumRetryCount": 0}),
        ("GroupAdd", ["0"]),
        ("DeviceRequests", [{"Driver": "nvidia"}]),
    ],
)
def test_a_protection_that_the_engine_dropped_is_refused(key: str, value: object) -> None:
    body = hardening.create_body(spec(), INFO)
    made = inspected(body)
    made["HostConfig"][key] = value
    with pytest.raises(ProfileUnavailable, match=key):
        hardening.check_created(body, made, None)


def test_a_limit_that_the_kernel_lacks_is_refused() -> None:
    body = hardening.create_body(spec(), INFO)
    warning = "Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap."
    with pytest.raises(ProfileUnavailable, match="lacks a limit"):
        hardening.check_created(body, inspected(body), [warning])


def test_an_image_with_a_volume_is_refused() -> None:
    body = hardening.create_body(spec(), INFO)
    with pytest.raises(ProfileUnavailable, match="volume"):
        hardening.check_created(body, inspected(body) | {"Mounts": [{"Type": "volume"}]}, [])


# ---------------------------------------------------------------- the seccomp profile


def rules() -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for rule in json.loads(hardening.seccomp_profile())["syscalls"]:
        for name in rule["names"]:
            out.setdefault(name, []).append(rule)
    return out


REFUSED_TEXT = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig fsmount fsopen init_module
io_setup io_submit io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie
mbind memfd_secret migrate_pages modify_ldt mount mount_setattr move_mount move_pages mq_open msgget name_to_handle_at open_by_handle_at
open_tree perf_event_open personality pidfd_getfd pidfd_send_signal pivot_root process_madvise process_vm_readv process_vm_writev ptrace
quotactl reboot request_key semget set_mempolicy setdomainname sethostname setns settimeofday shmat shmget swapon sync syncfs syslog
umount2 unshare userfaultfd vm86 vmsplice
"""


@pytest.mark.parametrize("name", REFUSED_TEXT.split())
def test_seccomp_has_no_rule_for(name: str) -> None:
    assert name not in rules()


def test_seccomp_refuses_by_default_and_only_allows_once() -> None:
    profile = json.loads(hardening.seccomp_profile())
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 1)
    for name, found in rules().items():
        # a rule without arguments beside one with would undo it
        assert len(found) == 1 or all(rule.get("args") for rule in found), name
    assert [rule["action"] for rule in rules()["clone3"]] == ["SCMP_ACT_ERRNO"]
    assert rules()["clone3"][0]["errnoRet"] == 38


def test_seccomp_for_gvisor_differs_where_an_errno_matters_alone() -> None:
    plain, gvisor = (json.loads(hardening.seccomp_profile(gvisor=which))["syscalls"] for which in (False, True))
    different = [(a["names"], b["action"], "errnoRet" in b) for a, b in zip(plain, gvisor, strict=True) if a != b]
    assert different == [(["socket"], "SCMP_ACT_ALLOW", False), (["clone3"], "SCMP_ACT_ALLOW", False)]


def test_seccomp_socket_families_and_protocols() -> None:
    seen = set()
    for rule in rules()["socket"]:
        by_index = {arg["index"]: arg for arg in rule["args"]}
        if rule["action"] == "SCMP_ACT_ERRNO":
            assert (by_index[0]["value"], by_index[2]["value"], rule["errnoRet"]) == (16, 0, 95)
            continue
        # two conditions on one argument would be joined by "or"
        assert len(by_index) == len(rule["args"])
        assert all(by_index[i]["op"] == "SCMP_CMP_EQ" for i in (0, 2))
        seen.add((by_index[0]["value"], by_index[1]["valueTwo"] if 1 in by_index else None, by_index[2]["value"]))
    assert seen == {(1, None, 0), *((f, t, p) for f in (2, 10) for t, p in ((1, 0), (1, 6), (2, 0), (2, 17)))}


@pytest.mark.parametrize("name", ["prlimit64", "sched_setaffinity", "sched_setparam", "sched_setattr", "setpriority"])
def test_seccomp_limits_and_scheduling_of_oneself_only(name: str) -> None:
    for rule in rules()[name]:
        assert all(arg["op"] == "SCMP_CMP_EQ" and arg["value"] == 0 for arg in rule["args"])
