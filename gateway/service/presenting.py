"""Outputs as a caller reads them: without terminal controls and paths of the image, and as the tenant's policy lets them out."""

from __future__ import annotations

from typing import Any

from ..domain.harmless import harmless, shown_in
from ..domain.sensitive import Screen, held_text
from ..domain.traceback_text import cleaned, folded
from ..domain.tracebacks import fold

Json = dict[str, Any]
READ_AS_TEXT = ("text/plain", "text/markdown", "text/latex")
_KINDS = {"stdout": "stream", "stderr": "stream", "error": "error"}


def presented(found: Json, screen: Screen) -> Json:
    """Outputs (``Collected.to_json``, perhaps with ``value``) and ``sensitive``: the kinds found in them, with where.

    A policy that holds leaves words in the place of such an output.
    """
    error, results = found["error"], found["results"]
    parts: list[tuple[str, str, Json]] = [(name, "stream", {"text": found[name]}) for name in ("stdout", "stderr")]
    parts += [(f"results[{n}]", "execute_result", result) for n, result in enumerate(results)]
    if error is not None:
        parts.append(("error", "error", _as_message(error)))
    if "value" in found:
        parts.append(("value", "execute_result", {"data": {"application/json": found["value"]}}))
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
        out["error"] = _error(error, held.get("error", []))
    if "value" in held:
        out["value"] = held_text(held["value"])
    out["sensitive"] = [{"where": where, "kinds": names, "held": bool(held)} for where, names in kinds.items()]
    return out


def presented_event(event: Json, screen: Screen) -> Json:
    """The same for one output as an event of its execution; ``sensitive`` has the kinds, where there are any."""
    kind = _KINDS.get(event["type"], "execute_result")
    kinds = sorted(screen.look(kind, _as_message(event) if kind == "error" else event))
    marks: Json = {"sensitive": kinds} if kinds else {}
    held = kinds if screen.holds else []
    if kind == "stream":
        return {**event, "text": f"{held_text(held)}\n" if held else harmless(event["text"]), **marks}
    if kind == "error":
        return {**event, **_error(event, held), **marks}
    return {**(screen.held(kind, event, held) if held else _harmless_result(event)), **marks}


def _as_message(error: Json) -> Json:
    return {"ename": error["name"], "evalue": error["value"], "traceback": error["traceback"]}


def _error(error: Json, held: list[str]) -> Json:
    """``traceback``: frames of libraries are one line each run; ``folded``: lines for whoever mends the code."""
    name, value, lines = error["name"], error["value"], error["traceback"]
    if held:
        value, lines = held_text(held), []
    return {
        "name": harmless(name), "value": harmless(value), "traceback": [cleaned(line) for line in fold(lines)], "folded": folded(lines, name, value),
    }  # fmt: skip


def _harmless_result(result: Json) -> Json:
    """Text that is read as text; markup and data are another program's to read, as they are."""
    data = result["data"] if isinstance(result["data"], dict) else {}
    return {**result, "data": {mime: shown_in(value) if mime in READ_AS_TEXT else value for mime, value in data.items()}}
