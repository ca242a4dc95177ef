"""``sandglass sessions``: who holds what, and what runs out when."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import sandglass_client as sg

from ..domain import texts
from .progress import Progress
from .run import refused
from .where import where


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ended", action="store_true", help="with those that have ended")
    parser.add_argument("--all", action="store_true", help="those of others, too (an admin's token)")
    parser.add_argument("--json", action="store_true", help="as the gateway says it")
    parser.add_argument("--end", action="append", default=[], metavar="ID", help="end this session first (may be repeated)")


def sessions(arguments: argparse.Namespace) -> int:
    url, token = where(arguments, os.environ)
    try:
        found = asyncio.run(_ask(url, token, arguments))
    except sg.SandglassError as error:
        return refused(error, Progress())
    if arguments.json:
        lines = [json.dumps([session.raw for session in found], indent=1)]
    else:
        lines = list(table(found, everyone=arguments.all)) if found else ["no sessions"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


async def _ask(url: str, token: Callable[[], str], arguments: argparse.Namespace) -> list[sg.Session]:
    async with sg.Gateway(url, token, patience_s=10.0) as gateway:
        for session_id in arguments.end:
            await gateway.end(session_id)
        return await gateway.sessions(ended=arguments.ended, everyone=arguments.all)


def table(found: Sequence[sg.Session], *, everyone: bool) -> Iterator[str]:
    """Columns as wide as they must be."""
    rows = [("SESSION", "NAME", *(("USER",) if everyone else ()), "PROFILE", "STATE", "GEN", "ENDS IF IDLE", "ENDS AT MOST", "VARIABLES")]
    rows += [_row(session, everyone) for session in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(s: sg.Session, everyone: bool) -> tuple[str, ...]:
    state = s.state + (f" ({s.reason})" if s.reason else ", busy" if s.busy else "")
    held = texts.names((v.name for v in s.variables), 5)
    lost = f"lost: {texts.names((v.name for v in s.lost_variables), 5)}" if s.lost_variables and not held else ""
    user = (_plain(s.user),) if everyone else ()
    idle = "while busy: never" if s.idle_paused else _left(s.idle_deadline, s.server_time)
    return (s.session_id, _plain(s.name), *user, s.profile, state, str(s.generation), idle, _left(s.max_deadline, s.server_time), held or lost or "-")


def _left(deadline: datetime | None, now: datetime | None) -> str:
    return f"in {texts.duration((deadline - now).total_seconds())}" if deadline and now else "-"


def _plain(text: str) -> str:
    """Names are anybody's: nothing in them moves the cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)[:40]
