"""The attach stream's parsing, without a socket: cut anywhere, bounded, and typed when it goes wrong."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends import docker_stream
from gateway.backends.docker_events import _Cursor, _lines, parse_event
from gateway.backends.docker_stream import AttachStream, EngineAddress, EngineTls
from gateway.errors import EngineUnavailable, SandboxLost, SandglassError

OK = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that notes what is done to it."""

    def __init__(self, stream: AttachStream) -> None:
        super().__init__()
        self._stream = stream
        self.sent = bytearray()
        self.paused = False
        self.gone = False
        stream.connection_made(self)

    def write(self, data: Any) -> None:
        self.sent += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self.gone:
            self.gone = True
            self._stream.connection_lost(None)


def opened() -> tuple[AttachStream, Wire]:
    stream = AttachStream(b"REQUEST")
    wire = Wire(stream)
    stream.data_received(OK)
    return stream, wire


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", kind, len(data)) + data


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.binary(max_size=40)), max_size=12),
    st.lists(st.integers(1, 30), min_size=1, max_size=30),
)
def test_frames_cut_anywhere_give_the_same_output(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    async def run() -> None:
        stream = AttachStream(b"")
        Wire(stream)
        data = OK + b"".join(frame(kind, body) for kind, body in frames)
        at = turn = 0
        while at < len(data):
            size = cuts[turn % len(cuts)]
            stream.data_received(data[at : at + size])
            at, turn = at + size, turn + 1
        stream.connection_lost(None)
        out = b""
        while piece := await stream.read():
            out += piece
        assert out == b"".join(body for kind, body in frames if kind == 1)
        errors = b"".join(body for kind, body in frames if kind != 1)
        assert stream.stderr_tail() == errors.decode("utf-8", "replace")

    asyncio.run(run())


async def test_the_request_goes_out_and_what_follows_the_head_is_data() -> None:
    stream = AttachStream(b"REQUEST")
    wire = Wire(stream)
    assert bytes(wire.sent) == b"REQUEST"
    stream.data_received(OK + frame(1, b"first"))
    await stream.opened
    assert await stream.read() == b"first"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n{}", SandboxLost),
        (b"HTTP/1.1 409 Conflict\r\n\r\n", SandboxLost),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", EngineUnavailable),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", EngineUnavailable),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", EngineUnavailable),
        (b"x" * (docker_stream.HEAD_BYTES + 1), EngineUnavailable),
    ],
)
async def test_any_other_answer_is_a_typed_error(head: bytes, expected: type[SandglassError]) -> None:
    stream = AttachStream(b"")
    wire = Wire(stream)
    stream.data_received(head)
    with pytest.raises(expected):
        await stream.opened
    assert wire.gone


async def test_a_frame_of_an_unknown_kind_ends_the_stream() -> None:
    stream, wire = opened()
    stream.data_received(frame(1, b"good") + frame(9, b"bad"))
    assert await stream.read() == b"good"
    with pytest.raises(EngineUnavailable):
        await stream.read()
    assert wire.gone


async def test_reading_pauses_only_when_nobody_reads_and_goes_on_afterwards() -> None:
    stream, wire = opened()
    chunk = frame(1, bytes(32 * 1024))
    sent = 0
    while not wire.paused:
        stream.data_received(chunk)
        sent += 32 * 1024
        assert sent <= docker_stream.HIGH_WATER
    assert sent == docker_stream.HIGH_WATER
    got = 0
    while wire.paused:
        got += len(await stream.read())
    assert docker_stream.HIGH_WATER - got <= docker_stream.LOW_WATER
    while got < sent:
        got += len(await stream.read())


async def test_standard_error_is_kept_as_a_bounded_tail() -> None:
    stream, _ = opened()
    for n in range(3000):
        stream.data_received(frame(2, f"line {n}\n".encode()))
    stream.data_received(frame(2, b"y" * (1 << 20) + b"end"))
    tail = stream.stderr_tail()
    assert len(tail) == docker_stream.STDERR_TAIL
    assert tail.endswith("yend")


async def test_the_end_comes_after_what_was_received() -> None:
    stream, _ = opened()
    reader = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0)
    stream.data_received(frame(1, b"last"))
    stream.connection_lost(None)
    assert await reader == b"last"
    assert await stream.read() == b""
    with pytest.raises(SandboxLost):
        stream.write(b"x")
    with pytest.raises(SandboxLost):
        await stream.drain()


