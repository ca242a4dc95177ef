"""What runs out, and the kernel's own life. Every bomb asks for a bounded amount past its limit: with the limit taken away it does no harm."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import socket
import time
import urllib.parse
from pathlib import Path
from typing import Any

from tests.abuse.world import World, case, slow

STEP = 1 << 20


def told(w: World, container: str, since: float) -> set[str]:
    """What the engine has to say about a container since then: oom, die, ..."""
    filters = urllib.parse.quote(json.dumps({"container": [container]}))
    url = f"/v1.41/events?since={since:.3f}&until={time.time():.3f}&filters={filters}"
    connection = http.client.HTTPConnection("engine", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(30)
    connection.sock.connect(w.engine.path)
    with contextlib.closing(connection):
        connection.request("GET", url)
        lines = connection.getresponse().read().decode().splitlines()
    return {str(json.loads(line)["Action"]).split(":")[0] for line in lines if line.strip()}


@slow
def fork_bomb(w: World) -> None:
    most = w.limits.processes
    # small ones: on gVisor so many copies of a Python end the sandbox by its memory limit first
    cell = w.box.execute_nowait(f"""
import os, errno, time
n, word = 0, "no limit"
try:
    while n < {most + 48}:
        os.posix_spawn("/bin/sleep", ["sleep", "600"], {{}}, setsid=True)
        n += 1
