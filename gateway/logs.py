"""Structured logs: one line an event, as JSON for machines or ``key=value`` for a terminal, without secrets.

``log.info("session started", extra={"session": id})``: the message is a constant, what changes is a field. Everything
that leaves passes through ``redact`` last, exceptions and other people's loggers included: tokens, cookies, tickets
and anything that looks like a JWT or a private key are blotted out. Fields that could hold a user's code or output are
never written, whatever is in them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import IO, Any

from .clock import iso
from .errors import SandglassError

WITHHELD = frozenset(("code", "source", "output", "stdout", "text", "body", "content", "traceback", "value", "cell", "data"))
"""Fields that are never written, unless they hold one of our error codes. (``stderr`` is what init and relay say.)"""
MAX_FIELD_CHARS = 2000
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}

_BLOT = "[redacted]"
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE if put != _BLOT else 0), put)
    for pattern, put in (
        (r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,4}", _BLOT),
        (r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.*?)(?:-----END|\Z)", _BLOT),
        (r"((?:set-)?cookie2?\"?'?\s*[:=]\s*)[^\r\n]+", rf"\1{_BLOT}"),
        (r"(authorization\"?'?\s*[:=]\s*\"?'?)(?:(?:bearer|token|basic)\s+)?[^\s\"',;]+", rf"\1{_BLOT}"),
        (r"\b((?:bearer|basic)\s+)[A-Z0-9._~+/=-]{8,}", rf"\1{_BLOT}"),
        (
            r"((?:token|ticket|passw(?:or)?d|secret|api[_-]?key|jwt[_-]?key|sandglass_page|signature|(?<![a-z])sig)"
            r"\"?'?\s*[=:]\s*\"?'?)[^\s\"'&,;}\])]+",
            rf"\1{_BLOT}",
        ),
        (r"(\b[a-z][a-z0-9+.-]{0,20}://[^/\s:@]{0,200}:)[^/\s@]{1,500}(?=@)", rf"\1{_BLOT}"),
    )
)
"""Bounded or consumed as they match, so that no line makes them slow."""
_HINTS = ("eyj", "private key", "cookie", "authorization", "bearer", "basic", "token", "ticket", "passw", "secret", "key", "sandglass_page", "sig", "://")
"""In lower case; each pattern needs one of these to match. Nearly no line has one, and seven searches of each cost more than they find."""


def redact(text: str) -> str:
    """The text without what could open a door."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    for pattern, put in _SECRETS:
        text = pattern.sub(put, text)
    return text


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as ``extra``, less what is never written."""
    found: dict[str, Any] = {}
    for name, value in vars(record).items():
        if name in _OWN or name.startswith("_"):
            continue
        if name.lower() in WITHHELD and not (isinstance(value, str) and value in _error_codes()):
            found[name] = f"[{len(value)} withheld]" if isinstance(value, str | bytes) else "[withheld]"
        elif value is None or isinstance(value, bool | int | float):
            found[name] = value
        else:
            found[name] = _short(str(value))
    return found


@cache
def _error_codes() -> frozenset[str]:
    kinds: list[type[SandglassError]] = [SandglassError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return frozenset(kind.code for kind in kinds)


def _short(text: str) -> str:
    return text if len(text) <= MAX_FIELD_CHARS else f"{text[:MAX_FIELD_CHARS]}[and {len(text) - MAX_FIELD_CHARS} more]"


class _Formatter(logging.Formatter, ABC):
    """Collects what a line says; ``render`` writes it."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = str(record.msg)
        trouble = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        return self.render(record, redact(_short(message)), _redacted(fields_of(record)), redact(trouble))

    @abstractmethod
    def render(self, record: logging.LogRecord, message: str, fields: dict[str, Any], trouble: str) -> str: ...


class JsonFormatter(_Formatter):
    """One JSON object a line: ``at``, ``level``, ``logger``, ``event``, the fields, ``exception``."""

    def render(self, record: logging.LogRecord, message: str, fields: dict[str, Any], trouble: str) -> str:
        line: dict[str, Any] = {
            "at": iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": message,
        }
        for name, value in fields.items():
            key = name if name not in line else f"{name}_"
            line[key] = value
        if trouble:
            line["exception"] = trouble
        return json.dumps(line, default=str)


class TextFormatter(_Formatter):
    """``12:00:00.123 info  session event key=value``; colours only where the stream is a terminal."""

    def __init__(self, *, colours: bool = False) -> None:
        super().__init__()
        self._colours = colours

    def render(self, record: logging.LogRecord, message: str, fields: dict[str, Any], trouble: str) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        level = record.levelname.lower()
        shown = f"{level:<7}"
        if self._colours:
            shown = f"\x1b[{_COLOUR.get(record.levelno, '0')}m{shown}\x1b[0m"
        pairs = [f"{name}={_quoted(value)}" for name, value in fields.items()]
        name = record.name.removeprefix("sandglass.")
        line = " ".join((at, shown, name, _one_line(message), *pairs))
        # A traceback is for people; its lines are marked, so that none can pass for a line of the log.
        return line + "".join(f"\n    | {_one_line(part)}" for part in trouble.splitlines())


_COLOUR = {logging.DEBUG: "2", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31;1"}


def _redacted(fields: dict[str, Any]) -> dict[str, Any]:
    """Each as ``name=value``, so that a field named ``token`` is blotted out whatever it looks like.

    All together first, which finds whatever would be found in one of them, and nearly always finds nothing.
    """
    pairs = {name: f"{name}={value}" for name, value in fields.items() if isinstance(value, str)}
    together = "\n".join(pairs.values())
    if redact(together) == together:
        return fields
    blotted = {name: redact(pair) for name, pair in pairs.items()}
    return fields | {name: pair.partition("=")[2] if pair.startswith(f"{name}=") else _BLOT for name, pair in blotted.items()}


def _quoted(value: Any) -> str:
    text = _one_line(str(value))
    return text if text and not re.search(r"[\s\"=]", text) else json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """``format``: ``json``, ``text``, or ``auto``: text on a terminal, else JSON."""

    level: str = "info"
    format: str = "auto"

    def set_up(self, stream: IO[str] | None = None) -> logging.Handler:
        """Let everything be logged this way, to standard error. May be called again. Returns the handler."""
        out = sys.stderr if stream is None else stream
        terminal = out.isatty()
        text = self.format == "text" or (self.format == "auto" and terminal)
        handler = logging.StreamHandler(out)
        handler.setFormatter(TextFormatter(colours=terminal) if text else JsonFormatter())
        root = logging.getLogger()
        for old in root.handlers[:]:
            if isinstance(old.formatter, _Formatter):
                root.removeHandler(old)
        root.addHandler(handler)
        root.setLevel(self.level.upper())
        logging.captureWarnings(True)
        # These tell of each request or connection at their own levels; we have our own lines for that.
        for name in ("tornado.access", "urllib3", "docker", "asyncio", "mcp", "httpx2", "sse_starlette"):
            logging.getLogger(name).setLevel(logging.WARNING)
        return handler
