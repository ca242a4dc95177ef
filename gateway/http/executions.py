"""``/api/v1/sessions/{id}/executions``: run code, wait for it, look at it, cancel it, answer its ``input()``."""

from __future__ import annotations

import asyncio
import contextlib

from ..domain.scopes import Scope
from ..errors import SandglassError
from ..service.api import GatewayFacade, Json, SessionFacade
from .base import Authenticated
from .deps import Deps
from .models import bodies, queries

CLIENT_LEFT = 499
"""Only for the access log: nobody is there to read it."""


class Waiting(Authenticated):
    """Can wait for an execution, for as long as the client does."""

    def initialize(self, gateway: GatewayFacade, deps: Deps) -> None:
        super().initialize(gateway, deps)
        self._left = asyncio.Event()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._left.set()

    def wait_seconds(self) -> float:
        """``?wait=``, bounded; 0 when absent. Raises BadRequest."""
        return min(self.query(queries.Wait).wait, self.deps.limits.wait_s)

    async def answer_execution(self, session: SessionFacade, execution_id: str, wait_s: float) -> None:
        """200 with the whole execution once it is finished, 202 while it is not; nothing when the client has left."""
        if wait_s > 0:
            await self._wait(session, execution_id, wait_s)
        if self.gone:
            self.set_status(CLIENT_LEFT, "Client left")
            return
        execution = await self.shown(session, execution_id)
        self.set_header("Location", f"/api/v1/sessions/{session.session_id}/executions/{execution_id}")
        self.answer(execution, 200 if execution["state"] == "finished" else 202)

    async def shown(self, session: SessionFacade, execution_id: str) -> Json:
        """The Execution; without its outputs for a token that may run code and not read what comes of it."""
        return await session.execution_json(execution_id, outputs=self.caller.permits(Scope.RESULTS_READ))

    async def _wait(self, session: SessionFacade, execution_id: str, wait_s: float) -> None:
        done = self.deps.tasks.spawn(_finished(session, execution_id, wait_s), "http-wait")
        left = self.deps.tasks.spawn(_is_set(self._left), "http-left")
        try:
            await asyncio.wait({done, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
            done.cancel()


async def _finished(session: SessionFacade, execution_id: str, wait_s: float) -> None:
    with contextlib.suppress(SandglassError):  # what is wrong comes out again when the execution is read
        await session.wait_execution(execution_id, wait_s)


async def _is_set(event: asyncio.Event) -> None:
    await event.wait()


class ExecutionsHandler(Waiting):
    async def get(self, session_id: str) -> None:
        session = await self.session_of(session_id, ended=True)
        self.answer({"executions": await session.list_executions()})

    async def post(self, session_id: str) -> None:
        wait_s = self.wait_seconds()
        body = self.body(bodies.NewExecution)
        session = await self.session_of(session_id)
        execution_id = await session.execute(
            body.code,
            timeout_s=body.timeout_s,
            expect_generation=body.expect_generation,
            allow_stdin=body.allow_stdin,
        )
        await self.answer_execution(session, execution_id, wait_s)


class ExecutionHandler(Waiting):
    async def get(self, session_id: str, execution_id: str) -> None:
        wait_s = self.wait_seconds()
        session = await self.session_of(session_id, ended=True)
        if wait_s > 0:
            await self._wait(session, execution_id, wait_s)
        if self.gone:
            self.set_status(CLIENT_LEFT, "Client left")
            return
        self.answer(await session.execution_json(execution_id))

    async def delete(self, session_id: str, execution_id: str) -> None:
        session = await self.session_of(session_id)
        await session.cancel_execution(execution_id)
        self.answer(await self.shown(session, execution_id))


class StdinHandler(Authenticated):
    async def post(self, session_id: str) -> None:
        body = self.body(bodies.StdinAnswer)
        (await self.session_of(session_id)).answer_stdin(body.execution_id, body.value)
        self.no_content()
