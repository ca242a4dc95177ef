"""What user code can and cannot do to the processes beside it, and what it is given."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.sandbox_client import Sandbox
from tests.integration.sandbox_fixtures import engine, new_sandbox, runtime, shared
from tests.integration.test_sandbox_kernel import PROCESSES

__all__ = ["engine", "new_sandbox", "runtime", "shared"]

TRIED = (
    PROCESSES
    + """
import errno
def tried(f, *args):
    try: return f(*args)
    except OSError as e: return errno.errorcode[e.errno]
def others(): return [p for p in processes() if p[1] != os.getuid()]
"""
)


def lines(sandbox: Sandbox, code: str) -> list[str]:
    execution = sandbox.execute(code)
    assert execution.reply is not None and execution.reply["status"] == "ok", execution.reply
    return execution.text.splitlines()


def test_three_identities_and_no_capability(shared: Sandbox) -> None:
    shared.execute(TRIED)
    uids = sorted(int(line) for line in lines(shared, "for p in processes(): print(p[1])"))
    assert uids == [0, 0, shared.relay_uid, shared.user_uid]
    status = lines(shared, "print(open('/proc/self/status').read())")
    found = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    assert found["Uid"].split() == found["Gid"].split() == [str(shared.user_uid)] * 4
    assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == int(found["CapInh"], 16) == 0
    assert found.get("NoNewPrivs", "1") == "1"
    assert lines(
        shared, "import pwd, grp; print(pwd.getpwuid(os.getuid()).pw_name, pwd.getpwnam('user').pw_dir, grp.getgrgid(os.getgid()).gr_name)"
    ) == ["user /workspace user"]


def test_the_others_cannot_be_signalled_traced_or_read(shared: Sandbox, runtime: str) -> None:
    shared.execute(TRIED)
    code = """
import ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
def ptrace(pid):
    if libc.ptrace(16, pid, 0, 0) == 0: return "attached"
    return errno.errorcode[ctypes.get_errno()]
for pid, uid, *_ in others():
    print(pid, uid, *(tried(os.kill, pid, s) for s in (0, signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM)), ptrace(pid),
          *(tried(open, f"/proc/{pid}/{f}", m) for f, m in (("mem", "rb"), ("mem", "wb"), ("root", "rb"))),
          tried(os.listdir, f"/proc/{pid}/fd"), tried(lambda: open(f"/proc/{pid}/environ", "rb").read()) )
"""
    found = [line.split(" ", 2) for line in lines(shared, code)]
    assert len(found) == 3
    for pid, _, answers in found:
        *rest, last = answers.split(" ", 8)
        assert all(a in ("EPERM", "EACCES", "ENOENT", "ESRCH") for a in rest[:7]), (pid, answers)
        if runtime == "runc":
            assert all(a in ("EPERM", "EACCES", "ENOENT") for a in answers.split()), answers
        # gVisor shows the names of descriptors and the environment to everybody: numbers and nothing else may stand there
        assert "token" not in last.lower() and "marker" not in last.lower()
    assert shared.execute("1").result == "1"


def test_no_uid_is_regained_and_limits_hold(shared: Sandbox) -> None:
    shared.execute(TRIED)
    code = f"""
import resource
print(*(tried(f, n) for f in (os.setuid, os.seteuid, os.setgid) for n in (0, {shared.relay_uid})))
hard = lambda what: resource.getrlimit(what)[1]
print(hard(resource.RLIMIT_CORE), hard(resource.RLIMIT_NPROC) <= 128, hard(resource.RLIMIT_NOFILE) <= 4096)
try: resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000)); print("raised")
except (ValueError, OSError): print("refused")
print(open("/proc/self/oom_score_adj").read().strip())
print(sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{{n}}"))[:3], os.readlink("/proc/self/fd/0"))
"""
    found = lines(shared, code)
    assert found[0].split() == ["EPERM"] * 6
    assert found[1:3] == ["0 True True", "refused"]
    assert found[3] == "1000"
    assert found[4].startswith("[0, 1, 2]") and found[4].endswith("/dev/null")


def test_nothing_of_the_zygotes_is_left(shared: Sandbox) -> None:
    shared.execute(TRIED)
    names = lines(shared, "for n in os.listdir('/proc/self/fd'):\n  l = tried(os.readlink, f'/proc/self/fd/{n}')\n  print(l)")
    assert not any("stdin" in n or "stdout" in n for n in names)
    # only pipes that the kernel itself made: two for captured output
    environment = lines(shared, "print(*os.environ, sep='\\n')")
    assert not any(name.startswith("SANDGLASS") for name in environment)
    assert lines(
        shared,
        "import sys; ours = {'kernel_app', 'kernel_hooks', 'zygote', 'frames'}\n"
        "print([m for m in sys.modules if m in ours], '/opt/sandglass' in sys.path, '' in sys.path)",
    ) == ["[] False True"]


def test_the_zygote_forks_with_one_thread_and_kernels_have_their_number(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox().start(warm=True)
    assert sandbox.execute("import numpy, os, threadpoolctl; a = numpy.ones((500, 500)); a = a @ a").reply["status"] == "ok"  # type: ignore[index]
    for _ in range(2):
        threads = "print([l for l in open(f'/proc/{os.getppid()}/status') if l.startswith('Threads')][0].split()[1])"
        assert lines(sandbox, "import os\n" + threads) == ["1"]
        wanted = lines(sandbox, "print(os.environ['OMP_NUM_THREADS'])")
        counts = "import numpy, threadpoolctl; print({p['num_threads'] for p in threadpoolctl.threadpool_info() if p['user_api'] == 'blas'})"
        assert lines(sandbox, counts) == [f"{{{wanted[0]}}}"]
        sandbox.restart()


def test_the_sockets_directory_is_not_the_users(shared: Sandbox) -> None:
    shared.execute(TRIED)
    code = """
life = next(n for n in os.listdir("/run/sandglass") if n.startswith("k"))
d = f"/run/sandglass/{life}"
print(tried(open, d + "/x", "w"), tried(os.mkdir, "/run/sandglass/k99"), tried(os.unlink, d + "/s-1"), tried(os.rename, d, d + "x"),
      tried(open, d + "/connection.json", "a"), tried(open, "/run/sandglass-etc/passwd", "a"))
"""
    assert set(lines(shared, code)[0].split()) <= {"EACCES", "EPERM", "EROFS"}


def test_random_numbers_and_umask_are_each_kernels_own(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox().start(warm=True)
    code = "import random, numpy, os\nos.umask(os.umask(0) or 0)\nprint(random.random(), numpy.random.rand(), oct(os.umask(0o22)))"
    first = lines(sandbox, code)
    sandbox.restart()
    second = lines(sandbox, code)
    assert first[0].split()[0] != second[0].split()[0] and first[0].split()[1] != second[0].split()[1]
    assert first[0].endswith("0o22") and second[0].endswith("0o22")


def test_workers_see_a_plain_python(shared: Sandbox) -> None:
    code = """
import subprocess, sys, multiprocessing
program = "import sys, numpy; print(sys.flags.isolated, sys.flags.no_site, numpy.ones(3).sum())"
print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip())
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, -2]))
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(4) as pool: print(list(pool.map(abs, [-3])))
print(subprocess.run("id -un; echo $HOME", shell=True, capture_output=True, text=True).stdout.split())
"""
    assert lines(shared, code) == ["0 0 3.0", "[1, 2]", "[3]", "['user', '/workspace']"]
