"""Types by content against names: what real programs write is let through, what lies is found out."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.filetypes import UNKNOWN, ending_of, fits, is_text, type_of
from gateway.service.sniffing import Look, sniff


def zipped(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name in names:
            z.writestr(name, "x")
    return out.getvalue()


def tarred() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        t.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return out.getvalue()


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0"
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1"
ELF = b"\x7fELF\2\1\1" + bytes(60)
EXE = b"MZ\x90\0\3\0\0\0\4" + bytes(60)
WORKBOOK = zipped("[Content_Types].xml", "xl/workbook.xml")


def mime(path: str, head: bytes) -> str:
    return type_of(head, path, sniff(head))


@pytest.mark.parametrize(
    ("path", "head", "expected"),
    [
        ("a.png", PNG, "image/png"),
        ("a.jpeg", JPEG, "image/jpeg"),
        ("a.PDF", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "application/pdf"),
        ("a.pdf", b"%PDF-1.4\nplain enough to be text", "application/pdf"),
        ("a.csv", b"a,b\n1,2\n", "text/csv"),
        ("a.csv", b"BMI,age\n22,40\n", "text/csv"),
        ("a.csv", b"MZ,age\n22,40\n", "text/csv"),
        ("a.csv", "größe,länge\n".encode("cp1252"), "text/csv"),
        ("a.csv", "a,b\n".encode("utf-16"), "text/csv"),
        ("a.txt", b"", "text/plain"),
        ("a", b"", "inode/x-empty"),
        ("a.md", "# Überschrift\n".encode(), "text/markdown"),
        ("a.ipynb", b'{"cells": []}', "application/x-ipynb+json"),
        ("a.py", b"#!/usr/bin/env python\nprint(1)\n", "text/x-python"),
        ("a.html", b"<!DOCTYPE html><html>", "text/html"),
        ("a.svg", b'<svg xmlns="http://www.w3.org/2000/svg">', "image/svg+xml"),
        ("a.svg", b'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN">\n<svg>', "image/svg+xml"),
        ("a.svg", b"<!-- made by hand --><SVG onload=x>", "image/svg+xml"),
        ("a.txt", b"\xef\xbb\xbf\n <script>", "text/html"),
        ("a.xml", b'<?xml version="1.0"?><a/>', "application/xml"),
        ("a.csv", b"a,<svg>,<html>", "text/csv"),
        ("a.xlsx", WORKBOOK, "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("a.npz", zipped("arr_0.npy"), "application/zip"),
        ("a.whl", zipped("a.py"), "application/zip"),
        ("a.xls", b"<html><table>", "text/html"),
        ("a.zip", zipped("a"), "application/zip"),
        ("a.tar", tarred(), "application/x-tar"),
        ("a.tar.gz", gzip.compress(tarred()), "application/gzip"),
        ("a.csv.bz2", bz2.compress(b"a,b\n" * 1000), "application/x-bzip2"),
        ("a.xz", lzma.compress(b"a,b\n"), "application/x-xz"),
        ("a.parquet", b"PAR1" + bytes(40), "application/vnd.apache.parquet"),
        ("a.npy", b"\x93NUMPY\1\0v\0{'descr'", "application/x-npy"),
        ("a.bin", ELF, "application/x-executable"),
        ("tool", EXE, "application/x-executable"),
        ("a.pkl", b"\x80\x04\x95" + bytes(range(200, 250)), UNKNOWN),
        ("a.whatever", JPEG, "image/jpeg"),
        ("README", b"hello", "text/plain"),
    ],
)  # fmt: skip
def test_what_is_what_it_says(path: str, head: bytes, expected: str) -> None:
    assert mime(path, head) == expected
    assert fits(expected, path)


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("a.png", JPEG),
        ("a.png", b"<html><script>"),
        ("a.png", b"just text"),
        ("a.jpg", PNG),
        ("a.csv", ELF),
        ("a.csv", WORKBOOK),
        ("a.csv", gzip.compress(b"a,b")),
        ("a.txt", EXE),
        ("a.json", PNG),
        ("a.pdf", EXE),
        ("a.pdf", b"<!DOCTYPE html><html>"),
        ("a.xlsx", ELF),
        ("a.xlsx", b"a;b\n1;2\n"),
        ("a.zip", b"no archive"),
        ("a.zip", gzip.compress(b"x")),
        ("a.tar.gz", zipped("a")),
        ("a.tgz", tarred()),
        ("a.parquet", b"a,b\n"),
        ("report.csv.png", b"a,b\n"),
        ("A.PNG", b"a,b\n"),
        ("a.xls", ELF),
    ],
)
def test_what_lies_is_found_out(path: str, head: bytes) -> None:
    assert not fits(mime(path, head), path)


def test_endings() -> None:
    assert [ending_of(p) for p in ("out/A.tar.GZ", "a.b/c", ".bashrc", ".a.png", "a.", "a")] == ["gz", "", "", "png", "", ""]


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))), st.integers(0, 40))
def test_text_cut_anywhere_is_text_and_may_have_any_text_name(text: str, cut: int) -> None:
    head = text.encode()[: len(text.encode()) - cut]
    assert is_text(head)
    assert all(fits(mime(f"a.{ending}", head), f"a.{ending}") for ending in ("csv", "txt", "json", "py", "md", "log"))


@given(st.binary(max_size=300), st.sampled_from(["a.png", "a.csv", "a.xlsx", "a", "a.tar.gz", "x/y.zip", "a.dat"]))
def test_no_bytes_break_it(head: bytes, path: str) -> None:
    found = mime(path, head)
    assert "/" in found and fits(found, path) in (True, False)
    assert fits(found, "a") and fits(found, "a.dat"), "a name that claims nothing is never wrong"


@given(st.binary(min_size=1, max_size=9000), st.integers(1, 5000))
def test_the_cuts_of_a_stream_do_not_matter(data: bytes, step: int) -> None:
    whole, cut = Look("a.csv"), Look("a.csv")
    whole.feed(data)
    for at in range(0, len(data), step):
        cut.feed(data[at : at + step])
        assert cut.mime
    assert cut.mime == whole.mime and cut.rule == whole.rule
