"""What looks like a secret, or like what a tenant does not want to see in a result: found in outputs, marked or held. Pure.

A scan is a net with holes: it finds what was printed by accident, not what somebody wants to smuggle out (a secret in base64, in a
picture, or cut over two messages passes). What keeps secrets safe is that none is in the sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]
MAX_PATTERNS = 200
MAX_PATTERN_CHARS = 500


class Handling(StrEnum):
    """``MARK``: the result names the kinds found; ``HOLD``: it is not handed out, the kinds are."""

    OFF = "off"
    MARK = "mark"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Rule:
    """``hints``: the text has one of them wherever the pattern matches; looking for these first costs next to nothing. None: always."""

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] | None


def _rule(kind: str, pattern: str, *hints: str) -> Rule:
    return Rule(kind, re.compile(pattern), hints)


# each bounded, or consumed as it matches, so that no text makes it slow
RULES = (
    _rule("private_key", r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----", "PRIVATE KEY-----"),
    _rule("token", r"\beyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,}", "eyJ"),
    _rule("token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40}|glpat-[A-Za-z0-9_-]{20})",
          "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    _rule("token", r"\bxox[abeprs]-[A-Za-z0-9-]{10}", "xox"),
    _rule("token", r"\bBearer [A-Za-z0-9._~+/-]{20}", "Bearer "),
    _rule("api_key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", "AKIA", "ASIA"),
    _rule("api_key", r"\bAIza[0-9A-Za-z_-]{35}", "AIza"),
    _rule("api_key", r"\bsk-[A-Za-z0-9_-]{32}", "sk-"),
    _rule("password", r"(?i:(?<![a-z])(?:password|passwd|secret|api[_-]?key|access[_-]?key)[\"']?\s{0,3}[=:]\s{0,3}[\"']?)[^\s\"'<>{}]{8}",
          "assword", "ASSWORD", "asswd", "ASSWD", "ecret", "ECRET", "key", "KEY", "Key"),
    _rule("password", r"\b[a-z][a-z0-9+.-]{1,20}://[^/\s:@]{1,200}:[^/\s@]{3,200}@[A-Za-z0-9\[]", "://"),
    _rule("host_path", r"(?:^|[\s\"'=:(,])/(?:home/|root/|Users/|var/lib/(?:docker|containerd|kubelet)|(?:var/)?run/(?:docker|containerd)|"
          r"etc/(?:shadow|kubernetes|sandglass))", "/home/", "/root", "/Users/", "/var/lib/", "/run/", "/etc/"),
    _rule("host_path", r"\b[A-Z]:\\Users\\[^\s\"']{1,200}", ":\\Users\\"),
)  # fmt: skip


class BadPatterns(ValueError):
    """The file of patterns cannot be used; the text says which line."""


@dataclass(frozen=True, slots=True)
class SensitiveSettings:
    """``patterns``: lines of ``TENANT KIND REGEX`` (``*``: every tenant); empty lines and those with ``#`` are left out."""

    handling: str = Handling.MARK
    patterns: str = ""


class Screen:
    """Looks at the outputs of one tenant."""

    def __init__(self, handling: Handling, rules: Iterable[Rule]) -> None:
        self.handling = handling
        self._rules = tuple(rules) if handling is not Handling.OFF else ()

    @property
    def holds(self) -> bool:
        return self.handling is Handling.HOLD

    def kinds(self, text: str) -> set[str]:
        found: set[str] = set()
        for rule in self._rules:
            if rule.kind not in found and (rule.hints is None or any(hint in text for hint in rule.hints)) and rule.pattern.search(text):
                found.add(rule.kind)
        return found

    def look(self, msg_type: str, content: Mapping[str, Any]) -> set[str]:
        """The kinds in an output: a message's content, or nbformat's output."""
        if not self._rules:
            return set()
        found: set[str] = set()
        for text in _texts(msg_type, content):
            found |= self.kinds(text)
        return found

    def held(self, msg_type: str, content: Mapping[str, Any], kinds: Iterable[str]) -> Json:
        """What stands where an output was that is not handed out; of the same shape."""
        words = held_text(kinds)
        if msg_type == "stream":
            return {**content, "text": f"{words}\n"}
        if msg_type in ("error", "execute_reply"):
            return {**content, "evalue": words, "traceback": [words]}
        return {**content, "data": {"text/plain": words}, "metadata": {}}


def held_text(kinds: Iterable[str]) -> str:
    return f"[Sandglass: an output was held back; it looks like it contains: {', '.join(sorted(kinds))}]"


NOTHING = Screen(Handling.OFF, ())


class Screens:
    """One for each tenant. Raises BadPatterns."""

    def __init__(self, settings: SensitiveSettings | None = None) -> None:
        settings = settings or SensitiveSettings()
        self._handling = Handling(settings.handling)
        self._own = parse_patterns(settings.patterns)
        self._made: dict[str, Screen] = {}
        self._others = Screen(self._handling, (*RULES, *self._own.get("*", ())))

    def of(self, tenant: str) -> Screen:
        if tenant == "*" or tenant not in self._own:
            return self._others
        if tenant not in self._made:
            self._made[tenant] = Screen(self._handling, (*RULES, *self._own.get("*", ()), *self._own[tenant]))
        return self._made[tenant]


def parse_patterns(text: str) -> dict[str, list[Rule]]:
    """Tenant -> rules. Raises BadPatterns."""
    found: dict[str, list[Rule]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = line.split(None, 2)
        if len(parts) < 3 or len(parts[2]) > MAX_PATTERN_CHARS or not re.fullmatch(r"[a-z0-9_]{1,64}", parts[1]):
            raise BadPatterns(f"line {number}: must be TENANT KIND REGEX (KIND of a-z, 0-9 and _; REGEX of at most {MAX_PATTERN_CHARS} characters)")
        try:
            pattern = re.compile(parts[2].strip())
        except (re.error, RecursionError, OverflowError) as error:
            raise BadPatterns(f"line {number}: {error}") from None
        if pattern.match(""):
            raise BadPatterns(f"line {number}: the pattern matches nothing at all, so it would be found everywhere")
        found.setdefault(parts[0], []).append(Rule(parts[1], pattern, None))
    if sum(map(len, found.values())) > MAX_PATTERNS:
        raise BadPatterns(f"there may be at most {MAX_PATTERNS} patterns")
    return found


def _texts(msg_type: str, content: Mapping[str, Any]) -> Iterable[str]:
    """Kernels are not trusted: anything may be of any type."""
    if msg_type == "stream":
        yield _text(content.get("text"))
    elif msg_type in ("display_data", "update_display_data", "execute_result"):
        data = content.get("data")
        for mime, value in data.items() if isinstance(data, dict) else ():
            if isinstance(mime, str) and not mime.startswith(("image/png", "image/jpeg", "image/gif", "image/webp", "audio/", "video/")):
                yield _text(value)
    elif msg_type == "error" or (msg_type == "execute_reply" and content.get("status") == "error"):
        yield f"{_text(content.get('ename'))}: {_text(content.get('evalue'))}"
        yield _text(content.get("traceback"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    return "" if value is None else json.dumps(value, default=str)
