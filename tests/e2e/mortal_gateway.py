"""A real gateway that kills itself with signal 9 at a chosen call to engine, records or store: ``python tests/e2e/mortal_gateway.py``.

It lives until the file ``fate`` stands in its state directory: ``NAME NTH before|after``, a name as ``records.put_session``. While the
file ``halt`` stands there, a call of the name in it waits, and ``halted`` says that one does: time for a fault in the middle of a step.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gateway import main as program
from gateway.cli import main
from tests.unit.service.mortal import Fate, Mortal


class Pending(Fate):
    """Takes what is to happen from the file, once it is there."""

    def __init__(self, file: Path) -> None:
        super().__init__(None, False, lambda: os.kill(os.getpid(), signal.SIGKILL))
        self._file = file

    async def pass_through(self, name: str, call: Callable[[], Any]) -> Any:
        if self.at is None and self._file.exists():
            self.only, nth, moment = self._file.read_text().split()
            self.at, self.calls, self.late = int(nth), 0, moment == "after"
        halt = self._file.with_name("halt")
        if halt.exists() and halt.read_text() == name:
            halt.with_name("halted").touch()
            while halt.exists():
                await asyncio.sleep(0.02)
        return await super().pass_through(name, call)


def _under(fate: Fate, make: Callable[..., Any], name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: Mortal(make(*args, **kwargs), fate, name)


if __name__ == "__main__":
    fate = Pending(Path(os.environ["SANDGLASS_STATE"]) / "fate")
    for attribute, name in (("SqliteRecords", "records"), ("DockerRuntime", "engine"), ("FilesystemStore", "store")):
        setattr(program, attribute, _under(fate, getattr(program, attribute), name))
    sys.exit(main(["serve"]))
