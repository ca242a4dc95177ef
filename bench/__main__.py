"""Figures of this machine: the gateway beside a plain client in the sandbox, its own raw stream, and jupyter_server, in one run.

Subjects of a row are measured alternately; a figure is a median with the lower and the upper quartile. "inside" is a ZMQ client at a
kernel of its own in the same container, the limit; "tuned" is jupyter_server with no-delay on its websocket and no limits on iopub.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from .lab import Lab
from .measures import MEASURES
from .processes import ROOT, limits
from .report import Report


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="bench-results.json", help="where to write the figures (default: %(default)s)")
    parser.add_argument("--markdown", help="write the table here, too")
    parser.add_argument("--profile", action="append", help="only this one (may be repeated)")
    parser.add_argument("--only", action="append", help="only measures whose name has this in it (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="few rounds and small sizes: to see whether it works, not for figures")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds of each row, instead of each row's own number")
    parser.add_argument("--list", action="store_true", help="the measures' names")
    parser.add_argument("--state", type=Path, help="use the gateway that serves on this state directory (its limits apply)")
    parser.add_argument("--docker-host", default="", help="the engine (scripts/bench finds it)")
    parser.add_argument("--image", default="", help="the kernel image (scripts/bench builds it)")
    return parser.parse_args()


def _head(arguments: argparse.Namespace, profiles: list[str]) -> dict[str, object]:
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "image": arguments.image,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit, "cpus": os.cpu_count(), "python": platform.python_version(),
        "kernel": platform.release(), "load_before": os.getloadavg(), "quick": arguments.quick, "profiles": profiles,
        "settings": "of the gateway given" if arguments.state else limits(),
    }  # fmt: skip


async def _run(arguments: argparse.Namespace) -> int:
    run = json.loads((arguments.state / "run.json").read_text()) if arguments.state else {}
    docker_host, image = arguments.docker_host or run.get("docker_host", ""), arguments.image or run.get("image", "")
    report = Report({})
    lab = Lab(docker_host, image, report, quick=arguments.quick, rounds=arguments.rounds, state=arguments.state)
    wanted = [(name, measure) for name, measure in MEASURES if not arguments.only or any(word in name for word in arguments.only)]
    failures = 0

    async def one(name: str, work: Callable[[], Awaitable[None]]) -> None:
        nonlocal failures
        print(f"--- {name}", flush=True)
        try:
            await work()
        except Exception:
            failures += 1
            report.head.setdefault("failed", []).append(name)
            traceback.print_exc()

    try:
        needs_engine = any(measure.each_profile for _, measure in wanted)
        profiles = list(arguments.profile or (lab.gateway().run["profiles"] if needs_engine else []))
        report.head |= _head(arguments, profiles)
        for name, measure in wanted:
            if not measure.each_profile:
                await one(name, lambda measure=measure: measure.work(lab, ""))  # type: ignore[misc]
        for profile in profiles:
            for name, measure in wanted:
                if measure.each_profile:
                    await one(f"{name} ({profile})", lambda measure=measure, profile=profile: measure.work(lab, profile))  # type: ignore[misc]
            await lab.drop(profile)
    finally:
        report.head["load_after"] = os.getloadavg()
        report.write(Path(arguments.json))
        if arguments.markdown:
            Path(arguments.markdown).write_text(report.markdown() + "\n")
        await lab.close()
    print(f"bench: {len(report.rows)} rows, in {arguments.json}" + (f"; {failures} measures failed" if failures else ""))
    return 1 if failures else 0


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        print("\n".join(f"{name:<12} {measure.__doc__ or ''}".rstrip() for name, measure in MEASURES))
        return 0
    if not arguments.state and not (arguments.docker_host and arguments.image):
        print("bench: call scripts/bench (or make bench): it finds the engine and the image", file=sys.stderr)
        return 2
    return asyncio.run(_run(arguments))


if __name__ == "__main__":
    sys.exit(main())
