# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""The scene: a newcomer's CSV, table, picture and report; the sandbox runs out after a warning; the report comes back, df does not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import pytest
from e2e_gateway import Gateway
from page_fixture import START_MS, Person, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

SALES = b"region,amount\nNorth,120\nSouth,80\nEast,60\nWest,90\nNorth,40\n"
GROUP = "import pandas as pd\ndf = pd.read_csv('in/sales.csv')\ntotals = df.groupby('region')['amount'].sum().to_frame()\ntotals"
CHART = "ax = totals.plot.bar(title='Sales by region')\nax.figure.set_size_inches(6, 3)"
REPORT = "import os\nos.makedirs('reports', exist_ok=True)\ntotals.to_excel('reports/report.xlsx')\nopen('scratch.txt', 'w').write('x');"


def test_the_scene(start_gateway: Callable[..., Gateway], person: Callable[..., Person]) -> None:
    gateway = start_gateway(SANDGLASS_IDLE_TIMEOUT="20", SANDGLASS_WARN_BEFORE="12,4")
    alice = person(gateway)
    page = alice.page
    alice.open_session("Quarter review")

    alice.upload(("sales.csv", SALES))
    expect(alice.kept("in/sales.csv")).to_be_visible(timeout=START_MS)

    table = alice.run(GROUP)
    frame = table.frame_locator("iframe")
    expect(frame.get_by_role("row", name="North 160")).to_be_visible()
    expect(table.locator("iframe")).to_have_attribute("sandbox", "allow-scripts")

    chart = alice.run(CHART)
    picture = chart.get_by_role("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth > 100")

    alice.run(REPORT)
    row = alice.file_row("reports/report.xlsx")
    expect(row.get_by_role("checkbox")).not_to_be_checked()
    row.get_by_role("checkbox").check()
    expect(alice.kept("reports/report.xlsx")).to_contain_text("saved")
    stored = alice.gateway.call("GET", f"/api/v1/sessions/{alice.session_id}/files/reports/report.xlsx", token=alice.token, expect=200)
    digest = hashlib.sha256(stored.content).hexdigest()
    expect(alice.kept("reports/report.xlsx")).to_contain_text(digest[:8])

    warning = page.get_by_role("alert").filter(has_text="This sandbox ends in")
    expect(warning).to_be_visible(timeout=40_000)
    expect(warning).to_contain_text(re.compile(r"df \(DataFrame, \d"))
    expect(warning).to_contain_text("scratch.txt")
    expect(warning).to_contain_text("reports/report.xlsx")
    expect(page).to_have_title(re.compile("ends in"))

    divider = page.locator("li.divider")
    expect(divider).to_have_count(1, timeout=60_000)
    expect(divider).to_contain_text("The sandbox ended: nothing ran for the idle time")
    expect(divider).to_contain_text(re.compile(r"Variables lost: .*df \(DataFrame"))
    expect(divider).to_contain_text("scratch.txt")
    expect(alice.runs.first.locator(".badge")).to_have_text("earlier sandbox")
    expect(alice.runs.first.frame_locator("iframe").get_by_role("row", name="North 160")).to_be_visible()
    expect(page.locator("[data-timer=idle]")).to_have_text("not running")

    again = alice.run("import hashlib\nprint(hashlib.sha256(open('reports/report.xlsx', 'rb').read()).hexdigest())\ndf", "code_error")
    expect(again).to_contain_text("Runs in a new sandbox")
    expect(again).to_contain_text(re.compile(r"Variables lost: .*df.*nothing ran for the idle time"))
    expect(again).to_contain_text(digest)
    expect(again).to_contain_text("name 'df' is not defined")
    expect(page.locator(".chips")).to_contain_text("generation 2")
    expect(divider).to_contain_text(f"reports/report.xlsx {digest[:8]}")
    expect(divider).to_have_count(1)
