"""Rights, the processes beside the user's, and what the kernel is not asked."""

from __future__ import annotations

import textwrap

from tests.abuse.world import World, case, slow

NO = ("EPERM", "EACCES")
HARMLESS = ("/dev/null", "/workspace", "/workspace/in")


@case
def capabilities(w: World) -> None:
    status = w.run('answer(dict(l.split(":", 1) for l in read("/proc/self/status").decode().splitlines() if l.startswith("Cap")))')
    sets = {name: int(value, 16) for name, value in status.items()}
    bounding = sets.pop("CapBnd")
    assert not any(sets.values()), status
    kill, setgid, setuid = 1 << 5, 1 << 6, 1 << 7
    assert bounding & ~(kill | setgid | setuid) == 0, hex(bounding)
    # init has the same and no more
    init = w.run('answer(dict(l.split(":", 1) for l in read("/proc/1/status").decode().splitlines() if l.startswith("Cap")))')
    assert int(init["CapEff"], 16) & ~(kill | setgid | setuid) == 0, init


@case
def no_new_privileges(w: World) -> None:
    code = """
        import stat
        rights = []
        for folder, below, files in os.walk("/"):
            below[:] = [b for b in below if os.path.join(folder, b) not in ("/proc", "/sys", "/dev")
                        and b not in ("site-packages", "dist-packages", "share", "doc")]
            for f in files:
                p = os.path.join(folder, f)
                try: mode = os.lstat(p).st_mode
                except OSError: continue
                if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID): rights.append(p)
        answer([libc.prctl(39, 0, 0, 0, 0), rights])
    """
    flag, files = w.run(code)
    assert flag == 1 and files == [], (flag, files)


@case
def regain_uid(w: World) -> None:
    relay, user, group = w.box.relay_uid, w.box.user_uid, w.box.group_id
    code = f"""
        out = {{}}
        for n in (0, {relay}, {group}):
            out |= {{f"uid {{n}}": tried(os.setuid, n), f"euid {{n}}": tried(os.seteuid, n), f"res {{n}}": tried(os.setresuid, n, n, n)}}
            if n != {group}: out |= {{f"gid {{n}}": tried(os.setgid, n)}}
        out["groups"] = tried(os.setgroups, [0])
        out["own"] = "EPERM" if os.getresuid() == ({user},) * 3 else repr(os.getresuid())
        # set-uid bits of one's own file give one's own uid
        answer(out)
    """
    w.refused(code, *NO)


@slow
def system_commands(w: World) -> None:
    code = """
        out = {}
        for line in ("su -c id", "sudo -n id", "mount -t tmpfs none /workspace", "umount /workspace", "passwd -d user", "shutdown now", "reboot",
                     "ip link add x type dummy", "ifconfig lo down", "dmesg", "modprobe loop", "insmod x.ko", "chroot / id", "unshare -r id",
                     "nsenter -t 1 -a id", "hostname x", "date -s 2000-01-01", "sysctl -w kernel.hostname=x", "swapoff -a", "crontab -l",
                     "newgrp root", "chown 0 /workspace/in", "chmod 4755 /bin/sh", "setpriv --reuid 0 id"):
            done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
            out[line] = "root" if "uid=0" in done.stdout else "worked" if done.returncode == 0 else "refused"
        answer(out)
    """
    w.refused(code, "refused")
    assert w.run("answer(os.getuid())") == w.box.user_uid


@slow
def package_install(w: World) -> None:
    code = """
        out = {}
        for line in (f"{sys.executable} -m pip install --disable-pip-version-check --no-input --retries 0 --timeout 2 nothing-of-this-name",
                     "pip install --retries 0 --timeout 2 nothing-of-this-name", "apt-get install -y hello", "apt-get update", "dpkg -i x.deb"):
            done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            # apt-get update ends with 0 and warnings where nothing is reached
            out[line] = "refused" if done.returncode or "apt-get update" in line else "worked"
        import site
        for place in [*site.getsitepackages(), *sys.path]:
            if os.path.isdir(place) and os.access(place, os.W_OK) and not place.startswith(("/workspace", "/tmp")): out[place] = "writable"
        answer(out)
    """
    w.refused(code, "refused")


