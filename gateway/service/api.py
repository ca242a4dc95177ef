"""What the HTTP layer may ask of the service layer, as protocols: the facade's shape in one place.

Every method that takes a ``Principal`` checks owner and tenant itself and raises ``NotFound`` for what is somebody else's.
JSON-ready dictionaries have the shapes of ``docs/api.md``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..domain.model import Principal
from ..ports import AuditQuery, ExecutionQuery, SessionQuery
from .journal import Entry

Json = dict[str, Any]


class Sink(Protocol):
    """One client's end of an attachment: a websocket or an event stream."""

    @property
    def queued(self) -> int:
        """Bytes delivered that have not left yet."""
        ...

    def deliver(self, entry: Entry) -> int:
        """Send without blocking; returns the bytes that are now queued towards this client."""
        ...

    async def flushed(self) -> None:
        """Wait until what was delivered has left. Raises ConnectionError when the client is gone."""
        ...

    def gap(self, after: int, oldest: int) -> None:
        """Tell the client that entries between are no longer kept."""
        ...

    def closed(self, code: str) -> None:
        """The service ends the attachment: ``session_ended``, ``shutdown``, ``replaced``, ``unauthenticated`` or ``fault``."""
        ...


@dataclass(frozen=True, slots=True)
class Trail:
    """Where an execution stands in its session's journal: behind ``first``, its output behind ``began``, and nothing after ``end``.

    ``end`` is the journal's own end while it is not ``finished``.
    """

    execution_id: str
    msg_id: str
    first: int
    began: int
    end: int
    finished: bool


class Attachment(Protocol):
    """A reader with a cursor in a session's journal."""

    key: str

    @property
    def cursor(self) -> int:
        """The last entry that was delivered, or is not meant for it."""
        ...

    def confirm(self, index: int) -> None:
        """The client has everything up to ``index`` (a websocket's pong, an event stream's resume point)."""
        ...

    def detach(self) -> None: ...


class TranscriptFacade(Protocol):
    """What a session ran, its owner's own document; also of a session that has ended."""

    async def to_json(self, *, after: int = 0, limit: int = 500, outputs: bool = True) -> Json: ...
    def notebook(self) -> AsyncIterator[bytes]:
        """As an ``.ipynb`` file. Raises Conflict before the first chunk where nothing is kept by policy."""
        ...

    @property
    def name(self) -> str:
        """Of that file."""
        ...

    async def delete(self, by: str) -> None: ...


class SessionFacade(Protocol):
    session_id: str

    @property
    def ending(self) -> bool:
        """It is on its way to its end (or there): Jupyter clients are told that the kernel is gone, while it still drains."""
        ...

    def to_json(self) -> Json:
        """The Session representation."""
        ...

    def kernel_model(self) -> Json:
        """Jupyter's kernel model: ``{id, name, last_activity, execution_state, connections}``."""
        ...

    def attach(self, key: str, sink: Sink, *, after: int | None, jupyter: bool) -> Attachment:
        """``key`` names the client over reconnects (``ws:SESSION_ID``); an older attachment with the same key is replaced.

        ``after``: the journal index to start behind; None = the recorded position of ``key``, else the end. ``jupyter``: only
        kernel messages meant for this key or for all; else everything. Raises QuotaExceeded, SessionEnded.
        """
        ...

    def from_client(self, key: str, message: bytes) -> None:
        """A v1 kernel message from a websocket. Raises BadRequest (the message is dropped, the connection may stay)."""
        ...

    async def room(self) -> None:
        """Wait while much of what clients sent is still on its way into the sandbox; else return at once.

        A websocket awaits it after each message before it reads the next one, so a flood waits at its sender.
        """
        ...

    def execution_id_of(self, msg_id: str) -> str | None:
        """The execution that the request ``msg_id`` asked for, where it is known without the records: open and recent ones."""
        ...

    def keep_alive(self) -> None: ...
    def recycle(self) -> None: ...
    def end(self, by: str = "") -> None:
        """At its owner's wish."""
        ...

    async def interrupt(self) -> None: ...
    async def restart(self) -> None:
        """Restart the kernel (or open a sandbox when there is none); returns when the kernel is ready. Raises Unavailable."""
        ...

    async def execute(
        self, code: str, *, timeout_s: float | None = None, expect_generation: int | None = None, allow_stdin: bool = False,
        stop_on_error: bool = False, max_output_bytes: int | None = None, inputs: Sequence[tuple[str, str]] = (),
        result_schema: Json | None = None, idempotency_key: str = "",
    ) -> str:  # fmt: skip
        """Queue an execution; returns its id. The same ``idempotency_key`` with the same arguments returns the same execution.

        ``inputs``: (artifact id, path in ``in/``). ``max_output_bytes``: what an answer carries of its output.
        Raises GenerationMismatch, QuotaExceeded, SessionEnded, Conflict (the key was used for something else), NotFound,
        BadRequest (also for a ``result_schema`` that is none), TooLarge.
        """
        ...

    async def wait_execution(self, execution_id: str, timeout_s: float) -> bool:
        """True once it is finished. Raises NotFound."""
        ...

    async def execution_json(self, execution_id: str, *, outputs: bool = True) -> Json: ...
    async def trail(self, execution_id: str) -> Trail:
        """Raises NotFound."""
        ...

    def output(self, execution_id: str, stream: str = "") -> AsyncIterator[bytes]:
        """All that is kept of what it put out: JSON lines, or the text of one stream. Raises NotFound before the first chunk."""
        ...

    async def list_executions(self) -> list[Json]: ...
    async def cancel_execution(self, execution_id: str) -> None: ...
    def answer_stdin(self, execution_id: str, value: str) -> None: ...
    async def notices(self) -> list[Json]: ...

    @property
    def document(self) -> TranscriptFacade: ...
    async def start_rebuild(self, cells: list[str] | None, *, timeout_s: float | None = None, allow_stdin: bool = False) -> Json:
        """Run cells of the transcript again (None: those that succeeded in the lost generation); the Rebuild.

        Raises Conflict, NotFound, TooLarge, SessionEnded.
        """
        ...

    def rebuild_json(self) -> Json:
        """The latest one. Raises NotFound."""
        ...

    def stop_rebuild(self) -> None: ...

    async def list_files(self) -> Json: ...
    def read_file(self, path: str) -> AsyncIterator[bytes]:
        """Raises NotFound or PathRefused before the first chunk."""
        ...

    async def write_file(self, path: str, size: int, chunks: AsyncIterator[bytes], *, overwrite: bool) -> Json:
        """Raises PathRefused, TooLarge, ArtifactRejected, Conflict (exists), Unavailable."""
        ...

    async def delete_file(self, path: str) -> None: ...
    async def declarations(self) -> list[Json]: ...
    async def declare(self, pattern: str, keep: bool, source: str) -> Json: ...
    async def undeclare(self, pattern: str) -> None: ...
    async def artifacts(self) -> list[Json]: ...


