"""The zygote: imports what every kernel needs, then forks kernels that share those pages. It has init's identity and reads single bytes.

====  ======================================  ======================================================================
byte  meaning                                 reports (kind, number, value)
====  ======================================  ======================================================================
F     fork the next life                      ``S`` life, pid once the child has become the user; ``X`` life, wait status
P     fork already, the child waits for ``F``
I     SIGINT to the kernel's process group
L     one more step of the imports            ``L`` steps left
====  ======================================  ======================================================================

ipykernel is imported at once, since no kernel starts without it; numpy, pandas and matplotlib only when the relay says so, so that
a cold start does not wait for them and they never compete with a running cell. Before a fork there must be no event loop, no zmq
context and one thread of Python's. Children share address layout and hash seed: one zygote a sandbox, never across users.
"""

import os
import struct
import sys

REPORT = struct.Struct("<cxxxIi")
LIFE = struct.Struct("<I")
COMMANDS, REPORTS = 3, 4
STEPS = (
    ("numpy",),
    ("pandas",),
    ("matplotlib", "matplotlib.font_manager"),
    ("matplotlib.pyplot", "matplotlib.backends.backend_agg", "matplotlib_inline.backend_inline", "threadpoolctl"),
    # the first traceback and the first completion
    ("stack_data", "pygments.lexers.python", "pygments.formatters.terminal256", "pygments.styles.default", "jedi"),
)


def report(kind, number, value=0):
    os.write(REPORTS, REPORT.pack(kind, number, value))


def load(step):
    import importlib

    for name in STEPS[step]:
        try:
            importlib.import_module(name)
        except ImportError:
            print(f"zygote: {name} is not installed", file=sys.stderr, flush=True)
        else:
            if name == "threadpoolctl":
                sys.modules["kernel_app"].learn_pools()


class Zygote:
    def __init__(self):
        import gc
        import select
        import signal

        self.gc, self.select, self.signal = gc, select, signal
        self.life = 0
        self.pid = None
        # the child that was forked in advance, and where it waits to be told its life's number
        self.waiting, self.go = None, -1
        self.step = 0
        self.wake, woken = os.pipe()
        for fd in (self.wake, woken):
            os.set_blocking(fd, False)
        self.woken = woken
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.tidy()

    def tidy(self):
        """What is imported is never garbage; frozen, its pages stay shared after a fork."""
        self.gc.collect()
        self.gc.freeze()

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.waiting:
                self.dismiss()
            if pid == self.pid:
                self.pid = None
                report(b"X", self.life, status)

    def fork(self):
        """True in the child."""
        self.life += 1
        if self.waiting is not None:
            os.write(self.go, LIFE.pack(self.life))
            self.pid = self.waiting
            self.dismiss()
            return False
        self.pid = os.fork()
        if self.pid == 0:
            self.leave()
            return True
        return False

    def prepare(self):
        """Copying the page tables takes milliseconds: it is done while the old kernel is killed. True in the child, when it is told to go on."""
        if self.waiting is not None:
            return False
        come, self.go = os.pipe()
        self.waiting = os.fork()
        if self.waiting:
            os.close(come)
            return False
        os.close(self.go)
        self.leave()
        number = os.read(come, LIFE.size)
        if not number:
            os._exit(0)  # it is not needed, or the zygote is gone
        os.close(come)
        (self.life,) = LIFE.unpack(number)
        return True

    def dismiss(self):
        """No child waits any more: it runs, it has ended, or it is to end."""
        os.close(self.go)
        self.waiting, self.go = None, -1

    def leave(self):
        """In a child: nothing of the zygote's own is kept."""
        os.close(self.wake)
        self.signal.set_wakeup_fd(-1)
        os.close(self.woken)
        os.close(COMMANDS)
        self.signal.signal(self.signal.SIGCHLD, self.signal.SIG_DFL)

    def run(self):
        """Returns in a child, with the life's number."""
        poll = self.select.poll()
        poll.register(self.wake, self.select.POLLIN)
        poll.register(COMMANDS, self.select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.wake:
                    os.read(fd, 512)
                    self.reap()
                    continue
                byte = os.read(COMMANDS, 1)
                if byte in (b"F", b"P"):
                    self.reap()
                    if self.fork() if byte == b"F" else self.prepare():
                        return self.life
                elif byte == b"I" and self.pid is not None:
                    # the kernel leads its session: what it started in the foreground is interrupted with it
                    try:
                        os.killpg(self.pid, self.signal.SIGINT)
                    except OSError:
                        pass
                elif byte == b"L":
                    if self.waiting is not None:
                        self.dismiss()  # it would lack what comes now
                    if self.step < len(STEPS):
                        load(self.step)
                        self.step += 1
                        self.tidy()
                    report(b"L", len(STEPS) - self.step)
                elif not byte:
                    sys.exit(0)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    import kernel_app  # found beside this file: the interpreter put its directory first on the path

    kernel_app.preload()
    sys.path.remove(here)
    life = Zygote().run()
    kernel_app.become_user_and_run(life, lambda: report(b"S", life, os.getpid()), REPORTS)


if __name__ == "__main__":
    main()
