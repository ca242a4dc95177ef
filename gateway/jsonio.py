"""JSON as the gateway writes it: compact, UTF-8, and never with a lone surrogate or NaN that a browser would choke on."""

from __future__ import annotations

import json
import math
from typing import Any

# made once: json.dumps with arguments makes an encoder a call
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False).encode


def dumps(value: Any) -> bytes:
    """UTF-8 bytes. Lone surrogates (from hostile text) become U+FFFD; what no JSON number says (a kernel's ``1e999``) becomes null."""
    try:
        text = _encode(value)
    except ValueError:
        text = _encode(_finite(value))
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    """A copy without NaN and infinities. They are rare, so that only who brings one pays for it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
