"""No secret, code or output leaves by the logs, and no line can be forged."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.logs import LogSettings, redact

TOKEN = jwt.encode({"sub": "alice", "tenant": "t1"}, "k" * 40, algorithm="HS256")
PLANTED = "s3cr3t-Value_0123456789abcdef"


@pytest.fixture(params=["json", "text"])
def out(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    level, before = root.level, root.handlers[:]
    handler = LogSettings("debug", request.param).set_up(stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)
    assert root.handlers == before
    logging.captureWarnings(False)


log = logging.getLogger("sandglass.test")

LEAKS = [
    "{t}",
    "GET /api/kernels?token={p} 200",
    "/api/x?session=1&token={p}&y=2",
    "/login?ticket={p}",
    "Authorization: Bearer {p}",
    "authorization: token {p}",
    "{{'Authorization': 'Bearer {p}'}}",
    '{{"Authorization": "token {p}"}}',
    "Proxy-Authorization: Basic {p}==",
    "Bearer {p}",
    "Cookie: sandglass_page={p}; other={p}",
    "Set-Cookie: sandglass_page={p}; HttpOnly",
    "{{'Cookie': 'a={p}'}}",
    "sandglass_page={p}",
    "password={p}",
    "access_token={p}",
    '{{"refresh_token": "{p}"}}',
    "SANDGLASS_JWT_KEY={p}",
    "api-key: {p}",
    "X-Amz-Signature={p}",
    "connect to postgres://user:{p}@host/db failed",
    "-----BEGIN PRIVATE KEY-----\n{p}\n-----END PRIVATE KEY-----",
    "-----BEGIN EC PRIVATE KEY-----\n{p}",
    "token={t}",
    "x{t}",
]


@pytest.mark.parametrize("leak", LEAKS)
def test_planted_secrets_do_not_come_out(out: io.StringIO, leak: str) -> None:
    line = leak.format(p=PLANTED, t=TOKEN)
    log.info(line)
    log.info("with arguments %s", line)
    log.info("as a field", extra={"why": line, "path": line})
    try:
        raise ValueError(line)
    except ValueError:
        log.exception("failed")
    logging.getLogger("tornado.general").warning(line)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(line, stacklevel=1)
    said = out.getvalue()
    assert PLANTED not in said
    assert TOKEN.split(".")[1] not in said
    assert said.count("redacted") >= 6


@pytest.mark.parametrize("name", ["token", "ticket", "authorization", "cookie", "password", "secret", "jwt_key"])
def test_a_field_with_a_telling_name_is_blotted_out(out: io.StringIO, name: str) -> None:
    log.info("event", extra={name: PLANTED})
    assert PLANTED not in out.getvalue()


@pytest.mark.parametrize("name", ["code", "source", "output", "stdout", "text", "body", "content", "traceback", "Code"])
def test_code_and_output_are_never_written(out: io.StringIO, name: str) -> None:
    log.info("event", extra={name: "print(42)", "session": "s1"})
    said = out.getvalue()
    assert "print" not in said
    assert "[9 withheld]" in said
    assert "s1" in said


def test_our_own_error_codes_may_be_told(out: io.StringIO) -> None:
    log.info("refused", extra={"code": "not_found"})
    assert "not_found" in out.getvalue()


@given(st.text())
@settings(deadline=None)
def test_redaction_never_fails_and_leaves_plain_words(text: str) -> None:
    redact(text)
    plain = "session started in 12 ms for sandbox 1234 (tokens: 3 of 5)"
    assert redact(plain) == plain


def test_redaction_takes_linear_time() -> None:
    for piece in (
        "token",
        "token=",
        "a-",
        "eyJ",
        "cookie: ",
        "-----BEGIN PRIVATE KEY-----",
        "a://b:",
        "authorization",
        "x_" * 20,
    ):
        redact(piece * (60_000 // len(piece)))


def test_a_line_is_one_line(out: io.StringIO) -> None:
    log.info("first\n12:00:00.000 info    forged", extra={"why": "a\r\nb\x1b[31m\u2028c", "e": ""})
    assert len(out.getvalue().splitlines()) == 1
    assert "\x1b" not in out.getvalue()


def test_json_lines_can_be_read() -> None:
    stream = io.StringIO()
    handler = LogSettings("info", "json").set_up(stream)
    try:
        log.info("session %s", "started", extra={"session": "s1", "ms": 1.5, "none": None, "level": "x", "obj": {"a": 1}})
        log.debug("not said")
        odd = log.makeRecord("sandglass.test", logging.WARNING, "", 0, "odd %d", ("no number",), None)
        handler.handle(odd)
    finally:
        logging.getLogger().removeHandler(handler)
        logging.captureWarnings(False)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("session started", "info", "sandglass.test")
    assert (first["session"], first["ms"], first["none"], first["level_"], first["obj"]) == (
        "s1",
        1.5,
        None,
        "x",
        "{'a': 1}",
    )
    assert first["at"].endswith("Z")
    assert second["event"] == "odd %d"


def test_text_lines_look_as_they_should() -> None:
    stream = io.StringIO()
    handler = LogSettings("info", "text").set_up(stream)
    try:
        log.error("step failed", extra={"step": "pool", "why": "a b", "n": 3})
        try:
            raise RuntimeError("boom\nforged line")
        except RuntimeError:
            log.exception("failed")
    finally:
        logging.getLogger().removeHandler(handler)
        logging.captureWarnings(False)
    lines = stream.getvalue().splitlines()
    assert lines[0][13:] == 'error   test step failed step=pool why="a b" n=3'
    assert all(line.startswith("    | ") for line in lines[2:])
    assert "\x1b" not in stream.getvalue()


def test_auto_is_json_without_a_terminal_and_text_with_one() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shape in ((io.StringIO(), "{"), (Terminal(), "")):
        handler = LogSettings().set_up(stream)
        log.warning("event")
        logging.getLogger().removeHandler(handler)
        logging.captureWarnings(False)
        assert stream.getvalue().startswith("{") == bool(shape)
        assert ("\x1b[33m" in stream.getvalue()) == (not shape)


def test_setting_up_twice_says_things_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    LogSettings().set_up(first)
    handler = LogSettings().set_up(second)
    log.warning("event")
    logging.getLogger().removeHandler(handler)
    logging.captureWarnings(False)
    assert first.getvalue() == ""
    assert second.getvalue().count("event") == 2


def test_a_long_field_is_cut(out: io.StringIO) -> None:
    log.info("event %s", "m" * 10_000, extra={"why": "w" * 10_000})
    assert len(out.getvalue()) < 6_000
