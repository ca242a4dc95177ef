"""``/api/v1/sessions/{id}/executions``: run code, wait for it, look at it, cancel it, answer its ``input()``."""

from __future__ import annotations

import asyncio
import contextlib

from ..domain.scopes import Scope
from ..errors import BadRequest, SandglassError
from ..service.api import GatewayFacade, Json, SessionFacade
from .base import Authenticated
from .deps import Deps
from .models import queries
from .models.executions import ExecuteBody, StdinBody

CLIENT_LEFT = 499
"""Only for the access log: nobody is there to read it."""
KEY_CHARS = 200


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
        key = self._idempotency_key()
        body = self.body(ExecuteBody)
        session = await self.session_of(session_id)
        execution_id = await session.execute(
            body.code, timeout_s=body.timeout_s, expect_generation=body.expect_generation, allow_stdin=body.allow_stdin,
            stop_on_error=body.stop_on_error, max_output_bytes=body.max_output_bytes,
            inputs=[(each.artifact_id, each.path) for each in body.inputs], result_schema=body.result_schema, idempotency_key=key,
        )  # fmt: skip
        await self.answer_execution(session, execution_id, wait_s)

    def _idempotency_key(self) -> str:
        """Empty where none was sent. Raises BadRequest."""
        given = self.request.headers.get_list("Idempotency-Key")
        if not given:
            return ""
        key = given[0].strip()
        if len(given) > 1 or not 0 < len(key) <= KEY_CHARS or not (key.isascii() and key.isprintable()):
            raise BadRequest(f"An Idempotency-Key has 1 to {KEY_CHARS} printable ASCII characters, and is sent once.")
        return key


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
        body = self.body(StdinBody)
        (await self.session_of(session_id)).answer_stdin(body.execution_id, body.value)
        self.no_content()
