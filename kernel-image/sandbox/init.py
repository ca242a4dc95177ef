"""Process 1: spawns relay and zygote, reaps every orphan, becomes somebody else to kill or to read files. Reads one byte at a time.

It is root with SETUID, SETGID and KILL only, and the relay (which user code may one day confuse) is all that it listens to, so it
does what a byte names and nothing else:

====  ==================================================  ====================================================
byte  meaning                                             answer
====  ==================================================  ====================================================
0x01  kill every process of the user's                    0x01 and how many are left (0-255)
0x1n  file helper as the user in slot n                   0x4n with a socket; later, or instead, 0x5n: it ended
0x2n  file helper as the relay's uid in slot n            likewise
0x3n  kill the helper in slot n
====  ==================================================  ====================================================

Exit status: 0 when the relay ended because standard input did, 70 for a start that failed, 71 the relay, 72 the zygote died.
"""

import os
import select
import signal
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ETC = "/run/sandglass-etc"
KILL_USER, AS_USER, AS_RELAY, KILL, STARTED, ENDED = 0x01, 0x10, 0x20, 0x30, 0x40, 0x50
SLOTS = 8
KILL_S = 5.0
RELAY, USER, GROUP = (int(os.environ[f"SANDGLASS_{name}"]) for name in ("RELAY_UID", "USER_UID", "GROUP_ID"))


def become(uid, real=None):
    """``real``: another real and saved uid, so that processes of ``uid`` cannot signal or trace this one, which still acts as ``uid``."""
    real = uid if real is None else real
    os.setgroups([GROUP])
    os.setresgid(uid, uid, uid)
    os.setresuid(real, uid, real)
    os.umask(0o022)


def spawn(argv, uid, fds):
    """Run a program with these descriptors as 0, 1, 2, ... and no others."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for i, fd in enumerate([os.dup(fd) for fd in fds]):  # duplicates first, or one could overwrite the next
            os.dup2(fd, i)
        os.closerange(len(fds), 1024)
        if uid:
            become(uid)
        os.execv(argv[0], argv)
    finally:
        os._exit(70)


def child(uid, real, what, *args):
    """A child that becomes ``uid`` and does one thing; its result is the exit status."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        become(uid, real)
        status = what(*args) or 0
    finally:
        os._exit(status)


def kill_all():
    """Signal 9 to every process of this uid but this one, until none is left. Returns how many are."""
    end = time.monotonic() + KILL_S
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
        left = 0
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in (1, os.getpid()):
                try:
                    with open(f"/proc/{name}/status", "rb") as file:
                        text = file.read(4096)
                except OSError:
                    continue
                left += b"\nUid:\t%d\t" % USER in text and b"\nState:\tZ" not in text
        if not left or time.monotonic() > end:
            return min(left, 255)
        time.sleep(0.002)


def write_names():
    users = ((0, "sandglass-init", "/"), (RELAY, "relay", "/"), (USER, "user", "/workspace"))
    with open(f"{ETC}/passwd", "w") as file:
        file.writelines(f"{name}:x:{uid}:{uid}:{name}:{home}:/bin/sh\n" for uid, name, home in users)
    with open(f"{ETC}/group", "w") as file:
        file.writelines(f"{name}:x:{uid}:\n" for uid, name, _ in users)
        file.write(f"sandglass:x:{GROUP}:relay,user\n")


class Init:
    def __init__(self):
        self.helpers = {}
        self.killer = None
        # held from the start: whatever the user does to the path, the directories stay reachable
        self.roots = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in ("/workspace", "/workspace/in")]
        self.sock, relay_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        commands, say = os.pipe()
        hear, reports = os.pipe()
        null = os.open("/dev/null", os.O_RDWR)
        python = sys.executable
        # the zygote first: its imports take longest
        self.zygote = spawn([python, f"{HERE}/zygote.py"], 0, [null, null, 2, commands, reports])
        self.relay = spawn([python, "-I", "-S", f"{HERE}/start_relay.py"], RELAY, [0, 1, 2, relay_end.fileno(), say, hear])
        relay_end.close()
        for fd in (commands, say, hear, reports):
            os.close(fd)
        os.dup2(null, 0)
        os.dup2(null, 1)

    def command(self, byte):
        slot = byte & 0x0F
        if byte == KILL_USER:
            if self.killer is None:
                # the group's number is nobody's uid: a user who signals all the time does not hit the killer
                self.killer = child(USER, GROUP, kill_all)
        elif byte & 0xF0 in (AS_USER, AS_RELAY) and slot < SLOTS and slot not in self.helpers:
            ours, theirs = socket.socketpair()
            try:
                uid = RELAY if byte & 0xF0 == AS_RELAY else USER
                self.helpers[slot] = child(uid, RELAY, self.help, theirs, ours)
                socket.send_fds(self.sock, [bytes((STARTED | slot,))], [ours.fileno()])
            except OSError:
                self.tell(ENDED | slot)
            finally:
                ours.close()
                theirs.close()
        elif byte & 0xF0 == KILL and slot in self.helpers:
            os.kill(self.helpers[slot], signal.SIGKILL)

    def help(self, sock, other):
        other.close()
        self.sock.close()
        sys.path.insert(0, HERE)
        import files

        return files.serve(sock, *self.roots)

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.relay:
                os._exit(0 if status == 0 else 71)
            if pid == self.zygote:
                os._exit(72)
            if pid == self.killer:
                self.killer = None
                self.tell(KILL_USER, os.waitstatus_to_exitcode(status) & 0xFF)
            for slot, helper in list(self.helpers.items()):
                if pid == helper:
                    del self.helpers[slot]
                    self.tell(ENDED | slot)

    def tell(self, *numbers):
        try:
            self.sock.send(bytes(numbers))
        except OSError:
            pass  # the relay is gone, and so is this container as soon as it is reaped

    def run(self):
        wake, woken = os.pipe()
        for fd in (wake, woken):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self.sock, select.POLLIN)
        while True:
            self.reap()
            for fd, _ in poll.poll():
                if fd == wake:
                    os.read(wake, 512)
                else:
                    data = self.sock.recv(1)
                    if data:
                        self.command(data[0])
                    else:
                        poll.unregister(self.sock)  # the relay is gone; its end is reaped


if __name__ == "__main__":
    try:
        write_names()
        os.waitpid(child(USER, None, os.mkdir, "/workspace/out", 0o755), 0)
        init = Init()
    except OSError as error:
        print(f"init: {error}", file=sys.stderr, flush=True)
        os._exit(70)
    init.run()