# ---------------------------------------------------------------- the processes beside it


def _guards(w: World) -> None:
    """Init, zygote, relay, and nobody else that is not the user's."""
    uids = w.run("answer([uid for uid in processes().values() if uid != os.getuid()])")
    assert sorted(uids) == [0, 0, w.box.relay_uid], uids
    assert w.box.call("stats")["ok"]


@case
def init_memory(w: World) -> None:
    code = """
        out = {}
        for p in others():
            for f, m in (("mem", "rb"), ("mem", "r+b"), ("root/etc/passwd", "rb"), ("clear_refs", "wb"), ("syscall", "rb"), ("stack", "rb"), ("auxv", "rb")):
                def go():
                    with open(f"/proc/{p}/{f}", m, buffering=0) as o:
                        if f == "mem": o.seek(0x400000); o.read(16)
                out[f"{p} {f} {m}"] = tried(go)
            for n in (0, 1, 2, 3, 4, 5):
                for m in (os.O_RDONLY, os.O_WRONLY):
                    outcome = tried(lambda: os.close(os.open(f"/proc/{p}/fd/{n}", m)))
                    # gVisor opens by name what the user may open by name: these two directories, and nothing
                    if outcome in ("done", "EISDIR") and GVISOR and os.readlink(f"/proc/{p}/fd/{n}") in HARMLESS: outcome = "EACCES"
                    out[f"{p} fd {n} {m}"] = outcome
            if not GVISOR:
                out[f"{p} fds"] = tried(os.listdir, f"/proc/{p}/fd")
                for f in ("environ", "maps", "smaps"): out[f"{p} {f}"] = tried(lambda: open(f"/proc/{p}/{f}", "rb").read())
                out[f"{p} cwd"] = tried(os.readlink, f"/proc/{p}/cwd")
        answer(out)
    """.replace("GVISOR", str(w.gvisor)).replace("HARMLESS", repr(HARMLESS))
    if w.gvisor:  # numbers of its own kernel's, no memory
        code = code.replace(', ("auxv", "rb")', "")
    w.refused(code, *NO, "ENOENT", "ESRCH", "EIO", "EINVAL", "ENXIO")
    _guards(w)


@case
def init_signals(w: World) -> None:
    code = """
        out = {}
        info = ctypes.create_string_buffer(128)
        for p in others():
            for s in (0, 1, 2, 9, 15, 18, 19):
                out |= {f"kill {p} {s}": tried(os.kill, p, s), f"group {p} {s}": tried(os.killpg, p, s) if p > 1 else "EPERM", f"tgkill {p} {s}": call(234, p, p, s)}
            out[f"tkill {p}"] = call(200, p, 9)
            out[f"queue {p}"] = call(129, p, 9, info)
            try:
                fd = os.pidfd_open(p)
                out[f"pidfd {p}"] = call(424, fd, 9, 0, 0)
                os.close(fd)
            except OSError: pass
        # to everybody at once: it says yes, and reaches nobody but the user's own
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for s in (15, 18): tried(os.kill, -1, s)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        answer(out)
    """
    w.refused("import signal\n" + textwrap.dedent(code), *NO, "ESRCH", "ENOSYS")
    _guards(w)


