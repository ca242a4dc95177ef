"""Output as it comes, without ``await``; the same with ``async for`` on ``Sandglass``.

    SANDGLASS_URL=http://127.0.0.1:8888 SANDGLASS_TOKEN=$(sandglass token --user alice) python examples/stream.py
"""

from __future__ import annotations

from sandglass_client import Done, Queued, Result, Started, Stdout, SyncSandglass

CODE = """
import time
for n in range(3):
    print(n, flush=True)
    time.sleep(0.1)
n
"""


def main() -> None:
    with SyncSandglass() as s:
        for event in s.stream(CODE, timeout_s=30):
            match event:
                case Queued():
                    print("queued")
                case Started():
                    print("started")
                case Stdout():
                    print(event.text, end="")
                case Result():
                    print("result", event.output.text)
                case Done():
                    print("done", event.execution.exit_reason)


if __name__ == "__main__":
    main()
