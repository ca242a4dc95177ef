"""Work on somebody's file that must not be done on the gateway's host: in a sandbox of no session, which is destroyed afterwards.

A sandbox serves one user and never a second one. Files come in bursts, so it is kept for ``KEEP_S`` after a job that went well; after
any other it is destroyed at once. Whatever comes out of it is as untrusted as what went in. A gateway that is killed meanwhile finds
its row and removes it, as every sandbox that no session has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ..domain.paths import split_root
from ..errors import NotFound, SandboxLost, SandglassError, Unavailable
from ..protocol import jupyter
from .keeping import read_sandbox, write_sandbox
from .link import SandboxLink
from .pool import UNCLAIMED
from .sandboxes import Sandbox

if TYPE_CHECKING:
    from .world import World

AT_ONCE = 2
"""Sandboxes for such work, beyond those that sessions may have: neither waits for the other."""
KEEP_S = 45.0
MOST_JOBS = 200
"""What one sandbox is given at the most, however long a burst lasts."""
WAIT_S = 60.0
CLOSE_S = 5.0
Owner = tuple[str, str]
"""Tenant and user."""


class WorkFailed(Exception):
    """The code raised an error, or its process ended, or it took too long."""


@dataclass(frozen=True, slots=True)
class Given:
    """A file for the job, by its path in the sandbox."""

    path: str
    size: int
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Job:
    """Put what is ``given`` there, run ``code``, and read ``result``, at most ``most`` bytes. ``makes_sense``: what a result must be."""

    code: str
    given: tuple[Given, ...]
    result: str
    most: int
    within_s: float
    makes_sense: Callable[[bytes], bool] = bool


@dataclass(eq=False)
class _Held:
    sandbox: Sandbox
    jobs: int = 0


class Disposables:
    """``profile``: of the sandboxes; empty while the engine serves none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.profile = ""
        self._kept: dict[Owner, _Held] = {}
        self._turns: WeakValueDictionary[Owner, asyncio.Lock] = WeakValueDictionary()
        self._count = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._ends: set[asyncio.Task[None]] = set()

    async def run(self, owner: Owner, job: Job) -> bytes:
        """One job at a time for each user. Raises WorkFailed, and Unavailable when no sandbox can be had."""
        async with self._turns.setdefault(owner, asyncio.Lock()):
            held = await self._obtain(owner)
            held.jobs += 1
            done = False
            try:
                async with asyncio.timeout(job.within_s):
                    result = await _work(held.sandbox, job)
                done = job.makes_sense(result)
                if not done:
                    raise WorkFailed("its result makes no sense")
                return result
            except TimeoutError:
                raise WorkFailed("it took too long") from None
            except SandglassError as error:
                raise WorkFailed(error.code) from error
            finally:
                if done and held.jobs < MOST_JOBS and held.sandbox.link.lost is None and not self._closed:
                    self._keep(owner, held)
                else:
                    self._drop(held)

    async def _obtain(self, owner: Owner) -> _Held:
        held = self._take(owner)
        if held is not None and held.sandbox.link.lost is None:
            return held
        if held is not None:
            self._drop(held)
        if not self.profile:
            raise Unavailable("There is no sandbox to look into files with.")
        await self._room()
        self._count += 1
        try:
            sandbox = await self._world.pool.lend(self.profile)
        except BaseException:
            self._left()
            raise
        held = _Held(sandbox)
        try:
            await self._world.records.put_sandbox(sandbox.row)  # claimed: what is used is never given again, whatever happens to us
        except BaseException:
            self._drop(held)
            raise
        return held

    async def _room(self) -> None:
        """Until there may be one more; one that only waits for its user's next file goes first. Raises Unavailable."""
        try:
            async with asyncio.timeout(WAIT_S):
                while self._count >= AT_ONCE:
                    if self._kept:
                        self._give_up(next(iter(self._kept)))
                    else:
                        await self._changed.wait()
        except TimeoutError:
            raise Unavailable("Too many files are being looked into just now.") from None

    # --- kept for the user's next file --------------------------------------------------------------------------------

    def _keep(self, owner: Owner, held: _Held) -> None:
        self._kept[owner] = held  # the longest unused is the first
        self._world.deadlines.after(("disposable", owner), KEEP_S, lambda: self._give_up(owner))
        self._tell()

    def _take(self, owner: Owner) -> _Held | None:
        self._world.deadlines.disarm(("disposable", owner))
        return self._kept.pop(owner, None)

    def _give_up(self, owner: Owner) -> None:
        if (held := self._take(owner)) is not None:
            self._drop(held)

    def _drop(self, held: _Held) -> None:
        end = self._world.tasks.spawn(self._destroy(held.sandbox), "disposable")
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
        self._left()

    def _left(self) -> None:
        self._count -= 1
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _destroy(self, sandbox: Sandbox) -> None:
        await sandbox.link.close()
        await self._world.sandboxes.destroy(sandbox.row)
        self._world.tally.sandboxes_ended[sandbox.profile.name, UNCLAIMED] += 1
        self._world.pool.maintain()

    def links(self) -> list[SandboxLink]:
        """Of those that are kept."""
        return [held.sandbox.link for held in self._kept.values()]

    @property
    def count(self) -> int:
        """Sandboxes that there are for such work, idle ones included."""
        return self._count

    async def close(self) -> None:
        """Nothing is kept from now on. What was is destroyed when this returns, and so is what a job had that ends in a moment."""
        self._closed = True
        for owner in list(self._kept):
            self._give_up(owner)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self._count:
                    await self._changed.wait()
        if self._ends:
            await asyncio.wait(self._ends, timeout=2 * CLOSE_S)


async def _work(sandbox: Sandbox, job: Job) -> bytes:
    for given in job.given:
        await write_sandbox(sandbox.link, given.path, given.size, None, given.chunks, overwrite=True)
    await _execute(sandbox, job.code)
    result = b"".join([chunk async for chunk in read_sandbox(sandbox.link, job.result, job.most)])
    for path in (*(given.path for given in job.given), job.result):
        await _remove(sandbox, path)
    return result


async def _remove(sandbox: Sandbox, path: str) -> None:
    root, path = split_root(path)
    stream = sandbox.link.open_file({"cmd": "delete", "root": root, "path": path})
    try:
        await stream.result()
    except NotFound:
        pass  # as well
    finally:
        stream.abort()


async def _execute(sandbox: Sandbox, code: str) -> None:
    header = jupyter.make_header("execute_request", "gateway")
    content = {"code": code, "silent": True, "store_history": False, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_kernel(number: int, lane: int, body: bytes) -> None:
        try:
            message = jupyter.decode(body)
            if message.msg_type == "execute_reply" and message.parent_id == header["msg_id"] and not done.done():
                done.set_result(str(message.content.get("status")))
        except jupyter.JupyterError:
            pass  # it says nothing that we wait for

    def on_event(name: str, event: dict[str, object]) -> None:
        if name == "exited" and done.done():
            sandbox.link.give_up(SandboxLost("its kernel ended between two jobs"))
        elif name == "exited":
            done.set_result("died")

    def on_lost(error: SandglassError) -> None:
        if not done.done():
            done.set_exception(SandboxLost())

    sandbox.link.on_kernel, sandbox.link.on_event, sandbox.link.on_lost = on_kernel, on_event, on_lost
    sandbox.link.send_kernel(jupyter.build("shell", header, {}, {}, content))
    if (status := await done) != "ok":
        raise WorkFailed(status)


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data
