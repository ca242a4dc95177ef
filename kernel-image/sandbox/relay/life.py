"""One kernel after the other: start, readiness, requests, interrupt, restart, death. Sans-I/O: ``Ports`` does what it decides.

A *life* is one forked kernel; its number grows by one at each start. Requests that come while no kernel is ready wait in order.
A kernel is ready when it has answered a kernel_info request of the relay's own *and* one iopub message came: earlier, a fast
cell's output could still be published to nobody.
"""

from __future__ import annotations

import secrets
import signal
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from frames import Lane, parse_json

from .incoming import Incoming, Malformed, parse, request, signed
from .outputs import Event, Item, Outputs
from .zmtp import Raw

START_S = 30.0
WARM_S = 60.0
ASK_AGAIN_S = 0.5
DRAIN_S = 0.2
"""How long a dead kernel's last output is waited for when other processes hold its sockets open."""
KILL_S = 10.0
SETTLE_S = 0.3
"""The zygote loads more modules only after the kernel was idle for so long: on one CPU it would slow down a cell."""
MAX_HELD = 512
MAX_HELD_BYTES = 64 * 1024**2
MAX_ERRORS = 20
_POKES_S = (0.1, 0.25)
Done = Callable[[Event], None]


class Ports(Protocol):
    def make(self, life: int) -> bytes:
        """The life's directory and connection file; returns the signing key. Raises OSError."""
        ...

    def fork(self) -> None: ...

    def prepare(self) -> None:
        """Let the zygote have the next fork ready."""
        ...

    def sigint(self) -> None: ...
    def load(self) -> None:
        """Ask the zygote for its next step of imports; ``loaded`` follows."""
        ...

    def kill_user(self) -> None:
        """Every process of the user's; ``killed`` follows."""
        ...

    def connect(self, life: int) -> None:
        """Begin to connect; ``message`` and, once all is closed again, ``closed`` follow."""
        ...

    def disconnect(self, life: int) -> None:
        """Close what is left of the life's sockets and remove its directory."""
        ...

    def send(self, channel: str, frames: list[Any]) -> bool:
        """False when too much waits for the kernel to read it."""
        ...

    def last_words(self, life: int) -> str:
        """What a kernel that failed to start left behind; may be empty."""
        ...


