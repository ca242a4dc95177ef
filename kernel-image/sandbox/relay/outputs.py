"""Which of a kernel's messages are carried, and what is said about those that are not.

Two limits meet here. The *output limit* belongs to one request: past so many bytes or messages, what it shows is dropped, with one
event at once and its totals before the request's idle. *Retention* belongs to the stream: while unacknowledged bytes are under the
bound nothing is lost; past it the newest output is dropped until there is room again, and then one event says how much.

Kept in any case, so that nobody waits for ever: one reply, one busy, one idle and a few prompts for each request that the gateway
issued. User code can forge as many as it likes; what goes past that allowance counts as output.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from .incoming import Incoming
from .shorten import KEPT_REPLY, shorten

OUTPUT = frozenset({"stream", "display_data", "update_display_data", "execute_result"})
HEAD = 1024 * 1024
"""What is kept of a stream message that is too large."""
MAX_REQUESTS = 2048
MAX_PROMPTS = 16
Event = dict[str, Any]
Item = Incoming | Event


@dataclass(slots=True)
class Limits:
    """From ATTACH, in bytes and counts."""

    message_bytes: int = 64 * 1024**2
    retain_bytes: int = 32 * 1024**2
    output_bytes: int = 32 * 1024**2
    output_messages: int = 100_000


def limits_from(value: Any) -> Limits:
    """What the gateway asks for, within what the relay can keep; a member that makes no sense keeps its default."""
    limits = Limits()
    if not isinstance(value, dict):
        return limits
    bounds = {"message_bytes": (64 * 1024, 64 * 1024**2), "retain_bytes": (1024**2, 512 * 1024**2)}
    for name in ("message_bytes", "retain_bytes", "output_bytes", "output_messages"):
        number = value.get(name)
        if type(number) is int and number > 0:
            low, high = bounds.get(name, (1, 2**62))
            setattr(limits, name, min(max(number, low), high))
    return limits


@dataclass(slots=True)
class _Request:
    replies: int = 1
    busy: int = 1
    idle: int = 1
    prompts: int = MAX_PROMPTS
    bytes: int = 0
    messages: int = 0
    dropped_bytes: int = 0
    dropped_messages: int = 0
    told: int = 0
    """Dropped messages that an event has spoken of."""


@dataclass(slots=True)
class _Missing:
    bytes: int = 0
    messages: int = 0
    comms: int = 0


@dataclass
class Outputs:
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self._requests: OrderedDict[str, _Request] = OrderedDict()
        # whatever names no request of the gateway's shares one allowance, or made-up parents would have one each
        self._others = _Request(replies=0, busy=0, idle=0, prompts=0)
        self._missing: _Missing | None = None

    def issued(self, msg_id: str) -> None:
        """The gateway sends a request to the kernel."""
        self._requests[msg_id] = _Request()
        self._requests.move_to_end(msg_id)
        if len(self._requests) > MAX_REQUESTS:
            self._requests.popitem(last=False)

    def forget(self) -> None:
        """A new kernel life: nothing of the old one is expected any more."""
        self._requests.clear()
        self._others = _Request(replies=0, busy=0, idle=0, prompts=0)

    @property
    def dropping(self) -> bool:
        return self._missing is not None

    def admit(self, m: Incoming, kept_bytes: int) -> list[Item]:
        """What is carried for ``m``, in order. ``kept_bytes``: unacknowledged now."""
        if m.cut or m.size > self.limits.message_bytes:
            m = shorten(m, min(HEAD, self.limits.message_bytes // 2))
        request = self._requests.get(m.parent_id, self._others)
        items: list[Item] = []
        protected = self._is_protected(request, m, items)
        after: list[Item] = []
        if m.channel == "iopub" and m.msg_type in OUTPUT:
            shown = self._within_output(request, m, after)
            if shown is None:
                return items + after
            m = shown
        if self._missing is None and kept_bytes < self.limits.retain_bytes:
            items.append(m)
        elif protected:
            items.append(shorten(m, HEAD) if m.size > KEPT_REPLY else m)
        else:
            missing = self._missing = self._missing or _Missing()
            missing.bytes += m.size
            missing.messages += 1
            missing.comms += m.msg_type.startswith("comm_")
        return items + after

    def _is_protected(self, request: _Request, m: Incoming, items: list[Item]) -> bool:
        """Uses up the request's allowance; before its idle the totals of what was dropped go into ``items``."""
        if m.channel == "iopub":
            state = m.state()
            if state == "idle" and request.idle > 0:
                request.idle -= 1
                if request.dropped_messages > request.told:
                    items.append(self._truncated(request, m.parent_id, final=True))
                return True
            if state == "busy" and request.busy > 0:
                request.busy -= 1
                return True
            return False
        if m.channel == "stdin":
            request.prompts -= 1
            return request.prompts >= 0
        request.replies -= 1
        return request.replies >= 0

    def _within_output(self, request: _Request, m: Incoming, after: list[Item]) -> Incoming | None:
        """What is shown of ``m``; the event that the limit is reached goes into ``after``."""
        limits, room = self.limits, self.limits.output_bytes - request.bytes
        if m.size <= room and request.messages < limits.output_messages:
            request.bytes += m.size
            request.messages += 1
            return m
        head = None
        if not request.dropped_messages and m.msg_type == "stream" and 0 < room < m.size and request.messages < limits.output_messages:
            # the message that passes the limit shows its head, or one large print would show nothing at all
            head = shorten(m, min(HEAD, room))
            request.bytes = limits.output_bytes
        request.dropped_bytes += m.size
        request.dropped_messages += 1
        if not request.told:
            after.append(self._truncated(request, m.parent_id, final=False))
        return head

    def _truncated(self, request: _Request, parent: str, *, final: bool) -> Event:
        request.told = request.dropped_messages
        return {
            "event": "truncated", "parent": parent, "bytes": request.dropped_bytes, "messages": request.dropped_messages, "final": final,
        }  # fmt: skip

    def room(self, kept_bytes: int) -> Event | None:
        """After an acknowledgement: what was dropped meanwhile, once there is room again."""
        missing = self._missing
        if missing is None or kept_bytes > self.limits.retain_bytes // 2:
            return None
        self._missing = None
        return {"event": "dropped", "bytes": missing.bytes, "messages": missing.messages, "comms": missing.comms}
