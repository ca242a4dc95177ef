"""``python -m tests.abuse.removal``: takes one hardening flag or rule out at a time and shows which case catches its absence.

Every quick sandbox case is asked about every removal, and the slow ones that a removal names. Where no behaviour shows it, the gateway
must, by reading the engine's configuration back before it starts a sandbox (``hardening.check_created``). The table goes to
``docs/hardening-removals.md`` with ``--write``.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.abuse import probes_host, probes_resources, probes_rights
from tests.abuse.cases import RUNTIMES, TIERS
from tests.abuse.removals import REMOVALS, Removal, readback
from tests.abuse.world import LIMITS, PROBES, SLOW, Host, World, planted
from tests.integration.sandbox_client import Engine, Sandbox, settings

__all__ = ["probes_host", "probes_resources", "probes_rights"]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "hardening-removals.md"
HEAD = """# Each hardening rule, taken out once

Made by `python -m tests.abuse.removal --write` on a real engine: every row is a create request with one thing missing (or its opposite
asked for), and names the cases of the abuse suite (`tests/abuse/cases.py`) that fail then. *engine*: what the engine says it made
differs from what was asked, and the gateway removes the container before it starts (`check_created`); where that stands alone, no
behaviour shows the absence: another layer does the same, or that machine lacks the means to show it (swap, a queue, a set-uid file).
"""


@dataclass
class Caught:
    """What noticed a removal."""

    removal: Removal
    cases: list[str] = field(default_factory=list)
    engine: str = ""
    start: str = ""
    """Why it did not even start."""

    @property
    def words(self) -> str:
        found = [", ".join(f"`{name}`" for name in self.cases)] if self.cases else []
        found += [f"it does not start: {self.start}"] if self.start else []
        found += [f"engine: {self.engine}"] if self.engine else []
        return "; ".join(found) or "**nothing**"

    def __bool__(self) -> bool:
        return bool(self.cases or self.engine or self.start)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:110] or type(error).__name__


def attempt(engine: Engine, image: str, runtime: str, host: Host, removal: Removal, *, all_cases: bool = True) -> Caught:
    """Make a sandbox without it, and ask. ``all_cases``: False stops at the first case that catches it."""
    caught = Caught(removal)
    made: list[Sandbox] = []

    def new(**arguments: Any) -> Sandbox:
        made.append(Sandbox(engine, image, runtime, change=removal.change, **arguments))
        return made[-1].start()

    try:
        try:
            box = Sandbox(engine, image, runtime, limits=LIMITS, change=removal.change)
            made.append(box)
            caught.engine = readback(box.asked, box.inspect(), box.warnings)
            box.start()
        except (RuntimeError, TimeoutError, EOFError, OSError, AssertionError) as error:
            caught.start = _short(error)
            return caught
        world = World(engine, runtime, box, host, new)
        for name in [n for n in PROBES if n not in SLOW] + list(removal.slow):
            try:
                PROBES[name](world)
            except (AssertionError, RuntimeError, TimeoutError, EOFError, OSError, ValueError):
                caught.cases.append(name)
                if not all_cases:
                    break
                if box.ended or not _answers(box):
                    break
        return caught
    finally:
        host.seen()
        for sandbox in made:
            sandbox.remove()


def _answers(box: Sandbox) -> bool:
    with contextlib.suppress(Exception):
        return box.execute("1 + 1", 20).result == "2"
    return False


Rows = dict[str, dict[str, str]]
"""Removal -> tier -> what notices it."""


def known() -> Rows:
    """The rows that the document has already, of removals that there still are."""
    lines = [line[2:-2].split(" | ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")] if DOCUMENT.exists() else []
    names = {removal.name for removal in REMOVALS}
    return {name: dict(zip(TIERS, words, strict=False)) for name, *words in lines if name in names}


def table(rows: Rows) -> str:
    lines = [HEAD, "| taken out | " + " | ".join(TIERS) + " |", "|---|" + "---|" * len(TIERS)]
    for removal in REMOVALS:
        cells = ["-" if tier not in removal.tiers else rows.get(removal.name, {}).get(tier, "") or "not run" for tier in TIERS]
        lines.append(f"| {removal.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.abuse.removal", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="removals whose name has this in it (may be repeated)")
    parser.add_argument("--tier", action="append", choices=TIERS)
    parser.add_argument("--missing", action="store_true", help="only those that the document has not yet")
    parser.add_argument("--first", action="store_true", help="stop at the first case that notices, to save time")
    parser.add_argument("--write", action="store_true", help=f"write each row into docs/{DOCUMENT.name}, beside those that stand there")
    arguments = parser.parse_args()
    found = settings()
    if found is None:
        print("removal: set SANDGLASS_TEST_DOCKER_HOST (a Unix socket) and SANDGLASS_TEST_IMAGE", file=sys.stderr)
        return 2
    engine, results = Engine(found[0]), dict[str, list[Caught]]()
    wanted = [r for r in REMOVALS if not arguments.only or any(word in r.name for word in arguments.only)]
    rows = known()
    with planted() as host:
        for tier in arguments.tier or TIERS:
            if RUNTIMES[tier] not in engine.request("GET", "/info")["Runtimes"]:
                print(f"removal: the engine has no {RUNTIMES[tier]}")
                continue
            # with nothing missing every case passes: otherwise a row would prove nothing
            whole = attempt(engine, found[1], RUNTIMES[tier], host, Removal("nothing", lambda body: None))
            if whole:
                print(f"removal {tier}: with nothing taken out: {whole.words}")
                return 1
            results[tier] = []
            for removal in (r for r in wanted if tier in r.tiers):
                if arguments.missing and rows.get(removal.name, {}).get(tier, "not run") != "not run":
                    continue
                begun = time.monotonic()
                results[tier].append(caught := attempt(engine, found[1], RUNTIMES[tier], host, removal, all_cases=not arguments.first))
                if arguments.write:
                    now = known()  # another run may write the other tier's
                    now.setdefault(removal.name, {})[tier] = caught.words.replace("|", "/")
                    DOCUMENT.write_text(table(now))
                print(f"{tier:<9} {removal.name:<42} {time.monotonic() - begun:5.1f} s  {caught.words}", flush=True)
    for tier, rows in results.items():
        print(f"removal {tier}: {sum(map(bool, rows))} of {len(rows)} caught, {sum(bool(c.cases or c.start) for c in rows)} of them by behaviour")
    return 0 if all(map(all, results.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
