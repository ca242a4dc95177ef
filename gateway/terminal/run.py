"""``sandglass run script.py``: a script in a session, its output as it comes, an exit status that says how it ended."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import sandglass_client as sg

from ..config import ConfigError
from ..domain import texts
from ..service.tasks import Tasks
from .progress import Progress
from .where import where

USAGE, PLATFORM = 2, 75
EXIT_STATUS = {
    "ok": 0, "output_limit": 0,
    "code_error": 1, "syntax_error": 1, "dependency_missing": 1, "network_denied": 1, "artifact_rejected": 1,
    "memory_limit": 3, "process_limit": 3, "disk_limit": 3,
    "policy_denied": 4, "approval_required": 4,
    "generation_mismatch": 5, "kernel_died": 5, "sandbox_ended": 5,
    "capacity_exhausted": PLATFORM, "image_unavailable": PLATFORM, "platform_fault": PLATFORM,
    "timeout": 124, "cpu_limit": 124,
    "interrupted": 130,
}  # fmt: skip
"""1: the code; 3: a limit; 4: a policy; 5: variables are gone; 75: try again later; 124 and 130 as ``timeout`` and shells say."""
_CELL = re.compile(r"^# ?%%.*$", re.MULTILINE)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", help="a Python file; - reads standard input")
    parser.add_argument("--session", default="", metavar="ID", help="run it in this session, and leave that open (default: one of its own)")
    parser.add_argument("--profile", help="of a session of its own (default: the gateway's)")
    parser.add_argument("--name", default="", help="of a session of its own")
    parser.add_argument("--keep", action="store_true", help="leave the session open, and say its id")
    parser.add_argument("--cells", action="store_true", help="run the parts between '# %%%%' lines one after the other, up to one that fails")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="of each cell")
    parser.add_argument("--generation", type=int, metavar="N", help="refuse to run unless the variables of generation N are there")
    parser.add_argument("--upload", action="append", default=[], metavar="FILE", help="put it at in/FILE first (may be repeated)")
    parser.add_argument("--download", action="append", default=[], metavar="PATH", help="fetch it afterwards (may be repeated)")
    parser.add_argument("--to", default=".", metavar="DIR", help="where downloads go (default: here)")
    parser.add_argument("--patience", type=float, default=60.0, metavar="SECONDS", help="try so long where the gateway is away or full")
    parser.add_argument("--quiet", action="store_true", help="no progress; losses are told all the same")


def run(arguments: argparse.Namespace) -> int:
    cells = _cells(arguments)
    url, token = where(arguments, os.environ)
    progress = Progress(quiet=arguments.quiet)
    try:
        return asyncio.run(Running(arguments, progress).go(url, token, cells))
    except sg.SandglassError as error:
        return refused(error, progress)


def refused(error: sg.SandglassError, progress: Progress) -> int:
    """In words, with what helps; the exit status."""
    progress.tell(f"{error.code}: {error.detail}")
    if isinstance(error, sg.GenerationMismatch):
        if error.lost_variables:
            progress.tell(f"lost: {texts.names(error.lost_variables)}")
        return EXIT_STATUS["generation_mismatch"]
    if error.retry_after is not None:
        progress.tell(f"try again in {texts.duration(error.retry_after)}")
    return PLATFORM if isinstance(error, (sg.Unavailable, sg.QuotaExceeded)) else USAGE


def _cells(arguments: argparse.Namespace) -> list[str]:
    """The code to run. Raises ConfigError."""
    try:
        text = sys.stdin.read() if arguments.script == "-" else Path(arguments.script).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{arguments.script} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    parts = _CELL.split(text) if arguments.cells else [text]
    found = [part.strip("\n") + "\n" for part in parts if part.strip()]
    if not found:
        raise ConfigError(f"{arguments.script} holds no code")
    missing = [path for path in arguments.upload if not Path(path).is_file()]
    if missing:
        raise ConfigError(f"{missing[0]} is no file")
    return found


class Running:
    """One call of the command. Ctrl-C interrupts the cell; a second one, or one before there is a cell, ends the command."""

    def __init__(self, arguments: argparse.Namespace, progress: Progress) -> None:
        self._arguments = arguments
        self._progress = progress
        self._said: set[str] = set()
        self._execution_id = ""
        self._interrupted = False
        self._tasks = Tasks()

    async def go(self, url: str, token: Callable[[], str], cells: list[str]) -> int:
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        assert me is not None
        a, progress = self._arguments, self._progress
        s = sg.Sandglass(
            url, token, session_id=a.session, profile=a.profile, name=a.name or ("stdin" if a.script == "-" else Path(a.script).name),
            keep=a.keep or bool(a.session), patience_s=a.patience, on_notice=self._notice,
        )  # fmt: skip
        loop.add_signal_handler(signal.SIGINT, self._ctrl_c, s, me)
        self._tasks.spawn(progress.tick(), "progress")
        try:
            progress.doing("opens a session")
            async with s:
                progress.note(f"session {s.session_id} ({s.session.profile}, generation {s.generation}) on {url}")
                status = await self._all(s, cells)
                if a.keep:
                    progress.tell(f"the session stays open: --session {s.session_id} --generation {s.generation}")
                return status
        except asyncio.CancelledError:
            progress.tell("stopped waiting")
            return EXIT_STATUS["interrupted"]
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await self._tasks.close()

    async def _all(self, s: sg.Sandglass, cells: list[str]) -> int:
        a = self._arguments
        for path in a.upload:
            self._progress.doing(f"uploads {path}")
            made = await s.upload(path, overwrite=True)
            self._progress.note(f"{path} is at {made.path} ({made.size} bytes)")
        status = 0
        for number, code in enumerate(cells, 1):
            if len(cells) > 1:
                self._progress.note(f"cell {number} of {len(cells)}")
            generation = a.generation if number == 1 else s.generation
            status = await self._cell(s, code, generation)
            if status:
                break
        self._execution_id = ""
        for path in a.download if not status else ():
            self._progress.doing(f"downloads {path}")
            digest = await s.download_to(path, a.to)
            self._progress.note(f"{path} is in {a.to} (sha256 {digest[:12]})")
        return status

    async def _cell(self, s: sg.Sandglass, code: str, generation: int | None) -> int:
        progress = self._progress
        progress.doing("waits for the sandbox")
        async with aclosing(s.stream(code, timeout_s=self._arguments.timeout, expect_generation=generation)) as events:
            async for event in events:
                match event:
                    case sg.Queued():
                        self._execution_id = event.execution_id
                        progress.doing(f"waits, {event.position} before it" if event.position else "waits for the sandbox")
                    case sg.Started():
                        self._execution_id = event.execution_id
                        progress.doing("runs")
                    case sg.Stdout():
                        progress.output(event.text)
                    case sg.Stderr():
                        progress.output(self._unsaid(event.text), error=True)
                    case sg.Result() | sg.Display(update=False):
                        progress.output(event.output.text + "\n" if event.output.text else "")
                    case sg.Error():
                        progress.output("\n".join(event.error.traceback) + "\n", error=True)
                    case sg.Gap():
                        progress.tell("a part of the output is missing here: it came while the connection was away, and is not kept")
                    case sg.Done():
                        return await self._end(s, event.execution)
        return PLATFORM

    async def _end(self, s: sg.Sandglass, done: sg.Execution) -> int:
        progress = self._progress
        progress.doing("")
        if done.truncated:
            progress.tell(f"{done.truncated.bytes_dropped + done.truncated.bytes_left_out:,} bytes of output are missing")
        took = f" after {texts.duration((done.duration_ms or 0) / 1000)}" if done.duration_ms is not None else ""
        if done.ok:
            progress.note(f"{done.exit_reason}{took}")
        else:
            progress.tell(f"{done.exit_reason}{took}: {done.reason_text}" + (f" Next: {done.next_action}." if done.next_action else ""))
        if done.lost:
            # what was lost is told a moment after the cell is
            await asyncio.sleep(0.2)
            await s.notices()
            lost = (await s.refresh()).lost_variables
            progress.tell(f"variables lost: {texts.names(v.name for v in lost)}" if lost else "whatever variables there were are lost")
        return EXIT_STATUS.get(done.exit_reason, 1)

    def _notice(self, notice: sg.Notice) -> None:
        self._said.add(f"[Sandglass: {notice.text}]")
        if notice.is_loss or notice.is_warning:
            self._progress.tell(notice.text)
        else:
            self._progress.note(notice.text)

    def _unsaid(self, text: str) -> str:
        """Without what stands there already: an execution opens with the notices, which come by themselves, too."""
        return "".join(line for line in text.splitlines(keepends=True) if line.rstrip("\n") not in self._said)

    def _ctrl_c(self, s: sg.Sandglass, me: asyncio.Task[object]) -> None:
        if self._interrupted or not self._execution_id:
            me.cancel()
            return
        self._interrupted = True
        self._progress.tell("interrupts the cell (Ctrl-C again stops waiting)")
        self._tasks.spawn(self._cancel(s), "interrupt")

    async def _cancel(self, s: sg.Sandglass) -> None:
        try:
            await s.cancel(self._execution_id)
        except sg.SandglassError as error:
            self._progress.tell(f"it could not be interrupted: {error.detail}")
