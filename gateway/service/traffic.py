"""Kernel messages of one session: from clients to the kernel, from the kernel to the journal and so to every client."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from ..domain import execution as ex
from ..domain.cell_outputs import count as prompt_number
from ..domain.model import ExecutionState, ExitReason, SessionState, Variable
from ..errors import BadRequest, SandglassError, SessionEnded, StoreUnavailable, Unavailable
from ..protocol import jupyter
from ..protocol.frames import FrameError, Lane
from . import placing, values
from .journal import Flag

if TYPE_CHECKING:
    from .live import LiveSession
    from .runs import Run

log = logging.getLogger("sandglass.traffic")
Json = dict[str, Any]

HELD_LIMIT = 256
PENDING_LIMIT = 10_000
MAX_VARIABLES = 500
NO_FLAGS = Flag(0)
OUTPUT = frozenset({"stream", "display_data", "update_display_data", "execute_result"})
_CLIENT_CHANNELS = frozenset({"shell", "control", "stdin"})


PLAIN_KERNEL_INFO: Json = {
    "status": "ok", "protocol_version": "5.3", "implementation": "ipython", "implementation_version": "9", "banner": "",
    "language_info": {
        "name": "python", "version": "3.13", "mimetype": "text/x-python", "file_extension": ".py", "pygments_lexer": "ipython3",
        "codemirror_mode": {"name": "ipython", "version": 3}, "nbconvert_exporter": "python",
    },
    "help_links": [], "debugger": False, "supported_features": [],
}  # fmt: skip
"""For a session that was recycled before its kernel's own answer was ever seen."""


