"""v1 messages and the default websocket framing: there and back unchanged, and nothing but JupyterError for what is broken."""

from __future__ import annotations

import json
import struct
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocol import jupyter
from gateway.protocol.jupyter import JupyterError, build, decode, from_default, make_header, to_default
from gateway.protocol.wire import CHANNELS, MAX_BUFFERS, MAX_HEADER, WireError, pack, packed_size, split, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=6), JSON, max_size=4)
BUFFERS = st.lists(st.binary(max_size=40), max_size=3)


def message(content: dict[str, object] | None = None, *, channel: str = "iopub", parent: dict[str, object] | None = None) -> bytes:
    return build(channel, make_header("stream", "s1"), parent or {"msg_id": "p1"}, {}, content or {"text": "ä"})


@given(st.sampled_from(CHANNELS), st.lists(st.binary(max_size=50), min_size=4, max_size=9))
def test_pack_and_unpack_are_each_others_reverse(channel: str, parts: list[bytes]) -> None:
    body = pack(channel, parts)
    assert len(body) == packed_size(channel, parts)
    assert unpack(body) == (channel, parts)


def test_the_layout_is_the_published_one() -> None:
    # as jupyter_server writes it: count, offsets of channel, of each part and of the end, then the bytes
    body = pack("shell", [b"{}", b"{}", b"{}", b"{}", b"buf"])
    offsets = [8 * 8, 8 * 8 + 5, 8 * 8 + 7, 8 * 8 + 9, 8 * 8 + 11, 8 * 8 + 13, 8 * 8 + 16]
    assert body == struct.pack("<8Q", 7, *offsets) + b"shell{}{}{}{}buf"


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_random_bytes_are_no_message(data: bytes) -> None:
    with pytest.raises(WireError):
        split(data)


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=20), min_size=4, max_size=6), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4))
def test_a_changed_message_is_refused_or_stays_within_its_bytes(parts: list[bytes], flips: list[tuple[int, int]]) -> None:
    data = bytearray(pack("iopub", parts))
    for at, value in flips:
        data[at % len(data)] = value
    try:
        channel, offsets = split(bytes(data))
    except WireError:
        return
    assert channel in CHANNELS and list(offsets) == sorted(offsets) and offsets[-1] == len(data)


@pytest.mark.parametrize("count", [0, 1, 5, MAX_BUFFERS + 7, 2**32, 2**63, 2**64 - 1])
def test_counts_that_cannot_be_are_refused_at_once(count: int) -> None:
    with pytest.raises(WireError):
        split(struct.pack("<Q", count) + bytes(20_000))


def test_limits_of_parts_and_headers() -> None:
    with pytest.raises(WireError):
        pack("iopub", [b"{}"] * 3)
    with pytest.raises(WireError):
        pack("iopub", [b"{}"] * (5 + MAX_BUFFERS))
    with pytest.raises(WireError):
        pack("heartbeat", [b"{}"] * 4)
    for place in (0, 1):
        parts = [b"{}"] * 4
        parts[place] = b" " * (MAX_HEADER + 1)
        with pytest.raises(WireError):
            split(pack("iopub", parts))


def test_routing_decodes_the_headers_and_nothing_else() -> None:
    body = pack("iopub", [json.dumps(make_header("stream", "s")).encode(), b'{"msg_id":"p"}', b"not JSON", b"not JSON either"])
    m = decode(body)
    assert (m.channel, m.msg_type, m.parent_id, m.session) == ("iopub", "stream", "p", "s")
    assert m.content_size == len(b"not JSON either")
    for name in ("metadata", "content"):
        with pytest.raises(JupyterError):
            getattr(m, name)


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"msg_id":1,"msg_type":"x"}', b'{"msg_id":"","msg_type":"x"}', b'{"msg_id":"a","msg_type":null}',
     b'{"msg_id":"' + b"a" * 300 + b'","msg_type":"x"}', b"\xff", b'{"a":' * 300 + b"1" + b"}" * 300, b'{"msg_id":NaN}'],
)  # fmt: skip
def test_a_header_that_makes_no_sense_is_refused(header: bytes) -> None:
    m = decode(pack("shell", [header, b"{}", b"{}", b"{}"]))
    with pytest.raises(JupyterError):
        assert m.msg_id and m.msg_type
    if header not in (b"{}", b'{"msg_id":"","msg_type":"x"}', b'{"msg_id":"a","msg_type":null}'):
        with pytest.raises(JupyterError):
            decode(pack("shell", [b'{"msg_id":"a","msg_type":"b"}', header, b"{}", b"{}"])).parent_id  # noqa: B018