@case
def init_limits(w: World) -> None:
    code = """
        import struct
        out = {}
        def got(f, *args):
            try: return repr(f(*args))
            except OSError as e: return errno.errorcode[e.errno]
        def state(p): return [read(f"/proc/{p}/limits"), got(os.sched_getaffinity, p), got(os.sched_getscheduler, p), got(os.getpriority, 0, p)]
        before = {p: state(p) for p in others()}
        new = struct.pack("QQ", 1, 1)
        attr = struct.pack("IIQiIQQQ", 48, 3, 0, 19, 0, 0, 0, 0)
        for p in others():
            out |= {f"prlimit {p}": call(302, p, 7, new, 0), f"affinity {p}": call(203, p, 8, bytes([1] + [0] * 7)), f"priority {p}": call(141, 0, p, 19),
                f"scheduler {p}": call(144, p, 3, struct.pack("i", 0)), f"param {p}": call(142, p, struct.pack("i", 0)),
                f"attr {p}": call(314, p, attr, 0), f"ioprio {p}": call(251, 1, p, 3 << 13), f"pgid {p}": call(109, p, p),
                f"oom {p}": tried(lambda: open(f"/proc/{p}/oom_score_adj", "w").write("1000"))}
        out["user priority"] = call(141, 2, os.getuid(), 5)
        if {p: state(p) for p in others()} != before: out["changed"] = "done"
        answer(out)
    """
    w.refused(code, *NO, "ESRCH", "EINVAL", "ENOSYS", "ENOENT")
    _guards(w)


@case
def tracing(w: World) -> None:
    code = """
        out = {}
        b = ctypes.create_string_buffer(64)
        for p in others():
            out |= {f"attach {p}": call(101, 16, p, 0, 0), f"seize {p}": call(101, 0x4206, p, 0, 0), f"readv {p}": call(310, p, b, 1, b, 1, 0),
                f"writev {p}": call(311, p, b, 1, b, 1, 0), f"kcmp {p}": call(312, p, os.getpid(), 0, 0, 0)}
        fd = os.pidfd_open(os.getpid()) if hasattr(os, "pidfd_open") and tried(lambda: os.close(os.pidfd_open(os.getpid()))) == "done" else -1
        out["getfd"] = call(438, fd, 0, 0)
        # of its own child too: a traced process's calls can be rewritten
        child = subprocess.Popen(["sleep", "5"])
        out["child"] = call(101, 0x4206, child.pid, 0, 0)
        child.kill(); child.wait()
        out["traceme"] = call(101, 0, 0, 0, 0)
        answer(out)
    """
    w.refused(code, *NO, *(("ENOSYS", "EBADF") if w.gvisor else ()))
    _guards(w)


@case
def forged_frames(w: World) -> None:
    code = """
        frame = b"SG\\x01\\x04" + bytes(60)
        out = {}
        for p in [1, *others()]:
            for n in range(8):
                def go():
                    with open(f"/proc/{p}/fd/{n}", "wb", buffering=0) as f: f.write(frame)
                outcome = tried(go)
                if outcome == "done" and GVISOR and os.readlink(f"/proc/{p}/fd/{n}") in HARMLESS: outcome = "EACCES"
                out[f"{p} {n}"] = outcome
        for path in ("/dev/console", "/dev/tty", "/dev/pts/0"):
            def go():
                with open(path, "wb", buffering=0) as f: f.write(frame)
            out[path] = tried(go)
        # what it inherited itself leads nowhere near the stream
        for n in os.listdir("/proc/self/fd"):
            try: link = os.readlink(f"/proc/self/fd/{n}")
            except OSError: continue
            if int(n) < 3 and not link.startswith(("/dev/null", "pipe:", "host:", "/proc")): out[f"own {n}"] = link
        answer(out)
    """.replace("GVISOR", str(w.gvisor)).replace("HARMLESS", repr(HARMLESS))
    w.refused(code, *NO, "ENOENT", "ENXIO", "ESRCH", "EIO", "EISDIR", "ENODEV")
    assert w.box.call("stats")["ok"]


# ---------------------------------------------------------------- the kernel's calls


def _calls(w: World, code: str, *more: str) -> None:
    """Each is refused with EPERM, by the allow-list itself; ``more``: what else would do."""
    w.refused("b = ctypes.create_string_buffer(512)\n" + code, "EPERM", *more)


