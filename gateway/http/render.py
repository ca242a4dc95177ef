"""Journal entries as clients read them: server-sent events, and the default framing of Jupyter websockets. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..domain.sensitive import NOTHING, Screen
from ..errors import SandglassError
from ..jsonio import dumps
from ..protocol import jupyter
from ..service.journal import Entry, EntryKind
from .cache import Payload
from .screening import OUTPUTS

IOPUB = frozenset(
    {
        "status",
        "execute_input",
        "stream",
        "display_data",
        "update_display_data",
        "execute_result",
        "error",
        "clear_output",
    }
    | {"comm_open", "comm_msg", "comm_close"}
)
SHOWN = {"iopub": IOPUB, "stdin": frozenset({"input_request"}), "shell": frozenset({"execute_reply"})}
"""What an event stream tells of each channel; answers to one client's completions and the like are its own affair."""

ExecutionOf = Callable[[str], str | None]


def frame(event: str, data: bytes, index: int | None = None) -> bytes:
    """One server-sent event. ``data`` is JSON as we write it: one line, since JSON escapes line breaks."""
    head = f"id: {index}\n" if index is not None else ""
    return f"{head}event: {event}\ndata: ".encode() + data + b"\n\n"


def session_event(session: dict[str, Any]) -> bytes:
    return frame("session", dumps({"type": "session", "session": session}))


def gap_event(after: int, oldest: int) -> bytes:
    """Its id is that of the last entry that is gone: a reader which resumes from here does not hear of it twice."""
    return frame("gap", dumps({"type": "gap", "after": after, "oldest": oldest}), oldest - 1)


def bye_event(code: str) -> bytes:
    return frame("bye", dumps({"type": "bye", "code": code}))


def entry_event(entry: Entry, execution_of: ExecutionOf, screen: Screen = NOTHING) -> bytes:
    """The event for an entry; empty for one that an event stream does not show, or that cannot be read."""
    if entry.kind is EntryKind.MESSAGE:
        data = message_json(entry, execution_of, screen)
        return b"" if data is None else frame("message", dumps(data), entry.index)
    if entry.kind is EntryKind.NOTICE:
        return frame("notice", entry.body, entry.index)
    if entry.kind is EntryKind.STATE:
        kind = _type_of(entry.body)
        return frame(kind, entry.body, entry.index) if kind in ("session", "execution", "rebuild") else b""
    return b""


def message_json(entry: Entry, execution_of: ExecutionOf, screen: Screen = NOTHING) -> dict[str, Any] | None:
    """A kernel message as an event's data; None for one that is not shown or is malformed (kernels are not trusted).

    ``sensitive``: the kinds that ``screen`` found in an output, where it found any; a policy that holds puts words in its place.
    """
    try:
        message = jupyter.decode(entry.body)
        msg_type = message.msg_type
        if msg_type not in SHOWN.get(message.channel, ()):
            return None
        parent, content = message.parent_id, message.content
        kinds = screen.look(msg_type, content) if msg_type in OUTPUTS else set()
        if kinds and screen.holds:
            content = screen.held(msg_type, content, kinds)
        return ({"sensitive": sorted(kinds)} if kinds else {}) | {
            "type": "message",
            "channel": message.channel,
            "msg_type": msg_type,
            "msg_id": message.msg_id,
            "parent_msg_id": parent,
            "execution_id": execution_of(parent) if parent else None,
            "content": content,
            "metadata": message.metadata,
            "date": message.header.get("date"),
        }
    except ValueError:
        return None


def default_framing(entry: Entry) -> Payload:
    """A message for a websocket without subprotocol. Raises ValueError for a malformed one."""
    out = jupyter.to_default(jupyter.decode(entry.body))
    return Payload(out.encode(), False) if isinstance(out, str) else Payload(out, True)


def gap_message(after: int, oldest: int) -> bytes:
    """For Jupyter clients, a v1 message that says what is missing."""
    missing = oldest - after - 1
    text = f"\n[Sandglass: {missing} older messages are no longer kept; output from before this point is missing]\n"
    header = jupyter.make_header("stream", "sandglass")
    return jupyter.build("iopub", header, {}, {}, {"name": "stderr", "text": text})


def refusals(message: jupyter.KernelMessage, error: SandglassError) -> list[bytes]:
    """What answers a request that was not taken, as v1 messages, so that its sender does not wait for ever.

    Empty for what expects no answer. Raises ValueError when the message itself cannot be read.
    """
    kind = message.msg_type
    if message.channel not in ("shell", "control") or not kind.endswith("_request"):
        return []
    failure = {"ename": error.code, "evalue": error.detail, "traceback": [f"Sandglass: {error.detail}"]}

    def say(channel: str, msg_type: str, content: dict[str, Any]) -> bytes:
        return jupyter.build(channel, jupyter.make_header(msg_type, "sandglass"), message.header, {}, content)

    told = {"code": error.code, "retry_after": error.retry_after, **error.extra}  # what ``problem`` says over HTTP, for programs
    reply = say(message.channel, kind.removesuffix("_request") + "_reply", {"status": "error", "execution_count": 0, **failure, "sandglass": told})
    if kind != "execute_request":
        return [reply]
    busy, idle = ({"execution_state": state} for state in ("busy", "idle"))
    return [say("iopub", "status", busy), say("iopub", "error", failure), reply, say("iopub", "status", idle)]


def _type_of(body: bytes) -> str:
    try:
        value = json.loads(body)
    except ValueError:
        return ""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""
