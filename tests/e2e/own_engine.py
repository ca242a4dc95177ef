"""An engine that a test may kill: started by ``deploy/engine`` on a folder of its own, with the kernel image of the shared one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import docker
from e2e_gateway import DOCKER_HOST, IMAGE, ROOT

COPY_S = 300


class OwnEngine:
    """runc only. ``host``: where it answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # this tells the script not to look for gVisor
        (folder / "engine").mkdir(parents=True)
        (folder / "engine" / "runsc.none").write_text(os.uname().release + "\n")
        self.host = ""

    def start(self) -> OwnEngine:
        self.host = self._run("start").strip().splitlines()[-1].removeprefix("DOCKER_HOST=")
        return self

    def take_image(self) -> None:
        shared = docker.APIClient(base_url=DOCKER_HOST, version="auto", timeout=COPY_S)
        own = docker.APIClient(base_url=self.host, version="auto", timeout=COPY_S)
        try:
            for _ in own.load_image(shared.get_image(IMAGE)):
                pass
        finally:
            own.close()
            shared.close()

    def kill(self) -> None:
        """The engine's process, with signal 9; its containers go on."""
        os.kill(int(re.findall(r"pid (\d+)", self._run("status"))[0]), signal.SIGKILL)

    def end(self) -> None:
        self._run("stop")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, action: str) -> str:
        command = [str(ROOT / "deploy" / "engine"), action, "--state", str(self._folder)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=COPY_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
