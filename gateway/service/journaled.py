"""A session's journal and who reads it: what the kernel says stands there before anybody hears it, and so does what the gateway says."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from ..errors import StoreUnavailable
from ..jsonio import dumps
from .attachments import Attachments
from .journal import Entry, EntryKind, Flag, Journal
from .sandboxes import Sandbox
from .world import World

log = logging.getLogger("sandglass.session")
Json = dict[str, Any]
NO_FLAGS = Flag(0)
SAY_AGAIN_S = 0.5
UNSAID = 1000


class Journaled:
    """``marked``: the sandbox whose relay numbers stand in the journal now."""

    def __init__(self, session_id: str, world: World) -> None:
        self.session_id = session_id
        self.world = world
        self.journal = Journal.open(world.journals / session_id, max_bytes=world.caps.journal_bytes)
        self.attachments = Attachments(self.journal, world.tasks, world.caps.attachments)
        self.marked = ""
        self.over_life = 0
        """Kernels of the present sandbox up to this life are lost, and counted as such."""
        self.ended = asyncio.Event()
        self._unsaid: deque[tuple[EntryKind, bytes, Flag, int, int, str, str]] = deque()
        self._say_timer: asyncio.TimerHandle | None = None

    def _write(
        self, kind: EntryKind, body: bytes, flags: Flag = NO_FLAGS, lane: int = 0, number: int = 0, parent: str = "", target: str = ""
    ) -> None:
        at = self.world.clock.now()
        index = self.journal.append(kind, body, flags=flags, lane=lane, number=number, at=at, target=target, parent=parent)
        self.attachments.publish(Entry(index, kind, flags, lane, number, at, target, parent, body))

    def _say(self, kind: EntryKind, body: bytes, flags: Flag = NO_FLAGS, lane: int = 0, parent: str = "", target: str = "") -> None:
        """What the gateway itself tells: while the disk takes nothing it waits here, in order, so that no step of a session fails for it."""
        if len(self._unsaid) < UNSAID or kind is EntryKind.MARK:
            self._unsaid.append((kind, body, flags, lane, 0, parent, target))
        if self._say_timer is None:
            self._say_all()

    def _say_all(self) -> None:
        self._say_timer = None
        try:
            while self._unsaid:
                self._write(*self._unsaid[0])
                self._unsaid.popleft()
        except StoreUnavailable as error:
            if not self.ended.is_set():
                log.error("the journal cannot be written, will try again", extra={"session": self.session_id, "why": error.detail})
                self._say_timer = asyncio.get_running_loop().call_later(SAY_AGAIN_S, self._say_all)

    def write_message(self, body: bytes, *, flags: Flag, lane: int, number: int, parent: str = "", target: str = "") -> None:
        """``number``: the relay's, which keeps the message when this raises StoreUnavailable; 0 for one of the gateway's own."""
        if not number:
            self._say(EntryKind.MESSAGE, body, flags, lane, parent, target)
        elif self._unsaid:
            raise StoreUnavailable("Earlier entries of the journal wait to be written.")
        else:
            self._write(EntryKind.MESSAGE, body, flags, lane, number, parent, target)

    def write_request(self, body: bytes, msg_id: str) -> None:
        self._write(EntryKind.REQUEST, body, parent=msg_id)

    def write_state(self, event: Json) -> None:
        self._say(EntryKind.STATE, dumps(event))

    def write_notice(self, notice: Json) -> None:
        self._say(EntryKind.NOTICE, dumps(notice))

    def mark_sandbox(self, sandbox: Sandbox) -> None:
        """From here on relay numbers are this sandbox's; once a sandbox, for ``received`` starts anew behind it."""
        if self.marked != sandbox.sandbox_id:
            self.marked = sandbox.sandbox_id
            self.over_life = 0
            self._say(EntryKind.MARK, dumps({"sandbox_id": sandbox.sandbox_id, "epoch": sandbox.row.epoch}))

    def received(self) -> tuple[int, int, int]:
        """The highest relay numbers of the marked sandbox that stand in the journal."""
        got = self.journal.received
        return got.get(0, 0), got.get(1, 0), got.get(2, 0)

    def find_request(self, msg_id: str, after: int) -> bytes:
        """The v1 request as it was asked for; empty when the journal does not keep it any more."""
        for head in self.journal.scan(after):
            if head.kind == EntryKind.REQUEST and head.parent == msg_id:
                found = self.journal.read(head.index - 1, max_entries=1)
                return bytes(found[0].body) if found else b""
        return b""
