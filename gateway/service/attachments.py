"""Attachments: every client is a reader with a cursor in the session's journal.

A client that keeps up gets each entry at the moment it is written. One that does not is served from the journal by a pump
of its own at its own pace: it holds back nobody, and nothing is queued for it in memory beyond ``HIGH_WATER``.
"""

from __future__ import annotations

import asyncio
import logging

from ..errors import QuotaExceeded, SandglassError
from .api import Sink
from .journal import Entry, EntryKind, Journal
from .tasks import Tasks

log = logging.getLogger("sandglass.attachments")
HIGH_WATER = 1024 * 1024


class Reader:
    """One attachment. ``cursor``: the last journal index that was delivered (or is not meant for it)."""

    def __init__(self, owner: Attachments, key: str, sink: Sink, cursor: int, jupyter: bool) -> None:
        self.key = key
        self._owner = owner
        self._sink = sink
        self._cursor = cursor
        self.jupyter = jupyter
        self._pump: asyncio.Task[None] | None = None
        self.open = True

    @property
    def queued(self) -> int:
        return self._sink.queued

    @property
    def cursor(self) -> int:
        return self._cursor

    def _wants(self, entry: Entry) -> bool:
        if self.jupyter:
            return entry.kind == EntryKind.MESSAGE and entry.target in ("", self.key)
        return entry.kind in (EntryKind.MESSAGE, EntryKind.NOTICE, EntryKind.STATE)

    def offer(self, entry: Entry) -> None:
        """An entry was just written."""
        if not self.open or self._pump is not None:
            return
        if entry.index != self._cursor + 1:
            self.catch_up()
            return
        self._cursor = entry.index
        if self._wants(entry) and self._deliver(entry) > HIGH_WATER:
            self.catch_up()

    def _deliver(self, entry: Entry) -> int:
        try:
            return self._sink.deliver(entry)
        except ConnectionError:
            self.detach()
            return 0

    def catch_up(self) -> None:
        """Serve it from the journal until it is level again."""
        if self._pump is None and self.open:
            self._pump = self._owner.tasks.spawn(self._run(), f"pump-{self.key[:12]}")

    async def _run(self) -> None:
        journal = self._owner.journal
        try:
            await self._sink.flushed()
            while self.open and self._cursor < journal.last_index:
                if self._cursor + 1 < journal.first_index:
                    self._sink.gap(self._cursor, journal.first_index)
                    self._cursor = journal.first_index - 1
                queued = 0
                for entry in journal.read(self._cursor):
                    self._cursor = entry.index
                    if self._wants(entry):
                        queued = self._sink.deliver(entry)
                if queued > HIGH_WATER // 4:
                    await self._sink.flushed()
                await asyncio.sleep(0)
        except ConnectionError:
            self.detach()
        except SandglassError as error:
            log.warning("an attachment ends", extra={"why": error.code})
            self._sink.closed("fault")
            self.detach()
        finally:
            self._pump = None
        if self.open and self._cursor < journal.last_index:
            self.catch_up()

    def confirm(self, index: int) -> None:
        """The client has everything up to ``index``; survives a restart of the gateway."""
        if self.jupyter and index <= self._cursor:
            self._owner.journal.set_position(self.key, index)

    def detach(self) -> None:
        if self.open:
            self.open = False
            self._owner.forget(self)
            if self._pump is not None and self._pump is not asyncio.current_task():
                self._pump.cancel()

    def close(self, code: str) -> None:
        if self.open:
            self.detach()
            self._sink.closed(code)


class Attachments:
    """Those of one session."""

    def __init__(self, journal: Journal, tasks: Tasks, limit: int) -> None:
        self.journal = journal
        self.tasks = tasks
        self._limit = limit
        self._readers: dict[str, Reader] = {}

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes delivered to clients that their connections have not taken yet."""
        return sum(reader.queued for reader in self._readers.values())

    @property
    def jupyter_count(self) -> int:
        return sum(1 for reader in self._readers.values() if reader.jupyter)

    def attach(self, key: str, sink: Sink, *, after: int | None, jupyter: bool) -> Reader:
        """See ``SessionFacade.attach``."""
        older = self._readers.get(key)
        if older is not None:
            older.close("replaced")
        if len(self._readers) >= self._limit:
            raise QuotaExceeded(f"This session has {self._limit} attachments already.")
        if after is None:
            position = self.journal.position(key) if jupyter else None
            after = self.journal.last_index if position is None else position
        cursor = min(max(after, 0), self.journal.last_index)
        reader = Reader(self, key, sink, cursor, jupyter)
        self._readers[key] = reader
        if jupyter:
            # a client that drops before its first pong still finds its place again
            self.journal.set_position(key, cursor)
        if cursor < self.journal.last_index:
            reader.catch_up()
        return reader

    def forget(self, reader: Reader) -> None:
        if self._readers.get(reader.key) is reader:
            del self._readers[reader.key]

    def publish(self, entry: Entry) -> None:
        for reader in list(self._readers.values()):
            reader.offer(entry)

    def close_all(self, code: str) -> None:
        for reader in list(self._readers.values()):
            reader.close(code)
