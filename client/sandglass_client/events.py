"""The stream of one execution: what a session's events mean for it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from .models import CodeError, Execution, Notice, Output, members, number, word
from .sse import ServerEvent

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Queued:
    """It waits; ``position``: how many go before it."""

    type: ClassVar[str] = "queued"
    execution_id: str
    position: int | None


@dataclass(frozen=True, slots=True)
class Started:
    type: ClassVar[str] = "started"
    execution_id: str


@dataclass(frozen=True, slots=True)
class Stdout:
    type: ClassVar[str] = "stdout"
    text: str


@dataclass(frozen=True, slots=True)
class Stderr:
    type: ClassVar[str] = "stderr"
    text: str


@dataclass(frozen=True, slots=True)
class Display:
    """``update``: it takes the place of an earlier one with the same ``display_id``."""

    type: ClassVar[str] = "display"
    output: Output
    display_id: str = ""
    update: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The value of the last expression."""

    type: ClassVar[str] = "result"
    output: Output


@dataclass(frozen=True, slots=True)
class Error:
    type: ClassVar[str] = "error"
    error: CodeError


@dataclass(frozen=True, slots=True)
class Warned:
    """A notice came: a warning, a loss, a restore."""

    type: ClassVar[str] = "warning"
    notice: Notice


@dataclass(frozen=True, slots=True)
class GenerationChanged:
    """What the variables of ``before`` were is gone."""

    type: ClassVar[str] = "generation_changed"
    before: int
    generation: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The gateway keeps no events before ``oldest`` any more; what the final execution carries is not touched by that."""

    type: ClassVar[str] = "gap"
    after: int
    oldest: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end: the whole execution."""

    type: ClassVar[str] = "done"
    execution: Execution


Event = Queued | Started | Stdout | Stderr | Display | Result | Error | Warned | GenerationChanged | Gap | Done


def json_of(event: ServerEvent) -> Json:
    """Its data; empty when that is no JSON object."""
    try:
        value = json.loads(event.data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class Reading:
    """Turns a session's events into those of one execution. ``finished``: it is over, and has to be fetched."""

    def __init__(self, execution_id: str, generation: int) -> None:
        self.execution_id = execution_id
        self.finished = False
        self._generation = generation
        self._started = False
        self._position: int | None = -1

    def take(self, event: ServerEvent) -> Iterator[Event]:
        value = json_of(event)
        match event.type:
            case "message" if value.get("execution_id") == self.execution_id:
                yield from self._message(word(value.get("msg_type")), members(value.get("content")))
            case "execution":
                yield from self.seen(Execution.of(members(value.get("execution"))))
            case "session":
                yield from self._in_generation(number(members(value.get("session")).get("generation")))
            case "notice":
                yield Warned(Notice.of(value))
            case "gap":
                yield Gap(number(value.get("after")), number(value.get("oldest")))
            case "bye" if value.get("code") == "session_ended":
                self.finished = True

    def seen(self, execution: Execution) -> Iterator[Event]:
        """The execution as it is now."""
        if execution.execution_id != self.execution_id:
            return
        if execution.state == "queued":
            if execution.position != self._position:
                self._position = execution.position
                yield Queued(self.execution_id, execution.position)
            return
        if not self._started and (execution.state == "running" or execution.raw.get("started_at")):
            self._started = True
            yield Started(self.execution_id)
        if execution.finished:
            self.finished = True

    def _in_generation(self, generation: int) -> Iterator[Event]:
        if generation > self._generation:
            before, self._generation = self._generation, generation
            yield GenerationChanged(before, generation)

    def _message(self, kind: str, content: Json) -> Iterator[Event]:
        if kind == "stream":
            text = word(content.get("text"))
            yield Stderr(text) if content.get("name") == "stderr" else Stdout(text)
        elif kind in ("display_data", "update_display_data"):
            display_id = word(members(content.get("transient")).get("display_id"))
            yield Display(Output.of(content), display_id, kind.startswith("update"))
        elif kind == "execute_result":
            yield Result(Output.of({**content, "is_main_result": True}))
        elif kind == "error":
            yield Error(CodeError.of(content))
