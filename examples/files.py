"""A file up, a declared file down, and both still there after the sandbox ended.

    SANDGLASS_URL=http://127.0.0.1:8888 SANDGLASS_TOKEN=$(sandglass token --user alice) python examples/files.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from sandglass_client import Sandglass

CODE = """
import csv
with open("in/sales.csv", newline="") as file:
    total = sum(int(row["amount"]) for row in csv.DictReader(file))
with open("total.txt", "w") as file:
    file.write(str(total))
"""


async def main() -> None:
    async with Sandglass() as s:
        up = await s.upload(b"region,amount\nnorth,40\nsouth,2\n", "sales.csv")
        print(f"uploaded {up.path}, {up.size} bytes")
        await s.declare("total.txt")
        (await s.run(CODE, timeout_s=30)).check()
        print("total", (await s.download("total.txt")).decode())

        await s.recycle()  # as an idle timer would
        r = await s.run("print(open('total.txt').read())", timeout_s=30)
        print("after the loss", r.stdout.strip())
        for notice in r.notices:
            print(f"  {notice.kind}: {', '.join(notice.files) or notice.text}")
        with tempfile.TemporaryDirectory() as folder:
            digest = await s.download_to("total.txt", folder)
            print((Path(folder) / "total.txt").read_text(), digest[:12])


if __name__ == "__main__":
    asyncio.run(main())
