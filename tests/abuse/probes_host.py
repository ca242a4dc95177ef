"""The host, its network and its devices, as seen from inside."""

from __future__ import annotations

import socket

from gateway.backends import hardening
from tests.abuse.world import SECRET, World, case

OWN_KINDS = {"overlay", "tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2", "9p", "gofer", "rootfs", "none"}
ENGINE_FILES = {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}
"""Made by the engine for this container, single files of its own directory; what stands in them is looked at by ``host_names``."""


@case
def host_files(w: World) -> None:
    code = f"""
        path = {str(w.host.file)!r}
        places = [path] + [f"/proc/{{p}}/{{d}}{{path}}" for p in [1, *processes()] for d in ("root", "cwd", "cwd/../..")]
        answer([p for p in places if {SECRET!r}.encode() in read(p)] + [p for p in ("/proc/1/root/etc/shadow", "/etc/shadow") if read(p)])
    """
    assert w.run(code) == []


@case
def host_mounts(w: World) -> None:
    rows = w.run('answer([l.split(" - ") for l in read("/proc/self/mountinfo", 1 << 20).decode().splitlines()])')
    mounts = {left.split()[4]: (right.split()[0], left.split()[5], right.split()[1]) for left, right in rows}
    foreign = {place: kind for place, (kind, _, _) in mounts.items() if kind not in OWN_KINDS}
    assert set(foreign) <= ENGINE_FILES, foreign
    tmpfs = {place for place, (kind, _, _) in mounts.items() if kind == "tmpfs"}
    ours = set(hardening.tmpfs_mounts(w.box.spec))
    assert ours <= tmpfs, mounts
    for place, (_, options, _) in mounts.items():
        if place in ours and not w.gvisor:
            assert {"nosuid", "nodev"} <= set(options.split(",")), (place, options)
    if not w.gvisor:
        assert "ro" in mounts["/"][1].split(",")
        assert "ro" in mounts["/dev/mqueue"][1].split(","), mounts["/dev/mqueue"]
    modes = w.run('answer({p: [(s := os.stat(p)).st_uid, s.st_gid, s.st_mode & 0o7777] for p in ("/workspace", "/workspace/in", "/run/sandglass")})')
    x, y, g = w.box.relay_uid, w.box.user_uid, w.box.group_id
    assert modes == {"/workspace": [y, g, 0o755], "/workspace/in": [x, g, 0o755], "/run/sandglass": [x, g, 0o2751]}, modes


@case
def host_names(w: World) -> None:
    found = w.run('answer([socket.gethostname(), read("/proc/sys/kernel/hostname").decode().strip(), read("/etc/resolv.conf").decode().split()])')
    assert found[0] == "sandbox" and found[1] in ("sandbox", ""), found
    assert found[2] == ["nameserver", "127.0.0.1"], found
    name = socket.gethostname()
    seen = w.run(f'answer([p for p in ("/etc/hosts", "/etc/hostname", "/proc/version") if {name!r}.encode() in read(p)])')
    assert name == "sandbox" or seen == [], seen


@case
def environment(w: World) -> None:
    code = f"""
        found = {{}}
        for p in processes():
            text = read(f"/proc/{{p}}/environ") + read(f"/proc/{{p}}/cmdline")
            if {SECRET!r}.encode() in text: found[p] = "secret"
            for item in read(f"/proc/{{p}}/environ").decode(errors="replace").split("\\0"):
                name, _, value = item.partition("=")
                if name.startswith("SANDGLASS") and not value.isdigit(): found[name] = value
        for name, value in os.environ.items():
            if name.startswith("SANDGLASS") or any(w in name for w in ("TOKEN", "SECRET", "DOCKER", "KEY")): found[name] = value
        answer(found)
    """
    assert w.run(code) == {}


@case
def proc_tells(w: World) -> None:
    code = f"""
        found = []
        for path in {hardening.MASKED_PATHS!r}:
            if os.path.isdir(path):
                if (tried(os.listdir, path) == "done") and os.listdir(path): found.append(path)
            elif read(path): found.append(path)
        answer(found)
    """
    # gVisor's own kernel is told about there, not the host's
    harmless = {"/proc/cmdline", "/proc/kallsyms", "/proc/interrupts"} if w.gvisor else set()
    assert set(w.run(code)) <= harmless


