"""Paths and patterns: what is refused, what matches, and that matching is linear."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.domain.paths import MAX_STARS, Pattern, check_path, clean_path, join_root, printable, split_root
from gateway.errors import PathRefused


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "../a",
        "out/../../a",
        "out/./a",
        ".",
        "out//a",
        "out/",
        "-rf",
        "out/a\0b",
        "out/a\nb",
        "out/a\x7f",
        "out/a\x9b",
        "out\\a",
        "out/\u202egpj.exe",
        "out/a\u2028b",
        "out/\udcff",
        "out/" + "a" * 256,
        "out/" + "é" * 128,
        "/".join("a" * 17),
        "/".join(["b" * 250] * 5),
    ],
)
def test_a_bad_path_is_refused(path: str) -> None:
    with pytest.raises(PathRefused):
        check_path(path)


@pytest.mark.parametrize("path", ["a", "out/report.xlsx", "out/-x", ".hidden", "out/报告 [final] (2).csv", "a" * 255, "…", "..a"])
def test_a_good_path_passes_unchanged(path: str) -> None:
    assert check_path(path) == path


def test_a_given_path_is_composed_and_a_listed_one_is_left_as_it_is() -> None:
    decomposed = "out/re\u0301sume\u0301.txt"
    assert clean_path(decomposed) == "out/résumé.txt"
    assert check_path(decomposed) == decomposed
    assert Pattern("out/*é.txt").matches(decomposed)


def test_protected_folders() -> None:
    for path in ("in", "in/a.csv"):
        with pytest.raises(PathRefused):
            clean_path(path, not_below=("in",))
    assert clean_path("inner/a.csv", not_below=("in",)) == "inner/a.csv"


@pytest.mark.parametrize("path", ["in/a.csv", "out/a", "in", "in/sub/a"])
def test_roots_round_trip(path: str) -> None:
    assert join_root(*split_root(path)) == path
    assert split_root("in/sub/a") == ("in", "sub/a")
    assert split_root("out/in/a") == ("workspace", "out/in/a")


def test_printable_shows_no_trick() -> None:
    shown = printable("out/\u202egpj.exe\x1b[31m\udcff" + "x" * 1000)
    assert shown.isprintable() and len(shown) <= 300 and "\\u202e" in shown


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("out/**", ["out/a", "out/a/b/c"], ["out", "outer/a", "a/out/b"]),
        ("**", ["a", "a/b"], []),
        ("**/*.csv", ["a.csv", "x/y/a.csv"], ["a.csvx", "a.csv/b"]),
        ("out/**/final.txt", ["out/final.txt", "out/a/b/final.txt"], ["final.txt", "out/a/finalxtxt"]),
        ("*.csv", ["a.csv", ".csv", "a.b.csv"], ["x/a.csv"]),
        ("out/a*b*c", ["out/abc", "out/axxbxxc", "out/abcbc"], ["out/ab", "out/acb", "out/ab/c"]),
        ("out/*x*y*", ["out/xy", "out/..x..y.."], ["out/yx"]),
        ("report [final].xlsx", ["report [final].xlsx"], ["report f.xlsx"]),
        ("models", ["models", "models/a.bin", "models/x/y"], ["models2", "a/models"]),
        ("models/", ["models/a.bin"], ["models"]),
        ("*", ["a"], ["a/b"]),
        ("out/*/x", ["out/a/x", "out/b/x/below"], ["out/x"]),
        ("a*a", ["aa", "aba"], ["a"]),
    ],
)
def test_matching(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [path for path in yes if not compiled.matches(path)] == []
    assert [path for path in no if compiled.matches(path)] == []


@pytest.mark.parametrize("pattern", ["", "/", "/out", "out/../x", "out/**x", "x**", "out/***", "a?", "*/" * 9 + "a", "a" * 256, "-x", "a\nb"])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PathRefused):
        Pattern(pattern)


def _oracle(pattern: str) -> re.Pattern[str]:
    """The textbook translation, which is right and may take for ever."""
    names = pattern.split("/")
    covers = "(?:/.+)?" if "*" not in names[-1] else ""
    if names[-1] == "**":
        names.append("*")
    out = ""
    for i, name in enumerate(names):
        if name == "**":
            out += "(?:[^/]+/)*"
        else:
            out += "".join("[^/]*" if c == "*" else re.escape(c) for c in name)
            out += "/" if i < len(names) - 1 else ""
    return re.compile(out + covers)


_NAMES = st.text(alphabet="ab.", min_size=1, max_size=5).filter(lambda name: name not in (".", ".."))
_PARTS = st.one_of(
    st.just("**"),
    st.text(alphabet="ab.*", min_size=1, max_size=6).filter(lambda p: "**" not in p and p not in (".", "..")),
)


@given(st.lists(_PARTS, min_size=1, max_size=5), st.lists(_NAMES, min_size=1, max_size=5))
@settings(deadline=None)
def test_matching_agrees_with_the_textbook(parts: list[str], names: list[str]) -> None:
    assume("/".join(parts).replace("**", "*").count("*") <= MAX_STARS)
    pattern, path = "/".join(parts), "/".join(names)
    assert Pattern(pattern).matches(path) == bool(_oracle(pattern).fullmatch(path))


@given(st.text(max_size=40))
@settings(deadline=None)
def test_no_text_breaks_the_checks(text: str) -> None:
    for check in (check_path, clean_path, Pattern):
        with contextlib.suppress(PathRefused):
            check(text)
    assert printable(text).isprintable() or not printable(text)


def test_hostile_patterns_are_cheap() -> None:
    names = ["a" * 250, "/".join(["a" * 60] * 16)]
    hostile = ["*a" * 7 + "*b", "**/*" + "a" * 120 + "b*", "/".join(["**", "*a*"] * 2) + "/**/b", "**/" * 7 + "b"]
    begin = time.process_time()
    for _ in range(100):
        for pattern in map(Pattern, hostile):
            assert not any(map(pattern.matches, names))
    assert time.process_time() - begin < 2.0
