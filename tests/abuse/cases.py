"""The abuse suite's list of cases: fixed before any fix was made. A case that turns out to be contained otherwise than stated is a finding.

Each says what code in a sandbox tries, and what somebody *outside* must see. What must hold beside it, for every case:

- the neighbour, another sandbox of the same tier, still has its variable and answers its next cell
- ``sandbox`` cases: the attacked sandbox still runs under the same process 1 and takes orders, unless ``outside`` says that it ends
- ``gateway`` cases: the gateway is ready, its resident memory has grown by less than 64 MB, the execution ended with the word stated

``where``: ``sandbox`` cases meet the real image under ``hardening.create_body`` without a gateway, so that one thing at a time can be
taken out of that request (``tests/abuse/removal.py``); ``gateway`` cases go through a real gateway over REST; ``elsewhere`` names tests
of other suites that try the very same thing on the real engine or in a real browser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Where = Literal["sandbox", "gateway", "elsewhere"]
TIERS = ("container", "gvisor")
RUNTIMES = {"container": "runc", "gvisor": "runsc"}
MEMORY_GROWTH = 64 * 1024**2


@dataclass(frozen=True)
class Case:
    name: str
    attack: str
    outside: str
    where: Where
    shown_by: tuple[str, ...] = ()
    """``path::test`` of cases that other suites show; here it is checked that they exist."""


def _sandbox(name: str, attack: str, outside: str) -> Case:
    return Case(name, attack, outside, "sandbox")


def _gateway(name: str, attack: str, outside: str) -> Case:
    return Case(name, attack, outside, "gateway")


def _elsewhere(name: str, attack: str, outside: str, *shown_by: str) -> Case:
    return Case(name, attack, outside, "elsewhere", shown_by)


# fmt: off
CASES: tuple[Case, ...] = (
    # --- the host
    _sandbox("host_files", "reads a file of the host by its path, through /proc/*/root and /proc/*/cwd",
             "a planted file's content is nowhere to be had"),
    _sandbox("host_mounts", "looks for a mount that leads out",
             "every mount is the container's own kind, none is backed by the host but the read-only root"),
    _sandbox("host_names", "reads hostname, resolver, hosts", "the host's name and its resolvers stand in none"),
    _sandbox("environment", "reads its own and every process's environment",
             "numbers and well-known names; a secret planted in the caller's is not there"),
    _sandbox("proc_tells", "reads what /proc and /sys tell about the host and its other tenants", "each masked path is empty or absent"),
    _sandbox("proc_writes", "writes kernel settings, sysrq, cgroups, its own limits there", "every write is refused, the values are as before"),
    _sandbox("root_writes", "writes into every directory of the image", "refused everywhere: only the tmpfs places take a file"),
    _sandbox("exec_places", "adds a file to relay's, init's and the sockets' places", "refused"),
    _sandbox("device_nodes", "makes device nodes and overlay white-outs; opens /dev/mem, kmsg, disks",
             "none is made, only the harmless devices open"),
    _sandbox("engine_socket", "looks for the engine's socket by name and by walking", "no socket but those of its own kernel"),
    # --- rights
    _sandbox("capabilities", "counts its capability sets",
             "effective, permitted, inheritable, ambient are empty; bounding has no more than init's three"),
    _sandbox("no_new_privileges", "asks whether an exec may give rights, looks for set-uid files", "it may not, there is none"),
    _sandbox("regain_uid", "becomes root, the relay, init's group", "EPERM"),
    _sandbox("system_commands", "runs su, mount, passwd, shutdown, ip, dmesg, modprobe", "none has an effect or gives a right"),
    _sandbox("package_install", "pip install, apt-get install", "nothing is reached, nothing is written into the image"),
    # --- the network
    _sandbox("interfaces", "lists network interfaces and routes", "loopback at most, no route"),
    _sandbox("addresses", "connects and sends to metadata, private, public and the host's own addresses over IPv4 and IPv6",
             "a listener on every address of the host sees nothing; every try fails"),
    _sandbox("dns", "asks resolvers by name and by packet", "no answer"),
    _sandbox("socket_families", "makes raw, packet, vsock, netlink, alg, bluetooth sockets, SCTP, MPTCP", "refused; gVisor's own netlink excepted"),
    _sandbox("abstract_sockets", "connects to an abstract socket that listens on the host", "the listener sees nothing"),
    # --- the processes beside it
    _sandbox("init_memory", "reads and writes memory, maps, descriptors, root of init, zygote, relay",
             "refused; on gVisor names and numbers may show"),
    _sandbox("init_signals", "signals init, zygote, relay by kill, tgkill, queue, pidfd", "refused; all three answer"),
    _sandbox("init_limits", "sets limits, priority, affinity, scheduler, I/O priority of init, zygote, relay", "refused, and they are as before"),
    _sandbox("tracing", "ptrace, process_vm, kcmp, pidfd_getfd on others", "refused"),
    _sandbox("forged_frames", "writes frames into the relay's standard output, the way to the gateway",
             "no such descriptor opens; the stream has no violation"),
    # --- the kernel's calls
    _sandbox("namespaces", "unshare, clone, clone3, setns for every kind of namespace",
             "stated: refused. Found: gVisor serves clone3; what it makes is its own kernel's, and gives no right over anybody"),
    _sandbox("mounts", "mount, umount, pivot_root, chroot, the new mount calls", "refused"),
    _sandbox("keyctl", "keyrings: add, request, read", "refused"),
    _sandbox("bpf", "loads a program, makes a map", "refused"),
    _sandbox("io_uring", "sets up a ring; old asynchronous I/O", "refused"),
    _sandbox("perf", "opens a counter", "refused"),
    _sandbox("userfaultfd", "userfaultfd, memfd_secret, process_madvise, vmsplice", "refused"),
    _sandbox("ipc_objects", "System V shared memory, semaphores, queues; POSIX queues", "refused: they would outlive their process"),
    _sandbox("kernel_control", "modules, kexec, reboot, swap, clocks, names, log, accounting, quota", "refused"),
    _sandbox("file_handles", "opens files by handle, fanotify", "refused"),
    _sandbox("machine_state", "personality, modify_ldt, I/O ports, NUMA policy, sync of the host's disks", "refused"),
    # --- what runs out; each asks for a bounded amount past its limit, and the engine's own view is compared
    _sandbox("fork_bomb", "forks until refused", "EAGAIN at the limit; killed from outside; a new kernel starts"),
    _sandbox("thread_bomb", "starts threads until refused", "refused at the limit"),
    _sandbox("memory_bomb", "touches memory past the limit",
             "stated: its process or its sandbox ends, and the engine tells of it. Found: on gVisor it may stand still at the limit instead"),
    _sandbox("shm_bomb", "fills /dev/shm past its size", "ENOSPC at the size"),
    _sandbox("disk_bomb", "fills the workspace and /tmp past their sizes", "ENOSPC at the sizes"),
    _sandbox("inode_bomb", "makes empty files", "runc: ENOSPC at the number; gVisor: within the sandbox's own memory"),
    _sandbox("descriptor_bomb", "opens descriptors and sockets", "EMFILE at the limit"),
    _sandbox("memlock_bomb", "locks memory", "refused past the limit"),
    _sandbox("core_dump", "crashes natively in the workspace", "no core file; the death is told with its signal"),
    _sandbox("cpu_share", "spins on every processor", "it gets its share of processor time, not more"),
    _sandbox("oom_order", "makes itself the last to be killed",
             "stated: refused. Found: it can come down from 1000 to init's 500, not below what the engine gave; its memory limit holds"),
    # --- its own life
    _sandbox("kernel_suicide", "SIGKILL, SIGSEGV, _exit of its own kernel", "told with its cause; the next kernel answers"),
    _sandbox("native_loop", "a loop in C that lets no signal handler run", "killed from outside; the next kernel answers"),
    _sandbox("sigint_ignored", "ignores SIGINT and SIGTERM", "killed from outside; the next kernel answers"),
    _sandbox("daemons", "leaves daemons that called setsid and ignore signals", "none is left after a restart"),
    # --- through a gateway: floods of output
    _gateway("flood_print", "prints without end", "output_limit"),
    _gateway("flood_flush", "prints short lines, each flushed", "output_limit"),
    _gateway("flood_stderr", "writes to standard error without end", "output_limit"),
    _gateway("flood_descriptor", "writes to descriptor 1 past Python", "output_limit, or nothing of it leaves"),
    _gateway("flood_display", "displays rich objects without end", "output_limit"),
    _gateway("flood_update", "updates and clears one display without end", "output_limit"),
    _gateway("flood_comm", "opens comms and sends on them without end", "the cell ends; the gateway's memory is bounded"),
    _gateway("flood_error", "raises with a message of 60 MB and a chain of exceptions", "code_error"),
    _gateway("flood_result", "a result whose repr has 50 MB", "the cell ends; what is told is cut"),
    _gateway("flood_helper", "keep(), result() and prompts without end", "the cell ends; what is taken is bounded"),
    # --- hostile messages
    _gateway("huge_message", "one message of 100 MB", "cut with a marker"),
    _gateway("deep_message", "JSON nested a hundred thousand deep, as output and as data", "the cell ends; the gateway is ready"),
    _gateway("invalid_text", "lone surrogates, NUL, invalid UTF-8 in every field that is text", "the cell ends; what is told is valid UTF-8"),
    _gateway("forged_messages", "speaks on its kernel's own sockets: replies, idle, foreign parents and sessions",
             "the neighbour sees nothing of it; the cell ends once"),
    # --- hostile declared files
    _gateway("files_links", "declares links to files, directories, outside; hard links; a link as out/ itself", "none is followed, each is told"),
    _gateway("files_special", "declares FIFOs, sockets", "none is opened; nobody waits"),
    _gateway("files_sparse", "declares a sparse file of a terabyte", "refused by its size"),
    _gateway("files_swapped", "swaps declared files for links and others while they are read",
             "what is kept is a regular file of one version, never a link's target"),
    _gateway("files_names", "names with newlines, bidi marks, dots, 255 bytes, invalid UTF-8, HTML",
             "each refused or kept under its own name; listed as valid JSON"),
    _gateway("files_many", "declares fifty thousand files, deep folders", "the caps hold; the rest is told"),
    _gateway("files_markup", "keeps HTML, SVG, polyglots, an executable under a picture's name", "handed out as attachments that no browser runs"),
    _gateway("files_bombs", "keeps picture and archive bombs", "not unpacked in the gateway; the bomb's archive is not handed out"),
    # --- through a gateway: what runs out, with the closed words
    _gateway("words_timeout", "a native loop under a time limit", "timeout"),
    _gateway("words_memory", "memory past the limit", "memory_limit"),
    _gateway("words_processes", "processes past the limit", "process_limit"),
    _gateway("words_disk", "a file past the workspace", "disk_limit"),
    # --- shown by other suites
    _elsewhere("page_markup", "HTML, SVG and scripts in output", "reads nothing, reaches no network",
               "tests/e2e/test_page_output.py::test_hostile_markup_reads_nothing_and_reaches_no_network",
               "tests/e2e/test_page_output.py::test_frame_messages_are_checked"),
    _elsewhere("page_flood", "ten megabytes of output in the page", "the page answers",
               "tests/e2e/test_page_output.py::test_ten_megabytes_leave_the_page_responsive"),
    _elsewhere("page_ansi", "ANSI in output", "text and colours, nothing else", "tests/e2e/test_page_output.py::test_text_outputs"),
    _elsewhere("pictures", "pictures with something behind their end", "encoded anew in a sandbox of their own",
               "tests/e2e/test_http_sessions.py::test_pictures_are_encoded_anew"),
    _elsewhere("malformed_zmq", "malformed multipart messages on the kernel's sockets", "told and dropped",
               "tests/integration/test_sandbox_stream.py::test_malformed_messages_are_told_and_dropped",
               "tests/integration/test_sandbox_stream.py::test_a_flood_of_forged_messages_stays_in_bounds"),
    _elsewhere("signal_storm", "signals every process all the time", "a restart works all the same",
               "tests/integration/test_sandbox_kernel.py::test_a_process_that_signals_everything_does_not_stop_a_restart",
               "tests/integration/test_sandbox_files.py::test_user_processes_cannot_disturb_a_helper"),
    _elsewhere("hostile_process_1", "a sandbox whose own relay breaks the protocol", "protocol_violation ends that sandbox only",
               "tests/abuse/test_frames.py::test_a_sandbox_that_breaks_the_protocol_ends_alone"),
    _elsewhere("slow_reader_flood", "a flood that nobody reads", "costs the gateway no memory",
               "tests/e2e/test_back_pressure.py::test_a_flood_that_nobody_reads_costs_no_memory"),
)
# fmt: on

BY_NAME = {case.name: case for case in CASES}


def names(where: Where) -> list[str]:
    return [case.name for case in CASES if case.where == where]
