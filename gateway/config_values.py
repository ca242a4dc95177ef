"""How settings are written: sizes, durations, counts, words. Text to value, and back for the tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_SIZES = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class BadValue(ValueError):
    """The text is not of its kind; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``parse`` raises BadValue. ``allowed`` is what it says then, and in the documentation."""

    parse: Callable[[str], Any]
    show: Callable[[Any], str]
    allowed: str


def size(low: int, high: int) -> Kind:
    """Bytes. ``2GiB``, ``512M`` and ``512m`` all count in powers of 1024."""

    def parse(text: str) -> int:
        found = _SIZE.fullmatch(text.strip())
        if found is None:
            raise BadValue
        return int(_within(float(found[1]) * _SIZES[found[2].lower()], low, high))

    return Kind(parse, show_size, f"a size from {show_size(low)} to {show_size(high)}, e.g. 512MiB")


def duration(low: float, high: float) -> Kind:
    """Seconds. ``20m``, ``1h30m``, ``500ms``; a plain number is in seconds."""

    def parse(text: str) -> float:
        return _within(_seconds(text), low, high)

    return Kind(parse, show_duration, f"a duration from {show_duration(low)} to {show_duration(high)}, e.g. 90s or 20m")


def durations(low: float, high: float) -> Kind:
    """Several, the longest first."""

    def parse(text: str) -> tuple[float, ...]:
        found = {_within(_seconds(part), low, high) for part in text.split(",") if part.strip()}
        if len(found) > 8:
            raise BadValue
        return tuple(sorted(found, reverse=True))

    def show(value: tuple[float, ...]) -> str:
        return ",".join(map(show_duration, value))

    return Kind(parse, show, f"up to 8 durations of at most {show_duration(high)}, with commas; empty for none")


def count(low: int, high: int) -> Kind:
    def parse(text: str) -> int:
        digits = text.strip().replace("_", "")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            raise BadValue
        return int(_within(int(digits), low, high))

    return Kind(parse, lambda value: f"{value:d}", f"a whole number from {low} to {high}")


def number(low: float, high: float) -> Kind:
    def parse(text: str) -> float:
        if not _NUMBER.fullmatch(text.strip()):
            raise BadValue
        return _within(float(text), low, high)

    return Kind(parse, lambda value: f"{value:g}", f"a number from {low:g} to {high:g}")


def choice(*words: str) -> Kind:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise BadValue
        return word

    return Kind(parse, str, " or ".join((", ".join(words[:-1]), words[-1])))


def switch(yes: str, no: str) -> Kind:
    """A choice of two that becomes true or false."""
    chosen = choice(yes, no)
    return Kind(lambda text: chosen.parse(text) == yes, lambda value: yes if value else no, chosen.allowed)


def words(*allowed: str) -> Kind:
    """Some of these, with commas, in the order given."""
    known = {word.lower(): word for word in allowed}

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
        if not found or not known.keys() >= set(found):
            raise BadValue
        return tuple(known[word] for word in found)

    return Kind(parse, ",".join, f"some of {', '.join(allowed)}, with commas")


def by_tenant(*allowed: str) -> Kind:
    """A word for each of some tenants: ``acme=off, t2=hash``."""

    def parse(text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in text.split(","):
            tenant, equals, word = (piece.strip() for piece in part.rpartition("="))
            if not equals or not tenant or word.lower() not in allowed or tenant in found:
                raise BadValue
            found[tenant] = word.lower()
        return found

    def show(value: dict[str, str]) -> str:
        return ",".join(f"{tenant}={word}" for tenant, word in value.items())

    return Kind(parse, show, f"tenants with {', '.join(allowed[:-1])} or {allowed[-1]}, e.g. acme={allowed[0]},t2={allowed[1]}")


def name(allowed: str, pattern: str = r"[ -~]{1,255}") -> Kind:
    """Printable text."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text.strip()):
            raise BadValue
        return text.strip()

    return Kind(parse, str, allowed)


def url() -> Kind:
    """``http`` or ``https`` with a host and without a query; the last slash goes."""

    def parse(text: str) -> str:
        return _url(text.strip().rstrip("/"))

    return Kind(parse, str, "an address such as https://sandglass.example.org, without query")


def origins() -> Kind:
    def parse(text: str) -> tuple[str, ...]:
        found = [_url(part.strip().lower()) for part in text.split(",") if part.strip()]
        if any(urlsplit(origin).path for origin in found):
            raise BadValue
        return tuple(found)

    return Kind(parse, ",".join, "origins such as https://lab.example.org, with commas and without paths")


def hosts() -> Kind:
    def parse(text: str) -> tuple[str, ...]:
        found = [part.strip().lower() for part in text.split(",") if part.strip()]
        for host in found:
            parts = urlsplit(_url(f"http://{host}"))
            if parts.path or parts.netloc != host:
                raise BadValue
        return tuple(found)

    return Kind(parse, ",".join, "host names such as lab.example.org or lab.example.org:8443, with commas")


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadValue from None
    bad = parts.scheme not in ("http", "https") or not parts.hostname or port == 0
    if bad or parts.query or parts.fragment or parts.username or not text.isprintable() or " " in text:
        raise BadValue
    return text


def _seconds(text: str) -> float:
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise BadValue
    return sum(float(value) * _SECONDS[unit.lower()] for value, unit in _PART.findall(text))


def _within(value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise BadValue
    return value


def show_size(value: float) -> str:
    """The largest unit that divides it: ``2GiB``, ``1536MiB``, ``1000B``."""
    for unit, factor in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if value and value % factor == 0:
            return f"{int(value) // factor}{unit}"
    return f"{int(value)}B"


def show_duration(value: float) -> str:
    """``8h``, ``1h30m``, ``90ms``: what ``parse`` reads as the same value."""
    if value == 0:
        return "0s"
    if value % 1:
        return f"{value * 1000:g}ms" if value < 1 else f"{value!r}s"
    left, out = int(value), ""
    for unit, factor in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= factor:
            out += f"{left // factor}{unit}"
            left %= factor
    return out
