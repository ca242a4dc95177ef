"""Archives: what tools write passes, and each kind of hostile one is refused by the rule that it breaks."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import struct
import sys
import tarfile
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from archive_fixture import EOCD, central, gz_bomb, nested, overlapping, patched, tar_entry, tarred, zipped

from gateway.domain.archives import ArchiveLimits, Report, check
from gateway.domain.inspection import Rule

MIB = 1024**2
LIMITS = ArchiveLimits(unpacked_bytes=64 * MIB, entries=1000)
TEXT = b"a,b\n1,2\n" * 5000
SMALL = zipped(("a.txt", TEXT), ("b/c.txt", b"hello"))


def looked(data: bytes, limits: ArchiveLimits = LIMITS) -> Report:
    return check(io.BytesIO(data), limits)


def streamed() -> bytes:
    """As written to a pipe: sizes stand behind each entry."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            self.data += bytes(data)  # type: ignore[call-overload]
            return len(bytes(data))  # type: ignore[call-overload]

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as z:  # type: ignore[arg-type]
        z.writestr("stored.bin", bytes(range(256)))
        z.writestr("deflated.txt", TEXT, zipfile.ZIP_DEFLATED)
    return pipe.data


def wide() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z, z.open(zipfile.ZipInfo("big"), "w", force_zip64=True) as entry:
        entry.write(TEXT)
    return out.getvalue()