@case
def namespaces(w: World) -> None:
    code = """
flags = {"ns": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
out = {f"unshare {n}": call(272, f) for n, f in (flags | {"files": 0x400}).items()}
def cloned(f):
    # a raw clone that works returns in a child as well
    pid = libc.syscall(ctypes.c_long(56), ctypes.c_long(f | 17), 0, 0, 0, 0)
    if pid == 0: libc._exit(0)
    if pid > 0: os.waitpid(pid, 0); return "done"
    return errno.errorcode[ctypes.get_errno()]
out |= {f"clone {n}": cloned(f) for n, f in flags.items()}
for name in os.listdir("/proc/self/ns") if os.path.isdir("/proc/self/ns") else ():
    try: fd = os.open(f"/proc/self/ns/{name}", os.O_RDONLY)
    except OSError: continue
    out[f"setns {name}"] = call(308, fd, 0)
    os.close(fd)
out["setns"] = call(308, 0, 0)
answer(out)
"""
    _calls(w, code)
    # clone3's flags stand in memory, where no filter sees them: refused as a whole; gVisor must serve it, and then it is its own kernel's namespace
    clone3 = """
import json, struct
args = struct.pack("QQQQQQQQ", 0x10000000 | 0x40000000 | 0x20000, 0, 0, 0, 17, 0, 0, 0)
r, out = os.pipe()
pid = libc.syscall(ctypes.c_long(435), args, ctypes.c_long(64))
refused = errno.errorcode.get(ctypes.get_errno(), "?")
if pid == 0:
    # with every capability in there: over nobody outside, and the calls that would use them are refused all the same
    b = ctypes.create_string_buffer(512)
    found = {"kill": tried(os.kill, 1, 9), "relay": tried(os.kill, RELAY, 9), "mount": call(165, b"none", b"/tmp", b"tmpfs", 0, 0), "chroot": call(161, b"/tmp"),
        "unshare": call(272, 0x20000000), "name": call(170, b"x", 1), "memory": tried(open, "/proc/1/mem", "rb"), "root": tried(os.setuid, 0),
        "relay's uid": tried(os.setuid, RELAY_UID), "raw": tried(socket.socket, 2, 3, 1), "packet": tried(socket.socket, 17, 3, 0), "bpf": call(321, 0, b, 120)}
    os.write(out, json.dumps(found).encode())
    libc._exit(0)
os.close(out)
if pid > 0: os.waitpid(pid, 0)
answer(json.loads(os.read(r, 65536) or b"{}") if pid > 0 else {"refused": refused})
"""
    relay = w.run(f"answer([p for p, uid in processes().items() if uid == {w.box.relay_uid}])")[0]
    found = w.run_alone(clone3.replace("RELAY_UID", str(w.box.relay_uid)).replace("RELAY", str(relay)))
    if not w.gvisor:
        assert found == {"refused": "ENOSYS"}, found
    assert found and "done" not in found.values(), found
    _guards(w)


@case
def mounts(w: World) -> None:
    _calls(w, """answer({"mount": call(165, b"none", b"/workspace", b"tmpfs", 0, 0), "bind": call(165, b"/etc", b"/workspace", b"", 4096, 0),
        "remount": call(165, b"", b"/", b"", 32, 0), "umount": call(166, b"/workspace", 2), "pivot_root": call(155, b"/", b"/tmp"), "chroot": call(161, b"/tmp"),
        "fsopen": call(430, b"tmpfs", 0), "fsmount": call(432, 0, 0, 0), "open_tree": call(428, -100, b"/", 1), "fspick": call(433, -100, b"/", 0),
        "move_mount": call(429, -100, b"/tmp", -100, b"/tmp", 0), "mount_setattr": call(442, -100, b"/", 0, b, 32)})""",
        *(("ENOSYS",) if w.gvisor else ()))  # fmt: skip


