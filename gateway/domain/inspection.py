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
    BROKEN = "archive_broken"
    LIES = "archive_lies"
    OVERLAP = "archive_overlap"
    ENCRYPTED = "archive_encrypted"
    UNSUPPORTED = "archive_unsupported"
    PATH = "archive_path"
    DEPTH = "archive_depth"
    LINK = "archive_link"
    SPECIAL = "archive_special"
    ENTRIES = "archive_entries"
    SIZE = "archive_size"
    RATIO = "archive_ratio"
    NESTING = "archive_nesting"
    SLOW = "archive_slow"
    PICTURE = "picture_unreadable"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Rule.TYPE: "The content is not what the name says.",
    Rule.PROGRAM: "It is a program; those are not downloaded here.",
    Rule.UNKNOWN: "It is of an unknown type; those are not downloaded here.",
    Rule.BROKEN: "The archive is damaged, cut off, or has something behind its end.",
    Rule.LIES: "The archive says of an entry what is not so (name, size, sum or method).",
    Rule.OVERLAP: "Entries of the archive share the same bytes.",
    Rule.ENCRYPTED: "The archive holds encrypted entries, which cannot be looked into.",
    Rule.UNSUPPORTED: "This kind of archive or compression cannot be looked into; ZIP, tar, gzip, bzip2 and xz can.",
    Rule.PATH: "An entry's path is absolute, leads out of the archive, or has characters that no path should have.",
    Rule.DEPTH: "An entry lies in too many folders.",
    Rule.LINK: "The archive holds links; only files and folders may be in one.",
    Rule.SPECIAL: "The archive holds a device, a pipe or another special file.",
    Rule.ENTRIES: "The archive has too many entries.",
    Rule.SIZE: "The archive unpacks to more than is allowed.",
    Rule.RATIO: "The archive unpacks to far more than its own size.",
    Rule.NESTING: "Archives lie within archives more deeply than is allowed.",
    Rule.SLOW: "Looking into the archive takes too long.",
    Rule.PICTURE: "The picture could not be decoded and encoded anew (32 MiB and 100 million pixels at the most).",
}


class Downloads(StrEnum):
    """What may be downloaded: ``all``; ``checked``: no bad archive and no program; ``known``: no false name or unknown type either.

    A false name alone keeps nobody from their own results by default: what could do harm is known by its content.
    """

    ALL = "all"
    CHECKED = "checked"
    KNOWN = "known"


def held_back(policy: Downloads, mime: str, verdict: str) -> Rule | None:
    """The rule that keeps a file from being downloaded, or None. ``verdict``: as recorded, for a file that was looked into."""
    if policy is Downloads.ALL:
        return None
    if verdict not in ("", OK, Rule.TYPE):
        return Rule(verdict)
    if mime in (PROGRAM, "application/wasm"):
        return Rule.PROGRAM
    if policy is Downloads.CHECKED:
        return None
    return Rule.TYPE if verdict == Rule.TYPE else Rule.UNKNOWN if mime == UNKNOWN else None