GOOD = {
    "zip": SMALL,
    "stored": zipped(("a", TEXT), method=zipfile.ZIP_STORED),
    "bzip2 within zip": zipped(("a", TEXT), method=zipfile.ZIP_BZIP2),
    "folders": zipped(("a/", b""), ("a/b/", b""), ("a/b/c", b"x"), mode=0o100644),
    "empty zip": zipped(),
    "utf-8 names": zipped(("névtelen/漢字.csv", b"x")),
    "streamed": streamed(),
    "zip64": wide(),
    "with a comment": SMALL[:-2] + b"\x03\x00abc",
    "tar": tarred(("a.txt", TEXT), ("b/c.txt", b"hello"), tar_entry(tarfile.DIRTYPE, "d")),
    "pax": tarred(("ü" * 200, b"x"), format=tarfile.PAX_FORMAT),
    "gnu": tarred(("d/" * 20 + "n" * 150, b"x"), format=tarfile.GNU_FORMAT),
    "tar.gz": gzip.compress(tarred(("a.txt", TEXT))),
    "tar.bz2": bz2.compress(tarred(("a.txt", TEXT))),
    "tar.xz": lzma.compress(tarred(("a.txt", TEXT))),
    "csv.gz": gzip.compress(TEXT),
    "two members": gzip.compress(TEXT) + gzip.compress(TEXT),
    "padded": gzip.compress(TEXT) + bytes(1000),
    "xz -9": lzma.compress(TEXT, preset=9),
    "empty gz": gzip.compress(b""),
    "zip within zip": nested(2),
    "zip within tar.gz": gzip.compress(tarred(("x.zip", SMALL))),
    "many zeros, and few": gz_bomb(10 * MIB),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_tools_write_passes(name: str) -> None:
    report = looked(GOOD[name])
    assert report.rule is None, report


def test_it_counts_what_it_finds() -> None:
    assert looked(SMALL) == Report(None, "", 2, len(TEXT) + 5)
    assert looked(gzip.compress(tarred(("a", b"x"), ("b", b"")))).entries == 2
    assert looked(nested(2, b"hello")).entries == 3


TWO = zipped(("a", b"1" * 100), ("b", b"2" * 100), method=zipfile.ZIP_STORED)
HOSTILE = {
    "a bomb of zeros": (gz_bomb(60 * MIB), Rule.RATIO),
    "a bomb in a zip": (zipped(("a", bytes(40 * MIB))), Rule.RATIO),
    "bombs in a zip, each of them small": (zipped(*((f"{n}", bytes(MIB)) for n in range(40))), Rule.RATIO),
    "a bomb in a tar.xz": (lzma.compress(tarred(("a", bytes(40 * MIB)))), Rule.RATIO),
    "a bomb in an archive within": (zipped(("a.zip", zipped(("b", bytes(40 * MIB))))), Rule.RATIO),
    "overlapping entries": (overlapping(500), Rule.OVERLAP),
    "more entries than allowed": (zipped(*((f"{n}", b"") for n in range(1001))), Rule.ENTRIES),
    "more entries in a tar": (tarred(*((f"{n}", b"") for n in range(1001))), Rule.ENTRIES),
    "more members than allowed": (gzip.compress(b"") * 1001, Rule.ENTRIES),
    "a zip in a zip in a zip in a zip": (nested(3), Rule.NESTING),
    "gz in gz in gz in gz": (gzip.compress(gzip.compress(gzip.compress(gzip.compress(b"x")))), Rule.NESTING),
    "a way out": (zipped(("../../etc/passwd", b"x")), Rule.PATH),
    "a way out in the middle": (zipped(("a/../../b", b"x")), Rule.PATH),
    "a way out, as on Windows": (zipped(("..\\..\\b", b"x")), Rule.PATH),
    "a drive": (zipped(("C:\\b", b"x")), Rule.PATH),
    "an absolute path": (tarred(("/etc/passwd", b"x")), Rule.PATH),
    "a way out of a tar": (tarred(("a/../../b", b"x")), Rule.PATH),
    "a control character": (zipped(("a\nb", b"x")), Rule.PATH),
    "a long name": (tarred(("n" * 1100, b"x")), Rule.PATH),
    "many folders": (tarred(("d/" * 40 + "a", b"x")), Rule.DEPTH),
    "a symbolic link": (tarred(tar_entry(tarfile.SYMTYPE, target="/etc/passwd")), Rule.LINK),
    "a symbolic link that stays within": (tarred(tar_entry(tarfile.SYMTYPE, target="b")), Rule.LINK),
    "a hard link": (tarred(tar_entry(tarfile.LNKTYPE, target="../x")), Rule.LINK),
    "a link in a zip": (zipped(("a", b"/etc/passwd"), mode=0o120777), Rule.LINK),
    "a device": (tarred(tar_entry(tarfile.CHRTYPE)), Rule.SPECIAL),
    "a block device": (tarred(tar_entry(tarfile.BLKTYPE)), Rule.SPECIAL),
    "a pipe": (tarred(tar_entry(tarfile.FIFOTYPE)), Rule.SPECIAL),
    "a pipe in a zip": (zipped(("a", b""), mode=0o010644), Rule.SPECIAL),
    "a device in an archive within": (zipped(("a.tar", tarred(tar_entry(tarfile.CHRTYPE)))), Rule.SPECIAL),
    "sparse": (tarred(tar_entry(tarfile.GNUTYPE_SPARSE)), Rule.UNSUPPORTED),
    "encrypted": (patched(patched(SMALL, 6, b"\1\0"), central(SMALL) + 8, b"\1\0"), Rule.ENCRYPTED),
    "encrypted by its own header only": (patched(SMALL, 6, b"\1\0"), Rule.LIES),
    "a method that is not known": (patched(patched(SMALL, 8, b"\x5f\0"), central(SMALL) + 10, b"\x5f\0"), Rule.UNSUPPORTED),
    "two methods": (patched(SMALL, 8, b"\0\0"), Rule.LIES),
    "a smaller size than it has": (patched(patched(SMALL, 22, b"\5\0\0\0"), central(SMALL) + 24, b"\5\0\0\0"), Rule.LIES),
    "a larger size than it has": (patched(patched(SMALL, 22, b"\0\0\0\1"), central(SMALL) + 24, b"\0\0\0\1"), Rule.LIES),
    "another size in its own header": (patched(SMALL, 22, b"\5\0\0\0"), Rule.LIES),
    "another sum": (patched(patched(SMALL, 14, b"\0\0\0\0"), central(SMALL) + 16, b"\0\0\0\0"), Rule.LIES),
    "another name in its own header": (patched(SMALL, 30, b"A"), Rule.LIES),
    "a second entry in the first": (patched(TWO, central(TWO, 1) + 42, struct.pack("<L", 0)), Rule.OVERLAP),
    "an entry behind the directory": (patched(TWO, central(TWO, 1) + 42, struct.pack("<L", len(TWO) - 10)), Rule.BROKEN),
    "fewer entries than it says": (patched(SMALL, len(SMALL) - 14, b"\3\0\3\0"), Rule.LIES),
    "more entries than it says": (patched(SMALL, len(SMALL) - 14, b"\1\0\1\0"), Rule.LIES),
    "several disks": (patched(SMALL, len(SMALL) - 18, b"\1\0"), Rule.BROKEN),
    "something behind a zip": (SMALL + b"more", Rule.BROKEN),
    "something behind a tar": (tarred(("a", b"x")) + tarred(("../b", b"x")), Rule.BROKEN),
    "something behind a gz": (gzip.compress(TEXT) + b"more", Rule.BROKEN),
    "a cut zip": (SMALL[:-30], Rule.BROKEN),
    "a cut gz": (gzip.compress(TEXT)[:-20], Rule.BROKEN),
    "a cut xz": (lzma.compress(TEXT)[:-20], Rule.BROKEN),
    "a cut tar": (tarred(("a", TEXT))[:8000], Rule.BROKEN),
    "a cut tar.bz2": (bz2.compress(tarred(("a", TEXT)))[:-9], Rule.BROKEN),
    "an xz that wants gigabytes": (lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]), Rule.BROKEN),
    "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(100), Rule.UNSUPPORTED),
    "rar in a zip": (zipped(("a.rar", b"Rar!\x1a\x07\x01\0" + bytes(100))), Rule.UNSUPPORTED),
    "no archive": (b"hello", Rule.BROKEN),
    "nothing": (b"", Rule.BROKEN),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_each_kind_of_hostile_archive_is_refused_by_its_rule(name: str) -> None:
    data, rule = HOSTILE[name]
    assert looked(data).rule is rule


