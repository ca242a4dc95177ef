"""ZMTP: cut anywhere, bounded whatever a peer announces, and understood by libzmq itself where it is installed."""

from __future__ import annotations

import random
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relay.zmtp import GREETING, MAX_FRAMES, SUBSCRIBE_ALL, Decoder, Raw, ZmtpError, encode, opening

START = opening(b"ROUTER")
FRAMES = st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([b"x" * 255, b"y" * 256, b"z" * 70_000])), min_size=1, max_size=5)


def decoder(limit: int = 10**6, head: int = 100) -> Decoder:
    return Decoder(limit, head)


def feed(d: Decoder, data: bytes, rng: random.Random) -> list[Raw]:
    out: list[Raw] = []
    pos = 0
    while pos < len(data):
        step = rng.choice([1, 2, 63, 5000, 100_000])
        out += d.feed(memoryview(data)[pos : pos + step])
        pos += step
    return out


@settings(max_examples=60)
@given(st.lists(FRAMES, max_size=5), st.randoms(use_true_random=False))
def test_messages_come_whole_however_they_are_cut(messages: list[list[bytes]], rng: random.Random) -> None:
    d = decoder()
    got = feed(d, START + b"".join(map(encode, messages)), rng)
    assert [list(map(bytes, r.frames)) for r in got] == messages
    assert all(not r.cut and r.size == sum(map(len, m)) for r, m in zip(got, messages, strict=True))
    assert d.held == 0


@settings(max_examples=60)
@given(st.lists(FRAMES, min_size=1, max_size=5), st.integers(0, 100_000), st.randoms(use_true_random=False))
def test_what_passes_the_limit_is_cut_and_the_next_message_is_whole(messages: list[list[bytes]], limit: int, rng: random.Random) -> None:
    d = decoder(limit)
    got = feed(d, START + b"".join(map(encode, messages)), rng)
    for raw, message in zip(got, messages, strict=True):
        size = sum(map(len, message))
        assert raw.size == size and raw.cut == (size > limit)
        assert sum(map(len, raw.frames)) <= limit
        assert all(bytes(f) == m[: len(f)] for f, m in zip(raw.frames, message, strict=True))


def test_announced_sizes_allocate_nothing() -> None:
    for size in (2**32, 2**62, 2**64 - 1):
        d = decoder(1000)
        d.feed(START + struct.pack(">BQ", 2, size) + b"x" * 5000)
        assert d.held <= 100


def test_a_message_of_many_frames_is_bounded() -> None:
    d = decoder(10**6)
    (raw,) = d.feed(START + encode([b""] * (MAX_FRAMES * 5)))
    assert raw.cut and len(raw.frames) == MAX_FRAMES


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_random_bytes_raise_only_zmtp_errors(data: bytes) -> None:
    for start in (b"", GREETING, START):
        d = decoder(1000)
        try:
            d.feed(start + data)
        except ZmtpError:
            pass
        assert d.held <= 1500


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request".ljust(64),
        GREETING[:10] + b"\x02" + GREETING[11:],
        GREETING.replace(b"NULL", b"PLAI"),
        GREETING + b"\x00\x01x",
        GREETING + b"\x04\x06\x05ERROR",
        START + b"\x08\x00",
        START + b"\x06" + struct.pack(">Q", 10**6),
        START + b"\x05\x01x",
    ],
)
def test_a_peer_that_speaks_otherwise_is_refused(data: bytes) -> None:
    with pytest.raises(ZmtpError):
        decoder().feed(data)


def test_other_commands_are_ignored() -> None:
    d = decoder()
    assert [r.frames for r in d.feed(START + b"\x04\x05\x04PING" + encode([b"a"]))] == [[b"a"]]


def test_libzmq_understands_it(tmp_path: Path) -> None:
    zmq: Any = pytest.importorskip("zmq")
    context = zmq.Context()
    router, publisher = context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
    try:
        router.bind(f"ipc://{tmp_path}/r")
        publisher.bind(f"ipc://{tmp_path}/p")

        def connect(path: str, kind: bytes, identity: bytes = b"") -> tuple[socket.socket, Decoder]:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(10)
            sock.connect(path)
            sock.sendall(opening(kind, identity))
            d = decoder(10**7)
            while not d.ready:
                assert d.feed(sock.recv(1000)) == []
            return sock, d

        def receive(sock: socket.socket, d: Decoder) -> list[bytes]:
            while not (got := d.feed(sock.recv(100_000))):
                pass
            return list(map(bytes, got[0].frames))

        dealer, d = connect(f"{tmp_path}/r", b"DEALER", b"me")
        large = bytes(range(256)) * 4000
        dealer.sendall(encode([b"one", b"", large]))
        assert router.recv_multipart() == [b"me", b"one", b"", large]
        thread = threading.Thread(target=router.send_multipart, args=([b"me", large, b"two"],))
        thread.start()
        assert receive(dealer, d) == [large, b"two"]
        thread.join()
        subscriber, s = connect(f"{tmp_path}/p", b"SUB")
        subscriber.sendall(encode([SUBSCRIBE_ALL]))
        assert publisher.recv() == SUBSCRIBE_ALL
        publisher.send_multipart([b"topic", b"x" * 255, b"y" * 256])
        assert receive(subscriber, s) == [b"topic", b"x" * 255, b"y" * 256]
        dealer.close()
        subscriber.close()
    finally:
        context.destroy(linger=0)
