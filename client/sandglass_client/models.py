"""What the gateway says, as typed values. Members that are not known here stand in ``raw``; missing ones have their defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from .errors import ExecutionFailed, seconds

Json = dict[str, Any]
T = TypeVar("T")
LOSSES = frozenset({"variables_lost", "kernel_died"})


def time_of(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def word(value: object) -> str:
    return value if isinstance(value, str) else ""


def number(value: object, default: int = 0) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def members(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def many(value: object, make: Callable[[Json], T]) -> tuple[T, ...]:
    return tuple(make(item) for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def words(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def paths(value: object) -> tuple[str, ...]:
    """Of a list of paths, or of files that have one."""
    found = (item.get("path") if isinstance(item, dict) else item for item in value) if isinstance(value, list) else ()
    return tuple(item for item in found if isinstance(item, str))


@dataclass(frozen=True, slots=True)
class Variable:
    """``size``: in bytes, None where it is not known."""

    name: str
    type: str = ""
    size: int | None = None

    @classmethod
    def of(cls, value: Json) -> Variable:
        size = value.get("size")
        return cls(word(value.get("name")), word(value.get("type")), number(size) if size is not None else None)


@dataclass(frozen=True, slots=True)
class Notice:
    """What a user is told of lifetimes, losses and restores. ``text``: a sentence for a person; ``raw``: all that the kind has."""

    notice_id: int
    kind: str
    text: str
    reason: str = ""
    generation: int = 0
    at: datetime | None = None
    variables: tuple[Variable, ...] = ()
    files: tuple[str, ...] = ()
    """Of this notice: those lost, restored, kept, or (of a warning) about to be lost."""
    kept_files: tuple[str, ...] = ()
    deadline: datetime | None = None
    actions: tuple[str, ...] = ()
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, value: Json) -> Notice:
        return cls(
            number(value.get("notice_id")), word(value.get("kind")), word(value.get("text")), word(value.get("reason")),
            number(value.get("generation")), time_of(value.get("at")), many(value.get("variables"), Variable.of),
            paths(value.get("files")) or paths(value.get("undeclared_files")), paths(value.get("kept_files")),
            time_of(value.get("deadline")), words(value.get("actions")), value,
        )  # fmt: skip

    @property
    def is_warning(self) -> bool:
        """Something will be lost unless somebody acts."""
        return self.kind in ("idle_warning", "max_warning")

    @property
    def is_loss(self) -> bool:
        return self.kind in LOSSES or self.kind == "files_lost"


@dataclass(frozen=True, slots=True)
class Session:
    session_id: str
    state: str = ""
    generation: int = 0
    name: str = ""
    profile: str = ""
    tier: str = ""
    user: str = ""
    tenant: str = ""
    reason: str = ""
    busy: bool = False
    created_at: datetime | None = None
    last_activity: datetime | None = None
    server_time: datetime | None = None
    idle_deadline: datetime | None = None
    idle_paused: bool = False
    max_deadline: datetime | None = None
    variables: tuple[Variable, ...] = ()
    lost_variables: tuple[Variable, ...] = ()
    lost_because: str = ""
    restored_files: tuple[str, ...] = ()
    queued: int = 0
    last_event: int = 0
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, value: Json) -> Session:
        """Of a Session, or of the short one that an Execution has."""
        texts: Json = {name: word(value.get(name)) for name in ("state", "name", "profile", "tier", "user", "tenant", "reason", "lost_because")}
        names = ("created_at", "last_activity", "server_time", "idle_deadline", "max_deadline")
        times: Json = {name: time_of(value.get(name)) for name in names}
        return cls(
            word(value.get("session_id") or value.get("id")), generation=number(value.get("generation")), busy=value.get("busy") is True,
            idle_paused=value.get("idle_paused") is True, variables=many(value.get("variables"), Variable.of),
            lost_variables=many(value.get("lost_variables"), Variable.of), restored_files=paths(value.get("restored_files")),
            queued=number(members(value.get("queue")).get("queued")), last_event=number(value.get("last_event")), raw=value, **texts, **times,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    """A displayed value: its MIME bundle. ``is_main_result``: the value of the cell's last expression."""

    data: Json
    metadata: Json = field(default_factory=dict)
    is_main_result: bool = False

    @classmethod
    def of(cls, value: Json) -> Output:
        return cls(members(value.get("data")), members(value.get("metadata")), value.get("is_main_result") is True)

    @property
    def text(self) -> str:
        """Its plain text, empty when it has none."""
        value = self.data.get("text/plain", "")
        return "".join(value) if isinstance(value, list) else str(value)


@dataclass(frozen=True, slots=True)
class CodeError:
    """What the user's code raised."""

    name: str
    value: str
    traceback: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: Json) -> CodeError:
        """Of an Execution's error, or of a kernel's message."""
        return cls(word(value.get("name") or value.get("ename")), word(value.get("value") or value.get("evalue")), words(value.get("traceback")))


