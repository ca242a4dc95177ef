"""Query arguments of listings: words of a closed vocabulary, times, and the place where a page begins. Pure."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from enum import StrEnum

from ..errors import BadRequest

MAX_LIMIT = 1000
MAX_CURSOR_CHARS = 400


def words(name: str, text: str | None, known: type[StrEnum]) -> tuple[str, ...]:
    """Some of the vocabulary, with commas. Raises BadRequest."""
    found = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    allowed = [str(word) for word in known]
    if not set(found) <= set(allowed):
        raise BadRequest(f"?{name}= must be some of: {', '.join(allowed)}.")
    return found


def time_of(name: str, text: str | None) -> float | None:
    """RFC 3339; without a zone it is UTC. Raises BadRequest."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest(f"?{name}= must be a time such as 2026-01-31T10:00:00Z.") from None


def cursor(place: tuple[float, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(text: str | None) -> tuple[float, str] | None:
    """The inverse. Raises BadRequest."""
    if text is None:
        return None
    try:
        at, session_id = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        if len(text) > MAX_CURSOR_CHARS or not isinstance(session_id, str) or isinstance(at, bool) or not math.isfinite(at):
            raise ValueError
        return float(at), session_id
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise BadRequest("?cursor= must be the 'next' of the page before.") from None