except OSError as e: word = errno.errorcode[e.errno]
print(word, n, flush=True)
time.sleep(600)
""")
    w.box.wait(lambda: cell.text or cell.done or w.box.ended, "the bomb's end", 60)
    stats: Any = w.box.call("stats")
    assert w.box.call("kill_user")["remaining"] == 0
    assert w.box.call("start_kernel")["ok"]
    w.box.wait_event("ready")
    word, _, count = cell.text.strip().partition(" ")
    assert word == "EAGAIN" and most // 3 < int(count) <= most, (cell.text, stats)
    assert w.box.execute("1").result == "1"


@slow
def thread_bomb(w: World) -> None:
    word, count = w.run(f"""
        import threading
        stop, n, word = threading.Event(), 0, "no limit"
        try:
            for n in range({w.limits.processes + 48}): threading.Thread(target=stop.wait, daemon=True).start()
        except RuntimeError: word = "refused"
        stop.set()
        answer([word, n])
    """)
    w.revive()
    assert word == "refused" and count <= w.limits.processes, (word, count)


@slow
def memory_bomb(w: World) -> None:
    """runc: the kernel dies of signal 9. gVisor: its stub dies, or the whole sandbox with 137. Always: the engine tells of it."""
    box = w.new(limits=w.limits)
    since = time.time()
    cell = box.execute_nowait(
        f"x = []\nfor _ in range({(w.limits.memory_bytes + (128 << 20)) >> 24}):\n  x.append(bytearray(1 << 24))\n"
        "  for n in range(0, 1 << 24, 4096): x[-1][n] = 1\nprint('took it all')"
    )
    died: dict[str, Any] = {}
    try:
        died = box.wait(lambda: next((e for e in box.events if e["event"] == "exited"), None) or ({"done": 1} if cell.done else None), "its end", 30)
    except EOFError:
        died = {"container": box.wait_end()}
    except TimeoutError:
        # seen on gVisor: it stands still at its limit, until the time limit of the execution ends it from outside
        assert w.gvisor and "took it all" not in cell.text
        stats = w.engine.request("GET", f"/containers/{box.container}/stats?stream=false&one-shot=true")["memory_stats"]
        assert 0 < stats["usage"] <= w.limits.memory_bytes, stats
        return
    assert "took it all" not in cell.text and "done" not in died, died
    end = time.monotonic() + 10
    while "oom" not in (actions := told(w, box.container, since)) and time.monotonic() < end:
        time.sleep(0.2)
    assert "oom" in actions, actions
    if "container" in died:
        assert w.gvisor and died["container"] == 137, died
    else:
        assert died["expected"] is False and died.get("signal", died.get("code")) in ((9,) if not w.gvisor else (9, 1, 137, 139)), died


def _fill(w: World, place: str, most: int) -> None:
    word, took = w.run(f"""
        n, word = 0, "no limit"
        with open("{place}/fill", "wb", buffering=0) as f:
            try:
                while n < {most + 8 * STEP}: n += f.write(bytes({STEP}))
            except OSError as e: word = errno.errorcode[e.errno]
        os.unlink("{place}/fill")
        answer([word, n])
    """)
    assert word == "ENOSPC" and most - 4 * STEP <= took <= most, (place, word, took)


@case
def shm_bomb(w: World) -> None:
    _fill(w, "/dev/shm", w.limits.shm_bytes)


@case
def disk_bomb(w: World) -> None:
    _fill(w, "/workspace", w.limits.workspace_bytes)
    _fill(w, "/tmp", w.limits.tmp_bytes)


@case
def inode_bomb(w: World) -> None:
    for place, most in (("/workspace", w.limits.workspace_inodes), ("/tmp", w.limits.workspace_inodes), ("/dev/shm", 1024)):
        word, count = w.run(f"""
            import shutil
            d, n, word = "{place}/inodes", 0, "no limit"
            os.mkdir(d)
            try:
                for n in range({most + 200}): open(f"{{d}}/{{n}}", "w").close()
            except OSError as e: word = errno.errorcode[e.errno]
            shutil.rmtree(d)
            answer([word, n])
        """)
        if not w.gvisor:
            assert word == "ENOSPC" and count <= most, (place, word, count)
    # what has no inode limit is bounded by this
    assert w.box.inspect()["HostConfig"]["Memory"] == w.limits.memory_bytes


@case
def descriptor_bomb(w: World) -> None:
    most = w.limits.open_files
    files, sockets, raised = w.run(f"""
        def fill(make):
            kept, word = [], "no limit"
            try:
                for _ in range({most + 100}): kept.append(make())
            except OSError as e: word = errno.errorcode[e.errno]
            n = len(kept)
            for k in kept: k.close()
            return [word, n]
        def more():
            for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK):
                try: resource.setrlimit(r, (1 << 30, 1 << 30)); return r
                except (ValueError, OSError): pass
            return "none"
        null = open("/dev/null")
        answer([fill(lambda: open("/dev/null")), fill(lambda: socket.socket(1)), more()])
    """)
    for word, count in (files, sockets):
        assert word == "EMFILE" and count < most, (word, count)
    assert raised == "none", raised


@case
def memlock_bomb(w: World) -> None:
    word = w.run("""
        import mmap
        m = mmap.mmap(-1, 64 << 20)
        libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        address = ctypes.addressof(ctypes.c_char.from_buffer(m))
        ctypes.set_errno(0)
        r = libc.mlock(address, 64 << 20)
        answer(["done" if r == 0 else errno.errorcode[ctypes.get_errno()], call(151, 3), resource.getrlimit(resource.RLIMIT_MEMLOCK)])
    """)
    assert word[0] in ("ENOMEM", "EPERM", "EAGAIN") and word[1] != "done", word
    assert word[2][1] <= 8 << 20, word


@slow
def core_dump(w: World) -> None:
    limits = w.run("os.chdir('/workspace'); answer(resource.getrlimit(resource.RLIMIT_CORE))")
    w.box.execute_nowait("import ctypes; ctypes.string_at(0)")
    died = w.box.wait_event("exited", expected=False)
    assert died.get("signal") == 11, died
    w.revive()
    assert limits == [0, 0], limits
    found = w.run('answer([n for d in ("/workspace", "/tmp", "/dev/shm") for n in os.listdir(d) if "core" in n])')
    assert found == []


@slow
def cpu_share(w: World) -> None:
    """From outside: the engine's count of its processor time over two seconds."""
    share = 0.5
    box = w.new(limits=dataclasses.replace(w.limits, cpus=share))
    cell = box.execute_nowait("import os\nfor _ in range(3): os.fork()\nwhile True: pass")

    def used() -> float:
        found = w.engine.request("GET", f"/containers/{box.container}/stats?stream=false&one-shot=true")
        return float(found["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

    time.sleep(0.5)
    begun, before = time.monotonic(), used()
    time.sleep(3.0)
    spent, wall = used() - before, time.monotonic() - begun
    assert spent > 0.05 and not cell.done, spent
    assert spent <= share * wall * 1.15 + 0.05, f"{spent:.2f} s of processor time in {wall:.2f} s at a share of {share}"
    assert box.call("kill_user")["remaining"] == 0


@case
def oom_order(w: World) -> None:
    """Found: it can come down to where init stands, for the file is its own again once it has executed something."""
    begin, score = w.run("""
        begin = read("/proc/self/oom_score_adj").decode()
        for n in (-1000, -1, 0, 499):
            try:
                fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
                os.write(fd, str(n).encode()); os.close(fd)
            except OSError: pass
        now = read("/proc/self/oom_score_adj").decode()
        try: open("/proc/self/oom_score_adj", "w").write("1000")
        except OSError: pass
        answer([int(begin), int(now)])
    """)
    assert begin == 1000 and score >= 0, (begin, score)
    if w.gvisor:
        return  # that number is its own kernel's
    assert w.run('answer(read("/proc/1/oom_score_adj").decode().strip())') == "500"
    # the floor is set by whoever has CAP_SYS_RESOURCE; an engine in a container of its own may lack it
    bounding = int(Path("/proc/self/status").read_text().partition("CapBnd:")[2].split()[0], 16)
    assert score >= 500 or not bounding & 1 << 24, score


# ---------------------------------------------------------------- its own life


@slow
def kernel_suicide(w: World) -> None:
    for code, cause in (
        ("import os; os._exit(3)", {"code": 3}),
        ("import os; os.kill(os.getpid(), 9)", {"signal": 9}),
        ("import os; os.kill(os.getpid(), 6)", {"signal": 6}),
    ):
        w.box.execute_nowait(code)
        died = w.box.wait_event("exited", expected=False)
        assert {k: died[k] for k in cause} == cause, died
        w.revive()


def _kill_from_outside(w: World, code: str) -> None:
    cell = w.box.execute_nowait("import time\nprint('on', flush=True)\ntime.sleep(0.5)\n" + code)
    w.box.wait(lambda: cell.text, "its first output")
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        w.box.pump(0.1)
    w.box.call("interrupt", grace_ms=100)
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        w.box.pump(0.1)
    assert not cell.done, "it was to ignore the interrupt"
    assert w.box.call("kill_user")["remaining"] == 0
    assert w.box.call("stats")["user_processes"] == 0
    assert w.box.call("start_kernel")["ok"]
    w.box.wait_event("ready")
    assert w.box.execute("1 + 1").result == "2"


@slow
def native_loop(w: World) -> None:
    _kill_from_outside(w, "sum(iter(int, 1))")  # one call in C, which looks for no signal


@slow
def sigint_ignored(w: World) -> None:
    _kill_from_outside(w, "import signal, time\nfor s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\nwhile True:\n"
                          "  try: time.sleep(60)\n  except BaseException: pass")  # fmt: skip


@slow
def daemons(w: World) -> None:
    w.run("""
        import signal
        for kind in range(3):
            if os.fork() == 0:
                os.setsid()
                for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)
                if kind and os.fork(): os._exit(0)
                for n in range(3): os.close(n)
                time.sleep(600); os._exit(0)
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        answer("left")
    """)
    w.box.wait(lambda: w.box.call("stats")["user_processes"] >= 5, "the daemons")
    w.revive()
    assert w.box.call("stats")["user_processes"] == 1
    assert w.run('answer([p for p, uid in processes().items() if uid == os.getuid() and p != os.getpid()])') == []
