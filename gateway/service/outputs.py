"""An execution's outputs, read back from the journal."""

from __future__ import annotations

from typing import Any

from ..domain.harmless import harmless, shown_in
from ..domain.sensitive import Screen, held_text
from ..domain.tracebacks import cleaned, folded
from ..protocol import jupyter
from .journal import EntryKind, Flag, Journal

Json = dict[str, Any]
READ_AS_TEXT = ("text/plain", "text/markdown", "text/latex")
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
            streams.setdefault(str(content.get("name")), []).append(str(content.get("text", "")))
        elif kind in ("display_data", "execute_result"):
            results.append({"data": content.get("data", {}), "metadata": content.get("metadata", {}), "is_main_result": kind == "execute_result"})
        elif kind == "error":
            error = {"name": content.get("ename"), "value": content.get("evalue"), "traceback": content.get("traceback", [])}
    return {
        "stdout": "".join(streams["stdout"]), "stderr": "".join(streams["stderr"]), "results": results, "error": error,
        "bytes_left_out": left_out,
    }  # fmt: skip


def presented(found: Json, screen: Screen) -> Json:
    """What ``collect`` found as a caller reads it: without terminal controls, tracebacks without paths of the image and with their fold,
    and ``sensitive``: the kinds found, with where. A policy that holds leaves words in the place of such an output.
    """
    error, results = found["error"], found["results"]
    parts: list[tuple[str, str, Json]] = [(name, "stream", {"text": found[name]}) for name in ("stdout", "stderr")]
    parts += [(f"results[{n}]", "execute_result", result) for n, result in enumerate(results)]
    if error is not None:
        parts.append(("error", "error", {"ename": error["name"], "evalue": error["value"], "traceback": error["traceback"]}))
    kinds = {where: sorted(found_in) for where, kind, content in parts if (found_in := screen.look(kind, content))}
    held = kinds if screen.holds else {}
    out = dict(found)
    for name in ("stdout", "stderr"):
        out[name] = f"{held_text(held[name])}\n" if name in held else harmless(found[name])
    out["results"] = [
        {**result, **screen.held("execute_result", result, held[f"results[{n}]"])} if f"results[{n}]" in held else _harmless_result(result)
        for n, result in enumerate(results)
    ]
    if error is not None:
        name, value = (str(error[key]) if error[key] is not None else "" for key in ("name", "value"))
        lines = [each for each in error["traceback"] if isinstance(each, str)] if isinstance(error["traceback"], list) else []
        if "error" in held:
            value, lines = held_text(held["error"]), []
        out["error"] = {
            "name": harmless(name), "value": harmless(value), "traceback": [cleaned(line) for line in lines], "folded": folded(lines, name, value),
        }  # fmt: skip
    out["sensitive"] = [{"where": where, "kinds": names, "held": bool(held)} for where, names in kinds.items()]
    return out


def _harmless_result(result: Json) -> Json:
    """Text that is read as text; markup and data are another program's to read, as they are."""
    data = result["data"] if isinstance(result["data"], dict) else {}
    return {**result, "data": {mime: shown_in(value) if mime in READ_AS_TEXT else value for mime, value in data.items()}}