@given(OBJECTS, OBJECTS, OBJECTS, BUFFERS, st.sampled_from(CHANNELS))
def test_default_framing_says_the_same(
    metadata: dict[str, object], content: dict[str, object], parent: dict[str, object], buffers: list[bytes], channel: str
) -> None:
    header = make_header("comm_msg", "sess")
    parent = parent | {"msg_id": "p"}
    m = decode(build(channel, header, parent, metadata, content, buffers))
    data = to_default(m)
    if buffers:
        assert isinstance(data, bytes)
        count = struct.unpack_from(">I", data)[0]
        assert count == len(buffers) + 1
        offsets = [*struct.unpack_from(f">{count}I", data, 4), len(data)]
        assert offsets[0] == 4 * (count + 1)
        assert [data[a:b] for a, b in pairwise(offsets[1:])] == buffers
        text = data[offsets[0] : offsets[1]].decode()
    else:
        assert isinstance(data, str)
        text = data
    value = json.loads(text)
    assert value == {
        "header": header, "msg_id": header["msg_id"], "msg_type": "comm_msg", "parent_header": parent, "metadata": metadata,
        "content": content, "buffers": [], "channel": channel,
    }  # fmt: skip
    back = decode(from_default(data))
    assert (back.channel, back.header, back.parent_header, back.metadata, back.content) == (channel, header, parent, metadata, content)
    assert [bytes(b) for b in back.buffers] == buffers


@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize("data", [b'{},"channel":"shell"', b"{}}", b"[]", b"", b"{} {}", b'{"a":NaN}', b"\xff"])
def test_no_part_can_add_members_of_its_own(part: int, data: bytes) -> None:
    parts = [json.dumps(make_header("stream", "s")).encode(), b"{}", b"{}", b"{}"]
    parts[part] = data
    with pytest.raises(JupyterError):
        to_default(decode(pack("iopub", parts)))


@settings(max_examples=200)
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_random_websocket_messages_are_refused_in_a_typed_way(data: bytes | str) -> None:
    try:
        decode(from_default(data))
    except JupyterError:
        pass


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"channel":"x"}', '{"header":[]}', '{"channel":"shell","content":"x"}', '{"channel":3}', "[" * 100_000, '{"header":{"a":NaN}}'],
)
def test_broken_text_is_refused(text: str) -> None:
    with pytest.raises(JupyterError):
        from_default(text)


def test_offsets_of_binary_messages_are_checked() -> None:
    good = struct.pack(">3I", 2, 12, 14) + b"{}" + b"b"
    assert [bytes(b) for b in decode(from_default(good)).buffers] == [b"b"]
    for bad in (
        struct.pack(">3I", 2, 12, 200) + b"{}b",
        struct.pack(">3I", 2, 14, 12) + b"{}b",
        struct.pack(">3I", 2, 4, 14) + b"{}b",
        struct.pack(">2I", 2**32 - 1, 12) + b"{}b",
        struct.pack(">2I", 0, 8) + b"{}",
        b"\0\0",
    ):
        with pytest.raises(JupyterError):
            from_default(bad)


def test_what_json_cannot_say_is_not_built() -> None:
    for content in ({"a": float("nan")}, {"a": object()}, {"a": {1, 2}}):
        with pytest.raises(JupyterError):
            message(content)
    half = decode(message({"a": "\ud800"}))
    assert half.content == {"a": "\ud800"}
    assert json.loads(to_default(half))["content"] == {"a": "\ud800"}


def test_json_of_millions_of_items_is_refused_and_long_text_is_not() -> None:
    header = json.dumps(make_header("display_data", "s")).encode()
    began = time.perf_counter()
    for content in (b'{"a":[' + b"[]," * 2_000_000 + b"1]}", b'{"a":' + b"[" * 3_000_000 + b"}", b'{"a":[' + b"1," * 5_000_000 + b"1]}"):
        with pytest.raises(JupyterError):
            decode(pack("iopub", [header, b"{}", b"{}", content])).content  # noqa: B018
    assert time.perf_counter() - began < 5
    text = b'{"a":"' + b"[{" * 5_000_000 + b'"}'
    with pytest.raises(JupyterError):
        decode(pack("iopub", [header, b"{}", b"{}", text])).content  # noqa: B018 - brackets in a text are not told apart at this size
    assert decode(pack("iopub", [header, b"{}", b"{}", b'{"a":"' + b"x" * 20_000_000 + b'"}'])).content["a"] == "x" * 20_000_000


def test_new_headers_are_complete_and_never_the_same() -> None:
    first, second = make_header("execute_request", "s"), make_header("execute_request", "s", msg_id="mine")
    assert set(first) == {"msg_id", "msg_type", "username", "session", "date", "version"}
    assert first["version"] == "5.3" and first["msg_id"] != make_header("x", "s")["msg_id"] and second["msg_id"] == "mine"
    assert first["date"].endswith("Z")


def test_buffers_are_views() -> None:
    m = decode(pack("iopub", [b"{}"] * 4 + [b"abc", b""]))
    views = m.buffers
    assert [bytes(v) for v in views] == [b"abc", b""] and all(v.obj is m.body for v in views)
    assert jupyter.V1_PROTOCOL == "v1.kernel.websocket.jupyter.org"
