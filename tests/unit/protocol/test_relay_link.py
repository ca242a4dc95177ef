"""The relay's end against a gateway's end over a line that cuts, loses and repeats: every reliable message once, in order, both ways."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from relay.link import ACK_S, Link

from gateway.protocol.frames import (
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
    encode_ack,
    encode_json,
)


class Gateway:
    """What a gateway process knows: gone with it, but for ``journal`` and the marker, which stand in its records."""

    def __init__(self, epoch: int, marker: bytes, received: list[int]) -> None:
        self.parser = Parser(marker or None)
        self.parser.min_epoch = epoch
        self.epoch, self.marker = epoch, marker
        self.inbox = Inbox(received)
        self.outbox = Outbox(epoch)
        self.hello: dict[str, Any] = {}
        self.acknowledged = [0, 0, 0]

    def attach(self, limits: Any = None) -> bytes:
        outbox = Outbox(self.epoch)
        outbox.put_unnumbered(Kind.ATTACH, encode_json({"protocol": 1, "epoch": self.epoch, "received": self.inbox.received, "limits": limits}))
        return self.marker + outbox.next_frames()

    def feed(self, data: bytes) -> list[Message]:
        new = []
        for message in self.parser.feed(data):
            if message.kind is Kind.HELLO:
                self.hello = decode_json(message.body)
            elif message.kind is Kind.ACK:
                self.acknowledged = list(decode_ack(message.body))
            elif self.inbox.accept(message) and message.number:
                new.append(message)
        return new


class Relay:
    def __init__(self) -> None:
        self.limits: list[Any] = []
        self.log: list[str] = []
        self.link = Link(lambda: {"relay": "1", "kernel": {"state": "none"}}, self.limits.append, self.log.append)

    def output(self, most: int = 10**9) -> bytes:
        out = b""
        while len(out) < most and (data := self.link.output(1)):
            out += data
        return out


def first_contact() -> tuple[Relay, Gateway]:
    relay = Relay()
    gateway = Gateway(1, b"", [0, 0, 0])
    gateway.parser.min_epoch = 0
    gateway.feed(relay.output())
    gateway.marker = bytes.fromhex(gateway.hello["marker"])
    gateway.parser.set_marker(gateway.marker)
    gateway.parser.resync()
    return relay, gateway


def test_the_greeting_goes_first_and_nothing_else_before_an_attach() -> None:
    relay = Relay()
    relay.link.put_json(Kind.EVENT, Lane.KERNEL, {"event": "early"})
    gateway = Gateway(1, b"", [0, 0, 0])
    gateway.parser.min_epoch = 0
    assert gateway.feed(relay.output()) == []
    assert gateway.hello["epoch"] == 0 and gateway.hello["received"] == [0, 0, 0] and len(gateway.hello["marker"]) == 64
    relay.link.put_json(Kind.EVENT, Lane.KERNEL, {"event": "still early"})
    assert relay.output() == b""


def test_attach_answers_marker_greeting_and_what_was_kept() -> None:
    relay, gateway = first_contact()
    relay.link.put_json(Kind.EVENT, Lane.KERNEL, {"event": "kept"})
    assert relay.link.feed(0.0, gateway.attach({"retain_bytes": 5})) == []
    data = relay.output()
    assert data.startswith(gateway.marker)
    assert [json.loads(m.body) for m in gateway.feed(b"rubbish of before" + data)] == [{"event": "kept"}]
    assert gateway.hello["epoch"] == 1 and gateway.hello["last"] == [0, 1, 0] and relay.limits == [{"retain_bytes": 5}]


def test_an_attach_that_is_not_newer_or_makes_no_sense_is_ignored() -> None:
    relay, gateway = first_contact()
    relay.link.feed(0.0, gateway.attach())
    gateway.feed(relay.output())
    for value in (
        {"epoch": 1, "received": [0, 0, 0]},
        {"epoch": 0, "received": [0, 0, 0]},
        {"epoch": 2**32, "received": [0, 0, 0]},
        {"epoch": "2", "received": [0, 0, 0]},
        {"epoch": True, "received": [0, 0, 0]},
        {"epoch": 2, "received": [0, 0]},
        {"epoch": 2, "received": [0, -1, 0]},
        {"epoch": 2, "received": [0, 9, 0]},
        {"epoch": 2},
        {},
    ):
        outbox = Outbox(1)
        outbox.put_unnumbered(Kind.ATTACH, encode_json(value))
        assert relay.link.feed(0.0, outbox.next_frames()) == []
        assert relay.link.epoch == 1 and len(relay.limits) == 1
    assert relay.output() == b""


def test_requests_are_acknowledged_in_batches() -> None:
    relay, gateway = first_contact()
    relay.link.feed(0.0, gateway.attach())
    gateway.feed(relay.output())
    gateway.outbox.put(Kind.CALL, Lane.CONTROL, b"{}")
    assert len(relay.link.feed(1.0, gateway.outbox.next_frames())) == 1
    assert relay.output() == b"" and relay.link.ack_at == 1.0 + ACK_S
    relay.link.tick(1.0 + ACK_S)
    gateway.feed(relay.output())
    assert gateway.acknowledged == [1, 0, 0] and relay.link.ack_at is None
    for _ in range(64):
        gateway.outbox.put(Kind.KERNEL, Lane.KERNEL, b"x")
    relay.link.feed(2.0, gateway.outbox.next_frames())
    assert relay.link.ack_at == 2.0


def test_ping_is_answered_before_everything_else() -> None:
    relay, gateway = first_contact()
    relay.link.feed(0.0, gateway.attach())
    gateway.feed(relay.output())
    relay.link.put(Kind.KERNEL, Lane.KERNEL, b"k" * 500_000)
    relay.link.output(1)
    outbox = Outbox(1)
    outbox.put_unnumbered(Kind.PING, b"hello")
    relay.link.feed(0.0, outbox.next_frames())
    (pong,) = Parser().feed(relay.link.output(1))
    assert pong.kind is Kind.PONG and pong.body == b"hello"


def test_after_broken_frames_only_the_marker_helps() -> None:
    relay, gateway = first_contact()
    relay.link.feed(0.0, gateway.attach())
    gateway.feed(relay.output())
    gateway.outbox.put(Kind.CALL, Lane.CONTROL, b'{"id":1}')
    good = gateway.outbox.next_frames()
    assert [m.body for m in relay.link.feed(0.0, good + b"X" * 100)] == [b'{"id":1}']
    assert relay.link.feed(0.0, good) == [] and relay.log
    gateway.epoch += 1
    relay.link.feed(0.0, gateway.attach())
    assert relay.link.epoch == 2


def test_file_messages_are_not_kept_for_nobody() -> None:
    relay, gateway = first_contact()
    relay.link.put(Kind.FILE, Lane.FILES, b"1234x")
    assert relay.link.queued_files == 0
    relay.link.feed(0.0, gateway.attach())
    relay.output()
    relay.link.put(Kind.FILE, Lane.FILES, b"1234x")
    assert relay.link.queued_files == 5 and relay.link.kept_bytes == 0


SIZES = st.sampled_from([2, 50, 1000, MAX_PAYLOAD, 3 * MAX_PAYLOAD + 7])


@settings(max_examples=80)
@given(st.lists(st.lists(SIZES, max_size=6), min_size=1, max_size=5), st.integers(0, 2**32))
def test_gateways_come_and_go_and_nothing_is_lost_or_doubled(generations: list[list[int]], seed: int) -> None:
    rng = random.Random(seed)
    relay, gateway = first_contact()
    marker = gateway.marker
    journal: list[bytes] = []  # what gateways have taken from the kernel lane, over all of them
    taken: list[bytes] = []  # what the relay has taken
    said = asked = 0
    now = 0.0
    for epoch, sizes in enumerate(generations, start=1):
        if epoch > 1:
            gateway = Gateway(epoch, marker, list(gateway.inbox.received))
        line = bytearray(gateway.attach())
        for size in sizes:
            relay.link.put(Kind.KERNEL, Lane.KERNEL, str(said := said + 1).encode().ljust(size))
        last = epoch == len(generations)
        for _ in range(10_000):
            now += 0.01
            relay.link.tick(now)
            step = rng.choice([1, 500, 40_000, 10**6])
            piece, line = bytes(line[:step]), line[step:]
            taken += [m.body.strip() for m in relay.link.feed(now, piece) if m.kind is Kind.CALL]
            data = relay.output(step)
            journal += [m.body.strip() for m in gateway.feed(data) if m.kind is Kind.KERNEL]
            if gateway.hello and gateway.hello["epoch"] == epoch and not gateway.outbox.last[0]:
                # only now is it known how far the last one came with its requests
                gateway.outbox.resume_numbers(gateway.hello["received"])
                asked = gateway.hello["received"][0]
                for _ in range(3):
                    gateway.outbox.put(Kind.CALL, Lane.CONTROL, str(asked := asked + 1).encode().ljust(rng.choice([5, 70_000])))
                while gateway.outbox.pending:
                    line += gateway.outbox.next_frames()
            if rng.random() < 0.3:
                line += encode_ack(gateway.inbox.received, epoch)
            quiet = not line and not data and gateway.hello
            if (last and quiet and relay.link.ack_at is None) or (not last and (quiet or rng.random() < 0.1)):
                break
        # a gateway that dies may leave half a frame on its way in
        taken += [m.body.strip() for m in relay.link.feed(now, bytes(line[: rng.randrange(100)])) if m.kind is Kind.CALL]
    assert journal == [str(i).encode() for i in range(1, said + 1)]
    assert taken == [str(i).encode() for i in range(1, len(taken) + 1)]
    assert relay.link.feed(now, encode_ack(gateway.inbox.received, gateway.epoch)) == []
    assert relay.link.kept_bytes == 0


@settings(max_examples=150)
@given(st.lists(st.binary(max_size=300), max_size=10))
def test_random_bytes_never_raise(pieces: list[bytes]) -> None:
    relay, gateway = first_contact()
    for piece in pieces:
        relay.link.feed(0.0, piece)
    relay.link.feed(0.0, gateway.attach())
    try:
        gateway.feed(relay.output())
    except FrameError:
        raise AssertionError("the relay's own frames are broken") from None
    assert gateway.hello["epoch"] == 1
