"""Each fix of the sandbox findings, tried from inside as the user's uid, on both runtimes.

Process 1 here is a stand-in for init: it becomes the user in a child for every piece of code it is told, and stays alive to be
asked again. Needs ``SANDGLASS_TEST_DOCKER_HOST`` and ``SANDGLASS_TEST_IMAGE`` (any image with python3).
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.backends import hardening
from gateway.backends.docker import DockerRuntime
from gateway.errors import ProfileUnavailable
from gateway.ports import RuntimeEvent
from tests.integration.docker_probe import HOST, IMAGE, LIMITS, Probe, spec_for

pytestmark = [pytest.mark.asyncio, pytest.mark.skipif(not HOST or not IMAGE, reason="needs SANDGLASS_TEST_DOCKER_HOST and _IMAGE")]


@pytest.fixture
async def runtime() -> AsyncIterator[DockerRuntime]:
    runtime = DockerRuntime(HOST)
    yield runtime
    await runtime.close()


@pytest.fixture(params=["runc", "runsc"])
async def kind(request: pytest.FixtureRequest, runtime: DockerRuntime) -> str:
    if request.param not in (await runtime.info()).runtimes:
        pytest.skip(f"the engine has no {request.param}")
    return str(request.param)


@pytest.fixture
async def probe(kind: str, runtime: DockerRuntime) -> AsyncIterator[Probe]:
    probe = Probe(runtime, spec_for(kind))
    try:
        await probe.start()
        yield probe
    finally:
        await probe.remove()


# ---------------------------------------------------------------- what the kernel is not asked


async def test_only_three_socket_families_and_their_plain_protocols(probe: Probe, kind: str) -> None:
    out = await probe.run("""
        import json
        def s(*a): return tried(lambda: socket.socket(*a).close())
        print(json.dumps({"vsock": s(40, 1), "netlink": s(16, 3, 0), "alg": s(38, 5, 0), "packet": s(17, 3, 0), "raw": s(2, 3, 1),
            "sctp": s(2, 1, 132), "mptcp": s(2, 1, 262), "ping": s(2, 2, 1), "bluetooth": s(31, 3, 1), "unix": s(1, 1),
            "tcp": s(2, 1), "udp6": s(10, 2), "pair": tried(lambda: socket.socketpair())}))
    """)
    # libzmq aborts on EPERM here; gVisor serves it from its own kernel
    assert out.pop("netlink") == {"runc": "ENOTSUP", "runsc": "done"}[kind]
    assert {name for name, answer in out.items() if answer == "done"} == {"unix", "tcp", "udp6", "pair"}
    assert set(out.values()) == {"done", "EPERM"}


async def test_system_calls_that_a_sandbox_never_needs(probe: Probe) -> None:
    out = await probe.run("""
        import json
        b = ctypes.create_string_buffer(512)
        print(json.dumps({"io_uring_setup": call(425, 8, b), "memfd_secret": call(447, 0), "modify_ldt": call(154, 0, b, 8),
            "adjtimex": call(159, b), "userfaultfd": call(323, 1), "bpf": call(321, 0, b, 8), "perf": call(298, b, 0, -1, -1, 0),
            "keyctl": call(250, 0, 0), "unshare": call(272, 0x10000000), "setns": call(308, 0, 0), "ptrace": call(101, 16, 1, 0, 0),
            "process_vm_readv": call(310, 1, b, 0, b, 0, 0), "io_setup": call(206, 8, b), "personality": call(135, 0x40000),
            "fanotify": call(300, 0, 0), "sync": call(162), "mount": call(165, b, b, b, 0, 0), "chroot": call(161, b"/tmp"),
            "shmget": call(29, 0, 4096, 0o1600), "msgget": call(68, 0, 0o1600), "semget": call(64, 0, 1, 0o1600),
            "mq_open": call(240, b"/x", 0o102, 0o600, 0), "clone_newuser": call(56, 0x10000000 | 17, 0, 0, 0, 0)}))
    """)
    assert set(out.values()) == {"EPERM"}, out


async def test_process_1_cannot_be_reached(probe: Probe) -> None:
    out = await probe.run("""
        import json
        print(json.dumps({"kill": tried(lambda: os.kill(1, 9)), "prlimit": call(302, 1, 7, 0, 0), "affinity": call(203, 1, 8, b"\\xff" * 8),
            "priority": call(141, 0, 1, 19), "scheduler": call(144, 1, 0, ctypes.create_string_buffer(8)),
            "tgkill": call(234, 1, 1, 9), "pidfd_send_signal": call(424, 0, 9, 0, 0), "mem": tried(lambda: open("/proc/1/mem")),
            "fd": tried(lambda: open("/proc/1/fd/0")), "root": tried(lambda: os.setresuid(0, 0, 0))}))
    """)
    assert set(out.values()) <= {"EPERM", "EACCES"}, out
    assert (await probe.order(kill=True))["killed"]


async def test_limits_of_oneself_cannot_be_raised(probe: Probe) -> None:
    out = await probe.run("""
        import json, resource
        def more(which):
            try: resource.setrlimit(which, (1 << 20, 1 << 20))
            except (ValueError, OSError) as e: return "refused"
        print(json.dumps([resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE),
            more(resource.RLIMIT_CORE), more(resource.RLIMIT_NOFILE), more(resource.RLIMIT_NPROC)]))
    """)
    assert out == [[0, 0], [LIMITS.open_files, LIMITS.open_files], "refused", "refused", "refused"]


# ---------------------------------------------------------------- places


async def test_what_can_be_written_and_what_not(probe: Probe) -> None:
    out = await probe.run("""
        import json
        def w(path): return tried(lambda: open(path, "w").close())
        print(json.dumps({p: w(p) for p in ("/workspace/x", "/dev/shm/x", "/workspace/in/x", "/run/sandglass-etc/x", "/x", "/etc/x",
            "/dev/mqueue/x", "/dev/x", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/sys/x", "/sys/fs/cgroup/x")}
            | {"move in": tried(lambda: os.rename("/workspace/in", "/workspace/y")), "fifo": tried(lambda: os.mkfifo("/workspace/f")),
               "device": tried(lambda: os.mknod("/workspace/d", 0o20600, 0))}))
    """)
    done = {name for name, answer in out.items() if answer == "done"}
    assert done == {"/workspace/x", "/dev/shm/x", "fifo"}, out


async def test_mounts_have_the_owners_and_modes_asked_for(probe: Probe) -> None:
    out = await probe.run("""
        import json
        print(json.dumps({p: (lambda s: [s.st_uid, s.st_gid, s.st_mode & 0o7777])(os.stat(p)) for p in
            ("/run/sandglass", "/run/sandglass-etc", "/workspace", "/workspace/in", "/tmp", "/dev/shm")}))
    """)
    x, y, g = probe.spec.relay_uid, probe.spec.user_uid, probe.spec.group_id
    assert out == {
        # on runc the mode of the image's own directory counts, so this is a test of the image as well
        "/run/sandglass": [x, g, 0o2771],
        "/run/sandglass-etc": [0, 0, 0o755],
        "/workspace": [y, g, 0o755],
        "/workspace/in": [x, g, 0o755],
        "/tmp": [0, 0, 0o1777],
        "/dev/shm": [0, 0, 0o1777],
    }


async def test_sizes_are_limited(probe: Probe) -> None:
    out = await probe.run("""
        import json
        def fill(path):
            n = 0
            with open(path, "wb", buffering=0) as f:
                try:
                    while n < 200 << 20: n += f.write(bytes(1 << 20))
                except OSError as e: return [errno.errorcode[e.errno], n >> 20]
            return ["no limit", n >> 20]
        out = {}
        for d in ("/workspace", "/tmp", "/dev/shm"):
            out[d] = fill(d + "/big"); os.unlink(d + "/big")
        print(json.dumps(out))
    """)
    assert {d: answer[0] for d, answer in out.items()} == dict.fromkeys(("/workspace", "/tmp", "/dev/shm"), "ENOSPC")
    assert [out[d][1] for d in ("/workspace", "/tmp", "/dev/shm")] == pytest.approx([32, 16, 16], abs=1)


async def test_inodes_are_limited_on_runc(probe: Probe, kind: str) -> None:
    if kind != "runc":
        pytest.skip("gVisor drops nr_inodes; its memory limit covers for it")
    out = await probe.run("""
        import json
        def fill(d):
            for n in range(5000):
                try: open(f"{d}/{n}", "w").close()
                except OSError as e: return [errno.errorcode[e.errno], n]
            return ["no limit", n]
        print(json.dumps([fill(d) for d in ("/workspace", "/dev/shm")]))
    """)
    assert [answer[0] for answer in out] == ["ENOSPC", "ENOSPC"]
    assert out[0][1] <= LIMITS.workspace_inodes
    assert out[1][1] <= hardening.SMALL_DIRECTORY_INODES


async def test_no_core_file_is_left(probe: Probe) -> None:
    answer = await probe.order(code="os.abort()")
    assert answer["signal"] in (6, 6 | 128)
    assert await probe.run("import json; print(json.dumps([n for n in os.listdir('.') if 'core' in n]))") == []


async def test_nothing_of_the_host_shows(probe: Probe, kind: str) -> None:
    out = await probe.run("""
        import json
        def r(p):
            try: return open(p).read(4096)
            except OSError: return ""
        print(json.dumps({"resolv": r("/etc/resolv.conf"), "env": sorted(os.environ), "host": socket.gethostname(),
            "masked": [p for p in ("/proc/kallsyms", "/proc/keys", "/proc/modules", "/proc/interrupts", "/proc/timer_list") if r(p)]}))
    """)
    assert out["resolv"].split() == ["nameserver", "127.0.0.1"]
    assert out["host"] == "sandbox"
    assert out["masked"] == []
    ours = {name.partition("=")[0] for name in hardening.environment(probe.spec)}
    assert ours <= set(out["env"])
    if kind == "runc":
        assert await probe.run("import json; print(json.dumps(open('/proc/sys/kernel/shmmax').read().strip()))") == "0"


async def test_there_is_no_network(probe: Probe) -> None:
    out = await probe.run("""
        import json
        def c(*a):
            s = socket.socket(); s.settimeout(2)
            return tried(lambda: s.connect(a))
        lines = open("/proc/net/dev").read().splitlines()[2:]
        print(json.dumps({"links": [l.split(":")[0].strip() for l in lines], "metadata": c("169.254.169.254", 80), "out": c("1.1.1.1", 80)}))
    """)
    assert out["links"] in (["lo"], [])
    assert out["metadata"] != "done"
    assert out["out"] != "done"


async def test_two_sandboxes_have_no_uid_in_common(kind: str, runtime: DockerRuntime, probe: Probe) -> None:
    other = Probe(runtime, spec_for(kind))
    try:
        await other.start()
        uids = [await p.run("import json; print(json.dumps([os.getuid(), os.getgid()]))") for p in (probe, other)]
        assert not set(uids[0]) & set(uids[1])
    finally:
        await other.remove()


# ---------------------------------------------------------------- what runs out


async def events_of(runtime: DockerRuntime, probe: Probe, since: float, patience_s: float) -> list[RuntimeEvent]:
    found = []
    events = runtime.events(probe.spec.instance, since)
    try:
        async with asyncio.timeout(patience_s):
            async for event in events:
                if event.action != "engine_up":
                    found.append(event)
    except TimeoutError:
        pass
    finally:
        await events.aclose()  # type: ignore[attr-defined]
    return found


async def test_a_fork_bomb_gets_eagain_and_leaves_init_able_to_kill_it(probe: Probe, runtime: DockerRuntime) -> None:
    bomb = """
        import time
        n = 0
        while True:
            try:
                if os.fork() == 0: time.sleep(600); os._exit(0)
                n += 1
            except OSError as e:
                os.write(1, f"{errno.errorcode[e.errno]} {n}".encode())
                os.close(1); time.sleep(600)
    """
    answer = await probe.order(code=textwrap.dedent(bomb), background=True)
    word, _, count = answer["out"].strip().partition(" ")
    assert word == "EAGAIN"
    assert LIMITS.processes // 2 < int(count) <= LIMITS.processes
    assert (await probe.order(kill=True))["killed"]
    await asyncio.sleep(0.3)
    assert await probe.run("print(1)") == 1
    facts = await probe.facts()
    assert facts is not None
    assert facts.running


async def test_threads_run_into_the_same_limit(probe: Probe) -> None:
    out = await probe.run("""
        import json, threading
        stop = threading.Event(); n = 0
        try:
            for n in range(500): threading.Thread(target=stop.wait, daemon=True).start()
            word = "no limit"
        except RuntimeError as e: word = "refused"
        stop.set()
        print(json.dumps([word, n]))
    """)
    assert out[0] == "refused"
    assert out[1] <= LIMITS.processes


async def test_memory_that_runs_out_leaves_evidence(probe: Probe, runtime: DockerRuntime, kind: str) -> None:
    """runc: the child dies of signal 9. gVisor: either the host's killer took the child's stub, and the child ends with code 1
    and no word, or it took gVisor itself, and the container ends with 137 and OOMKilled. Always: the engine's oom event.
    """
    started = (await probe.facts()).started_at  # type: ignore[union-attr]
    answer: dict[str, Any] | None = None
    try:
        answer = await probe.order(code="x = []\nwhile True: x.append(bytearray(os.urandom(1 << 20)))")
    except AssertionError:
        await asyncio.sleep(1)
    found = await events_of(runtime, probe, started, 3)
    facts = await probe.facts()
    assert facts is not None
    assert "oom" in {event.action for event in found}
    if answer is not None:
        assert (answer["signal"], answer["code"]) == ((9, 0) if kind == "runc" else (0, 1))
        assert (facts.running, facts.exit_code) == (True, None)
        assert (await probe.order(kill=True))["killed"]
        assert await probe.run("print(2)") == 2
    else:
        assert kind == "runsc"
        assert (facts.running, facts.exit_code, facts.oom_killed) == (False, 137, True)
        assert [event.exit_code for event in found if event.action == "die"] == [137]


async def test_a_memory_limit_below_the_mounts_is_refused(kind: str, runtime: DockerRuntime) -> None:
    with pytest.raises(ProfileUnavailable, match="memory_bytes"):
        await runtime.create(spec_for(kind, replace(LIMITS, memory_bytes=64 << 20)))
