"""Outputs as others read them: secrets found, controls made harmless, tracebacks folded; nothing of it slow or fooled by odd values."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.harmless import harmless, shown_in
from gateway.domain.sensitive import RULES, BadPatterns, Handling, Screen, Screens, SensitiveSettings, parse_patterns
from gateway.domain.traceback_text import cleaned, folded

MARK = Screens().of("t1")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x\n-----BEGIN RSA PRIVATE KEY-----\nMII", "private_key"),
        ("-----BEGIN PRIVATE KEY-----", "private_key"),
        ("t = eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.abc", "token"),
        ("ghp_" + "a1B2" * 9, "token"),
        ("xoxb-123456789012-abc", "token"),
        ("Authorization: Bearer abcdefghijklmnopqrstuvwx", "token"),
        ("AKIAIOSFODNN7EXAMPLE", "api_key"),
        ("AIza" + "x" * 35, "api_key"),
        ("sk-" + "a" * 48, "api_key"),
        ("{'password': 'hunter2hunter2'}", "password"),
        ("DB_PASSWORD=correct-horse", "password"),
        ("api_key: abcdefgh12345", "password"),
        ("postgres://app:s3cr3t@db/x", "password"),
        ("open('/home/alice/.ssh/id_rsa')", "host_path"),
        ("/var/lib/docker/overlay2/x", "host_path"),
        ("C:\\Users\\alice\\x", "host_path"),
    ],
)
def test_what_is_found(text: str, kind: str) -> None:
    assert MARK.kinds(text) == {kind}
    assert MARK.look("stream", {"name": "stdout", "text": text}) == {kind}
    assert MARK.look("execute_result", {"data": {"text/plain": text, "image/png": "AKIA"}}) == {kind}
    assert MARK.look("display_data", {"data": {"application/json": {"a": [text]}}}) >= ({kind} if "\\" not in text and "\n" not in text else set())
    assert MARK.look("error", {"ename": "E", "evalue": "", "traceback": ["a", text]}) == {kind}


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "the secret of success", "password: ", "key = 1", "   a  b\n0  1  2", "https://example.org/a:b@c", "out/report.xlsx",
        "/workspace/in/x.csv", "/usr/lib/python3.13/json/__init__.py", "eyJ", "sk-learn", "AKIA", "tokens: 512", "x" * 100_000,
        "home/alice is a folder", "secret_sauce(3)", "BEGIN PUBLIC KEY", "['monkey', 'keyboard']",
    ],
)  # fmt: skip
def test_what_is_not(text: str) -> None:
    assert MARK.kinds(text) == set()


def test_pictures_are_not_read_and_odd_values_do_no_harm() -> None:
    assert MARK.look("display_data", {"data": {"image/png": "AKIAIOSFODNN7EXAMPLE"}}) == set()
    for content in ({}, {"text": None}, {"text": 7}, {"data": []}, {"data": {"text/plain": {"a": b"x"}}}, {"traceback": [1, None]}, {"ename": []}):
        for kind in ("stream", "display_data", "execute_result", "error", "status"):
            assert MARK.look(kind, content) == set()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([hint for rule in RULES for hint in rule.hints or ()]), st.text(alphabet='/:=-_. \n"aA1@', max_size=40))
def test_a_scan_takes_linear_time(hint: str, filler: str) -> None:
    text = (hint + filler) * (400_000 // len(hint + filler))
    began = time.process_time()
    MARK.kinds(text)
    assert time.process_time() - began < 3.0


def test_held_outputs_keep_their_shape() -> None:
    secret = "AKIAIOSFODNN7EXAMPLE"
    screen = Screens(SensitiveSettings("hold")).of("t1")
    assert screen.holds
    for kind, content in (
        ("stream", {"name": "stderr", "text": secret}), ("error", {"ename": "E", "evalue": secret, "traceback": [secret]}),
        ("display_data", {"data": {"text/html": secret, "image/png": "x"}, "metadata": {"a": 1}, "transient": {"display_id": "d"}}),
    ):  # fmt: skip
        made = screen.held(kind, content, screen.look(kind, content))
        assert secret not in repr(made) and "api_key" in repr(made) and set(made) == set(content)
    off = Screens(SensitiveSettings("off")).of("t1")
    assert off.look("stream", {"text": secret}) == set() and Screen(Handling.OFF, RULES).kinds(secret) == set()


def test_patterns_of_tenants() -> None:
    text = "# kinds of ours\n* badge EMP-[0-9]{6}\nacme  project  Project\\s+Bluebird\n\n"
    screens = Screens(SensitiveSettings("mark", text))
    said = "EMP-123456 in Project Bluebird"
    assert screens.of("acme").kinds(said) == {"badge", "project"}
    assert screens.of("other").kinds(said) == screens.of("*").kinds(said) == {"badge"}
    assert screens.of("acme").kinds("AKIAIOSFODNN7EXAMPLE") == {"api_key"}
    for bad in ("acme only", "acme k (", "acme K x", "acme k x*", "acme k " + "x" * 501, "\n".join(f"* k a{n}" for n in range(201))):
        with pytest.raises(BadPatterns):
            parse_patterns(bad)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\r\nand more\n", "plain\ttext\r\nand more\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[H\x1b]0;evil title\x07after", "after"),
        ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred\x9d0;t\x9c", "red"),
        ("\x1bPq#0\x1b\\x", "x"),
        ("a\x1b", "a"),
        ("a\x1b[31", "a"),
        ("a\x1b]never ends\nnext", "a\nnext"),
        ("\x08\x7f\x00", "\\x08\\x7f\\x00"),
        ("admin\u202egpj.exe", "admin\\u202egpj.exe"),
        ("\u2066x\u2069\u200e\u061c", "\\u2066x\\u2069\\u200e\\u061c"),
        ("\U000e0041", "\\U000e0041"),
        ("übung 日本 👍 עברית", "übung 日本 👍 עברית"),
    ],
)
def test_controls_are_made_harmless(text: str, shown: str) -> None:
    assert harmless(text) == shown
    assert shown_in({"a": [text, 1, None]}) == {"a": [shown, 1, None]}


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("\x1b[]()0;31mPX^_\x07\\\x9b\x9d\x9c \n\u202eab\x00"), max_size=60))
def test_whatever_comes_no_control_is_left(text: str) -> None:
    shown = harmless(text)
    assert all(c in "\n\r\t" or (c.isprintable() and c not in "\u202e") for c in shown)
    assert harmless(shown) == shown


LIBRARY = "File /usr/local/lib/python3.13/site-packages/pandas/core/frame.py:4102, in DataFrame.__getitem__(self, key)\n   4100 a\n-> 4102 b"
TRACEBACK = [
    "\x1b[31m---------------------------------------------------------------------------\x1b[39m",
    "\x1b[31mKeyError\x1b[39m                                  Traceback (most recent call last)",
    "\x1b[36mCell\x1b[39m\x1b[36m \x1b[39m\x1b[32mIn[3]\x1b[39m\x1b[32m, line 2\x1b[39m\n\x1b[32m      1\x1b[39m df = make()\n----> 2 df['x']\n",
    LIBRARY, LIBRARY, "File /usr/lib/python3.13/functools.py:80, in wrapper(*a)\n  80 x",
    "File /workspace/mine.py:7, in f()\n      7 raise KeyError('x')",
    "File \x1b[32m/home/builder/secret/build.py:7\x1b[39m, in g()\n  7 x",
    "\x1b[31mKeyError\x1b[39m: 'x'",
]  # fmt: skip


def test_a_traceback_is_folded_to_the_users_own_frames() -> None:
    assert folded(TRACEBACK, "KeyError", "'x'") == [
        "Cell In[3], line 2", "      1 df = make()", "----> 2 df['x']", "[3 frames in pandas, Python]",
        "File /workspace/mine.py:7, in f()", "      7 raise KeyError('x')", "[1 frame in Python]", "KeyError: 'x'",
    ]  # fmt: skip
    value = "invalid syntax (<string>, line 1)"
    assert folded(["  Cell In[1], line 1\n    1 +\n       ^"], "SyntaxError", value)[-1] == f"SyntaxError: {value}"
    assert cleaned("see /opt/x/y.so and /usr/lib/python3/dist-packages/a/b.py") == "see [...]/y.so and a/b.py"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.integers() | st.text(max_size=300), max_size=20), st.text(max_size=50), st.text(max_size=300))
def test_any_traceback_folds(traceback: list[Any], name: str, value: str) -> None:
    for line in folded(traceback, name, value):
        assert "\x1b" not in line


def test_a_huge_traceback_is_bounded() -> None:
    lines = folded(["Cell In[1], line 1\n" + "x\n" * 100_000] * 5, "E", "v" * 10**6)
    assert len(lines) < 450 and max(map(len, lines)) <= 2000
