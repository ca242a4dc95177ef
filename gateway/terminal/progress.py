"""What is said beside the output: on standard error, and on a terminal a line that counts while nothing comes."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from contextlib import suppress
from typing import TextIO

from ..domain.texts import duration

SILENT_S = 1.0
CLEAR = "\r\x1b[K"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Progress:
    """``quiet``: losses and errors only."""

    def __init__(self, *, quiet: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._quiet = quiet
        self._out, self._err = out or sys.stdout, err or sys.stderr
        self._live = self._err.isatty() and not quiet
        self._shown = False
        self._at_line_start = True
        self._doing, self._since = "", time.monotonic()
        self._spoke = self._since

    def doing(self, what: str) -> None:
        """What is waited for from now on."""
        if what != self._doing:
            self._doing, self._since = what, time.monotonic()
            if not self._live and what:
                self.note(what)

    def note(self, text: str) -> None:
        if not self._quiet:
            self.tell(text)

    def tell(self, text: str) -> None:
        """A line that must be seen."""
        self._wipe()
        self._err.write(("" if self._at_line_start else "\n") + f"sandglass: {text}\n")
        self._err.flush()
        self._at_line_start = True

    def output(self, text: str, *, error: bool = False) -> None:
        """The code's own, as it comes."""
        if not text:
            return
        self._wipe()
        stream = self._err if error else self._out
        stream.write(text if stream.isatty() else _COLOURS.sub("", text) if error else text)
        stream.flush()
        self._at_line_start = text.endswith("\n")
        self._spoke = time.monotonic()

    async def tick(self) -> None:
        """On a terminal: the time that passes, below what was printed, until cancelled."""
        with suppress(asyncio.CancelledError):
            while self._live:
                await asyncio.sleep(0.2)
                now = time.monotonic()
                if self._doing and self._at_line_start and now - max(self._spoke, self._since) > SILENT_S:
                    self._err.write(f"{CLEAR}sandglass: {self._doing} ({duration(now - self._since)})")
                    self._err.flush()
                    self._shown = True
        self._wipe()

    def _wipe(self) -> None:
        if self._shown:
            self._err.write(CLEAR)
            self._shown = False
