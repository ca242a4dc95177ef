"""An execution's outputs, read back from the journal."""

from __future__ import annotations

from typing import Any

from ..protocol import jupyter
from .journal import EntryKind, Flag, Journal

Json = dict[str, Any]
MOST_BYTES = 8 * 1024 * 1024
"""What one answer carries; past it the rest is counted, not carried."""


def collect(journal: Journal, msg_id: str, first: int, last: int | None) -> Json:
    """``stdout``, ``stderr``, ``results``, ``error`` and how many bytes were left out (``bytes_left_out``)."""
    streams: dict[str, list[str]] = {"stdout": [], "stderr": []}
    results: list[Json] = []
    error: Json | None = None
    size = left_out = 0
    for head in journal.scan(first):
        if last is not None and head.index > last:
            break
        if head.parent != msg_id or head.kind is not EntryKind.MESSAGE or not head.flags & Flag.OUTPUT:
            continue
        size += head.length
        if size > MOST_BYTES:
            left_out += head.length
            continue
        entries = journal.read(head.index - 1, max_entries=1)
        if not entries:
            continue
        try:
            message = jupyter.decode(bytes(entries[0].body))
            kind, content = message.msg_type, message.content
        except ValueError:
            continue
        if kind == "stream":
            streams["stderr" if content.get("name") == "stderr" else "stdout"].append(_text(content.get("text")))
        elif kind in ("display_data", "execute_result"):
            data, metadata = (value if isinstance(value := content.get(name), dict) else {} for name in ("data", "metadata"))
            results.append({"data": data, "metadata": metadata, "is_main_result": kind == "execute_result"})
        elif kind == "error":
            lines = content.get("traceback")
            error = {
                "name": _text(content.get("ename")), "value": _text(content.get("evalue")),
                "traceback": [_text(line) for line in lines] if isinstance(lines, list) else [],
            }  # fmt: skip
    return {
        "stdout": "".join(streams["stdout"]), "stderr": "".join(streams["stderr"]), "results": results, "error": error,
        "bytes_left_out": left_out,
    }  # fmt: skip


def _text(value: object) -> str:
    """User code can send its messages itself: what is to be text may be anything that JSON has."""
    return value if isinstance(value, str) else ""
