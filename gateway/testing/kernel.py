"""A tiny kernel whose behaviour is the code it is given; it speaks the Jupyter messages that the gateway counts on.

One command a line::

    print:TEXT          a line on stdout             value:TEXT       an execute_result
    write:PATH:TEXT     a file in the workspace      set:NAME         a variable, and sandglass_variables after the cell
    keep:PATTERN        sandglass.keep()             result:JSON      sandglass.result()
    input:PROMPT        asks, prints the answer      flood:BYTES      so much on stdout, 8 KiB a message
    sleep:SECONDS       in loop time                 hang             only a kill helps
    error:NAME          raises it                    die:SIGNAL       the process ends

Anything else succeeds. Messages come in ipykernel's order: busy, execute_input, output, execute_reply, idle.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from ..protocol import wire

Json = dict[str, Any]
FLOOD_CHUNK = 8192
INFO: Json = {
    "status": "ok",
    "protocol_version": "5.3",
    "implementation": "ipython",
    "implementation_version": "9.0",
    "banner": "scripted",
    "help_links": [],
    "language_info": {"name": "python", "version": "3.13.0", "mimetype": "text/x-python", "file_extension": ".py"},
}
# what else a client may ask, with the least true answer
_ANSWERS: dict[str, Json] = {
    "kernel_info_request": INFO,
    "comm_info_request": {"status": "ok", "comms": {}},
    "complete_request": {"status": "ok", "matches": [], "cursor_start": 0, "cursor_end": 0, "metadata": {}},
    "inspect_request": {"status": "ok", "found": False, "data": {}, "metadata": {}},
    "history_request": {"status": "ok", "history": []},
    "is_complete_request": {"status": "complete", "indent": ""},
    "interrupt_request": {"status": "ok"},
    "shutdown_request": {"status": "ok", "restart": False},
}


class CellError(Exception):
    """What the user's code raised."""

    def __init__(self, name: str, value: str = "") -> None:
        super().__init__(value)
        self.name = name
        self.value = value