class UsersFacade(Protocol):
    """What admins do to users; ``tenant`` None means the admin's own. Raises Forbidden."""

    async def disable(self, admin: Principal, user: str, *, tenant: str | None = None, sessions: str = "recycle", text: str = "") -> Json: ...
    async def enable(self, admin: Principal, user: str, *, tenant: str | None = None) -> Json: ...
    async def disabled(self, admin: Principal) -> list[Json]: ...
    async def end_sessions(self, admin: Principal, user: str, *, tenant: str | None = None, text: str = "") -> Json: ...


class OversightFacade(Protocol):
    """What admins see of sessions and do to them. Raises Forbidden, NotFound, SessionEnded."""

    async def sessions(self, admin: Principal, query: SessionQuery) -> tuple[list[Json], tuple[float, str] | None]:
        """Those that the admin may see, with resources; and behind which one the next page begins."""
        ...

    async def session(self, admin: Principal, session_id: str) -> Json:
        """One of them, with the ``history`` of its sandboxes, its ``notices`` and ``audit``, and what it ``would_lose``."""
        ...

    async def audit(self, admin: Principal, query: AuditQuery) -> tuple[list[Json], int | None]:
        """Newest first, and behind which place the next page begins."""
        ...

    async def executions(self, admin: Principal, query: ExecutionQuery) -> tuple[list[Json], int | None]:
        """The traces of executions, in the same way. No code, no output, no names of files."""
        ...

    async def end(self, admin: Principal, session_id: str, text: str) -> Json: ...
    async def extend(self, admin: Principal, session_id: str, seconds: float, text: str) -> Json:
        """Raises Forbidden (policy admits no more), InvalidTransition (no active sandbox)."""
        ...

    async def retry(self, admin: Principal, session_id: str, text: str) -> Json:
        """Raises InvalidTransition (not quarantined)."""
        ...

    async def release(self, admin: Principal, session_id: str, text: str) -> Json:
        """Raises InvalidTransition (not quarantined)."""
        ...


class GatewayFacade(Protocol):
    """The whole service."""

    async def create_session(self, principal: Principal, *, profile: str | None = None, name: str = "", source: str = "rest") -> SessionFacade:
        """Raises QuotaExceeded, ProfileUnavailable, NotFound (unknown profile), Unavailable."""
        ...

    async def session(self, principal: Principal, session_id: str, *, admin: bool = False, ended: bool = False) -> SessionFacade:
        """Owner's own; with ``admin`` also what an admin may see. Raises NotFound; SessionEnded unless ``ended``."""
        ...

    async def sessions(self, principal: Principal, *, everyone: bool = False, ended: bool = False) -> list[Json]: ...
    async def live_sessions(self, principal: Principal) -> list[SessionFacade]:
        """The caller's own sessions that have not ended, newest first."""
        ...

    def profiles(self) -> Json: ...
    def usage(self, principal: Principal) -> list[Json]:
        """What the caller and the caller's tenant have used of their quotas."""
        ...

    async def artifact(self, principal: Principal, artifact_id: str) -> tuple[Json, AsyncIterator[bytes]]: ...
    async def delete_artifact(self, principal: Principal, artifact_id: str) -> None:
        """Its owner's, or an admin's. Raises NotFound."""
        ...

    @property
    def users(self) -> UsersFacade: ...
    @property
    def oversight(self) -> OversightFacade: ...
    async def health(self) -> tuple[bool, Json]: ...
    def statistics(self) -> Json: ...

    started_at: float