@case
def proc_writes(w: World) -> None:
    code = """
        places = ["/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger",
            "/proc/sys/net/ipv4/ip_forward", "/proc/1/oom_score_adj", "/sys/power/state", "/sys/kernel/uevent_helper",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max",
            "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/release_agent"]
        out = {p: tried(lambda: open(p, "r+b", buffering=0).close()) for p in places}
        out["uid_map"] = tried(lambda: os.write(os.open("/proc/self/uid_map", os.O_WRONLY), b"0 0 1"))
        mounts = [l.split(" - ")[0].split() for l in read("/proc/self/mountinfo", 1 << 20).decode().splitlines()]
        for place in ("/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq"):
            flags = [m[5].split(",") for m in mounts if m[4] == place]
            if os.path.exists(place) and ENFORCED: out[place] = "EROFS" if flags and "ro" in flags[-1] else "writable"
        answer(out)
    """.replace("ENFORCED", str(not w.gvisor))
    w.refused(code, "EACCES", "EPERM", "EROFS", "ENOENT", "ENOTDIR", "EISDIR")
    shmmax = w.run('answer(read("/proc/sys/kernel/shmmax").decode().strip())')
    assert w.gvisor or shmmax == "0", shmmax


@case
def root_writes(w: World) -> None:
    code = """
        home = os.stat("/").st_dev
        wrote = []
        for folder, below, _ in os.walk("/"):
            below[:] = [b for b in below if not os.path.islink(os.path.join(folder, b)) and not os.path.ismount(os.path.join(folder, b))
                        and os.path.join(folder, b) not in ("/proc", "/sys", "/dev") and b not in ("site-packages", "dist-packages", "share", "doc")]
            if os.access(folder, os.W_OK):
                wrote.append(folder)
            elif folder.count("/") < 3 and tried(lambda: os.close(os.open(folder + "/.x", os.O_CREAT | os.O_WRONLY))) == "done":
                wrote.append(folder)
        for p in ("/etc/passwd", "/etc/ld.so.preload", "/usr/bin/python3", sys.executable, "/var/tmp/x", "/run/x", "/run/lock/x"):
            if tried(lambda: open(p, "ab").close()) == "done": wrote.append(p)
        answer(wrote)
    """
    assert w.run(code) == []


@case
def exec_places(w: World) -> None:
    code = """
        life = next(n for n in os.listdir("/run/sandglass") if n.startswith("k"))
        d = f"/run/sandglass/{life}"
        answer({"file": tried(open, d + "/x", "w"), "mkdir": tried(os.mkdir, "/run/sandglass/k99"), "unlink": tried(os.unlink, d + "/s-1"),
            "rename": tried(os.rename, d, d + "x"), "connection": tried(open, d + "/connection.json", "a"),
            "passwd": tried(open, "/run/sandglass-etc/passwd", "a"), "etc": tried(open, "/run/sandglass-etc/x", "w"),
            "program": tried(open, "/opt/sandglass/init.py", "a"), "beside": tried(open, "/opt/sandglass/x.py", "w"),
            "inputs": tried(open, "/workspace/in/x", "w"), "move inputs": tried(os.rename, "/workspace/in", "/workspace/y"),
            "mqueue": tried(open, "/dev/mqueue/x", "w"), "dev": tried(open, "/dev/x", "w")})
    """
    w.refused(code, "EACCES", "EPERM", "EROFS", "ENOENT", "EBUSY")


@case
def device_nodes(w: World) -> None:
    code = """
        import stat
        out = {}
        for place in ("/workspace", "/tmp", "/dev/shm"):
            for name, kind, number in (("null", stat.S_IFCHR, os.makedev(1, 3)), ("mem", stat.S_IFCHR, os.makedev(1, 1)),
                                       ("disk", stat.S_IFBLK, os.makedev(8, 0)), ("whiteout", stat.S_IFCHR, 0)):
                out[f"{place}/{name}"] = tried(lambda: os.mknod(f"{place}/d-{name}", kind | 0o600, number))
        for name in ("mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "kvm", "fuse", "loop0", "loop-control", "net/tun", "vsock", "vhost-vsock"):
            out[name] = tried(lambda: os.close(os.open("/dev/" + name, os.O_RDONLY)))
        known = {"console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}
        for name in set(os.listdir("/dev")) - known: out["unknown " + name] = "there"
        answer(out)
    """
    found = w.run(code)
    if w.gvisor:  # its own kernel's: a mount and a network namespace would be needed, and neither is to be had
        for name in ("fuse", "net/tun", "unknown fuse", "unknown net"):
            found.pop(name, None)
    wrong = {name: outcome for name, outcome in found.items() if outcome not in ("EPERM", "EACCES", "ENOENT", "ENXIO", "EINVAL")}
    assert not wrong, wrong


@case
def engine_socket(w: World) -> None:
    place = w.engine.path
    code = f"""
        import stat
        names = [{place!r}, "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"]
        found = [n for n in names if os.path.exists(n)]
        for folder, below, files in os.walk("/"):
            below[:] = [b for b in below if os.path.join(folder, b) not in ("/proc", "/sys", "/usr", "/opt/venv")]
            for f in files:
                p = os.path.join(folder, f)
                try:
                    if stat.S_ISSOCK(os.lstat(p).st_mode) and not p.startswith("/run/sandglass/k"): found.append(p)
                except OSError: pass
        unix = [l.split()[-1] for l in read("/proc/net/unix").decode().splitlines()[1:] if "docker" in l or "containerd" in l]
        answer(found + unix)
    """
    assert w.run(code) == []