@case
def keyctl(w: World) -> None:
    _calls(w, """answer({"join": call(250, 1, 0), "id": call(250, 0, -3, 0), "read": call(250, 11, -4, b, 512), "add": call(248, b"user", b"x", b"y", 1, -2),
        "request": call(249, b"user", b"x", 0, -2), "persistent": call(250, 22, -1, -2)})""")  # fmt: skip


@case
def bpf(w: World) -> None:
    _calls(w, 'answer({f"command {n}": call(321, n, b, 120) for n in (0, 1, 5, 8, 18)})')


@case
def io_uring(w: World) -> None:
    _calls(w, 'answer({"setup": call(425, 8, b), "enter": call(426, 0, 0, 0, 0, 0, 0), "register": call(427, 0, 0, b, 0), "io_setup": call(206, 8, b), '
           '"io_submit": call(209, 0, 0, b)})')  # fmt: skip


@case
def perf(w: World) -> None:
    _calls(w, 'answer({"self": call(298, b, 0, -1, -1, 0), "cpu": call(298, b, -1, 0, -1, 0)})')


@case
def userfaultfd(w: World) -> None:
    _calls(w, """answer({"userfaultfd": call(323, 0), "user only": call(323, 1), "memfd_secret": call(447, 0), "process_madvise": call(440, 0, b, 0, 0, 0),
        "vmsplice": call(278, 0, b, 0, 0), "process_mrelease": call(448, 0, 0)})""")  # fmt: skip


@case
def ipc_objects(w: World) -> None:
    _calls(w, """answer({"shmget": call(29, 0, 4096, 0o1600), "shmat": call(30, 0, 0, 0), "msgget": call(68, 0, 0o1600), "semget": call(64, 0, 1, 0o1600),
        "mq_open": call(240, b"x", 0o102, 0o600, 0), "mq_unlink": call(241, b"x"), "shmctl": call(31, 0, 0, b)})""")  # fmt: skip


@case
def kernel_control(w: World) -> None:
    _calls(w, """answer({"init_module": call(175, b, 0, b""), "finit_module": call(313, 0, b"", 0), "delete_module": call(176, b"x", 0),
        "kexec_load": call(246, 0, 0, 0, 0), "kexec_file_load": call(320, 0, 0, 0, b"", 0), "reboot": call(169, 0, 0, 0, 0), "swapon": call(167, b"x", 0),
        "swapoff": call(168, b"x"), "settimeofday": call(164, 0, 0), "clock_settime": call(227, 0, b), "clock_adjtime": call(305, 0, b),
        "adjtimex": call(159, b), "sethostname": call(170, b"x", 1), "setdomainname": call(171, b"x", 1), "syslog": call(103, 3, b, 512),
        "acct": call(163, 0), "quotactl": call(179, 0, 0, 0, b), "vhangup": call(153)})""", *(("ENOSYS",) if w.gvisor else ()))  # fmt: skip


@case
def file_handles(w: World) -> None:
    _calls(w, """answer({"name_to_handle_at": call(303, -100, b"/", b, b, 0), "open_by_handle_at": call(304, 0, b, 0), "fanotify_init": call(300, 0, 0),
        "fanotify_mark": call(301, 0, 0, 0, 0, 0), "lookup_dcookie": call(212, 0, b, 0)})""", *(("ENOSYS",) if w.gvisor else ()))  # fmt: skip


@case
def machine_state(w: World) -> None:
    _calls(w, """answer({"personality": call(135, 0x40000), "modify_ldt": call(154, 0, b, 8), "iopl": call(172, 3), "ioperm": call(173, 0, 1, 1),
        "mbind": call(237, 0, 0, 0, 0, 0, 0), "set_mempolicy": call(238, 0, 0, 0), "migrate_pages": call(256, 0, 0, b, b),
        "move_pages": call(279, 0, 0, 0, 0, 0, 0), "sync": call(162), "syncfs": call(306, 0)})""")  # fmt: skip
