"""JSON request bodies, parsed strictly. Pure."""

from __future__ import annotations

import json
from typing import Any

from ..errors import BadRequest


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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
