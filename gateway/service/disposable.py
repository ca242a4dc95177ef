"""Work on somebody's file that must not be done on the gateway's host: in a sandbox that is used for it once, and destroyed.

The sandbox comes from the pool, unclaimed, and belongs to no session; a gateway that is killed meanwhile finds its row and
removes it, as every sandbox that no session has. Whatever comes out of it is as untrusted as what went in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ..errors import SandboxLost, SandglassError
from ..protocol import jupyter
from .keeping import read_sandbox, write_sandbox
from .pool import UNCLAIMED
from .sandboxes import Sandbox

if TYPE_CHECKING:
    from .world import World


class WorkFailed(Exception):
    """The code raised an error, or its process ended."""


async def run_once(world: World, profile: str, code: str, *, given: bytes, path: str, result: str, most: int, within_s: float) -> bytes:
    """Put ``given`` at ``path``, run ``code``, and read ``result``, at most ``most`` bytes.

    Raises WorkFailed (also when it takes too long or leaves no result), and Unavailable when no sandbox can be had.
    """
    sandbox = await world.pool.obtain(profile)
    try:
        await world.records.put_sandbox(sandbox.row)  # claimed: what is used is never given again, whatever happens to us
        async with asyncio.timeout(within_s):
            await write_sandbox(sandbox.link, path, len(given), None, _once(given), overwrite=False)
            await _run(sandbox, code)
            return b"".join([chunk async for chunk in read_sandbox(sandbox.link, result, most)])
    except TimeoutError:
        raise WorkFailed("it took too long") from None
    except SandglassError as error:
        raise WorkFailed(error.code) from error
    finally:
        world.tasks.spawn(_destroy(world, sandbox), "disposable")


async def _run(sandbox: Sandbox, code: str) -> None:
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
        if name == "exited" and not done.done():
            done.set_result("died")

    def on_lost(error: SandglassError) -> None:
        if not done.done():
            done.set_exception(SandboxLost())

    sandbox.link.on_kernel, sandbox.link.on_event, sandbox.link.on_lost = on_kernel, on_event, on_lost
    sandbox.link.send_kernel(jupyter.build("shell", header, {}, {}, content))
    if (status := await done) != "ok":
        raise WorkFailed(status)


async def _destroy(world: World, sandbox: Sandbox) -> None:
    await sandbox.link.close()
    await world.sandboxes.destroy(sandbox.row)
    world.tally.sandboxes_ended[sandbox.profile.name, UNCLAIMED] += 1
    world.pool.released()


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
