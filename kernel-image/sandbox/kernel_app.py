"""The kernel's process, from the fork on: it lets go of everything of the zygote's, becomes the user, and only then creates anything."""

import functools
import importlib
import json
import os
import sys
import tempfile
import traceback

RUN = "/run/sandglass"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "POLARS_MAX_THREADS")
MAX_OPEN_FILES = 4096
IOPUB_QUEUE = 32
_libc = None
_pools = None


# what a kernel's start needs, also what ipykernel and IPython import late: found by looking at sys.modules after a first cell
PRELOAD = (
    "comm", "ctypes", "faulthandler", "pdb", "resource", "sqlite3",
    "IPython.core.completer", "IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.magics",
    "IPython.core.oinspect", "IPython.core.pylabtools", "IPython.extensions.storemagic", "IPython.utils.wildcard",
    "ipykernel.comm.manager", "ipykernel.debugger", "ipykernel.displayhook", "ipykernel.heartbeat", "ipykernel.ipkernel",
    "ipykernel.iostream", "ipykernel.kernelapp", "ipykernel.shellchannel", "ipykernel.subshell_manager", "ipykernel.zmqshell",
    "jupyter_client.session", "tornado.ioloop", "tornado.platform.asyncio", "zmq.eventloop.zmqstream", "kernel_hooks",
)  # fmt: skip


def preload():
    """Import all that a kernel's start needs. Runs as root, before any user code exists."""
    global _libc
    import ctypes

    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    # a library that starts a thread here would make every fork one of a process with threads; the kernel has the right number
    os.environ |= dict.fromkeys(THREADS, "1") | {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
    # 2^18 cycles, a tenth of a millisecond: by default its threads spin 25 ms after each use, the first time in the middle of a kernel's start
    os.environ["OPENBLAS_THREAD_TIMEOUT"] = "18"
    # debugpy costs a third of the cold start (120-240 ms) and 10 MB in every kernel; nothing of ours speaks to a debugger
    sys.modules["debugpy"] = None
    for name in PRELOAD:
        importlib.import_module(name)
    del sys.modules["debugpy"]
    _application()
    _libc = ctypes.CDLL(None, use_errno=True)


def learn_pools():
    """Find the libraries with thread pools, before a fork: looking through all that is loaded takes 10 ms, on gVisor 80."""
    global _pools
    _pools = sys.modules["threadpoolctl"].ThreadpoolController()


def _let_go(reports):
    """No descriptor but the reports' is left of the zygote's; 0-2 lead nowhere."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    keep = {0, 1, 2, reports}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # the one that listed the directory


def _limit():
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, most) if soft >= 0 else most, most))
    processes = int(os.environ.get("SANDGLASS_USER_PROCESSES", "0"))
    if processes > 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass  # not every runtime has it; the container's own limit ends everything there


def _become_user():
    user, group = int(os.environ["SANDGLASS_USER_UID"]), int(os.environ["SANDGLASS_GROUP_ID"])
    os.setgroups([group])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if os.getresuid() != (user, user, user) or os.getresgid() != (user, user, user):
        raise PermissionError("the kernel could not become the user")
    # a process that gave up root cannot read its own /proc otherwise; nothing secret is left in it
    _libc.prctl(4, 1, 0, 0, 0)


def _environment():
    threads = os.environ.get("SANDGLASS_THREADS", "1")
    for name in [name for name in os.environ if name.startswith("SANDGLASS_")]:
        del os.environ[name]
    os.environ |= {"HOME": "/workspace", "USER": "user", "LOGNAME": "user", "PWD": "/workspace"} | dict.fromkeys(THREADS, threads)
    os.environ["IPYTHONDIR"] = _private_directory()
    # the root's own directory was the zygote's; the image's start-up code knows how to make one for the user
    os.environ.pop("MPLCONFIGDIR", None)
    seed = getattr(sys.modules.get("sitecustomize"), "_seed_font_cache", None)
    if seed is not None:
        try:
            seed()
        except OSError:
            pass  # a full /tmp: only the first figure takes longer
    return int(threads)


def _private_directory():
    """For IPython's profile: new in each life, since code of an earlier life must not run in this one before anybody asked."""
    for place in ("/tmp", "/dev/shm", "/workspace"):
        try:
            path = tempfile.mkdtemp(prefix=".ipython-", dir=place)
            os.makedirs(f"{path}/profile_default/startup")
            # IPython would copy a text here, which fails on a full disk; a name alone needs no room
            open(f"{path}/profile_default/startup/README", "w").close()
            return path
        except OSError:
            continue  # it is full
    raise OSError("no space is left for a kernel's profile")


def _reseed(threads):
    """A fork has its parent's random numbers, and libraries that were loaded have its thread counts."""
    import random

    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    if threads > 1 and _pools is not None:
        _pools.limit(limits=threads)


@functools.cache
def _application():
    """The application's class and its configuration, made before the fork: making the class takes milliseconds."""
    import zmq
    from ipykernel.kernelapp import IPKernelApp
    from traitlets.config import Config

    class KernelApp(IPKernelApp):
        def parse_command_line(self, argv=None):
            """There is none, and building the parser takes as long as a cell."""

        def load_config_file(self, *args, **kwargs):
            """There is none: the profile is new, and the image has no other."""

        def init_connection_file(self):
            """The relay wrote it; it is read and never written."""
            with open(self.connection_file) as file:
                self.load_connection_info(json.load(file))

        def write_connection_file(self, **kwargs):
            pass

        def init_heartbeat(self):
            """Nobody listens to it: the relay sees the process itself end."""

        def init_iopub(self, context):
            # With a full queue the sender waits; ZeroMQ's default is to lose the message without a word. And a short queue: a
            # thousand large messages would not fit in memory. Set for the next socket, as its thread starts at once.
            context.setsockopt(zmq.XPUB_NODROP, 1)
            context.setsockopt(zmq.SNDHWM, IOPUB_QUEUE)
            try:
                super().init_iopub(context)
            finally:
                context.sockopts.clear()

        def init_sockets(self):
            """Group-writable, or the relay could never connect."""
            before = os.umask(0o007)
            try:
                super().init_sockets()
            finally:
                os.umask(before)

    config = Config()
    config.IPKernelApp.outstream_class = "kernel_hooks.Stream"
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShellApp.exec_PYTHONSTARTUP = False
    # the reply need not wait for the output's sockets: the gateway takes an execution for done at reply and idle only
    config.IPythonKernel._execute_sleep = 0.0
    return KernelApp, config


def become_user_and_run(life, dropped, reports):
    """Never returns. ``dropped`` is called once the process is the user's; ``reports`` is closed after that."""
    directory = f"{RUN}/k{life}"
    try:
        os.setsid()
        _let_go(reports)
        _limit()
        _become_user()
        dropped()
        os.close(reports)
        os.umask(0o022)
        os.chdir("/workspace")
        _reseed(_environment())
        import kernel_hooks

        application, config = _application()
        sys.argv = ["ipykernel"]
        app = application.instance(config=config, connection_file=f"{directory}/connection.json")
        app.initialize([])
        kernel_hooks.install(app)
        for name in ("kernel_app", "kernel_hooks"):
            sys.modules.pop(name, None)  # these names are the user's
    except BaseException:
        # standard error leads nowhere by now: the relay reads this file if no kernel comes
        with open(os.open(f"{directory}/error", os.O_WRONLY | os.O_CREAT, 0o644), "w") as file:
            file.write(traceback.format_exc()[-4000:])
        os._exit(1)
    app.start()
    sys.exit(0)
