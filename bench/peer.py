"""Starts jupyter_server (in ``.venv-bench``); with ``--tuned``: no-delay on its kernel websockets, and without limits on iopub."""

import sys

from jupyter_server.serverapp import ServerApp


def tune() -> None:
    from jupyter_server.services.kernels.websocket import KernelWebsocketHandler

    shipped = KernelWebsocketHandler.open

    async def open(self, kernel_id):  # type: ignore[no-untyped-def]
        self.set_nodelay(True)
        await shipped(self, kernel_id)

    KernelWebsocketHandler.open = open


arguments = sys.argv[1:]
if "--tuned" in arguments:
    arguments.remove("--tuned")
    arguments.append("--ZMQChannelsWebsocketConnection.limit_rate=False")
    tune()
ServerApp.launch_instance(arguments)
