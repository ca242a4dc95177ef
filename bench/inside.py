"""Runs inside a sandbox (by ``docker exec``, as the relay's uid): a plain Jupyter client beside the kernel, the limit to compare with.

Reads ``{"code", "count"}`` from the first argument; prints the round-trip times in seconds as JSON. One time is from sending the
execute_request to having both its reply and its idle.
"""

import json
import sys
import time
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient


def newest() -> str:
    files = sorted(Path("/run/sandglass").glob("k*/*.json"), key=lambda p: p.stat().st_mtime)
    return str(files[-1])


def main() -> None:
    work = json.loads(sys.argv[1])
    client = BlockingKernelClient(connection_file=newest())
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=30)
    times = []
    for n in range(work["count"] + 5):
        begun = time.perf_counter()
        msg_id = client.execute(work["code"], store_history=False)
        replied = idle = False
        while not (replied and idle):
            if not idle:
                message = client.get_iopub_msg(timeout=60)
                if message["parent_header"].get("msg_id") == msg_id and message["content"].get("execution_state") == "idle":
                    idle = True
            else:
                replied = client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") == msg_id
        if n >= 5:
            times.append(time.perf_counter() - begun)
    client.stop_channels()
    print(json.dumps(times))


main()
