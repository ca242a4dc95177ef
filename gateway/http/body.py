"""JSON request bodies: parsed strictly and checked against a table of fields. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..errors import BadRequest


@dataclass(frozen=True, slots=True)
class Field:
    """``type``: ``str``, ``int``, ``float`` (whole numbers too), ``bool`` or ``list`` (of strings). Null is the same as absent.

    ``max_chars``: of a string, or of each in a list; ``most``: of a number, or how many a list may have.
    """

    type: type
    required: bool = False
    default: Any = None
    max_chars: int = 0
    least: float | None = None
    most: float | None = None


_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", list: "a list of strings"}


def load(raw: bytes) -> Any:
    """Parse JSON. Raises BadRequest: not UTF-8, not JSON, nested too deeply, ``NaN`` and its like."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise BadRequest("The body is not UTF-8.") from None
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise BadRequest(f"The body is not JSON{where}.") from None


def load_lenient(raw: bytes) -> dict[str, Any]:
    """For Jupyter's routes: an empty body, ``null`` or an object with any keys. Raises BadRequest on anything else."""
    value = load(raw) if raw.strip() else {}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    return value


def parse_object(raw: bytes, fields: dict[str, Field]) -> dict[str, Any]:
    """A JSON object with no keys but those of ``fields``; absent ones get their default. An empty body is ``{}``.

    Raises BadRequest, which names the key and, for an unknown one, the known ones.
    """
    value = load(raw) if raw.strip() else {}
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    unknown = sorted(set(value) - set(fields))
    if unknown:
        known = sorted(fields)
        raise BadRequest(
            f"Unknown key {unknown[0]!r:.80}; known are: {', '.join(known) or 'none'}.",
            unknown=[key[:80] for key in unknown[:10]],
            known=known,
        )
    return {name: _checked(name, value.get(name), field) for name, field in fields.items()}


def _checked(name: str, value: Any, field: Field) -> Any:
    if value is None:
        if field.required:
            raise BadRequest(f"The key {name!r} is missing.", key=name)
        return field.default
    if not _is(value, field.type):
        raise BadRequest(f"{name!r} must be {_NAMES[field.type]}.", key=name)
    if field.type is list:
        if field.most is not None and len(value) > field.most:
            raise BadRequest(f"{name!r} may have at most {field.most:g} entries.", key=name)
        return [_checked(name, each, Field(str, required=True, max_chars=field.max_chars)) for each in value]
    if field.type is str:
        if field.max_chars and len(value) > field.max_chars:
            raise BadRequest(f"{name!r} may have at most {field.max_chars} characters.", key=name)
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadRequest(f"{name!r} holds half of a surrogate pair.", key=name) from None
    if field.least is not None and value < field.least:
        raise BadRequest(f"{name!r} must be at least {field.least:g}.", key=name)
    if field.most is not None and value > field.most:
        raise BadRequest(f"{name!r} may be at most {field.most:g}.", key=name)
    return value


def _is(value: Any, wanted: type) -> bool:
    if isinstance(value, bool):
        return wanted is bool
    if wanted is float:
        return isinstance(value, (int, float))
    return isinstance(value, wanted)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
