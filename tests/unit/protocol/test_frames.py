"""Both ends of the stream: whatever way bytes are cut, lost, repeated or broken, messages arrive once, in order, or not at all."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocol.frames import (
    HEADER_BYTES,
    MARKER_BYTES,
    MAX_FRAME,
    MAX_JSON,
    MAX_MESSAGE,
    MAX_PAYLOAD,
    FrameError,
    Inbox,
    Kind,
    Lane,
    Message,
    Outbox,
    Parser,
    decode_ack,
    decode_json,
    encode,
    encode_ack,
    encode_json,
    nesting,
)

MARKER = bytes(range(200, 200 + MARKER_BYTES))
SIZES = st.one_of(st.integers(0, 200), st.sampled_from([MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD, 100_000]))
MESSAGES = st.lists(
    st.tuples(st.sampled_from([(Kind.CALL, Lane.CONTROL), (Kind.KERNEL, Lane.KERNEL), (Kind.EVENT, Lane.KERNEL), (Kind.FILE, Lane.FILES)]), SIZES),
    max_size=12,
)


def body(i: int, size: int) -> bytes:
    return (b"%d;" % i * (size // 2 + 1))[:size]


def fill(outbox: Outbox, messages: list[tuple[tuple[Kind, Lane], int]]) -> list[tuple[Kind, Lane, bytes]]:
    made = []
    for i, ((kind, lane), size) in enumerate(messages):
        outbox.put(kind, lane, body(i, size))
        made.append((kind, lane, body(i, size)))
    return made


def wire_of(outbox: Outbox, budget: int = 1) -> bytes:
    out = b""
    while outbox.pending:
        out += outbox.next_frames(budget)
    return out


def feed_cut(parser: Parser, data: bytes, rng: random.Random) -> list[Message]:
    out: list[Message] = []
    pos = 0
    while pos < len(data):
        step = rng.choice([1, 7, HEADER_BYTES, 1000, MAX_FRAME, 100_000])
        out += parser.feed(data[pos : pos + step])
        pos += step
    return out


def by_lane(messages: list[tuple[Kind, Lane, bytes]], lane: Lane) -> list[tuple[Kind, bytes]]:
    return [(k, b) for k, where, b in messages if where == lane]


@given(MESSAGES, st.randoms(use_true_random=False))
def test_messages_come_whole_and_in_order_however_they_are_cut(messages: list[tuple[tuple[Kind, Lane], int]], rng: random.Random) -> None:
    outbox, parser, inbox = Outbox(3), Parser(), Inbox()
    made = fill(outbox, messages)
    got = feed_cut(parser, wire_of(outbox), rng)
    assert all(m.epoch == 3 and inbox.accept(m) for m in got)
    for lane in Lane:
        assert [(m.kind, m.body) for m in got if m.lane == lane] == by_lane(made, lane)
    assert parser.buffered == 0


def test_a_lower_lane_goes_first_and_large_messages_interleave() -> None:
    outbox, parser = Outbox(), Parser()
    outbox.put(Kind.FILE, Lane.FILES, b"f" * 1_000_000)
    outbox.put(Kind.KERNEL, Lane.KERNEL, b"k" * 1_000_000)
    parser.feed(outbox.next_frames(200_000))
    outbox.put(Kind.CALL, Lane.CONTROL, b"{}")
    outbox.put_unnumbered(Kind.PING, b"now")
    first = parser.feed(outbox.next_frames(1))
    second = parser.feed(outbox.next_frames(1))
    assert [m.kind for m in first + second] == [Kind.PING, Kind.CALL]
    rest = parser.feed(wire_of(outbox))
    assert [m.kind for m in rest] == [Kind.KERNEL, Kind.FILE]


@settings(max_examples=60)
@given(MESSAGES, MESSAGES, st.integers(0, 400_000), st.randoms(use_true_random=False))
def test_after_a_break_anywhere_everything_reliable_comes_exactly_once(
    before: list[tuple[tuple[Kind, Lane], int]], after: list[tuple[tuple[Kind, Lane], int]], cut: int, rng: random.Random
) -> None:
    outbox, parser, inbox = Outbox(1), Parser(), Inbox()
    made = fill(outbox, before)
    data = wire_of(outbox)
    cut = min(cut, len(data))
    got = [m for m in feed_cut(parser, data[:cut], rng) if inbox.accept(m)]
    if rng.random() < 0.5:
        outbox.acknowledge(inbox.received)
    # the new owner: bytes of the old stream may still come, then marker and what was kept
    parser.set_marker(MARKER)
    parser.resync()
    stale = data[cut:] if rng.random() < 0.5 else rng.randbytes(rng.randrange(5000))
    outbox.rewind(inbox.received, 2)
    parser.min_epoch = 2
    made += fill(outbox, after)
    got += [m for m in feed_cut(parser, stale + MARKER + wire_of(outbox), rng) if inbox.accept(m)]
    for lane in (Lane.CONTROL, Lane.KERNEL):
        assert [(m.kind, m.body) for m in got if m.lane == lane] == by_lane(made, lane)
    outbox.acknowledge(inbox.received)
    assert outbox.kept_bytes == 0


@settings(max_examples=60)
@given(MESSAGES, st.integers(0, 400_000), st.randoms(use_true_random=False))
def test_a_watching_parser_finds_the_marker_in_any_state(messages: list[tuple[tuple[Kind, Lane], int]], cut: int, rng: random.Random) -> None:
    parser = Parser(MARKER, watch=True)
    old, new = Outbox(1), Outbox(2)
    fill(old, messages)
    made = fill(new, messages)
    data = wire_of(old)
    data = data[: min(cut, len(data))] + (rng.randbytes(rng.randrange(100)) if rng.random() < 0.5 else b"")
    got: list[Message] = []
    stream = data + MARKER + wire_of(new)
    pos = 0
    while pos < len(stream):
        step = rng.choice([1, 31, 33, 5000, 200_000])
        try:
            got += parser.feed(stream[pos : pos + step])
        except FrameError as error:
            got += error.messages
        pos += step
    assert parser.markers_seen == 1
    new_ones = [m for m in got if m.epoch == 2]
    for lane in Lane:
        assert [(m.kind, m.body) for m in new_ones if m.lane == lane] == by_lane(made, lane)


@settings(max_examples=150)
@given(st.binary(max_size=5000), st.booleans(), st.randoms(use_true_random=False))
def test_random_bytes_raise_nothing_but_frame_errors_and_allocate_nothing(data: bytes, watch: bool, rng: random.Random) -> None:
    parser = Parser(MARKER, watch=True) if watch else Parser()
    for _ in range(3):
        try:
            feed_cut(parser, data, rng)
        except FrameError:
            assert parser.deaf
        assert parser.buffered <= 5000 + MAX_FRAME


@settings(max_examples=150)
@given(MESSAGES, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_one_flipped_byte_is_never_taken_for_a_message(messages: list[tuple[tuple[Kind, Lane], int]], flips: list[tuple[int, int]]) -> None:
    outbox = Outbox(1)
    made = fill(outbox, messages)
    data = bytearray(wire_of(outbox))
    for at, value in flips:
        if data:
            data[at % len(data)] = value
    parser = Parser()
    try:
        got = parser.feed(bytes(data))
    except FrameError as error:
        got = error.messages
    for lane in Lane:
        whole = by_lane(made, lane)
        assert [(m.kind, m.body) for m in got if m.lane == lane] == whole[: len([m for m in got if m.lane == lane])]


def rebuilt(frame: bytes, **fields: int) -> bytes:
    """A frame with other header fields and a right checksum."""
    import struct
    import zlib

    layout = struct.Struct("<2sBBBBHIQIII")
    names = ("magic", "version", "kind", "lane", "zero", "length", "epoch", "number", "offset", "total", "crc")
    values = dict(zip(names, layout.unpack_from(frame), strict=True)) | fields
    head = layout.pack(*values.values())[:-4]
    payload = frame[HEADER_BYTES:]
    return head + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "little") + payload


FRAME = next(encode(Kind.CALL, Lane.CONTROL, 1, 1, b"{}"))


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 2},
        {"kind": 0},
        {"kind": 11},
        {"kind": 200},
        {"lane": 1},
        {"lane": 3},
        {"zero": 1},
        {"length": MAX_PAYLOAD + 1},
        {"length": 65535},
        {"total": MAX_JSON + 1},
        {"total": 2**32 - 1},
        {"offset": 2**32 - 1},
        {"offset": 1},
        {"total": 1},
        {"number": 0},
        {"length": 0, "total": 5},
    ],
)
def test_a_field_out_of_bounds_breaks_the_stream_before_anything_is_allocated(fields: dict[str, int]) -> None:
    parser = Parser()
    with pytest.raises(FrameError):
        parser.feed(rebuilt(FRAME, **fields))
    assert parser.deaf and parser.buffered < 100
    assert parser.feed(FRAME) == []


def test_kinds_travel_in_their_lanes_only() -> None:
    outbox = Outbox()
    for kind, lane in ((Kind.KERNEL, Lane.FILES), (Kind.EVENT, Lane.CONTROL), (Kind.FILE, Lane.KERNEL), (Kind.PING, Lane.CONTROL)):
        with pytest.raises(FrameError):
            outbox.put(kind, lane, b"")
    with pytest.raises(FrameError):
        outbox.put_unnumbered(Kind.CALL, b"")
    ping = next(encode(Kind.PING, Lane.CONTROL, 0, 1, b"x"))
    with pytest.raises(FrameError):
        Parser().feed(rebuilt(ping, number=5))


def test_too_long_messages_are_refused_where_they_are_made() -> None:
    outbox = Outbox()
    for kind, lane, limit in ((Kind.CALL, Lane.CONTROL, MAX_JSON), (Kind.FILE, Lane.FILES, 1024 * 1024), (Kind.KERNEL, Lane.KERNEL, MAX_MESSAGE)):
        with pytest.raises(FrameError):
            outbox.put(kind, lane, bytes(limit + 1))
        outbox.put(kind, lane, bytes(limit))
    assert outbox.last == (1, 1, 1)


def test_frames_of_one_message_must_follow_each_other() -> None:
    frames = list(encode(Kind.KERNEL, Lane.KERNEL, 1, 1, b"a" * (3 * MAX_PAYLOAD)))
    other = next(encode(Kind.KERNEL, Lane.KERNEL, 2, 1, b"b"))
    for order in ([frames[1]], [frames[0], frames[2]], [frames[0], frames[0]], [frames[0], other], [frames[0], rebuilt(frames[1], epoch=2)]):
        parser = Parser()
        with pytest.raises(FrameError):
            parser.feed(b"".join(order))
    between = Parser()
    assert [m.kind for m in between.feed(b"".join((frames[0], encode_ack((1, 1, 1), 1), *frames[1:])))] == [Kind.ACK, Kind.KERNEL]


def test_older_epochs_are_dropped() -> None:
    parser = Parser()
    parser.min_epoch = 5
    old, new = Outbox(4), Outbox(5)
    old.put(Kind.CALL, Lane.CONTROL, b"{}")
    new.put(Kind.CALL, Lane.CONTROL, b"{}")
    assert [m.epoch for m in parser.feed(old.next_frames() + new.next_frames())] == [5]


def test_gaps_are_errors_on_reliable_lanes_and_repeats_are_not_new() -> None:
    inbox = Inbox((0, 5, 0))

    def message(lane: Lane, number: int) -> Message:
        return Message(Kind.KERNEL, lane, number, 1, b"")

    assert not inbox.accept(message(Lane.KERNEL, 5))
    assert inbox.accept(message(Lane.KERNEL, 6))
    with pytest.raises(FrameError):
        inbox.accept(message(Lane.KERNEL, 8))
    assert inbox.accept(message(Lane.FILES, 3)) and not inbox.accept(message(Lane.FILES, 2))
    assert inbox.accept(message(Lane.CONTROL, 0))
    assert inbox.received == [0, 6, 3]


def test_acknowledgements_of_what_was_never_sent_are_errors() -> None:
    outbox = Outbox()
    outbox.put(Kind.CALL, Lane.CONTROL, b"{}")
    for received in ((2, 0, 0), (0, 1, 0), (1, 0), (2**64 - 1, 0, 0)):
        with pytest.raises(FrameError):
            outbox.acknowledge(received)
    assert outbox.kept_bytes == 2
    outbox.acknowledge((1, 0, 0))
    assert outbox.kept_bytes == 0
    assert decode_ack(encode_ack((1, 2, 3), 1)[HEADER_BYTES:]) == (1, 2, 3)
    with pytest.raises(FrameError):
        decode_ack(b"short")


def test_numbers_go_on_after_another_owner() -> None:
    outbox = Outbox(2)
    outbox.resume_numbers([7, 8, 9])
    assert outbox.put(Kind.CALL, Lane.CONTROL, b"{}") == 8 and outbox.put(Kind.KERNEL, Lane.KERNEL, b"") == 9
    for wrong in ([1, 2], [1, 2, 3]):
        with pytest.raises(FrameError):
            outbox.resume_numbers(wrong)


def test_a_marker_that_comes_in_pieces_and_twice() -> None:
    parser = Parser(MARKER, watch=True)
    outbox = Outbox(1)
    outbox.put(Kind.CALL, Lane.CONTROL, b"{}")
    frame = outbox.next_frames()
    got = []
    for byte in frame + frame[:10] + MARKER + MARKER[:20] + MARKER + frame:
        try:
            got += parser.feed(bytes((byte,)))
        except FrameError as error:
            got += error.messages
    assert len(got) == 2 and parser.markers_seen == 2


def test_a_flood_of_deaf_bytes_is_not_kept() -> None:
    parser = Parser(MARKER)
    for _ in range(200):
        assert parser.feed(b"\x00" * 100_000) == []
        assert parser.buffered < MARKER_BYTES


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"1",
        b"nul",
        b"{",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'\xff{"a":1}',
        b'{"a":' * 40 + b"1" + b"}" * 40,
        b"[" * 100_000,
        b'{"a":1}x',
        b"9" * 10_000,
    ],
)
def test_json_that_is_not_one_small_object_is_refused(text: bytes) -> None:
    with pytest.raises(FrameError):
        decode_json(text)


def test_json_keeps_what_it_says() -> None:
    value = {"a": [1, 2.5, None, True, 'ä \U0001f600 " \\ []{}'], "deep": {"x": {"y": {}}}}
    assert decode_json(encode_json(value)) == value
    assert decode_json(encode_json({"half": "\ud800"})) == {"half": "\ud800"}
    brackets_in_text = {"t": "[" * 1000 + '\\"' + "{" * 1000}
    assert decode_json(encode_json(brackets_in_text)) == brackets_in_text


@given(
    st.recursive(st.none() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3))
)
def test_nesting_is_counted_right(value: object) -> None:
    def depth(item: object) -> int:
        if isinstance(item, dict):
            return 1 + max(map(depth, item.values()), default=0)
        if isinstance(item, list):
            return 1 + max(map(depth, item), default=0)
        return 0

    text = encode_json({"v": value})
    assert nesting(text, 0) >= min(1, depth(value))
    for limit in (1, 3, 6):
        assert (nesting(text, limit) > limit) == (depth(value) + 1 > limit)


def test_nesting_takes_linear_time_on_anything() -> None:
    began = time.perf_counter()
    for text in (b'"' * 2_000_000, b'\\"' * 1_000_000, b"[" * 2_000_000, b'["' + b"\\" * 2_000_000, b"]" * 2_000_000):
        nesting(text + b"[" * 50, 32)
    assert time.perf_counter() - began < 5