class Traffic:
    """Routes by msg_id: a reply goes to the attachment that asked, iopub to all."""

    def __init__(self, session: LiveSession) -> None:
        self._s = session
        self._pending: OrderedDict[str, str] = OrderedDict()
        self._held: deque[tuple[bytes, bool]] = deque()
        self._forwarder: asyncio.Task[None] | None = None
        self.last_execute: dict[str, Json] = {}
        """Attachment key -> header of its latest execute_request: where a Jupyter client shows what is said between cells."""
        self.kernel_session = "sandglass"

    # --- from clients -------------------------------------------------------------------------------------------------

    def from_client(self, key: str, body: bytes) -> None:
        """A v1 message of an attachment. Raises BadRequest, QuotaExceeded, SessionEnded, Unavailable."""
        try:
            message = jupyter.decode(body)
            kind, channel, msg_id = message.msg_type, message.channel, message.msg_id
        except ValueError as error:
            raise BadRequest("That is not a Jupyter message.") from error
        state = self._s.core.state
        if state is SessionState.ENDED:
            raise SessionEnded("The session has ended.")
        if channel not in _CLIENT_CHANNELS:
            raise BadRequest("Clients send on shell, control or stdin.")
        if not msg_id or not kind:
            raise BadRequest("A message needs msg_id and msg_type.")
        if len(body) > self._s.profile.limits.message_bytes:
            raise BadRequest("The message is over its size limit.")
        if kind == "execute_request" and channel == "shell":
            self._execute(key, message, body)
        elif kind == "interrupt_request":
            self._s.spawn(self._s.interrupt(), "interrupt")
            self.answer(key, message.header, "interrupt_reply", {"status": "ok"}, channel=channel)
        elif kind == "shutdown_request":
            self._shutdown(key, message, channel)
        elif state is SessionState.ACTIVE and self._s.sandbox is not None:
            self._remember(msg_id, key)
            self._send(body, control=channel == "control")
        elif kind == "kernel_info_request" and (known := self._known_info(state)):
            self.answer(key, message.header, "kernel_info_reply", known, channel=channel)
        elif (state in (SessionState.STARTING, SessionState.NEW) or not self._s.taken_up.is_set()) and len(self._held) < HELD_LIMIT:
            self._remember(msg_id, key)
            self._held.append((body, channel == "control"))
        elif channel != "stdin" and kind.endswith("_request"):
            # nothing runs that could answer, and waking a sandbox for this would keep forgotten tabs alive
            content = {"status": "error", "ename": "NoSandbox", "evalue": "no sandbox runs; an execution opens one", "traceback": []}
            self.answer(key, message.header, kind.removesuffix("_request") + "_reply", content, channel=channel)

    def _known_info(self, state: SessionState) -> Json:
        """What to answer while no kernel can; empty when it must wait. Clients that poll for a start give up within a second."""
        known = self._s.kernel_info or self._s.world.kernel_info.get(self._s.profile.name, {})
        return known or (PLAIN_KERNEL_INFO if state is SessionState.DORMANT else {})

    def _remember(self, msg_id: str, key: str) -> None:
        self._pending[msg_id] = key
        if len(self._pending) > PENDING_LIMIT:
            self._pending.popitem(last=False)

    def _execute(self, key: str, message: jupyter.KernelMessage, body: bytes) -> None:
        if self._s.runs.get(message.msg_id) is not None:
            raise BadRequest("That msg_id is in use.")
        try:
            # a kernel answers neither a bad content nor a bad metadata with a reply: whoever asked would wait for ever
            content, _ = message.content, message.metadata
        except ValueError as error:
            raise BadRequest("The content or metadata is not a JSON object.") from error
        code = content.get("code")
        if not isinstance(code, str):
            raise BadRequest("execute_request needs code.")
        timeout = self._s.profile.limits.execution_s_person
        self._s.runs.add(
            message.msg_id, message.header, body, code, key=key, source="jupyter", silent=bool(content.get("silent")), timeout_s=timeout
        )  # fmt: skip
        self.last_execute[key] = message.header
        if len(self.last_execute) > 64:
            del self.last_execute[next(iter(self.last_execute))]
        self._s.want()

    def _shutdown(self, key: str, message: jupyter.KernelMessage, channel: str) -> None:
        restart = bool(message.content.get("restart"))
        self.answer(key, message.header, "shutdown_reply", {"status": "ok", "restart": restart}, channel=channel)
        if restart:
            self._s.spawn(self._s.restart(), "restart")
        else:
            self._s.end()

    def _send(self, body: bytes, *, control: bool = False) -> None:
        sandbox = self._s.sandbox
        if sandbox is None:
            return
        try:
            sandbox.link.send_kernel(body, control=control)
        except FrameError as error:
            raise BadRequest("The message is over its size limit.") from error
        except SandglassError as error:
            if sandbox.link.lost is not None and len(self._held) < HELD_LIMIT:
                self._held.append((body, control))  # until the stream is mended
            else:
                log.info("a message was not forwarded", extra={"session": self._s.session_id, "why": error.code})

    def answer_stdin(self, run: Run, value: str) -> None:
        header = jupyter.make_header("input_reply", self.kernel_session)
        self._send(jupyter.build("stdin", header, run.header, {}, {"value": value, "status": "ok"}))

    # --- forwarding executions ----------------------------------------------------------------------------------------

    def kick(self) -> None:
        """There may be something to forward."""
        if self._forwarder is None and self._s.ready and self._s.runs.next_to_forward() is not None:
            self._forwarder = self._s.spawn(self._forward(), "forward")

    async def _forward(self) -> None:
        try:
            while self._s.ready and (run := self._s.runs.next_to_forward()) is not None:
                sandbox = self._s.sandbox
                assert sandbox is not None
                link = sandbox.link
                if run.row.data.get("inputs") and run.placed != sandbox.sandbox_id:
                    await placing.place(self._s, run, sandbox)
                    if link.lost is not None:
                        return
                    continue  # it may have been cancelled meanwhile, or the sandbox be over
                try:
                    await self._s.runs.forward(run, link.send_kernel, link.next_kernel_number)
                except (FrameError, Unavailable) as error:
                    if link.lost is not None:
                        return
                    log.warning("an execution could not be forwarded", extra={"session": self._s.session_id, "why": str(error)})
                    self._s.runs.reject(run)
        finally:
            self._forwarder = None

    def go_on(self) -> None:
        """The session is ACTIVE, or its stream is mended: what was held goes first, then what waits to be executed."""
        held, self._held = self._held, deque()
        for body, control in held:
            self._send(body, control=control)
        self.kick()

    # --- from the kernel ----------------------------------------------------------------------------------------------

    def from_kernel(self, number: int, lane: int, body: bytes) -> None:
        """A kernel message. Malformed ones are dropped: they come from user code and hurt only its own session."""
        try:
            message = jupyter.decode(body)
            kind, channel, parent = message.msg_type, message.channel, message.parent_id
        except ValueError:
            log.info("a malformed kernel message was dropped", extra={"session": self._s.session_id})
            return
        if channel == "iopub":
            self._iopub(message, kind, parent, number, lane, body)
        elif channel in _CLIENT_CHANNELS:
            self._reply(message, kind, parent, number, lane, body)

    def _iopub(self, message: jupyter.KernelMessage, kind: str, parent: str, number: int, lane: int, body: bytes) -> None:
        run = self._s.runs.get(parent)
        if kind == values.MSG_TYPE:
            values.keep(self._s, run, body, lane=lane, number=number, parent=parent)
            return
        if kind.startswith("sandglass_"):
            self._hook(kind, message, run)
            return
        flags = Flag(0)
        if kind == "status":
            state = _word(message, "execution_state")
            flags = Flag.BUSY if state == "busy" else Flag.IDLE if state == "idle" else Flag(0)
        elif kind in OUTPUT or kind == "error":
            flags = Flag.OUTPUT
            if run is not None and kind in OUTPUT and not self._s.runs.count_output(run, len(body)):
                if run.dropped_messages == 1:
                    self._truncation_marker(run)
                return
        elif kind == "execute_input":
            flags = Flag.INPUT
        try:
            self._s.write_message(body, flags=flags, lane=lane, number=number, parent=parent)
        except StoreUnavailable:
            if run is not None and kind in OUTPUT:  # it comes again, and is counted then
                run.output_bytes, run.output_messages = run.output_bytes - len(body), run.output_messages - 1
            raise
        if run is None:
            return
        if kind == "execute_input" or flags == Flag.BUSY:
            self._s.runs.started(run)
            if kind == "execute_input":
                self._tell_notices(run)
        elif flags == Flag.IDLE:
            self._s.runs.idled(run)

    def _reply(self, message: jupyter.KernelMessage, kind: str, parent: str, number: int, lane: int, body: bytes) -> None:
        run = self._s.runs.get(parent)
        if run is not None:
            target = run.key
            if kind == "input_request":
                self._s.runs.announce_now(run)  # whoever shows it knows the execution before what that asks for
        else:
            # after a restart of the gateway the asker is known by the session in the header, as its websocket names it
            asker = message.parent_header.get("session")
            target = self._pending.get(parent, "") or f"ws:{asker if isinstance(asker, str) else ''}"
        flags = Flag.REPLY if kind == "execute_reply" else Flag(0)
        self._s.write_message(body, flags=flags, lane=lane, number=number, parent=parent, target=target)
        self._pending.pop(parent, None)
        if kind == "kernel_info_reply" and _word(message, "status") == "ok":
            self._s.kernel_info = message.content
        elif run is not None and kind == "execute_reply":
            try:
                content = message.content
            except ValueError:
                content = {"status": "error"}
            count = prompt_number(content.get("execution_count"))
            self._s.runs.replied(run, str(content.get("status", "error")), str(content.get("ename", "")), count)

    def _hook(self, kind: str, message: jupyter.KernelMessage, run: Run | None) -> None:
        """What the kernel's own hooks report; user code can send the same, about its own session only."""
        try:
            content = message.content
        except ValueError:
            return
        if kind == "sandglass_variables":
            self._s.set_variables(_variables(content), prompt_number(content.get("more")) or 0)
        elif kind == "sandglass_keep":
            patterns = content.get("patterns")
            if isinstance(patterns, list):
                self._s.keep_from_code([p for p in patterns[:32] if isinstance(p, str)])
        elif kind == "sandglass_error" and run is not None:
            mro, errno = content.get("mro"), content.get("errno")
            names = tuple(str(n)[:200] for n in mro[:16]) if isinstance(mro, list) else ()
            self._s.runs.evidence(run, names, errno if isinstance(errno, int) else None)

    def relay_dropped(self, event: Json) -> None:
        """The relay kept something back: over a limit (``truncated``), or while nobody acknowledged (``dropped``)."""
        size, count = (event[k] if isinstance(event.get(k), int) and event[k] >= 0 else 0 for k in ("bytes", "messages"))
        run = self._s.runs.get(str(event.get("parent", "")))
        if run is not None:
            first = not run.dropped_messages
            self._s.runs.dropped(run, max(0, size - run.dropped_bytes), max(1, count) - run.dropped_messages)
            if first:
                self._truncation_marker(run)
        elif event.get("event") == "dropped":
            open_run = self._s.runs.running
            text = f"\n[Sandglass: {count} messages ({size:,} bytes) were dropped while nobody took them]\n"
            if open_run is not None:
                self._s.runs.dropped(open_run, size, count)
                self.say_stream(open_run.header, text)
            else:
                self.say_between_cells(text)

    # --- what the gateway says itself ---------------------------------------------------------------------------------

    def answer(self, key: str, request: Json, msg_type: str, content: Json, *, channel: str = "shell") -> None:
        """Answer a client's request in the kernel's place: busy, the reply, idle."""
        parent = str(request.get("msg_id", ""))
        self._say("iopub", request, "status", {"execution_state": "busy"}, target=key, parent=parent)
        self._say(channel, request, msg_type, content, target=key, parent=parent)
        self._say("iopub", request, "status", {"execution_state": "idle"}, target=key, parent=parent)

    def _say(self, channel: str, request: Json, msg_type: str, content: Json, *, target: str = "", parent: str = "", flags: Flag = NO_FLAGS) -> None:
        body = jupyter.build(channel, jupyter.make_header(msg_type, self.kernel_session), request, {}, content)
        self._s.write_message(body, flags=flags, lane=Lane.KERNEL, number=0, parent=parent, target=target)

    def say_stream(self, request: Json, text: str, *, target: str = "") -> None:
        """A line on the standard error of the execution with this request header."""
        parent = str(request.get("msg_id", ""))
        self._say("iopub", request, "stream", {"name": "stderr", "text": text}, target=target, parent=parent, flags=Flag.OUTPUT)

    def say_between_cells(self, text: str) -> None:
        """Tell Jupyter clients something that belongs to no running cell: below the last one that each ran."""
        for key, header in list(self.last_execute.items()):
            if key.startswith("ws:"):
                self.say_stream(header, text, target=key)

    def say_status(self, state: str) -> None:
        self._say("iopub", {}, "status", {"execution_state": state})

    def _truncation_marker(self, run: Run) -> None:
        limits = self._s.profile.limits
        self.say_stream(
            run.header,
            f"\n[Sandglass: the output limit of {limits.output_bytes // 2**20} MiB or {limits.output_messages:,} messages is reached; "
            "what follows is dropped, the cell goes on]\n",
        )

    def _tell_notices(self, run: Run) -> None:
        text = self._s.take_told_first()
        if text:
            self.say_stream(run.header, text)

    def tell_failed(self, run: Run, reason: ExitReason) -> None:
        """Complete an execution in the kernel's place, so that no client waits for ever."""
        if run.e.complete:
            return
        text = run.row.data.get("detail") or ex.SENTENCES[reason]
        content = {
            "status": "error", "ename": _ENAMES.get(reason, "SandglassError"), "evalue": text,
            "traceback": [f"Sandglass: {reason}: {text}"],
        }  # fmt: skip
        request, parent = run.header, run.e.msg_id
        if run.e.state is ExecutionState.QUEUED:
            self._say("iopub", request, "status", {"execution_state": "busy"}, parent=parent, flags=Flag.BUSY)
        if not run.e.reply:
            self._say("iopub", request, "error", {k: content[k] for k in ("ename", "evalue", "traceback")}, parent=parent, flags=Flag.OUTPUT)
            reply = content | {"execution_count": run.row.data.get("execution_count") or 0, "sandglass": {"exit_reason": reason}}
            self._say("shell", request, "execute_reply", reply, target=run.key, parent=parent, flags=Flag.REPLY)
        self._say("iopub", request, "status", {"execution_state": "idle"}, parent=parent, flags=Flag.IDLE)


_ENAMES = {
    ExitReason.TIMEOUT: "ExecutionTimeout",
    ExitReason.KERNEL_DIED: "KernelDied",
    ExitReason.SANDBOX_ENDED: "SandboxEnded",
    ExitReason.MEMORY_LIMIT: "MemoryLimit",
    ExitReason.INTERRUPTED: "Interrupted",
}


def _word(message: jupyter.KernelMessage, name: str) -> str:
    try:
        value = message.content.get(name)
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""


def _variables(content: Json) -> list[Variable]:
    found: list[Variable] = []
    items = content.get("variables")
    for item in items[:MAX_VARIABLES] if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("type"), str):
            size = item.get("size")
            found.append(Variable(item["name"][:200], item["type"][:200], size if isinstance(size, int) and 0 <= size < 2**63 else None))
    return found