class ScriptedKernel:
    """One kernel life. ``send(body)`` takes v1 messages; ``write_file(path, data)`` raises CellError when the disk is full.

    ``on_exit(signal)`` is called once when the process ends by itself.
    """

    def __init__(self, life: int, send: Callable[[bytes], None], write_file: Callable[[str, bytes], None], on_exit: Callable[[int], None]) -> None:
        self.life = life
        self.variables: list[Json] = []
        self.alive = True
        self._send = send
        self._write_file = write_file
        self._on_exit = on_exit
        self._requests: deque[tuple[bytes, Json, Json]] = deque()
        self._wake = asyncio.Event()
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        self._count = 0
        self._serial = 0
        self._running: tuple[bytes, Json] | None = None
        self._cell: asyncio.Task[None] | None = None
        self._hanging = False
        self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def busy(self) -> list[str]:
        """The msg_ids of execute_requests that run or wait."""
        waiting = [header["msg_id"] for _, header, _ in self._requests if header.get("msg_type") == "execute_request"]
        return ([self._running[1]["msg_id"]] if self._running else []) + waiting

    def request(self, body: bytes) -> None:
        """A message from a client. Nothing is answered once dead."""
        channel, parts = wire.unpack(body)
        header, content = json.loads(parts[0]), json.loads(parts[3])
        kind = header.get("msg_type", "")
        if not self.alive:
            return
        if channel == "stdin":
            self._answers.put_nowait(str(content.get("value", "")))
        elif channel == "control":
            if kind == "interrupt_request":
                self.interrupt()
            self._answer("control", parts[0], kind)
        else:
            self._requests.append((parts[0], header, content))
            self._wake.set()

    def interrupt(self) -> None:
        """KeyboardInterrupt in the running cell, unless it hangs."""
        if self._cell is not None and not self._hanging:
            self._cell.cancel("interrupt")

    def kill(self) -> None:
        """From outside: no more messages."""
        self.alive = False
        self._worker.cancel()
        if self._cell is not None:
            self._cell.cancel()

    # ---------------------------------------------------------------- inside

    def emit(self, channel: str, kind: str, content: Json, parent: bytes = b"{}", metadata: Json | None = None) -> None:
        """Send one message."""
        if not self.alive:
            return
        self._serial += 1
        header = {
            "msg_id": f"kernel-{self.life}-{self._serial}",
            "session": f"kernel-session-{self.life}",
            "username": "user",
            "date": "2027-01-15T08:00:00.000000Z",
            "msg_type": kind,
            "version": "5.3",
        }
        parts = [json.dumps(header).encode(), parent, json.dumps(metadata or {}).encode(), json.dumps(content).encode()]
        self._send(wire.pack(channel, parts))

    def _answer(self, channel: str, parent: bytes, kind: str) -> None:
        answer = _ANSWERS.get(kind)
        if answer is None:
            return
        self.emit("iopub", "status", {"execution_state": "busy"}, parent)
        self.emit(channel, kind.replace("_request", "_reply"), answer, parent)
        self.emit("iopub", "status", {"execution_state": "idle"}, parent)

    async def _work(self) -> None:
        while True:
            while not self._requests:
                self._wake.clear()
                await self._wake.wait()
            parent, header, content = self._requests.popleft()
            if header.get("msg_type") == "execute_request":
                await self._execute(parent, header, content)
            else:
                self._answer("shell", parent, header.get("msg_type", ""))

    async def _execute(self, parent: bytes, header: Json, content: Json) -> None:
        self._running = (parent, header)
        self.emit("iopub", "status", {"execution_state": "busy"}, parent)
        if not content.get("silent"):
            self._count += 1
            self.emit("iopub", "execute_input", {"code": content.get("code", ""), "execution_count": self._count}, parent)
        reply: Json = {"status": "ok", "execution_count": self._count, "user_expressions": {}, "payload": []}
        self._cell = asyncio.get_running_loop().create_task(self._cell_lines(str(content.get("code", "")), parent))
        try:
            await self._cell
        except CellError as error:
            reply = self._failed(error, parent)
        except asyncio.CancelledError:
            worker = asyncio.current_task()
            if not self.alive or (worker is not None and worker.cancelling()):
                raise
            reply = self._failed(CellError("KeyboardInterrupt"), parent)
        finally:
            self._cell = None
            self._hanging = False
        self.emit("shell", "execute_reply", reply, parent)
        self._running = None
        self.emit("iopub", "status", {"execution_state": "idle"}, parent)
        if reply["status"] == "error" and content.get("stop_on_error", True):
            self._abort_waiting()

    def _failed(self, error: CellError, parent: bytes) -> Json:
        what = {"ename": error.name, "evalue": error.value, "traceback": [f"{error.name}: {error.value}"]}
        self.emit("iopub", "error", what, parent)
        return {"status": "error", "execution_count": self._count, **what}

    def _abort_waiting(self) -> None:
        """As ipykernel does after an error: what waits is answered with ``aborted``."""
        waiting, self._requests = self._requests, deque()
        for parent, header, content in waiting:
            if header.get("msg_type") != "execute_request":
                self._requests.append((parent, header, content))
                continue
            self.emit("iopub", "status", {"execution_state": "busy"}, parent)
            self.emit("shell", "execute_reply", {"status": "aborted"}, parent)
            self.emit("iopub", "status", {"execution_state": "idle"}, parent)

    async def _cell_lines(self, code: str, parent: bytes) -> None:
        named = False
        for line in code.splitlines():
            command, _, argument = line.strip().partition(":")
            named |= command == "set"
            await self._line(command, argument, parent)
        if named:
            self.emit("iopub", "sandglass_variables", {"variables": self.variables, "more": 0}, parent)

    async def _line(self, command: str, argument: str, parent: bytes) -> None:
        if command == "print":
            self._stdout(argument + "\n", parent)
        elif command == "value":
            data = {"data": {"text/plain": argument}, "metadata": {}, "execution_count": self._count}
            self.emit("iopub", "execute_result", data, parent)
        elif command == "write":
            path, _, text = argument.partition(":")
            self._write_file(path, text.encode())
        elif command == "set":
            self.variables = [v for v in self.variables if v["name"] != argument]
            self.variables.append({"name": argument, "type": "int", "size": 28})
        elif command == "keep":
            self.emit("iopub", "sandglass_keep", {"patterns": [argument]}, parent)
        elif command == "result":
            self.emit("iopub", "sandglass_result", {"value": json.loads(argument)}, parent)
        elif command == "input":
            self.emit("stdin", "input_request", {"prompt": argument, "password": False}, parent)
            self._stdout(await self._answers.get() + "\n", parent)
        elif command == "flood":
            left = int(argument)
            while left > 0:
                self._stdout("x" * min(left, FLOOD_CHUNK), parent)
                left -= FLOOD_CHUNK
                await asyncio.sleep(0)
        elif command == "sleep":
            await asyncio.sleep(float(argument))
        elif command == "hang":
            self._hanging = True
            await asyncio.Event().wait()
        elif command == "error":
            raise CellError(argument, "raised by the script")
        elif command == "die":
            self.end_by_signal(int(argument))
            await asyncio.Event().wait()

    def end_by_signal(self, number: int) -> None:
        """The process ends without a word; ``on_exit`` tells the relay."""
        if self.alive:
            self.alive = False
            asyncio.get_running_loop().call_soon(self.kill)
            self._on_exit(number)

    def _stdout(self, text: str, parent: bytes) -> None:
        self.emit("iopub", "stream", {"name": "stdout", "text": text}, parent)