# ---------------------------------------------------------------- the network


@case
def interfaces(w: World) -> None:
    links = w.run('answer([l.split(":")[0].strip() for l in read("/proc/net/dev").decode().splitlines()[2:]])')
    assert set(links) <= {"lo"}, links
    routes = w.run('answer(read("/proc/net/route").decode().splitlines()[1:])')
    assert routes == [], routes


@case
def addresses(w: World) -> None:
    """Loopback inside is the sandbox's own: a connection is refused, or gVisor has no address at all."""
    code = f"""
        targets = [(2, a) for a in {w.host.addresses!r}] + [(2, a) for a in ("169.254.169.254", "10.0.0.1", "172.17.0.1", "192.168.0.1", "1.1.1.1",
            "100.100.100.200", "0.0.0.0")] + [(10, a) for a in ("::1", "fd00:ec2::254", "2606:4700:4700::1111", "::ffff:169.254.169.254")]
        out = {{}}
        for family, a in targets:
            for port in ({w.host.port}, 80):
                with socket.socket(family) as s:
                    s.settimeout(0.5)
                    out[f"tcp {{a}} {{port}}"] = tried(s.connect, (a, port))
            with socket.socket(family, socket.SOCK_DGRAM) as s:
                s.settimeout(0.5)
                # a datagram to the sandbox's own loopback goes nowhere else; the listener outside would see it
                own = a.startswith("127.") or a in ("0.0.0.0", "::1")
                outcome = tried(s.sendto, b"x", (a, {w.host.port}))
                out[f"udp {{a}}"] = "own" if own else outcome
        answer(out)
    """
    w.refused(code, "ENETUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL", "EHOSTUNREACH", "ENODEV", "EAFNOSUPPORT", "EINVAL", "EPERM", "own")
    assert w.host.seen() == []


@case
def dns(w: World) -> None:
    code = """
        import threading
        out = {}
        def ask(name):
            try: socket.getaddrinfo(name, 80); out[name] = "done"
            except socket.gaierror: out[name] = "none"
        threads = [threading.Thread(target=ask, args=(n,), daemon=True) for n in ("example.com", "metadata.google.internal", "host.docker.internal")]
        for t in threads: t.start()
        packet = bytes.fromhex("123401000001000000000000076578616d706c6503636f6d0000010001")
        for a in ("127.0.0.1", "127.0.0.11", "8.8.8.8"):
            with socket.socket(2, socket.SOCK_DGRAM) as s:
                s.settimeout(0.5)
                def go(): s.sendto(packet, (a, 53)); s.recv(512)
                out[a] = tried(go)
        for t in threads: t.join(12)
        answer(out)
    """
    found = w.run(code)
    assert "done" not in found.values(), found


@case
def socket_families(w: World) -> None:
    code = """
        def s(*a): return tried(lambda: socket.socket(*a).close())
        answer({"vsock": s(40, 1), "netlink route": s(16, 3, 0), "netlink audit": s(16, 3, 9), "alg": s(38, 5, 0), "packet": s(17, 3, 0),
            "raw": s(2, 3, 1), "raw6": s(10, 3, 58), "sctp": s(2, 1, 132), "mptcp": s(2, 1, 262), "ping": s(2, 2, 1), "udplite": s(2, 2, 136),
            "bluetooth": s(31, 3, 1), "can": s(29, 3, 1), "xdp": s(44, 3, 0), "tipc": s(30, 5, 0), "key": s(15, 3, 2),
            "unix": s(1, 1), "tcp": s(2, 1), "udp6": s(10, 2), "pair": tried(lambda: socket.socketpair())})
    """
    found = w.run(code)
    # libzmq aborts on EPERM here; gVisor serves it from its own kernel, never the host's
    assert found.pop("netlink route") == ("done" if w.gvisor else "ENOTSUP")
    assert {name for name, outcome in found.items() if outcome == "done"} == {"unix", "tcp", "udp6", "pair"}
    assert set(found.values()) == {"done", "EPERM"}, found


@case
def abstract_sockets(w: World) -> None:
    code = f"""
        with socket.socket(1) as s:
            outcome = tried(s.connect, "\\0" + {w.host.abstract_name!r})
        lines = [l.split()[-1] for l in read("/proc/net/unix").decode().splitlines()[1:] if l.split()[-1].startswith("@")]
        answer([outcome, [n for n in lines if "containerd" in n or "docker" in n or "sandglass-abuse" in n]])
    """
    found = w.run(code)
    assert found == ["ECONNREFUSED", []], found
    assert w.host.seen() == []
