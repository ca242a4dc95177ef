"""JSON as the gateway writes it: compact, UTF-8, and never with a lone surrogate or NaN that a browser would choke on."""

from __future__ import annotations

import json
from typing import Any

# made once: json.dumps with arguments makes an encoder a call
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def dumps(value: Any) -> bytes:
    """UTF-8 bytes. Lone surrogates (from hostile text) become U+FFFD."""
    return _encode(value).encode("utf-8", "replace")
