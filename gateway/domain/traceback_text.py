"""A traceback for whoever must mend the code: its own frames in full, those of libraries folded, no path of the image. Pure.

Kernels are not trusted: anything that is no traceback comes out as text, within bounds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .harmless import harmless

MAX_LINES = 200
MAX_LINE_CHARS = 2000
_USERS = ("/workspace/", "/tmp/")  # noqa: S108 - paths in the sandbox
_CELL = re.compile(r"^\s*(?:Cell In ?\[|Input In|<ipython-input|<string>|<stdin>)")
_FILE = re.compile(r'^\s*File "?(?P<path>(?:[^\n":]|:(?!\d))+)"?(?::(?P<line>\d+)|, line (?P<also>\d+))')
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(?P<name>[A-Za-z0-9_]+)")
_PATH = re.compile(r"(?<![\w.~-])/(?:usr|opt|lib|lib64|root|home|srv|etc|var|proc|run)/[^\s\"':,)\]]{0,400}")


def cleaned(text: str) -> str:
    """Plain text without paths outside the user's own folders: of a library's file stays what is below its folder."""
    return _PATH.sub(lambda found: _below(found[0]), harmless(text))


def _below(path: str) -> str:
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in path:
            return path.rpartition(mark)[2]
    found = re.match(r".*/python3(?:\.\d+)?/(.+)", path)
    return found[1] if found else f"[...]/{path.rpartition('/')[2]}"


def folded(traceback: Sequence[Any], name: str, value: str) -> list[str]:
    """Lines: frames of user code with their lines, ``[3 frames in pandas]`` for those between, and the error at the end."""
    out: list[str] = []
    hidden: list[str] = []

    def unfold() -> None:
        if hidden:
            names = list(dict.fromkeys(hidden))
            out.append(f"[{len(hidden)} frame{'s' if len(hidden) > 1 else ''} in {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}]")
            hidden.clear()

    for part in traceback:
        text = harmless(part) if isinstance(part, str) else ""
        where = _FILE.match(text)
        if _CELL.match(text) or (where is not None and where["path"].startswith(_USERS)):
            unfold()
            out += [line.rstrip() for line in text.strip("\n").split("\n")]
        elif where is not None:
            package = _PACKAGE.search(where["path"])
            hidden.append(package["name"] if package else "Python")
    unfold()
    last = f"{harmless(name)}: {harmless(value)}" if value else harmless(name)
    kept = out if len(out) <= MAX_LINES else [*out[: MAX_LINES // 2], f"[{len(out) - MAX_LINES} lines]", *out[-MAX_LINES // 2 :]]
    return [line[:MAX_LINE_CHARS] for line in (*map(cleaned, kept), *last.split("\n")[:MAX_LINES])]
