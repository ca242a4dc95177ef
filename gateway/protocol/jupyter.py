"""Jupyter messages, sans-I/O: a lazy view of a v1 message, the other websocket framing, and new messages.

Inside Sandglass a kernel message is always a ``v1.kernel.websocket.jupyter.org`` message (``wire.py``). Websockets that offered
that subprotocol get its bytes untouched; the others get the *default* framing: JSON text, or, when there are buffers, a binary
message of big-endian u32 offsets, JSON and buffers. ``to_default`` is worth computing once and sharing among clients.

Whatever comes from a kernel or a client is untrusted: anything malformed raises ``JupyterError``, a ``ValueError``.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any

from .frames import MAX_MESSAGE, nesting, parse_json
from .wire import CHANNELS, MAX_BUFFERS, WireError, pack, split

V1_PROTOCOL = "v1.kernel.websocket.jupyter.org"
MESSAGE_VERSION = "5.3"
MAX_DEPTH = 200
"""How deep a message's JSON may nest: parsers at the other end have a limit, and not all of them fail gently."""
MAX_CONTAINERS = 250_000
MAX_ITEMS = 4_000_000
"""The most arrays and objects, and the most items in them, of a message whose JSON is decoded: 64 MiB of ``[],[],`` would become
gigabytes of lists. Long texts are not concerned, nor are messages that are passed on without a look at their content."""
MAX_ID = 256
"""The most characters of a msg_id, msg_type or session."""

Json = dict[str, Any]


class JupyterError(ValueError):
    """That is no Jupyter message; the text says why, in words that may be shown."""


def load(data: bytes | memoryview | str, what: str) -> Json:
    """A JSON object of a message. Raises ``JupyterError``."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    if len(raw) > MAX_CONTAINERS and (raw.count(b"[") + raw.count(b"{") > MAX_CONTAINERS or raw.count(b",") > MAX_ITEMS):
        raise JupyterError(f"The {what} has too many items.")
    if nesting(raw, MAX_DEPTH) > MAX_DEPTH:
        raise JupyterError(f"The {what} nests too deep.")
    try:
        value = parse_json(raw)
    except (ValueError, RecursionError) as error:
        raise JupyterError(f"The {what} is not JSON.") from error
    if type(value) is not dict:
        raise JupyterError(f"The {what} is not a JSON object.")
    return value


# made once: json.dumps with arguments makes an encoder a call
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def dump(value: Json) -> bytes:
    """JSON as it goes into a message; what UTF-8 cannot say (a lone surrogate) is escaped. Raises ``JupyterError``."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise JupyterError("That cannot be said in JSON.") from error


def _word(header: Json, name: str, *, needed: bool) -> str:
    value = header.get(name, "")
    if type(value) is not str or len(value) > MAX_ID or (needed and not value):
        raise JupyterError(f"The header has no proper {name}.")
    return value


class KernelMessage:
    """A view of a v1 message. Parts are decoded at first use and then kept; each may raise ``JupyterError``.

    ``body``: the v1 bytes. Routing needs ``channel``, ``msg_id``, ``msg_type`` and ``parent_id`` only: the two headers.
    """

    __slots__ = ("_content", "_header", "_metadata", "_offsets", "_parent", "body", "channel")

    def __init__(self, body: bytes, channel: str, offsets: tuple[int, ...]) -> None:
        self.body = body
        self.channel = channel
        self._offsets = offsets
        self._header: Json | None = None
        self._parent: Json | None = None
        self._metadata: Json | None = None
        self._content: Json | None = None

    def raw(self, part: int) -> bytes:
        """0 header, 1 parent header, 2 metadata, 3 content, 4... buffers, as bytes."""
        return self.body[self._offsets[part] : self._offsets[part + 1]]

    @property
    def header(self) -> Json:
        if self._header is None:
            self._header = load(self.raw(0), "header")
        return self._header

    @property
    def parent_header(self) -> Json:
        """Empty when there is no parent."""
        if self._parent is None:
            self._parent = load(self.raw(1), "parent header")
        return self._parent

    @property
    def metadata(self) -> Json:
        if self._metadata is None:
            self._metadata = load(self.raw(2), "metadata")
        return self._metadata

    @property
    def content(self) -> Json:
        if self._content is None:
            self._content = load(self.raw(3), "content")
        return self._content

    @property
    def content_size(self) -> int:
        """In bytes, without decoding it."""
        return self._offsets[4] - self._offsets[3]

    @property
    def buffers(self) -> list[memoryview]:
        """Views of ``body``, not copies."""
        view = memoryview(self.body)
        return [view[a:b] for a, b in pairwise(self._offsets[4:])]

    @property
    def msg_id(self) -> str:
        return _word(self.header, "msg_id", needed=True)

    @property
    def msg_type(self) -> str:
        return _word(self.header, "msg_type", needed=True)

    @property
    def session(self) -> str:
        return _word(self.header, "session", needed=False)

    @property
    def subshell_id(self) -> str | None:
        value = self.header.get("subshell_id")
        return value if isinstance(value, str) else None

    @property
    def parent_id(self) -> str:
        """Empty when there is no parent."""
        return _parent_id(self.raw(1)) if self._parent is None else _word(self._parent, "msg_id", needed=False)