async def test_a_broken_connection_is_not_taken_for_an_end() -> None:
    stream, _ = opened()
    stream.data_received(frame(1, b"last"))
    stream.connection_lost(ConnectionResetError())
    assert await stream.read() == b"last"
    with pytest.raises(EngineUnavailable):
        await stream.read()


async def test_drain_waits_while_the_engine_takes_nothing() -> None:
    stream, _ = opened()
    stream.pause_writing()
    waiting = asyncio.ensure_future(stream.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.resume_writing()
    await waiting
    stream.pause_writing()
    waiting = asyncio.ensure_future(stream.drain())
    await asyncio.sleep(0)
    stream.connection_lost(None)
    with pytest.raises(SandboxLost):
        await waiting


async def test_closing_twice_and_writing_afterwards() -> None:
    stream, wire = opened()
    await stream.close()
    await stream.close()
    assert wire.gone
    with pytest.raises(SandboxLost):
        stream.write(b"x")


# ---------------------------------------------------------------- addresses


def test_addresses() -> None:
    assert EngineAddress.parse("unix:///run/docker.sock").base_url == "unix:///run/docker.sock"
    assert EngineAddress.parse("tcp://h:1").base_url == "http://h:1"
    assert EngineAddress.parse("tcp://h", EngineTls()).base_url == "https://h:2376"
    assert EngineAddress.parse("https://[::1]:5").base_url == "https://[::1]:5"
    assert EngineAddress.parse("tcp://h").port == 2375


@pytest.mark.parametrize("url", ["ssh://u@h", "npipe://x", "fd://", "", "unix://", "tcp://", "tcp://h:x", "tcp://[::1"])
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(EngineUnavailable, match="DOCKER_HOST"):
        EngineAddress.parse(url)


def test_ssh_is_refused_with_what_to_do() -> None:
    with pytest.raises(EngineUnavailable, match="ssh -N -L"):
        EngineAddress.parse("ssh://root@host")


def test_tls_files_that_cannot_be_read(tmp_path: Any) -> None:
    with pytest.raises(EngineUnavailable, match="DOCKER_CERT_PATH"):
        EngineTls(ca=tmp_path / "nothing.pem").context()


# ---------------------------------------------------------------- events

DIED = (
    b'{"Type":"container","Action":"die","Actor":{"ID":"c1","Attributes":{"exitCode":"137","sandglass.sandbox":"sb"}},'
    b'"time":10,"timeNano":10000000005}'
)


def test_an_event_is_read() -> None:
    event = parse_event(DIED)
    assert event is not None
    assert (event.action, event.engine_id, event.sandbox_id, event.exit_code) == ("die", "c1", "sb", 137)
    assert event.at == pytest.approx(10.000000005)


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        DIED.replace(b"container", b"image"),
        DIED.replace(b'"die"', b'"exec_start: sh"'),
        DIED.replace(b"sandglass.sandbox", b"other"),
    ],
)
def test_events_that_are_not_ours(line: bytes) -> None:
    assert parse_event(line) is None


@pytest.mark.parametrize("line", [b"[]", b"nonsense", b"3"])
def test_events_that_are_none(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_event(line)


def test_the_cursor_gives_each_event_once_over_reconnections() -> None:
    cursor = _Cursor(1.5)
    assert cursor.since == "1.500000000"
    died = parse_event(DIED)
    assert died is not None
    assert cursor.is_new(died, DIED)
    assert not cursor.is_new(died, DIED)
    assert cursor.since == "10.000000005"
    oom = DIED.replace(b'"die"', b'"oom"')
    event = parse_event(oom)
    assert event is not None
    assert cursor.is_new(event, oom)
    assert not cursor.is_new(event, oom)


@given(st.lists(st.binary(min_size=1, max_size=30).filter(lambda b: b"\n" not in b and b.strip()), max_size=8), st.integers(1, 40))
@settings(deadline=None)
def test_lines_over_chunks_cut_anywhere(lines: list[bytes], size: int) -> None:
    async def run() -> None:
        body = b"".join(line + b"\n" for line in lines)
        for chunked in (True, False):
            reader = asyncio.StreamReader()
            for at in range(0, len(body), size):
                piece = body[at : at + size]
                reader.feed_data(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            reader.feed_data(b"0\r\n\r\n" if chunked else b"")
            reader.feed_eof()
            assert [line async for line in _lines(reader, chunked=chunked)] == lines

    asyncio.run(run())
