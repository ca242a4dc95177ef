"""Text that a program printed, for somebody who reads it as text: nothing in it moves a cursor, sets a title or turns letters round. Pure.

An agent's log is often shown in a terminal. Escape sequences go (colours, too), other control characters and those that change
the direction of writing become visible as ``\\x08`` or ``\\u202e``. Tab, line feed and carriage return stay.
"""

from __future__ import annotations

import re

# CSI; OSC and the like up to their end, or the line's where there is none; every other escape with what belongs to it
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]")


def harmless(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text  # the usual line, at the price of two looks
    if "\x1b" in text or not text.isascii():
        text = _ESCAPE.sub("", text)
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def shown_in(value: object) -> object:
    """The same for all texts within a JSON value; keys, too."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, list):
        return [shown_in(each) for each in value]
    if isinstance(value, dict):
        return {harmless(str(name)): shown_in(each) for name, each in value.items()}
    return value