class Life:
    """``emit`` takes what goes to the gateway; ``kept`` says how much of that is unacknowledged, in bytes. ``now``: any clock's seconds."""

    def __init__(self, ports: Ports, outputs: Outputs, emit: Callable[[Item], None], kept: Callable[[], int]) -> None:
        self._ports, self._outputs, self._emit, self._kept = ports, outputs, emit, kept
        self.state = "none"
        self.number = 0
        self.taken = 0
        """The last number of lane 1 that was given to a kernel."""
        self._own = f"relay-{secrets.token_hex(8)}-"
        self._asked = 0
        self._key = b""
        self._busy: dict[str, list[int]] = {}
        self._held: deque[tuple[int, int, str, list[bytes], str, str]] = deque()
        self._held_bytes = 0
        self._after = 0
        self._errors = 0
        # the start in progress
        self._began = 0.0
        self._warm: Done | None = None
        self._info: dict[str, Any] | None = None
        self._iopub_seen = False
        # the end in progress: a killing that was asked for, and a process that has ended
        self._ending: tuple[str, Done] | None = None
        self._remaining: int | None = None
        self._alive = False
        self._dropped = False
        self._status: int | None = None
        # the interrupt in progress
        self._targets: set[str] = set()
        self._deadlines: dict[str, float] = {}
        # the zygote's imports
        self._loaded = False
        self._loading = False

    @property
    def draining(self) -> bool:
        """The process has ended and its last output is being read."""
        return self._status is not None

    # --- what the gateway asks ----------------------------------------------------------------------------------------

    def start(self, now: float, done: Done, *, warm: bool = False) -> None:
        """``warm``: fork only after the zygote has imported everything."""
        if self._ending or self.state in ("starting", "ready"):
            done({"ok": False, "error": "running"})
        elif warm and not self._loaded:
            self.state, self._warm = "starting", done
            self._deadlines["warm"] = now + WARM_S
            self._load()
        else:
            self._fork(now)
            done({"ok": True, "life": self.number})

    def restart(self, now: float, done: Done, *, after: int = 0) -> None:
        """``after``: requests of lane 1 with a number up to this were meant for the old kernel, and are discarded if they wait."""
        self._end("restart", now, done)
        if self._ending and self._ending[1] is done:
            self._after = max(self._after, after)
            kept = [item for item in self._held if item[0] == Lane.KERNEL and item[1] > self._after]
            self._held = deque(kept)
            self._held_bytes = sum(sum(map(len, item[3])) for item in kept)

    def kill(self, now: float, done: Done) -> None:
        self._end("kill", now, done)

    def _end(self, how: str, now: float, done: Done) -> None:
        if self._ending:
            done({"ok": False, "error": "ending"})
            return
        if self._warm:
            self._warm({"ok": False, "error": "ended"})
            self._warm = None
            self._deadlines.pop("warm", None)
            self.state = "none"
        self._ending, self._remaining = (how, done), None
        self._deadlines["kill"] = now + KILL_S
        if self._dropped or not self._alive:
            self._ports.kill_user()
        if how == "restart":
            self._ports.prepare()

    def interrupt(self, now: float, done: Done, grace_s: float) -> None:
        done({"ok": True, "busy": bool(self._busy)})
        if self.state != "ready" or self._ending:
            return
        self._ask("control", "interrupt_request")
        self._targets = set(self._busy)
        for i, delay in enumerate(_POKES_S):
            self._deadlines[f"poke{i}"] = now + delay
        self._deadlines["sigint"] = now + grace_s

    def request(self, now: float, lane: int, number: int, channel: str, parts: list[bytes], msg_id: str, msg_type: str) -> None:
        """A message from the gateway for the kernel."""
        if lane == Lane.KERNEL and number <= self._after:
            return
        if self.state == "ready" and not self._ending:
            self._deliver(lane, number, channel, parts, msg_id, msg_type)
            return
        size = sum(map(len, parts))
        if len(self._held) >= MAX_HELD or self._held_bytes + size > MAX_HELD_BYTES:
            self._emit({"event": "relay_error", "detail": "too much waits for a kernel", "parent": msg_id})
            return
        self._held.append((lane, number, channel, parts, msg_id, msg_type))
        self._held_bytes += size

    # --- what init and zygote report ----------------------------------------------------------------------------------

    def loaded(self, now: float, *, last: bool) -> None:
        """A step of the zygote's imports is done."""
        self._loading, self._loaded = False, last
        if not self._warm:
            self._plan_load(now)
        elif last:
            done, self._warm = self._warm, None
            self._deadlines.pop("warm", None)
            self._fork(now)
            done({"ok": True, "life": self.number})
        else:
            self._load()

    def killed(self, now: float, remaining: int) -> None:
        self._remaining = remaining
        self._settle(now)

    def started(self, life: int) -> None:
        """The fork has become the user: only from now on can it be killed as such."""
        if life == self.number and self._alive and not self._dropped:
            self._dropped = True
            if self._ending:
                self._ports.kill_user()

    def exited(self, now: float, life: int, status: int) -> None:
        """``status``: as waitpid gives it."""
        if life != self.number or not self._alive or self._status is not None:
            return
        self.started(life)
        self._status = status
        self._deadlines = {name: at for name, at in self._deadlines.items() if name == "kill"}
        self._deadlines["drain"] = now + DRAIN_S

    def closed(self, now: float) -> None:
        """All sockets to the kernel have ended; what was in them has been read."""
        if self._status is not None:
            self._bury(now)
        elif self._dropped and not self._ending:
            self.error("the kernel closed its sockets and still runs; only a restart helps")

    # --- what the kernel says -----------------------------------------------------------------------------------------

    def message(self, now: float, channel: str, raw: Raw) -> None:
        try:
            m = parse(channel, raw)
        except Malformed as error:
            self.error(f"a {channel} message of {raw.size} bytes was dropped: {error}")
            return
        if m.parent_id.startswith(self._own):
            self._answer(now, m)
        elif self.state == "starting" or m.msg_type == "iopub_welcome":
            if channel == "iopub":
                self._iopub_seen = True
                self._check_ready(now)
        else:
            self._track(now, m)
            for item in self._outputs.admit(m, self._kept()):
                self._emit(item)

    def error(self, detail: str) -> None:
        """Something of the kernel's could not be carried; a flood of such is told only at first."""
        self._errors += 1
        if self._errors <= MAX_ERRORS:
            last = " (more of these are not told)" if self._errors == MAX_ERRORS else ""
            self._emit({"event": "relay_error", "detail": detail[:500] + last})

    def _answer(self, now: float, m: Incoming) -> None:
        if m.channel == "iopub":
            self._iopub_seen = True
        elif m.msg_type == "kernel_info_reply" and self._info is None:
            try:
                info = parse_json(m.parts[3]) if len(m.parts[3]) < 64 * 1024 else {}
            except (ValueError, RecursionError):
                info = {}
            self._info = info if isinstance(info, dict) else {}
        elif m.msg_type == "interrupt_reply" and self._busy:
            # the signal is sent; a loop that sleeps in an await sees it when something comes in
            self._ask("shell", "kernel_info_request")
        self._check_ready(now)

    def _check_ready(self, now: float) -> None:
        if self.state != "starting" or self._info is None or not self._iopub_seen:
            return
        self.state = "ready"
        for name in ("start", "ask"):
            self._deadlines.pop(name, None)
        self._emit({"event": "ready", "life": self.number, "ms": round((now - self._began) * 1000), "kernel_info": self._info})
        held, self._held, self._held_bytes = self._held, deque(), 0
        for item in held:
            self._deliver(*item)
        self._plan_load(now)

    def _track(self, now: float, m: Incoming) -> None:
        due = self._busy.get(m.parent_id)
        if due is None:
            return
        if m.channel == "iopub":
            due[1] -= m.state() == "idle"
        else:
            due[0] -= m.msg_type == "execute_reply"
        if due[0] <= 0 and due[1] <= 0:
            del self._busy[m.parent_id]
            self._targets.discard(m.parent_id)
            self._plan_load(now)

    # --- time ---------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        return min(self._deadlines.values()) if self._deadlines else None

    def tick(self, now: float) -> None:
        for name in [name for name, at in self._deadlines.items() if at <= now]:
            if self._deadlines.pop(name, None) is not None:
                self._due(name, now)

    def _due(self, name: str, now: float) -> None:
        if name == "ask":
            self.connected(now)
        elif name.startswith("poke") or name == "sigint":
            if self._targets & self._busy.keys():
                if name == "sigint":
                    self._ports.sigint()
                    self._deadlines["poke0"] = now + 0.05
                self._ask("shell", "kernel_info_request")
        elif name == "drain":
            self._bury(now)
        elif name == "load":
            if self.state == "ready" and not self._busy:
                self._load()
        elif name == "start":
            self._fail(f"no kernel within {START_S:.0f} s")
            self._ports.kill_user()
        elif name == "warm" and self._warm:
            done, self._warm = self._warm, None
            self.state = "none"
            done({"ok": False, "error": "the imports take too long"})
        elif name == "kill":
            self._finish({"ok": False, "error": "not_killed", "remaining": self._remaining})

    def _plan_load(self, now: float) -> None:
        if self.state == "ready" and not self._busy and not self._loaded and not self._loading:
            self._deadlines["load"] = now + SETTLE_S

    def _load(self) -> None:
        if not self._loading:
            self._loading = True
            self._ports.load()

    # --- steps --------------------------------------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        """The sockets are there: ask for kernel_info, and again until there is an answer."""
        if self.state == "starting":
            self._ask("shell", "kernel_info_request")
            self._deadlines["ask"] = now + ASK_AGAIN_S

    def _ask(self, channel: str, msg_type: str) -> None:
        self._asked += 1
        self._ports.send(channel, signed(self._key, request(msg_type, f"{self._own}{self._asked}", {})))

    def _fork(self, now: float) -> None:
        self.number += 1
        self.state, self._began = "starting", now
        self._info, self._iopub_seen, self._errors = None, False, 0
        try:
            self._key = self._ports.make(self.number)
        except OSError as error:
            self._fail(f"no room for the kernel's sockets: {error.strerror}")
            return
        self._alive, self._dropped, self._status = True, False, None
        self._ports.fork()
        self._ports.connect(self.number)
        self._deadlines["start"] = now + START_S

    def _fail(self, detail: str, words: str = "") -> None:
        self.state = "dead"
        self._deadlines.pop("ask", None)
        self._emit({"event": "start_failed", "life": self.number, "detail": f"{detail}\n{words}".strip()})

    def _deliver(self, lane: int, number: int, channel: str, parts: list[bytes], msg_id: str, msg_type: str) -> None:
        if lane == Lane.KERNEL:
            self.taken = number
        if not self._ports.send(channel, signed(self._key, list(parts))):
            self._emit({"event": "relay_error", "detail": "the kernel does not read its messages", "parent": msg_id})
            return
        if channel != "stdin":
            self._outputs.issued(msg_id)
        if msg_type == "execute_request":
            due = self._busy.setdefault(msg_id, [0, 0])
            due[0] += 1
            due[1] += 1
            self._deadlines.pop("load", None)

    def _bury(self, now: float) -> None:
        """The process has ended and its last words are read."""
        self._deadlines.pop("drain", None)
        words = self._ports.last_words(self.number) if self.state == "starting" else ""
        self._ports.disconnect(self.number)
        status, self._status, self._alive, self._dropped = self._status or 0, None, False, False
        killed = status & 0x7F
        how: Event = {"signal": killed} if killed else {"code": status >> 8}
        if self.state == "starting" and not self._ending:
            name = signal.Signals(killed).name if killed in signal.Signals.__members__.values() else str(killed)
            self._fail(f"the kernel ended while it started ({f'signal {name}' if killed else f'code {status >> 8}'})", words)
        elif self.state != "dead":
            self._emit({"event": "exited", "life": self.number, **how, "expected": bool(self._ending), "taken": self.taken})
        self.state = "dead"
        self._busy.clear()
        self._targets.clear()
        self._outputs.forget()
        self._settle(now)

    def _settle(self, now: float) -> None:
        if self._ending is None or self._remaining is None or self._alive:
            return
        if self._remaining:
            self._finish({"ok": False, "error": "not_killed", "remaining": self._remaining})
        elif self._ending[0] == "kill":
            self._finish({"ok": True, "remaining": 0})
        else:
            self._fork(now)
            self._finish({"ok": True, "life": self.number})

    def _finish(self, result: Event) -> None:
        assert self._ending is not None
        self._deadlines.pop("kill", None)
        done, self._ending = self._ending[1], None
        done(result)

    def facts(self) -> Event:
        """For HELLO."""
        waiting = [item[4] for item in self._held if item[5] == "execute_request"]
        return {"state": self.state, "life": self.number, "busy": [*self._busy, *waiting]}
