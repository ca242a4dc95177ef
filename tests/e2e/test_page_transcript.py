# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""What stays of a session's code and output, on the page: run again after a loss, on another device, exported, deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from e2e_gateway import Gateway
from page_fixture import START_MS, Person, axe_source, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def end_sandbox(alice: Person) -> None:
    alice.page.get_by_role("button", name="End sandbox now, keep files").click()
    alice.page.get_by_role("dialog").get_by_role("button", name="End sandbox, keep files").click()
    expect(alice.page.locator(".chip.state")).to_contain_text("asleep", timeout=START_MS)


def test_cells_run_again_after_a_loss_and_what_came_back_is_said(gateway: Gateway, person: Callable[..., Person], axe_source: str) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("again")
    alice.run("# numbers\nbase = 20\nlimit = 3")
    alice.run("1 / 0", "code_error")
    alice.run("total = base + 2\nprint('total', total)")
    lost = page.locator(".variables-panel .lost")
    end_sandbox(alice)
    expect(lost).to_contain_text("base, limit, total")

    page.locator("li.divider").get_by_role("button", name="Rebuild variables").click()
    dialog = page.get_by_role("dialog")
    rows = dialog.locator(".cell-choice li")
    expect(rows).to_have_count(3)
    assert [box.is_checked() for box in dialog.get_by_role("checkbox").all()] == [True, False, True], "what failed is not chosen"
    expect(rows.first).to_contain_text("base = 20 and 2 more lines")
    expect(rows.first).to_contain_text("took")
    page.evaluate(axe_source)
    bad = page.evaluate("axe.run('dialog').then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => v.id))")
    assert bad == []
    dialog.get_by_role("button", name="Run 2 cells again").click()

    report = page.get_by_role("region", name="Variables rebuilt")
    expect(report).to_contain_text("All 2 cells ran again", timeout=START_MS)
    expect(report).to_contain_text("Variables back: base, limit, total")
    expect(report).to_contain_text("Every variable that was lost is back.")
    expect(lost).to_be_hidden()
    expect(alice.runs).to_have_count(5)
    expect(alice.runs.last).to_contain_text("total 22")
    expect(page.locator("li.divider").get_by_role("button", name="Rebuild variables")).to_be_visible()

    page.reload()
    expect(report).to_contain_text("All 2 cells ran again")
    report.get_by_role("button", name="Dismiss").click()
    expect(report).to_be_hidden()

    page.get_by_role("button", name="Delete transcript").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete transcript").click()
    expect(page.get_by_text("total 22")).to_have_count(0)
    expect(page.get_by_text("The code is no longer kept.")).to_have_count(5)
    assert "total 22" in alice.run("print('total', total)").inner_text(), "variables stay, and what runs now is kept again"
    page.reload()
    expect(alice.runs).to_have_count(6)
    expect(page.get_by_text("total 22")).to_have_count(1)


def test_it_stops_at_the_first_error_and_the_rest_can_be_chosen(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("stops")
    alice.run("import os\nassert not os.path.exists('out/seen')\nopen('out/seen', 'w').close()")
    alice.run("later = 1")
    end_sandbox(alice)
    page.locator(".variables-panel").get_by_role("button", name="Rebuild variables").click()
    page.get_by_role("dialog").get_by_role("button", name="Run 2 cells again").click()
    report = page.get_by_role("region", name="Variables rebuilt")
    expect(report).to_contain_text("Running again stopped: 0 of 2 cells succeeded", timeout=START_MS)
    expect(report).to_contain_text("Not back: later")
    report.get_by_role("button", name="Choose again").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="None").click()
    expect(dialog.get_by_role("button", name="Run 0 cells again")).to_be_disabled()
    dialog.get_by_role("checkbox", name=re.compile("^later = 1")).first.check()
    dialog.get_by_role("button", name="Run 1 cell again").click()
    expect(report).to_contain_text("Variables back: later", timeout=START_MS)


def test_another_device_a_notebook_and_the_end(start_gateway: Callable[..., Gateway], person: Callable[..., Person], tmp_path: Path) -> None:
    gateway = start_gateway(SANDGLASS_JOURNAL="1MiB")
    alice = person(gateway)
    page = alice.page
    alice.open_session("kept")
    alice.run("print('the very first')\nfirst = 1")
    for _ in range(12):
        alice.run("for _ in range(20): print('x' * 9000)")
    panel = page.get_by_role("region", name="Transcript")
    expect(panel).to_contain_text("13 cells")
    expect(panel).to_contain_text("your own document, on every device, until 30 days after the session ends")

    other = person(gateway)
    other.page.goto(page.url)
    expect(other.runs).to_have_count(13)
    expect(other.page.locator("li.gap")).to_be_visible()
    expect(other.runs.first).to_contain_text("print('the very first')")
    expect(other.runs.first.locator(".outputs")).to_contain_text("the very first")

    with page.expect_download() as got:
        panel.get_by_role("link", name="Download .ipynb").click()
    assert got.value.suggested_filename == "kept.ipynb"
    got.value.save_as(tmp_path / "kept.ipynb")
    book = nbformat.read(tmp_path / "kept.ipynb", as_version=4)
    nbformat.validate(book, relax_add_props=False)
    assert len(book.cells) == 13 and book.cells[0].source == "print('the very first')\nfirst = 1"

    page.keyboard.press("Escape")
    page.get_by_role("heading", level=1, name="kept").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("You close the tab, or go to another device")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()

    page.get_by_role("button", name="End session kept").click()
    page.get_by_role("dialog").get_by_role("button", name="End session").click()
    expect(page.locator(".chip.state")).to_contain_text("ended", timeout=START_MS)
    page.reload()
    expect(alice.runs).to_have_count(13)
    expect(alice.runs.first.locator(".outputs")).to_contain_text("the very first")
    expect(page.locator("li.divider")).to_contain_text("The session ended")

    panel.get_by_role("button", name="Delete transcript").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("cannot be undone")
    dialog.get_by_role("button", name="Delete transcript").click()
    expect(alice.runs).to_have_count(0)
    expect(panel.get_by_role("button", name="Delete transcript")).to_have_count(0)
    page.reload()
    expect(page.get_by_text("What it ran is not kept any more")).to_be_visible()