def test_a_size_is_refused_before_all_of_it_is_unpacked() -> None:
    report = looked(gz_bomb(200 * MIB), replace(LIMITS, ratio=100_000))
    assert report.rule is Rule.SIZE
    assert 64 * MIB < report.unpacked_bytes < 65 * MIB


def test_it_says_where_and_shows_no_hidden_characters() -> None:
    assert looked(zipped(("ok", b"x"), ("a/../../b", b"x"))).where == "a/../../b"
    assert looked(zipped(("a\u202egpj", b"x"), ("b\x1b[31m", b"x"))).where == "b\\x1b[31m"


def test_a_full_disk_says_nothing_about_the_archive() -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        check(io.BytesIO(nested(1)), LIMITS, Full)


def test_memory_stays_small_whatever_comes() -> None:
    bombs = [gz_bomb(60 * MIB), overlapping(900), zipped(("a", bytes(30 * MIB))), nested(2, bytes(10 * MIB))]
    loose = replace(LIMITS, ratio=100_000)
    for data in bombs:
        tracemalloc.start()
        looked(data, loose)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2 * MIB + len(data), peak


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(set(GOOD) - {"many zeros, and few"})),
    st.lists(st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=4)), min_size=1, max_size=6),
)
@example("zip", [(len(SMALL) - 6, b"\xff\xff\xff\xff")])
def test_no_damage_escapes_as_anything_but_a_report(name: str, changes: list[tuple[int, bytes]]) -> None:
    data = GOOD[name]
    for at, new in changes:
        data = patched(data, at % (len(data) + 1), new)
    report = looked(data)
    assert report.unpacked_bytes <= LIMITS.unpacked_bytes + 64 * 1024
    assert report.entries <= LIMITS.entries + 1


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(("zip", "tar", "tar.gz", "streamed", "tar.xz")), st.floats(0, 1, exclude_max=True))
def test_what_is_cut_off_is_never_taken_for_whole(name: str, part: float) -> None:
    whole = GOOD[name]
    cut = whole[: int(len(whole) * part)]
    report = looked(cut)
    if report.rule is None:  # a tar may end without its last blocks of zeros; nothing of its entries is missing then
        assert name == "tar" and looked(whole).unpacked_bytes == report.unpacked_bytes and looked(whole).entries == report.entries


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30), st.binary(max_size=100)), max_size=8))
def test_no_accepted_path_leads_out(entries: list[tuple[str, bytes]]) -> None:
    unique = {name: body for name, body in entries if "\0" not in name}.items()
    for data in (zipped(*unique), tarred(*unique)):
        if looked(data).rule is not None:
            continue
        if data.startswith(b"PK"):
            names = zipfile.ZipFile(io.BytesIO(data)).namelist()
        else:
            with tarfile.open(fileobj=io.BytesIO(data)) as t:
                names = t.getnames()
        for name in names:
            assert ".." not in name.replace("\\", "/").split("/")
            assert not name.startswith(("/", "\\")) and ":" not in name[1:2]


def test_the_fixture_is_what_it_claims() -> None:
    """The overlapping one is read by the standard library as many entries; the check is not refused for another reason."""
    assert len(zipfile.ZipFile(io.BytesIO(overlapping(500))).namelist()) == 500
    assert looked(overlapping(1)).rule is None
    assert EOCD.size == 22