@dataclass(frozen=True, slots=True)
class Truncated:
    """What of the output is missing. ``full_output_url``: where all of it is, empty where it is not kept."""

    bytes_dropped: int = 0
    messages_dropped: int = 0
    bytes_left_out: int = 0
    full_output_url: str = ""
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, value: object) -> Truncated | None:
        """None where nothing is missing, however that is said."""
        found = members(value)
        if not any(found.values()):
            return None
        counts: Json = {name: number(found.get(name)) for name in ("bytes_dropped", "messages_dropped", "bytes_left_out")}
        return cls(full_output_url=word(found.get("full_output_url")), raw=found, **counts)


@dataclass(frozen=True, slots=True)
class Execution:
    """A run of code. Its outputs are there once ``state`` is ``finished``; an error of the code is a ``status``, never an exception."""

    execution_id: str
    session: Session
    state: str = ""
    status: str = ""
    exit_reason: str = ""
    next_action: str = ""
    reason_text: str = ""
    position: int | None = None
    execution_count: int | None = None
    generation: int = 0
    stdout: str = ""
    stderr: str = ""
    results: tuple[Output, ...] = ()
    value: Any = None
    error: CodeError | None = None
    files: tuple[Json, ...] = ()
    truncated: Truncated | None = None
    notices: tuple[Notice, ...] = ()
    hints: tuple[Any, ...] = ()
    rejected: Json | None = None
    """Why ``value`` is not there: it does not fit ``result_schema``."""
    resources: Json = field(default_factory=dict)
    duration_ms: int | None = None
    retry_after: float | None = None
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, value: Json) -> Execution:
        texts: Json = {name: word(value.get(name)) for name in
                 ("state", "status", "exit_reason", "next_action", "reason_text", "stdout", "stderr")}  # fmt: skip
        names = ("position", "execution_count", "duration_ms")
        counts: Json = {name: number(value[name]) if value.get(name) is not None else None for name in names}
        error = value.get("error")
        hints = value.get("hints")
        return cls(
            word(value.get("execution_id")), Session.of(members(value.get("session"))), generation=number(value.get("generation")),
            results=many(value.get("results"), Output.of), value=value.get("value"), error=CodeError.of(error) if isinstance(error, dict) else None,
            files=many(value.get("files"), dict), truncated=Truncated.of(value.get("truncated")), notices=many(value.get("notices"), Notice.of),
            hints=tuple(hints) if isinstance(hints, list) else (), resources=members(value.get("resources")),
            rejected=members(value.get("rejected")) or None,
            retry_after=seconds(value.get("retry_after")), raw=value, **texts, **counts,
        )  # fmt: skip

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def lost(self) -> bool:
        """Its variables are gone."""
        return self.status == "lost"

    @property
    def result(self) -> Output | None:
        """The value of the last expression."""
        return next((r for r in reversed(self.results) if r.is_main_result), None)

    @property
    def text(self) -> str:
        """What a person would read: standard output, then the result."""
        main = self.result
        return self.stdout + (main.text if main else "")

    def check(self) -> Execution:
        """Itself when it went well. Raises ExecutionFailed."""
        if not self.ok:
            raise ExecutionFailed(self)
        return self


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Cells that run again after a loss. ``state``: running, done, stopped or cut."""

    rebuild_id: str
    state: str
    generation: int = 0
    done: int = 0
    total: int = 0
    detail: str = ""
    lost_variables: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, value: Json) -> Rebuild:
        lists: Json = {name: words(value.get(name)) for name in ("lost_variables", "back", "missing")}
        counts: Json = {name: number(value.get(name)) for name in ("generation", "done", "total")}
        return cls(word(value.get("rebuild_id")), word(value.get("state")), detail=word(value.get("detail")), raw=value, **lists, **counts)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a session: in its sandbox, stored, or both."""

    path: str
    size: int = 0
    sha256: str = ""
    mime: str = ""
    declared: bool = False
    stored: bool = False
    artifact_id: str = ""
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, value: Json) -> File:
        return cls(
            word(value.get("path")), number(value.get("size")), word(value.get("sha256")), word(value.get("mime")),
            value.get("declared") is True, value.get("stored") is True or bool(value.get("artifact_id")), word(value.get("artifact_id")), value,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Declaration:
    pattern: str
    keep: bool = True
    source: str = ""

    @classmethod
    def of(cls, value: Json) -> Declaration:
        return cls(word(value.get("pattern")), value.get("keep") is not False, word(value.get("source")))


@dataclass(frozen=True, slots=True)
class Profile:
    """``problem``: why it is not available; ``limits`` and ``lifetimes`` as the gateway says them."""

    name: str
    tier: str = ""
    available: bool = False
    problem: str = ""
    is_default: bool = False
    limits: Json = field(default_factory=dict)
    lifetimes: Json = field(default_factory=dict)

    @classmethod
    def of(cls, value: Json, default: str = "") -> Profile:
        name = word(value.get("name"))
        return cls(
            name, word(value.get("tier")), value.get("available") is True, word(value.get("problem")), name == default,
            members(value.get("limits")), members(value.get("lifetimes")),
        )  # fmt: skip
