"""Messages from a kernel, untrusted, and messages to it, signed.

Signatures of what comes are not checked: user code runs in the kernel process and holds the key, so that a good signature
would prove nothing. What goes to the kernel is signed, since ipykernel checks it.
"""

from __future__ import annotations

import hmac
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from frames import MAX_NESTING, nesting, parse_json
from wire import MAX_HEADER, MAX_PARTS, MIN_PARTS, pack, packed_size

from .zmtp import Raw

DELIMITER = b"<IDS|MSG>"
_MAX_IDENTITIES = 8
_MAX_WORD = 256
_SMALL = 4096


class Malformed(ValueError):
    """Not a Jupyter message."""


def _object(data: bytes | bytearray, what: str) -> dict[str, Any]:
    if len(data) > MAX_HEADER or nesting(data, MAX_NESTING) > MAX_NESTING:
        raise Malformed(f"its {what} is too large")
    try:
        value = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"its {what} is not JSON") from error
    if type(value) is not dict:
        raise Malformed(f"its {what} is not an object")
    return value


def _word(header: dict[str, Any], name: str) -> str:
    value = header.get(name, "")
    if type(value) is not str or len(value) > _MAX_WORD:
        raise Malformed(f"its {name} is not a short text")
    return value


@dataclass(slots=True)
class Incoming:
    """``parts``: header, parent header, metadata, content, buffers. ``size``: of the v1 message, or what it would have been."""

    channel: str
    parts: list[bytes | bytearray]
    msg_type: str
    parent_id: str
    size: int
    cut: bool = False

    def packed(self) -> bytes:
        return pack(self.channel, self.parts)

    def state(self) -> str:
        """``execution_state`` of a status message, else empty."""
        if self.msg_type != "status" or len(self.parts[3]) > _SMALL:
            return ""
        try:
            value = parse_json(self.parts[3])
        except (ValueError, RecursionError):
            return ""
        state = value.get("execution_state") if type(value) is dict else None
        return state if type(state) is str else ""


# (parent header, its msg_id) of the last message: those of one request all have the same
_last_parent: tuple[bytes, str] = (b"{}", "")


def parse(channel: str, raw: Raw) -> Incoming:
    """Raises ``Malformed``."""
    global _last_parent
    frames = raw.frames
    try:
        at = frames.index(DELIMITER, 0, _MAX_IDENTITIES + 1)
    except ValueError:
        raise Malformed("it has no delimiter") from None
    parts = frames[at + 2 :]
    if not MIN_PARTS <= len(parts) <= MAX_PARTS:
        raise Malformed(f"it has {len(parts)} parts")
    msg_type = _word(_object(parts[0], "header"), "msg_type")
    if not msg_type:
        raise Malformed("it has no msg_type")
    if parts[1] != _last_parent[0]:
        _last_parent = (bytes(parts[1]), _word(_object(parts[1], "parent header"), "msg_id"))
    size = raw.size if raw.cut else packed_size(channel, parts)
    return Incoming(channel, parts, msg_type, _last_parent[1], size, raw.cut)


def new_header(msg_type: str, msg_id: str = "", session: str = "sandglass-relay") -> dict[str, Any]:
    return {
        "msg_id": msg_id or uuid.uuid4().hex,
        "msg_type": msg_type,
        "username": "sandglass",
        "session": session,
        "date": datetime.now(UTC).isoformat(),
        "version": "5.3",
    }


def made(channel: str, msg_type: str, parent: bytes | bytearray, content: dict[str, Any], parent_id: str) -> Incoming:
    """A message of the relay's own, in the kernel's place. ``parent``: the parent header's bytes, taken over as they are."""
    parts: list[bytes | bytearray] = [json.dumps(new_header(msg_type)).encode(), parent, b"{}", json.dumps(content).encode()]
    return Incoming(channel, parts, msg_type, parent_id, packed_size(channel, parts))


def signed(key: bytes, parts: list[bytes]) -> list[bytes]:
    """The frames that go to the kernel's socket."""
    signature = hmac.digest(key, b"".join(parts[:4]), "sha256").hex().encode() if key else b""
    return [DELIMITER, signature, *parts]


def request(msg_type: str, msg_id: str, content: dict[str, Any]) -> list[bytes]:
    """A request of the relay's own."""
    return [json.dumps(new_header(msg_type, msg_id)).encode(), b"{}", b"{}", json.dumps(content).encode()]
