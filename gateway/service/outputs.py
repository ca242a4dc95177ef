"""An execution's outputs, read back from the journal: as one answer within a budget, or all of it as a download."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ..domain.sensitive import Screen
from ..jsonio import dumps
from ..protocol import jupyter
from .journal import Entry, EntryKind, Flag, Head, Journal
from .presenting import presented_event

Json = dict[str, Any]
MOST_BYTES = 8 * 1024 * 1024
"""What one answer carries; past it the rest is counted, not carried."""
SLICE = 200
"""Journal entries looked at in one turn of the loop."""
LAST = 8
"""Of what there was no room for, so many messages at the end are looked at all the same: the error is among them."""
STREAMS = ("stdout", "stderr")


@dataclass
class Collected:
    """``left_out``: bytes of what there was no room for."""

    most: int
    streams: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    results: list[Json] = field(default_factory=list)
    error: Json | None = None
    size: int = 0
    left_out: int = 0
    cut: set[str] = field(default_factory=set)
    results_left_out: int = 0

    @property
    def full(self) -> bool:
        return self.size >= self.most

    def take(self, entry: Entry, *, only_error: bool = False) -> bool:
        """False when it is malformed (kernels are not trusted), or not what is wanted."""
        try:
            message = jupyter.decode(bytes(entry.body))
            kind, content = message.msg_type, message.content
        except ValueError:
            return False
        if kind == "error":
            self.error = _error(content)
            return True
        if only_error:
            return False
        if kind == "stream":
            self._text("stderr" if content.get("name") == "stderr" else "stdout", _text(content.get("text")))
        elif kind in ("display_data", "execute_result"):
            self._result(content, kind == "execute_result", len(entry.body))
        return True

    def _text(self, name: str, text: str) -> None:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        room = self.most - self.size
        if size > room:
            self.left_out += size - room
            self.cut.add(name)
            text = text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
            size = room
        self.size += size
        if text:
            self.streams[name].append(text)

    def _result(self, content: Json, main: bool, size: int) -> None:
        if self.size + size > self.most:
            self.left_out += size
            self.results_left_out += 1
            return
        self.size += size
        data, metadata = (value if isinstance(value := content.get(name), dict) else {} for name in ("data", "metadata"))
        self.results.append({"data": data, "metadata": metadata, "is_main_result": main, "untrusted": True})

    def skip(self, head: Head) -> None:
        """Counted without being read, so that nobody knows which stream it was of."""
        self.left_out += head.length
        self.cut.add("rest")

    def to_json(self) -> Json:
        return {**{name: "".join(self.streams[name]) for name in STREAMS}, "results": self.results, "error": self.error}

    def truncated(self) -> Json:
        """What of the answer is not all there; empty when everything is."""
        if not self.left_out:
            return {}
        rest = "rest" in self.cut
        return {
            "stdout": rest or "stdout" in self.cut, "stderr": rest or "stderr" in self.cut, "results": rest or self.results_left_out > 0,
            "bytes_left_out": self.left_out,
        }  # fmt: skip


def _is_output(entry: Head | Entry, msg_id: str) -> bool:
    return entry.parent == msg_id and entry.kind is EntryKind.MESSAGE and bool(entry.flags & Flag.OUTPUT)


async def collect(journal: Journal, msg_id: str, first: int, last: int, most: int = MOST_BYTES) -> Collected:
    """The outputs of a request behind the entry ``first`` up to ``last``. Raises StoreUnavailable."""
    out = Collected(most)
    skipped: deque[Head] = deque(maxlen=LAST)
    after = first
    while after < last and not out.full:
        entries = journal.read(after, max_entries=min(SLICE, last - after))
        for entry in entries:
            after = entry.index
            if after <= last and _is_output(entry, msg_id):
                out.take(entry)
        if not entries:
            break
        if after < last:
            await asyncio.sleep(0)
    for number, head in enumerate(journal.scan(after) if after < last else (), 1):
        if head.index > last:
            break
        if _is_output(head, msg_id):
            out.skip(head)
            skipped.append(head)
        if number % SLICE == 0:
            await asyncio.sleep(0)
    for head in skipped:
        entries = journal.read(head.index - 1, max_entries=1)
        if entries and entries[0].index == head.index and out.take(entries[0], only_error=True):
            out.left_out -= head.length
    return out


async def lines(journal: Journal, msg_id: str, first: int, last: int, screen: Screen) -> AsyncIterator[bytes]:
    """Everything that is kept, a JSON object a line, as the execution's event stream tells it. Raises StoreUnavailable."""
    if first + 1 < journal.first_index <= last:
        yield dumps({"type": "warning", "code": "gap", "after": first, "oldest": journal.first_index}) + b"\n"
    async for entry in _entries(journal, msg_id, first, last):
        event = event_of(entry, screen)
        if event is not None:
            yield dumps(event) + b"\n"


async def text(journal: Journal, msg_id: str, first: int, last: int, screen: Screen, stream: str) -> AsyncIterator[bytes]:
    """All that is kept of ``stdout`` or ``stderr``, as plain text. Raises StoreUnavailable."""
    if first + 1 < journal.first_index <= last:
        yield b"[Sandglass: what was printed first is no longer kept]\n"
    async for entry in _entries(journal, msg_id, first, last):
        event = event_of(entry, screen)
        if event is not None and event["type"] == stream:
            yield str(event["text"]).encode("utf-8", "replace")


async def _entries(journal: Journal, msg_id: str, first: int, last: int) -> AsyncIterator[Entry]:
    after = first
    while after < last:
        entries = journal.read(after, max_entries=min(SLICE, last - after))
        for entry in entries:
            after = entry.index
            if after <= last and _is_output(entry, msg_id):
                yield entry
        if not entries:
            return
        await asyncio.sleep(0)


def event_of(entry: Entry, screen: Screen) -> Json | None:
    """An output of an execution as an event, as ``screen`` lets it out; None for what is malformed or shows nothing."""
    event = _event(entry)
    return None if event is None else presented_event(event, screen)


def _event(entry: Entry) -> Json | None:
    try:
        message = jupyter.decode(bytes(entry.body))
        kind, content = message.msg_type, message.content
    except ValueError:
        return None
    if kind == "stream" and content.get("name") in STREAMS:
        return {"type": content["name"], "text": _text(content.get("text")), "untrusted": True}
    if kind in ("display_data", "update_display_data"):
        shown: Json = {"type": "display", "data": content.get("data", {}), "metadata": content.get("metadata", {}), "untrusted": True}
        transient = content.get("transient")
        if isinstance(transient, dict) and isinstance(transient.get("display_id"), str):
            shown |= {"display_id": transient["display_id"], "update": kind == "update_display_data"}
        return shown
    if kind == "execute_result":
        return {
            "type": "result", "data": content.get("data", {}), "metadata": content.get("metadata", {}), "is_main_result": True, "untrusted": True,
            "execution_count": content.get("execution_count"),
        }  # fmt: skip
    if kind == "error":
        return {"type": "error", **_error(content), "untrusted": True}
    return None


def _error(content: Json) -> Json:
    """As the kernel said it; ``presenting`` folds and cleans it."""
    traceback = content.get("traceback")
    return {
        "name": _text(content.get("ename")), "value": _text(content.get("evalue")),
        "traceback": [_text(line) for line in traceback] if isinstance(traceback, list) else [],
    }  # fmt: skip


def _text(value: object) -> str:
    """User code can send its messages itself: what is to be text may be anything that JSON has."""
    return value if isinstance(value, str) else ""
