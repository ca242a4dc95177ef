"""A gateway on a fake engine, in a process of its own: what the gateway itself costs, where no machine has room for so many sandboxes.

    python -m bench.fake serve              HTTP on a free port; a token is a user's name; each line on stdin asks for figures
    python -m bench.fake bare COUNT         the fake engine's share of that: so many sandboxes, and no gateway that holds them
    python -m bench.fake sessions COUNT     so many sessions: created, warned, recycled, come back, all recycled at once
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from gateway.clock import SystemClock
from gateway.domain.model import Lifetimes, Limits, Principal, Profile
from gateway.http.app import body_limit, make_app
from gateway.http.deps import Deps
from gateway.http.server import bind, serve
from gateway.ports import Records, SandboxRow
from gateway.service.sandboxes import Sandboxes
from gateway.service.tasks import Tasks

from .fake_engine import IMAGE, TIER, Engine, boot
from .fake_sessions import sessions
from .proc import descriptors, rss


class _Names:
    def verify(self, token: str) -> Principal:
        return Principal(token, "bench", expires_at=time.time() + 86400)


def _figures() -> dict[str, int]:
    gc.collect()
    pid = os.getpid()
    return {"rss": rss(pid), "descriptors": descriptors(pid), "tasks": len(asyncio.all_tasks()), "objects": len(gc.get_objects())}


async def serving(path: Path) -> None:
    clock = SystemClock()
    gateway, _ = await boot(path, clock)
    deps = Deps(_Names(), cast(Any, None), clock, web_dir=path, tasks=gateway.world.tasks)
    sockets, port = bind("127.0.0.1", 0)
    deps.url = deps.frame_url = f"http://127.0.0.1:{port}"
    serve(make_app(gateway, deps), sockets, body_limit(deps))
    print(json.dumps({"url": deps.url}), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(_figures()), flush=True)


class _NoRecords:
    async def put_sandbox(self, row: SandboxRow) -> None: ...


async def bare(count: int) -> None:
    clock, tasks = SystemClock(), Tasks()
    runtime = Engine(clock)
    profile = Profile(TIER, TIER, "runc", IMAGE, TIER, Limits(), Lifetimes())
    sandboxes = Sandboxes(runtime, cast(Records, _NoRecords()), clock, tasks, instance="bench", epoch=1, images={TIER: IMAGE})
    seen = []
    for size in (20, count):
        for _ in range(size):
            sandbox = await sandboxes.create(profile)
            await sandbox.link.close()
        await asyncio.sleep(0.1)
        seen.append(_figures())
    print(json.dumps(seen), flush=True)


async def many(path: Path, count: int) -> None:
    print(json.dumps(await sessions(path, count) | _figures()), flush=True)


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="sandglass-bench-", ignore_cleanup_errors=True) as scratch:
        works = {
            "serve": lambda: serving(Path(scratch)), "bare": lambda: bare(int(sys.argv[2])),
            "sessions": lambda: many(Path(scratch), int(sys.argv[2])),
        }  # fmt: skip
        asyncio.run(works[sys.argv[1]]())


if __name__ == "__main__":
    main()