@lru_cache(maxsize=64)
def _parent_id(raw: bytes) -> str:
    """Of a parent header, which all messages of one request have in common."""
    return _word(load(raw, "parent header"), "msg_id", needed=False)


def decode(body: bytes) -> KernelMessage:
    """Check a v1 message's frame; the JSON in it is looked at when used. Raises ``JupyterError``."""
    try:
        channel, offsets = split(body)
    except WireError as error:
        raise JupyterError(f"Not a kernel message: {error}.") from error
    return KernelMessage(body, channel, offsets)


def build(channel: str, header: Json, parent_header: Json, metadata: Json, content: Json, buffers: Sequence[bytes | memoryview] = ()) -> bytes:
    """A v1 message. Raises ``JupyterError`` for what JSON cannot say."""
    try:
        return pack(channel, [dump(header), dump(parent_header), dump(metadata), dump(content), *buffers])
    except WireError as error:
        raise JupyterError(f"Not a kernel message: {error}.") from error


def make_header(msg_type: str, session: str, *, username: str = "sandglass", msg_id: str = "") -> Json:
    """A header with a new msg_id and the present time."""
    return {
        "msg_id": msg_id or uuid.uuid4().hex,
        "msg_type": msg_type,
        "username": username,
        "session": session,
        "date": datetime.now(UTC).isoformat().replace("+00:00", "Z"),  # noqa: TID251 - shown to people, never compared
        "version": MESSAGE_VERSION,
    }


# --- the default framing --------------------------------------------------------------------------------------------------


def to_default(message: KernelMessage) -> str | bytes:
    """What a websocket without subprotocol gets: text, or bytes when there are buffers.

    Each part is checked to be one JSON object and then taken over as it is. Raises ``JupyterError``.
    """
    msg_id, msg_type = message.msg_id, message.msg_type
    message.parent_header, message.metadata, message.content  # noqa: B018 - checked, so that no part can add members of its own
    text = b"".join(
        (
            b'{"header":', message.raw(0), b',"msg_id":', json.dumps(msg_id).encode(), b',"msg_type":', json.dumps(msg_type).encode(),
            b',"parent_header":', message.raw(1), b',"metadata":', message.raw(2), b',"content":', message.raw(3),
            b',"buffers":[],"channel":"', message.channel.encode(), b'"}',
        )
    )  # fmt: skip
    buffers = message.buffers
    if not buffers:
        return text.decode()
    count = len(buffers) + 1
    at = 4 * (count + 1)
    offsets = [at, at := at + len(text)]
    for buffer in buffers[:-1]:
        offsets.append(at := at + len(buffer))
    return b"".join((struct.pack(f">{count + 1}I", count, *offsets), text, *buffers))


def from_default(data: str | bytes) -> bytes:
    """A v1 message from what a websocket without subprotocol sent. Raises ``JupyterError``."""
    text: str | memoryview
    buffers: list[memoryview] = []
    if isinstance(data, str):
        text = data
    else:
        text, buffers = _cut(data)
    if len(text) > MAX_MESSAGE:
        raise JupyterError("The message is too long.")
    value = load(text, "message")
    channel = value.get("channel") or "shell"  # as jupyter_server takes it
    if channel not in CHANNELS:
        raise JupyterError("The message has an unknown channel.")
    found = (value.get(name) for name in ("header", "parent_header", "metadata", "content"))
    header, parent, metadata, content = ({} if part is None else part for part in found)
    if any(type(part) is not dict for part in (header, parent, metadata, content)):
        raise JupyterError("The message has a part that is not a JSON object.")
    return build(channel, header, parent, metadata, content, buffers)


def _cut(data: bytes) -> tuple[memoryview, list[memoryview]]:
    view, size = memoryview(data), len(data)
    if size < 8:
        raise JupyterError("The message is too short.")
    (count,) = struct.unpack_from(">I", data)
    if not 1 <= count <= MAX_BUFFERS + 1 or 4 * (count + 1) > size:
        raise JupyterError("The message has a count of buffers that cannot be.")
    offsets = [*struct.unpack_from(f">{count}I", data, 4), size]
    at = 4 * (count + 1)
    for offset in offsets:
        if offset < at or offset > size:
            raise JupyterError("The message has offsets that do not fit.")
        at = offset
    pieces = [view[a:b] for a, b in pairwise(offsets)]
    return pieces[0], pieces[1:]
