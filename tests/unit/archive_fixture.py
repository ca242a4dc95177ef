"""Archives as tools make them, and as attackers do."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from typing import Any

EOCD = struct.Struct("<4s4H2LH")


def zipped(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED, mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            z.writestr(info, data, method)
    return out.getvalue()


def tarred(*entries: tuple[str, bytes] | tarfile.TarInfo, **options: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as t:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                t.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                t.addfile(info, io.BytesIO(entry[1]))
    return out.getvalue()


def tar_entry(kind: bytes, name: str = "a", target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def gz_bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), 9)


def nested(levels: int, inner: bytes = b"hello") -> bytes:
    data = zipped(("x", inner))
    for _ in range(levels):
        data = zipped(("inner.zip", data))
    return data


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def central(data: bytes, number: int = 0) -> int:
    """Where the directory's entry of that number begins."""
    at = data.rindex(b"PK\x05\x06")
    begin: int = EOCD.unpack_from(data, at)[6]
    for _ in range(number):
        begin = data.index(b"PK\x01\x02", begin + 4)
    return begin


def overlapping(count: int) -> bytes:
    """One piece of data, and a directory that names it many times: what a small bomb of the newer kind looks like."""
    payload = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = payload.compress(bytes(100_000)) + payload.flush()
    crc = zlib.crc32(bytes(100_000))
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 0, crc, len(body), 100_000, 1, 0) + b"a" + body
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, crc, len(body), 100_000, 1, 0, 0, 0, 0, 0, 0) + b"a"
    return local + entry * count + EOCD.pack(b"PK\x05\x06", 0, 0, count, count, len(entry) * count, len(local), 0)
