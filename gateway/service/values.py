"""What a cell hands over with ``sandglass.result(value)``: it stands in the journal, and is checked when its execution ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..domain.execution import SENTENCES
from ..domain.model import ExitReason
from ..domain.schemas import Mismatch, mismatch
from ..errors import StoreUnavailable
from ..protocol import jupyter
from .journal import Flag, Journal

if TYPE_CHECKING:
    from .live import LiveSession
    from .runs import Run

MSG_TYPE = "sandglass_result"
TARGET = "value"
"""In the journal: meant for no attachment."""
MAX_BYTES = 1024 * 1024 + 4096
"""Of the whole message; the image's own helper takes values of up to 1 MiB."""
FREE = 16
"""So many calls of one cell cost nothing of its output budget; the last one counts."""


def keep(s: LiveSession, run: Run | None, body: bytes, *, lane: int, number: int, parent: str) -> None:
    """Take one. Too large, or one too many, is as if it had not been handed over. Raises StoreUnavailable (the relay keeps it)."""
    if run is None or len(body) > MAX_BYTES:
        return
    if run.values >= FREE and not s.runs.count_output(run, len(body)):
        return
    s.write_message(body, flags=Flag(0), lane=lane, number=number, parent=parent, target=TARGET)
    run.values += 1
    run.row.data["value"] = s.journal.last_index


def read(journal: Journal, index: int) -> tuple[bool, Any]:
    """Whether it is (still) there, and the value."""
    try:
        entries = journal.read(index - 1, max_entries=1) if index >= journal.first_index else []
        if not entries or entries[0].index != index:
            return False, None
        content = jupyter.decode(bytes(entries[0].body)).content
    except (StoreUnavailable, ValueError):
        return False, None
    return "value" in content, content.get("value")


def judge(s: LiveSession, run: Run) -> Mismatch | None:
    """Why an execution's value is not what was asked for; None when it is, or when nothing was."""
    if run.schema is None:
        return None
    there, value = read(s.journal, run.row.data["value"]) if "value" in run.row.data else (False, None)
    if not there:
        return Mismatch("$", "no value was handed over: the code must call sandglass.result(value)")
    return mismatch(run.schema, value)


def reject(run: Run, found: Mismatch) -> None:
    """Say why in the record."""
    run.row.data["rejected"] = {"path": found.path, "problem": found.problem}
    run.row.data["detail"] = f"{SENTENCES[ExitReason.ARTIFACT_REJECTED]} At {found.path}: {found.problem}."
