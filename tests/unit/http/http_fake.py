"""A gateway in memory for the HTTP layer's tests: real attachments and a real journal, a kernel that only echoes."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.clock import SystemClock, iso
from gateway.domain.model import Principal
from gateway.errors import (
    BadRequest,
    Conflict,
    GenerationMismatch,
    NotFound,
    QuotaExceeded,
    SessionEnded,
    TooLarge,
    Unauthenticated,
)
from gateway.jsonio import dumps
from gateway.ports import AuditQuery, ExecutionQuery, SessionQuery
from gateway.protocol import jupyter
from gateway.service.api import Json, Sink
from gateway.service.attachments import Attachments, Reader
from gateway.service.journal import Entry, EntryKind, Journal
from gateway.service.tasks import Tasks

KERNEL_INFO = {"status": "ok", "protocol_version": "5.3", "language_info": {"name": "python"}}


class FakeSession:
    """Answers kernel_info, echoes the code of an execute_request as output, remembers everything else in ``calls``."""

    def __init__(self, gateway: FakeGateway, session_id: str, owner: Principal, profile: str, name: str) -> None:
        self.session_id = session_id
        self.owner = owner
        self.profile = profile
        self.name = name
        self.generation = 1
        self.ended = False
        self.calls: list[Any] = []
        self.files: dict[str, bytes] = {}
        self.executions: dict[str, Json] = {}
        self.finished = asyncio.Event()
        self.full: asyncio.Event | None = None
        self.patterns: dict[str, bool] = {}
        self.refuse_executes = False
        self.journal = Journal.open(gateway.directory / session_id, max_bytes=gateway.journal_bytes)
        self.attachments = Attachments(self.journal, gateway.tasks, gateway.attachment_limit)
        self._created = gateway.clock.now()
        self._gateway = gateway

    # -- shown

    @property
    def ending(self) -> bool:
        return self.ended

    def to_json(self) -> Json:
        state = "ended" if self.ended else "active"
        return {
            "session_id": self.session_id,
            "state": state,
            "generation": self.generation,
            "profile": self.profile,
            "name": self.name,
            "user": self.owner.user,
        }

    def kernel_model(self) -> Json:
        return {
            "id": self.session_id,
            "name": self.profile,
            "last_activity": iso(self._created),
            "execution_state": "idle",
            "connections": len(self.attachments),
        }

    # -- attachments and messages

    def attach(self, key: str, sink: Sink, *, after: int | None, jupyter: bool) -> Reader:
        if self.ended:
            raise SessionEnded()
        return self.attachments.attach(key, sink, after=after, jupyter=jupyter)

    def publish(self, body: bytes, kind: EntryKind = EntryKind.MESSAGE, *, target: str = "", parent: str = "") -> int:
        at = self._gateway.clock.now()
        index = self.journal.append(kind, body, at=at, target=target, parent=parent)
        entry = next(iter(self.journal.read(index - 1)))
        assert isinstance(entry, Entry)
        self.attachments.publish(entry)
        return index

    def say(
        self, channel: str, msg_type: str, parent: Json, content: Json, *, target: str = "", buffers: Any = ()
    ) -> int:
        header = jupyter.make_header(msg_type, "kernel")
        body = jupyter.build(channel, header, parent, {}, content, buffers)
        return self.publish(body, target=target, parent=str(parent.get("msg_id", "")))

    def from_client(self, key: str, message: bytes) -> None:
        view = jupyter.decode(message)
        kind, header = view.msg_type, view.header
        self.calls.append((key, view.channel, kind))
        if kind == "kernel_info_request":
            self.say(view.channel, "kernel_info_reply", header, KERNEL_INFO, target=key)
        elif kind == "execute_request":
            if self.refuse_executes:
                raise QuotaExceeded("32 executions wait already.")
            self.say("iopub", "status", header, {"execution_state": "busy"})
            self.say("iopub", "stream", header, {"name": "stdout", "text": view.content["code"]}, buffers=view.buffers)
            self.say("shell", "execute_reply", header, {"status": "ok", "execution_count": 1}, target=key)
            self.say("iopub", "status", header, {"execution_state": "idle"})
        elif kind == "boom":
            raise RuntimeError("a defect")

    async def room(self) -> None:
        if self.full is not None:
            await self.full.wait()

    def execution_id_of(self, msg_id: str) -> str | None:
        return f"exec-of-{msg_id}"

    # -- actions

    def keep_alive(self) -> None:
        self.calls.append("keep_alive")

    def recycle(self) -> None:
        self.calls.append("recycle")

    def end(self, by: str = "") -> None:
        self.calls.append(("end", by))
        self.ended = True
        self.attachments.close_all("session_ended")

    async def interrupt(self) -> None:
        self.calls.append("interrupt")

    async def restart(self) -> None:
        self.calls.append("restart")
        self.generation += 1

    async def execute(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        expect_generation: int | None = None,
        allow_stdin: bool = False,
        **more: Any,
    ) -> str:
        if expect_generation not in (None, self.generation):
            raise GenerationMismatch("The variables are gone.", lost_variables=[{"name": "df"}])
        execution_id = f"e{len(self.executions) + 1}"
        self.executions[execution_id] = {"execution_id": execution_id, "state": "running", "code": code}
        self.calls.append(("execute", code, timeout_s, allow_stdin))
        return execution_id

    def finish(self, execution_id: str) -> None:
        self.executions[execution_id]["state"] = "finished"
        self.finished.set()

    async def wait_execution(self, execution_id: str, timeout_s: float) -> bool:
        self.calls.append(("wait", timeout_s))
        try:
            await asyncio.wait_for(self.finished.wait(), timeout_s)
        except asyncio.CancelledError:
            self.calls.append("wait cancelled")
            raise
        except TimeoutError:
            return False
        return True

    async def execution_json(self, execution_id: str, *, outputs: bool = True) -> Json:
        if execution_id not in self.executions:
            raise NotFound("There is no such execution.")
        return self.executions[execution_id]

    async def list_executions(self) -> list[Json]:
        return list(self.executions.values())

    async def cancel_execution(self, execution_id: str) -> None:
        await self.execution_json(execution_id)
        self.finish(execution_id)

    def answer_stdin(self, execution_id: str, value: str) -> None:
        self.calls.append(("stdin", execution_id, value))

    async def notices(self) -> list[Json]:
        return [{"notice_id": 1, "kind": "recycled"}]

    # -- files

    async def list_files(self) -> Json:
        listed = [{"path": path, "size": len(data)} for path, data in self.files.items()]
        return {"files": listed, "refused": [], "live": True, "truncated": False}

    async def read_file(self, path: str) -> AsyncIterator[bytes]:
        if path not in self.files:
            raise NotFound("There is no such file.")
        data = self.files[path]
        for start in range(0, len(data), 65536):
            yield data[start : start + 65536]
        if path.endswith(".broken"):
            raise Conflict("it changed meanwhile")

    async def write_file(self, path: str, size: int, chunks: AsyncIterator[bytes], *, overwrite: bool) -> Json:
        if path in self.files and not overwrite:
            raise Conflict("There is such a file already.")
        taken = bytearray()
        try:
            async for chunk in chunks:
                taken += chunk
                if path.endswith(".slow"):
                    await asyncio.sleep(0.01)
                if path.endswith(".refuse"):
                    raise TooLarge("disk full")
        except BadRequest:
            self.calls.append("upload broke off")
            raise
        assert len(taken) == size
        self.files[path] = bytes(taken)
        return {"path": path, "size": size, "sha256": hashlib.sha256(taken).hexdigest()}

    async def delete_file(self, path: str) -> None:
        if self.files.pop(path, None) is None:
            raise NotFound("There is no such file.")

    async def declarations(self) -> list[Json]:
        return [{"pattern": p, "keep": k} for p, k in self.patterns.items()]

    async def declare(self, pattern: str, keep: bool, source: str) -> Json:
        self.patterns[pattern] = keep
        return {"pattern": pattern, "keep": keep, "source": source}

    async def undeclare(self, pattern: str) -> None:
        if self.patterns.pop(pattern, None) is None:
            raise NotFound("There is no such declaration.")

    async def artifacts(self) -> list[Json]:
        return []


class FakeGateway:
    """``entries`` counts everything that is kept, to show that a refused request leaves nothing behind."""

    started_at = 1_700_000_000.0

    def __init__(self, directory: Path, tasks: Tasks) -> None:
        self.directory = directory
        self.tasks = tasks
        self.clock = SystemClock()
        self.held: dict[str, FakeSession] = {}
        self.attachment_limit = 8
        self.journal_bytes = 64 * 1024**2
        self.healthy = True
        self.create_delay_s = 0.0
        self._ids = itertools.count(1)
        self.oversight = FakeOversight(self)

    async def create_session(
        self, principal: Principal, *, profile: str | None = None, name: str = "", source: str = "rest"
    ) -> FakeSession:
        if profile not in (None, "container", "gvisor"):
            raise NotFound("There is no such profile.")
        await asyncio.sleep(self.create_delay_s)
        session_id = f"s-{next(self._ids)}"
        session = FakeSession(self, session_id, principal, profile or "gvisor", name)
        self.held[session_id] = session
        return session

    async def session(
        self, principal: Principal, session_id: str, *, admin: bool = False, ended: bool = False
    ) -> FakeSession:
        session = self.held.get(session_id)
        allowed = session is not None and (
            principal.owns(session.owner.tenant, session.owner.user)
            or (admin and principal.may_see(session.owner.tenant, session.owner.user))
        )
        if session is None or not allowed:
            raise NotFound("There is no such session.")
        if session.ended and not ended:
            raise SessionEnded("The session has ended.")
        return session

    async def sessions(self, principal: Principal, *, everyone: bool = False, ended: bool = False) -> list[Json]:
        return [s.to_json() for s in self.held.values() if everyone or principal.owns(s.owner.tenant, s.owner.user)]

    async def live_sessions(self, principal: Principal) -> list[FakeSession]:
        mine = [s for s in self.held.values() if principal.owns(s.owner.tenant, s.owner.user) and not s.ended]
        return mine[::-1]

    def profiles(self) -> Json:
        available = {"gvisor": True, "container": True, "microvm": False}
        listed = [{"name": n, "available": a, "display_name": f"Python ({n})"} for n, a in available.items()]
        return {"profiles": listed, "default": "gvisor"}

    def usage(self, principal: Principal) -> list[Json]:
        return []

    async def artifact(self, principal: Principal, artifact_id: str) -> tuple[Json, AsyncIterator[bytes]]:
        if artifact_id != "a1":
            raise NotFound("There is no such artifact.")

        async def chunks() -> AsyncIterator[bytes]:
            yield b"stored"

        return {"artifact_id": "a1", "path": "out/report.txt", "size": 6}, chunks()

    async def delete_artifact(self, principal: Principal, artifact_id: str) -> None:
        raise NotFound("There is no such artifact.")

    async def health(self) -> tuple[bool, Json]:
        checks = {"engine": "ok" if self.healthy else "engine_unavailable"}
        return self.healthy, {"status": "ok" if self.healthy else "degraded", "checks": checks}

    def statistics(self) -> Json:
        return {}


class FakeOversight:
    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    async def sessions(self, admin: Principal, query: SessionQuery) -> tuple[list[Json], tuple[float, str] | None]:
        return [s.to_json() for s in self._gateway.held.values()], None

    async def end(self, admin: Principal, session_id: str, text: str) -> Json:
        session = await self._gateway.session(admin, session_id, admin=True)
        session.calls.append(("end by an admin", admin.user, text))
        return session.to_json()

    async def audit(self, admin: Principal, query: AuditQuery) -> tuple[list[Json], int | None]:
        return [], None

    async def executions(self, admin: Principal, query: ExecutionQuery) -> tuple[list[Json], int | None]:
        return [], None


class FakeTokens:
    """``user[/tenant[/role]]`` is a token; ``expired`` is none; ``user@SECONDS`` expires after that long."""

    def __init__(self) -> None:
        self.clock = SystemClock()

    def verify(self, token: str) -> Principal:
        if token in ("expired", "wrong"):
            raise Unauthenticated("The token has expired.")
        token, _, seconds = token.partition("@")
        user, _, rest = token.partition("/")
        tenant, _, role = rest.partition("/")
        expires = self.clock.now() + float(seconds) if seconds else 0.0
        return Principal(user, tenant or "t1", frozenset({role or "user"}), expires_at=expires)


class FakePages:
    def __init__(self) -> None:
        self.tickets: dict[str, Principal] = {}
        self.cookies: dict[str, Principal] = {}

    def issue_ticket(self, principal: Principal, purpose: str) -> tuple[str, float]:
        ticket = f"ticket-{len(self.tickets)}"
        self.tickets[ticket] = principal
        return ticket, 1_700_000_000.0

    def redeem(self, ticket: str, purpose: str) -> tuple[str, Principal]:
        principal = self.tickets.pop(ticket, None)
        if principal is None:
            raise Unauthenticated()
        self.cookies[f"cookie-{ticket}"] = principal
        return f"cookie-{ticket}", principal

    def verify_cookie(self, value: str) -> Principal:
        if value not in self.cookies:
            raise Unauthenticated("The page's session is over.")
        return self.cookies[value]

    def renew(self, value: str) -> str | None:
        """A cookie that ends with ``-old`` is due."""
        if not value.endswith("-old"):
            return None
        self.cookies[value.removesuffix("-old")] = self.cookies[value]
        return value.removesuffix("-old")

    def end(self, value: str) -> None:
        self.cookies.pop(value, None)


def message_json(body: bytes) -> Json:
    return dict(jupyter.decode(body).content)


__all__ = ["FakeGateway", "FakePages", "FakeSession", "FakeTokens", "dumps", "message_json"]
