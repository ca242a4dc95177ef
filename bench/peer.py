"""Starts jupyter_server (in ``.venv-bench``); with ``--tuned``: no-delay on its kernel websockets, and without limits on iopub."""

import sys
from typing import Any

from jupyter_server.serverapp import ServerApp


def tune() -> None:
    from jupyter_server.services.kernels.websocket import KernelWebsocketHandler

    shipped: Any = KernelWebsocketHandler.open

    async def opened(self: Any, kernel_id: str) -> None:
        self.set_nodelay(True)
        await shipped(self, kernel_id)

    setattr(KernelWebsocketHandler, "open", opened)


arguments = sys.argv[1:]
if "--tuned" in arguments:
    arguments.remove("--tuned")
    arguments.append("--ZMQChannelsWebsocketConnection.limit_rate=False")
    tune()
ServerApp.launch_instance(arguments)
