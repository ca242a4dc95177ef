#!/usr/bin/env python3
"""Take the README's pictures: the scene, in a real browser, on a real gateway.

Needs what scripts/test exports: SANDGLASS_TEST_DOCKER_HOST and SANDGLASS_TEST_IMAGE.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "e2e")]

from e2e_gateway import Gateway  # noqa: E402
from page_fixture import ARGS, CHROMIUM, Person  # noqa: E402
from playwright.sync_api import expect, sync_playwright  # noqa: E402

SALES = b"region,amount\nNorth,120\nSouth,80\nEast,60\nWest,90\nNorth,40\n"
GROUP = "import pandas as pd\ndf = pd.read_csv('in/sales.csv')\ntotals = df.groupby('region')['amount'].sum().to_frame()\ntotals"
CHART = "ax = totals.plot.bar(title='Sales by region', legend=False)\nax.figure.set_size_inches(6, 2.6)"
REPORT = "totals.to_excel('out/report.xlsx')\nopen('scratch.txt', 'w').write('a draft');"


def main() -> None:
    out = ROOT / "docs" / "pictures"
    out.mkdir(exist_ok=True)
    gateway = Gateway(Path(tempfile.mkdtemp()), {"SANDGLASS_IDLE_TIMEOUT": "60", "SANDGLASS_WARN_BEFORE": "45"}).start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
            context = browser.new_context(viewport={"width": 1280, "height": 860}, device_scale_factor=1)
            alice = Person(gateway, context, "alice", "t1", "user").login()
            page = alice.page
            alice.open_session("Quarter review")
            alice.upload(("sales.csv", SALES))
            expect(alice.kept("in/sales.csv")).to_be_visible(timeout=60_000)
            alice.run(GROUP)
            chart = alice.run(CHART)
            expect(chart.get_by_role("img")).to_be_visible()
            time.sleep(1.0)
            page.screenshot(path=out / "work.png")
            alice.run(REPORT)
            expect(page.get_by_role("alert").filter(has_text="This sandbox ends in")).to_be_visible(timeout=60_000)
            time.sleep(0.5)
            page.screenshot(path=out / "warning.png")
            expect(page.locator("li.divider")).to_have_count(1, timeout=90_000)
            alice.run("print(open('out/report.xlsx', 'rb').read(2))")
            time.sleep(1.0)
            page.locator("li.divider").scroll_into_view_if_needed()
            page.screenshot(path=out / "recycled.png")
            browser.close()
    finally:
        gateway.stop()
    print("pictures:", ", ".join(sorted(p.name for p in out.glob("*.png"))))


main()
