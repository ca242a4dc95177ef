"""The one place where tasks are made (the linter forbids it elsewhere): each is named, held, and its failure logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("sandglass.tasks")


class Tasks:
    """Holds background tasks so that none is lost to the garbage collector or fails in silence."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failures = 0

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failures += 1
            log.error("task failed", extra={"task": task.get_name()}, exc_info=task.exception())

    def __len__(self) -> int:
        return len(self._tasks)

    async def close(self, wait_s: float = 5.0) -> None:
        """Cancel what still runs and wait for it, bounded."""
        tasks = [t for t in self._tasks if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=wait_s)
