"""What is fuzzed: parsers of bytes that nobody vouches for. Each target raises on a broken promise, and on nothing else.

``FuzzTarget.run(data)`` may be called by anything: atheris (``run.py``), the seeds alone (``test_fuzz.py``), a crash file by hand.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.archives import ArchiveLimits, check
from gateway.domain.inspection import Rule
from gateway.protocol import jupyter, wire
from gateway.protocol.frames import HEADER_BYTES, MAX_FRAME, FrameError, Inbox, Kind, Lane, Outbox, Parser, decode_ack, decode_json
from gateway.protocol.jupyter import JupyterError
from tests.unit import archive_fixture as archive

MARKER = bytes(range(32))
_LAYOUT = struct.Struct("<2sBBBBHIQIII")
SMALL = ArchiveLimits(unpacked_bytes=4 * 1024**2, ratio=100, entries=200, depth=8, nesting=2)


@dataclass(frozen=True)
class FuzzTarget:
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    modules: tuple[str, ...]
    max_len: int = 8192


def frames(data: bytes) -> None:
    """The first byte says how: cut into what pieces, with a marker or not, with checksums put right (else no flip gets past them)."""
    if len(data) < 2:
        return
    how, data = data[0], data[1:]
    if how & 8:
        data = _with_checksums(data)
    parser = Parser(MARKER, watch=True) if how & 16 else Parser()
    inbox, step, got = Inbox(), (1, 7, 40, 5000)[how & 3], []
    for at in range(0, len(data), step):
        try:
            got += parser.feed(data[at : at + step])
        except FrameError as error:
            got += error.messages
            assert parser.deaf
        assert parser.buffered <= len(data) + MAX_FRAME
    assert sum(len(m.body) for m in got) <= len(data)
    for message in got:
        try:
            inbox.accept(message)
            if message.kind is Kind.ACK:
                Outbox(1).acknowledge(decode_ack(message.body))
            elif message.kind not in (Kind.KERNEL, Kind.FILE, Kind.PING, Kind.PONG):
                assert type(decode_json(message.body)) is dict
        except FrameError:
            pass


def _with_checksums(data: bytes) -> bytes:
    out, at = bytearray(data), 0
    while at + HEADER_BYTES <= len(out):
        fields = list(_LAYOUT.unpack_from(out, at))
        fields[:2] = b"SG", 1
        fields[5] %= 64
        head = _LAYOUT.pack(*fields)[:-4]
        payload = bytes(out[at + HEADER_BYTES : at + HEADER_BYTES + fields[5]])
        out[at : at + HEADER_BYTES] = head + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "little")
        at += HEADER_BYTES + fields[5]
    return bytes(out)


def websocket(data: bytes) -> None:
    """Both framings, as a client's message and as a kernel's; what is taken means the same in the other one."""
    if not data:
        return
    how, data = data[0] & 3, data[1:]
    try:
        if how == 0:
            body = data
        elif how == 1:
            body = jupyter.from_default(data)
        else:
            body = jupyter.from_default(data.decode("utf-8", "surrogatepass" if how == 2 else "replace"))
        message = jupyter.decode(body)
        there = jupyter.to_default(message)
        back = jupyter.decode(jupyter.from_default(there))
    except (JupyterError, UnicodeDecodeError):
        return
    assert (back.channel, back.header, back.content, back.metadata) == (message.channel, message.header, message.content, message.metadata)
    assert [bytes(b) for b in back.buffers] == [bytes(b) for b in message.buffers]
    assert wire.pack(*wire.unpack(body)) == body


def archives(data: bytes) -> None:
    """Only a report comes back, bounded whatever the archive states; what is accepted has no entry that leads out."""
    report = check(io.BytesIO(data), SMALL)
    assert report.rule is None or report.rule in Rule
    assert report.entries <= SMALL.entries + 1
    assert report.unpacked_bytes <= SMALL.unpacked_bytes + 64 * 1024
    assert all(char.isprintable() for char in report.where)


def _frame_seeds() -> list[bytes]:
    out = Outbox(1)
    out.put_unnumbered(Kind.HELLO, json.dumps({"marker": MARKER.hex(), "protocol": 1}).encode())
    out.put(Kind.CALL, Lane.CONTROL, b'{"id":1,"call":"interrupt"}')
    out.put(Kind.EVENT, Lane.KERNEL, b'{"event":"ready"}')
    out.put(Kind.FILE, Lane.FILES, b"x" * 100)
    out.put_unnumbered(Kind.ACK, bytes(24))
    data = out.next_frames()
    return [bytes([how]) + piece for how in (3, 11, 19, 27, 8) for piece in (data, data[:70] + MARKER + data, MARKER + data[5:])]


def _websocket_seeds() -> list[bytes]:
    header = jupyter.make_header("execute_request", "s", msg_id="m")
    plain = jupyter.build("shell", header, {}, {}, {"code": "1"})
    buffers = jupyter.build("iopub", header, header, {"a": [1, {"b": None}]}, {"x": "\u202e"}, [b"one", b"", b"three"])
    found = [b"\0" + plain, b"\0" + buffers]
    for body in (plain, buffers):
        there = jupyter.to_default(jupyter.decode(body))
        found.append(b"\2" + there.encode() if isinstance(there, str) else b"\1" + there)
    return found


def _archive_seeds() -> list[bytes]:
    made = [
        archive.zipped(("a/b.txt", b"hello" * 50), ("c", b"")), archive.zipped(("../x", b"1")), archive.nested(3), archive.overlapping(5),
        archive.tarred(("a", b"1" * 700), archive.tar_entry(tarfile.SYMTYPE, "l", "/etc/passwd")), archive.gz_bomb(50_000),
    ]  # fmt: skip
    import bz2
    import gzip
    import lzma

    tar = archive.tarred(("a", b"data"))
    return [*made, gzip.compress(tar), bz2.compress(tar), lzma.compress(tar), archive.zipped(("x.tar", tar), ("y.gz", gzip.compress(b"z")))]


TARGETS = {
    "frames": FuzzTarget(frames, _frame_seeds, ("gateway.protocol.frames",)),
    "websocket": FuzzTarget(websocket, _websocket_seeds, ("gateway.protocol.jupyter", "gateway.protocol.wire")),
    "archives": FuzzTarget(archives, _archive_seeds, ("gateway.domain.archives", "gateway.domain.archive_zip", "gateway.domain.archive_tar")),
}
