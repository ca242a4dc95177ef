"""What may be wrong with a file's content, and what may be downloaded. Pure.

An upload that breaks a rule is refused. A file that code made is stored in any case, for a restore needs it as it was; the
rule that it breaks becomes the artifact's verdict, and the policy says whether it may be downloaded.
"""

from __future__ import annotations

from enum import StrEnum

from .filetypes import PROGRAM, UNKNOWN

OK = "ok"


class Rule(StrEnum):
    """``str()`` is the code; ``sentence`` is for a person."""

    TYPE = "type_mismatch"
    PROGRAM = "program"
    UNKNOWN = "unknown_type"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Rule.TYPE: "The content is not what the name says.",
    Rule.PROGRAM: "It is a program; those are not downloaded here.",
    Rule.UNKNOWN: "It is of an unknown type; those are not downloaded here.",
}


class Downloads(StrEnum):
    """What may be downloaded: ``all``; ``checked``: nothing that broke a rule, and no program; ``known``: no unknown type either."""

    ALL = "all"
    CHECKED = "checked"
    KNOWN = "known"


def held_back(policy: Downloads, mime: str, verdict: str) -> Rule | None:
    """The rule that keeps a file from being downloaded, or None. ``verdict``: as recorded, for a file that was looked into."""
    if policy is Downloads.ALL:
        return None
    if verdict not in ("", OK):
        return Rule(verdict)
    if mime in (PROGRAM, "application/wasm"):
        return Rule.PROGRAM
    return Rule.UNKNOWN if policy is Downloads.KNOWN and mime == UNKNOWN else None
