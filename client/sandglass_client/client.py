"""One session of a gateway, held open by a program."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from . import files as transfers
from .errors import CapacityExhausted, NotFound, SandglassError, SessionEnded
from .events import Done, Event, GenerationChanged, Reading, Warned
from .gateway import PATIENCE_S, V1, Gateway, segment
from .models import Declaration, Execution, File, Notice, Rebuild, Session, many
from .sse import ServerEvent
from .stream import server_events
from .transport import Patience, Token

Json = dict[str, Any]
FIRST_WAIT_S = 2.0
"""A short cell is answered at once; a longer one has its id by then, so that a connection that breaks loses nothing."""
WAIT_S = 60.0
NEVER_RAN = "capacity_exhausted"
NO_SANDBOX_S = (1.0, 2.0, 4.0, 8.0)
"""Between tries to get one, where the gateway does not say; the last one from then on."""


class Sandglass:
    """``async with Sandglass(url, token) as s: r = await s.run("df.head()")``

    Opens a session and ends it at the end, unless ``keep``; with ``session_id`` it takes an existing one and leaves it open.
    ``on_notice`` hears every notice once: warnings, losses, restores. ``session``: as it was last seen.
    """

    def __init__(
        self, url: str | None = None, token: Token | None = None, *, session_id: str = "", profile: str | None = None, name: str = "",
        keep: bool | None = None, patience_s: float = PATIENCE_S, on_notice: Callable[[Notice], None] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.gateway = Gateway(url, token, patience_s=patience_s, transport=transport)
        self.session = Session(session_id)
        self._profile, self._name = profile, name
        self._keep = bool(session_id) if keep is None else keep
        self._on_notice = on_notice
        self._told: set[int] = set()
        self._ours = self.gateway._transport

    async def __aenter__(self) -> Self:
        try:
            if self.session_id:
                await self.refresh()
            else:
                self.session = await self.gateway.create(self._profile, self._name)
        except BaseException:
            await self._ours.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not self._keep:
                with suppress(SessionEnded, NotFound):
                    await self.end()
        except SandglassError:
            if error is None:
                raise  # what the block raised is worth more
        finally:
            await self._ours.close()

    # --- the session --------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self.session.session_id

    @property
    def generation(self) -> int:
        """It grows when variables are lost; ``run(..., expect_generation=g)`` refuses to work on others than those of ``g``."""
        return self.session.generation

    @property
    def _root(self) -> str:
        return f"{V1}/sessions/{segment(self.session_id)}"

    async def refresh(self) -> Session:
        """The session as it is now: state, deadlines, variables, warnings."""
        return self._seen(Session.of(await self._ours.json("GET", self._root)))

    async def keep_alive(self) -> Session:
        """Begin the idle time anew."""
        return self._seen(Session.of(await self._ours.json("POST", f"{self._root}/keep-alive", {})))

    async def interrupt(self) -> None:
        """The cell that runs; variables stay."""
        await self._ours.request("POST", f"{self._root}/interrupt", {})

    async def restart(self) -> Session:
        """A new kernel in the same sandbox: variables are lost, files stay."""
        return self._seen(Session.of(await self._ours.json("POST", f"{self._root}/restart", {}, repeat=False, answer_s=120.0)))

    async def recycle(self) -> Session:
        """End the sandbox, keep the session: declared files come back with the next execution."""
        return self._seen(Session.of(await self._ours.json("POST", f"{self._root}/recycle", {}, repeat=False)))

    async def end(self) -> Session:
        return self._seen(await self.gateway.end(self.session_id))

    async def notices(self) -> list[Notice]:
        """All that this session was told."""
        found = many((await self._ours.json("GET", f"{self._root}/notices")).get("notices"), Notice.of)
        self._tell(*found)
        return list(found)

    async def rebuild(self, cells: Sequence[str] | None = None, *, timeout_s: float | None = None, wait: bool = True) -> Rebuild:
        """Run cells again after a loss (None: those that the gateway suggests). With ``wait``, until it is over."""
        body = {key: value for key, value in (("cells", list(cells) if cells is not None else None), ("timeout_s", timeout_s)) if value is not None}
        made = Rebuild.of(await self._ours.json("POST", f"{self._root}/rebuild", body, repeat=False))
        pause = 0.05
        while wait and made.state == "running":
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
            made = Rebuild.of(await self._ours.json("GET", f"{self._root}/rebuild"))
        return made

    # --- executions ---------------------------------------------------------------------------------------------------

    async def run(self, code: str, *, patience_s: float | None = None, **options: Any) -> Execution:
        """Run code and wait for its end. What the code does wrong is in the result (``r.check()`` raises it); what the gateway refuses
        is raised. ``options`` as for ``submit``. One that found no sandbox never ran, and is tried again within the patience."""
        patience = Patience(self._ours.patience_s if patience_s is None else patience_s)
        for attempt in itertools.count():
            execution = await self.submit(code, wait_s=FIRST_WAIT_S, patience_s=patience.left_s, **options)
            if not execution.finished:
                execution = await self.wait(execution.execution_id)
            if execution.exit_reason != NEVER_RAN:
                return execution
            try:
                wait = NO_SANDBOX_S[min(attempt, len(NO_SANDBOX_S) - 1)]
                await patience.pause(CapacityExhausted(execution.reason_text), execution.retry_after or wait)
            except CapacityExhausted:
                break
        return execution

    async def submit(
        self, code: str, *, wait_s: float = 0.0, inputs: Sequence[Json] | None = None, timeout_s: float | None = None,
        expect_generation: int | None = None, stop_on_error: bool | None = None, max_output_bytes: int | None = None,
        result_schema: Json | None = None, idempotency_key: str | None = None, patience_s: float | None = None,
    ) -> Execution:  # fmt: skip
        """Put code in the session's queue; the execution after at most ``wait_s``. Raises GenerationMismatch, SessionEnded, ..."""
        given = {
            "inputs": list(inputs) if inputs is not None else None, "timeout_s": timeout_s, "expect_generation": expect_generation,
            "stop_on_error": stop_on_error, "max_output_bytes": max_output_bytes, "result_schema": result_schema,
        }  # fmt: skip
        body = {"code": code} | {key: value for key, value in given.items() if value is not None}
        answer = await self._ours.json(
            "POST", f"{self._root}/executions", body, params={"wait": f"{wait_s:g}"} if wait_s else None, answer_s=wait_s + 60.0,
            headers={"Idempotency-Key": idempotency_key or uuid.uuid4().hex}, patience_s=patience_s,
        )  # fmt: skip
        return self._ran(answer)

    async def execution(self, execution_id: str, *, wait_s: float = 0.0) -> Execution:
        params = {"wait": f"{wait_s:g}"} if wait_s else None
        path = f"{self._root}/executions/{segment(execution_id)}"
        return self._ran(await self._ours.json("GET", path, params=params, answer_s=wait_s + 30.0))

    async def wait(self, execution_id: str, timeout_s: float | None = None) -> Execution:
        """Until it is finished, or as it is after ``timeout_s``; a gateway that restarts meanwhile is waited for."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = WAIT_S if until is None else min(WAIT_S, max(0.0, until - time.monotonic()))
            execution = await self.execution(execution_id, wait_s=left)
            if execution.finished or left < WAIT_S:
                return execution

    async def full_output(self, execution: Execution) -> bytes:
        """All of its output where the answer carries a part (``truncated.full_output_url``). Raises NotFound where none is kept."""
        url = execution.truncated.full_output_url if execution.truncated else ""
        if not url.startswith(f"{self._root}/"):
            raise NotFound("This execution's answer leaves nothing out that is kept.")
        return await transfers.fetch(self._ours, url)

    async def cancel(self, execution_id: str) -> Execution:
        """One that waits never runs; one that runs is interrupted."""
        return self._ran(await self._ours.json("DELETE", f"{self._root}/executions/{segment(execution_id)}"))

    async def stream(self, code: str, **options: Any) -> AsyncGenerator[Event]:
        """Run code and tell what happens as it happens; the last event is ``Done``, with the whole execution. ``options`` as for ``submit``.

        Leaving early leaves the code running. Lost connections are made again; nothing is told twice."""
        async with aclosing(self.events()) as events:
            reading: Reading | None = None
            async for event in events:
                if reading is None:
                    # the stream stands, so nothing of what comes now is missed
                    execution = await self.submit(code, **options)
                    reading = Reading(execution.execution_id, self.generation)
                    for told in reading.seen(execution):
                        yield told
                for told in reading.take(event):
                    if isinstance(told, Warned):
                        self._tell(told.notice)
                    elif isinstance(told, GenerationChanged):
                        self.session = Session.of({**self.session.raw, "generation": told.generation})
                    yield told
                if reading.finished:
                    break
            if reading is not None:
                yield Done(await self.wait(reading.execution_id))

    async def events(self, after: int | None = None) -> AsyncGenerator[ServerEvent]:
        """The session's own events (docs/api.md), over any number of connections, each once. ``after``: 0 begins with the oldest kept."""
        async with aclosing(server_events(self._ours, f"{self._root}/events", after)) as events:
            async for event in events:
                yield event

    # --- files --------------------------------------------------------------------------------------------------------

    async def upload(self, source: bytes | str | os.PathLike[str], to: str = "", *, overwrite: bool = False) -> File:
        """Bytes, or a local file. Without a folder in ``to`` it is found at ``in/NAME``. It is stored, and comes back after a loss."""
        return await transfers.upload(self._ours, self._root, source, to, overwrite)

    async def download(self, path: str) -> bytes:
        return await transfers.fetch(self._ours, transfers.url_of(self._root, path))

    async def download_to(self, path: str, to: str | os.PathLike[str]) -> str:
        """Write it to a local file, which is there only once it is whole; the SHA-256 of what was written."""
        target = Path(to) / Path(path).name if Path(to).is_dir() else Path(to)
        return await transfers.save(self._ours, transfers.url_of(self._root, path), target)

    async def files(self) -> list[File]:
        return list(many((await self._ours.json("GET", f"{self._root}/files")).get("files"), File.of))

    async def artifacts(self) -> list[File]:
        """What is stored, every version."""
        return list(many((await self._ours.json("GET", f"{self._root}/artifacts")).get("artifacts"), File.of))

    async def delete_file(self, path: str) -> None:
        await self._ours.request("DELETE", transfers.url_of(self._root, path))

    async def declare(self, pattern: str, *, keep: bool = True) -> Declaration:
        """Files like this are kept when the sandbox ends (or, with ``keep=False``, are not)."""
        return Declaration.of(await self._ours.json("POST", f"{self._root}/declarations", {"pattern": pattern, "keep": keep}))

    async def undeclare(self, pattern: str) -> None:
        await self._ours.request("DELETE", f"{self._root}/declarations", params={"pattern": pattern})

    async def declarations(self) -> list[Declaration]:
        return list(many((await self._ours.json("GET", f"{self._root}/declarations")).get("declarations"), Declaration.of))

    # --- what was seen ------------------------------------------------------------------------------------------------

    def _seen(self, session: Session) -> Session:
        self.session = session
        return session

    def _ran(self, answer: Json) -> Execution:
        execution = Execution.of(answer)
        if execution.session.session_id:
            self.session = Session.of({**self.session.raw, **execution.session.raw, "session_id": self.session_id})
        self._tell(*execution.notices)
        return execution

    def _tell(self, *notices: Notice) -> None:
        for notice in notices:
            if notice.notice_id not in self._told:
                self._told.add(notice.notice_id)
                if self._on_notice is not None:
                    self._on_notice(notice)
