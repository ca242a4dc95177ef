# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""What an admin does on the page: extend, try again, give up, disable and enable, find; and what its owner sees of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e_gateway import Gateway
from page_fixture import START_MS, Person, axe_source, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import Locator, Page, expect
from test_page_access import axe

from gateway.backends.records import SqliteRecords
from gateway.ports import SessionRow

pytestmark = pytest.mark.browser


@contextmanager
def store_away(gateway: Gateway) -> Iterator[None]:
    """Whatever the gateway writes to its store fails: a file is where its folder was."""
    store, aside = gateway.state / "store", gateway.state / "store.aside"
    store.rename(aside)
    store.write_text("not a folder")
    try:
        yield
    finally:
        store.unlink()
        aside.rename(store)


def on_admin_page(root: Person) -> Page:
    root.page.get_by_role("link", name="Admin").click()
    expect(root.page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
    return root.page


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("region", name="Table of sessions").get_by_role("row").filter(has_text=text)


def card(page: Page, name: str) -> Locator:
    """The dialog with all of a session."""
    row(page, name).get_by_role("button", name="Details of").click()
    dialog = page.locator("dialog.card")
    expect(dialog.get_by_role("heading", name=name)).to_be_visible()
    expect(dialog.locator(".life li").first).to_be_visible()
    return dialog


def confirm(page: Page, button: str, reason: str) -> None:
    """Fill in the question that is open, and answer it."""
    dialog = page.get_by_role("dialog").last
    dialog.get_by_role("button", name=button).click()
    expect(dialog.get_by_role("button", name=button), "a reason is needed").to_be_visible()
    dialog.get_by_label("Reason").fill("   ")
    dialog.get_by_role("button", name=button).click()
    expect(dialog.get_by_role("button", name=button), "blanks are none").to_be_visible()
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=button).click()
    expect(page.locator("dialog").get_by_role("button", name=button)).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_quarantine_is_seen_tried_again_and_given_up(
    start_gateway: Callable[..., Gateway], person: Callable[..., Person], axe_source: str, scheme: str
) -> None:
    gateway = start_gateway()
    alice, root = person(gateway, "alice"), person(gateway, "root", "t0", "admin", color_scheme=scheme)
    alice.open_session("stuck")
    with store_away(gateway):
        alice.run("open('out/report.txt', 'w').write('precious'); open('draft.txt', 'w').write('also'); df = 1")
        alice.page.get_by_role("button", name="End sandbox now, keep files").click()
        alice.page.get_by_role("dialog").get_by_role("button", name="End sandbox").click()
        expect(alice.page.locator(".chip.state")).to_have_text("waiting to save files", timeout=START_MS)
        path = f"/api/v1/sessions/{alice.session_id}/files"
        for name, content in (("out/report.txt", b"precious"), ("draft.txt", b"also")):
            assert gateway.call("GET", f"{path}/{name}", token=alice.token, expect=200).content == content

        page = on_admin_page(root)
        expect(row(page, "stuck")).to_contain_text("waiting to save files")
        expect(page.get_by_text("1 cannot save its files")).to_be_visible()
        dialog = card(page, "stuck")
        box = dialog.get_by_role("region", name="Its files cannot be saved")
        expect(box).to_contain_text("Not saved: out/report.txt. Not declared: draft.txt.")
        expect(box).to_contain_text("tried")
        assert axe(page, axe_source) == []
        attempts = alice.session["quarantine"]["attempts"]
        box.get_by_role("button", name="Try now").click()
        expect(dialog.locator(".life")).to_contain_text("root had its files tried again")
        deadline = time.monotonic() + 60
        while alice.session["quarantine"]["attempts"] <= attempts:  # the act stands in the audit before its try is over
            assert time.monotonic() < deadline, alice.session["quarantine"]
            time.sleep(0.1)

        box.get_by_role("button", name="Give up …").click()
        question = page.get_by_role("dialog").last
        expect(question).to_contain_text("Files that will be lost: out/report.txt, draft.txt")
        question.get_by_label("Reason").fill("the disk is gone")
        question.get_by_role("button", name="Give up and destroy").click()
        expect(question.get_by_role("button", name="Give up and destroy"), "it must be said twice").to_be_visible()
        assert axe(page, axe_source) == [], "question"
        question.get_by_label("These files may be lost").check()
        question.get_by_role("button", name="Give up and destroy").click()
        expect(box).to_be_hidden(timeout=20_000)
        expect(dialog.locator(".life")).to_contain_text("root gave up what could not be saved“the disk is gone”")
        expect(dialog.locator(".facts")).to_contain_text("asleep")
        dialog.get_by_role("button", name="Close").click()
        expect(dialog).to_have_count(0)
        expect(row(page, "stuck").get_by_role("button", name="Details of"), "focus is where it was").to_be_focused()

        divider = alice.page.locator("li.divider").last
        expect(divider).to_contain_text("the disk is gone", timeout=20_000)
        expect(divider).to_contain_text("out/report.txt")
        for width in (360, 768):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
            dialog = card(page, "stuck")
            assert dialog.evaluate("e => e.scrollWidth <= e.clientWidth")
            dialog.get_by_role("button", name="Close").click()
    alice.run("print(1)")


def test_an_extension_within_policy_is_told(start_gateway: Callable[..., Gateway], person: Callable[..., Person]) -> None:
    gateway = start_gateway(SANDGLASS_MAX_EXTENSION="2h", SANDGLASS_MAX_LIFETIME="10m", SANDGLASS_WARN_BEFORE="9m59s")
    alice, root = person(gateway, "alice"), person(gateway, "root", "t0", "admin")
    alice.open_session("long")
    alice.run("x = 1")
    warning = alice.page.get_by_role("region", name="The sandbox is about to end")
    expect(warning.filter(has_text="maximum lifetime")).to_be_visible(timeout=20_000)
    page = on_admin_page(root)
    dialog = card(page, "long")
    dialog.get_by_role("button", name="Extend …").click()
    question = page.get_by_role("dialog").last
    expect(question).to_contain_text("Policy admits 120 min more")
    question.get_by_label("Minutes").fill("121")
    question.get_by_label("Reason").fill("more")
    question.get_by_role("button", name="Extend", exact=True).click()
    expect(question.get_by_role("button", name="Extend", exact=True), "more than policy admits").to_be_visible()
    question.get_by_label("Minutes").fill("120")
    question.get_by_label("Reason").fill("quarterly report")
    question.get_by_role("button", name="Extend", exact=True).click()
    expect(dialog.locator(".facts")).to_contain_text("extended by 2 h 00 min")
    expect(dialog.get_by_role("button", name="Extend …"), "nothing is left to give").to_be_hidden()
    expect(dialog.locator(".life")).to_contain_text("“quarterly report”")
    dialog.get_by_role("button", name="Close").click()
    expect(row(page, "long")).to_contain_text("(extended)")

    expect(warning.filter(has_text="maximum lifetime")).to_have_count(0)
    expect(alice.page.get_by_text("quarterly report").first).to_be_visible()
    expect(alice.page.get_by_role("timer", name="Maximum")).to_contain_text("2 h")


def test_a_user_is_disabled_at_once_and_enabled_again(gateway: Gateway, person: Callable[..., Person]) -> None:
    mallory = person(gateway, "mallory", "t7")
    mallory.open_session("busy")
    boss = person(gateway, "boss", "t7", "tenant_admin")
    page = on_admin_page(boss)
    dialog = card(page, "busy")
    dialog.get_by_role("button", name="Disable mallory …").click()
    expect(page.get_by_role("dialog").last).to_contain_text("is logged out everywhere")
    page.get_by_role("dialog").last.get_by_label("What becomes of the sessions").select_option("end")
    confirm(page, "Disable user", "left the company")
    dialog.get_by_role("button", name="Close").click()
    expect(mallory.page.get_by_role("heading", name="You are logged out")).to_be_visible(timeout=10_000)
    assert gateway.call("GET", "/api/v1/me", token=mallory.token).json()["code"] == "user_disabled"
    table = page.get_by_role("region", name="Disabled users")
    expect(table.get_by_role("row").filter(has_text="mallory")).to_contain_text("left the company")
    expect(row(page, "busy")).to_have_count(0, timeout=20_000)

    table.get_by_role("button", name="Enable mallory of t7").click()
    page.get_by_role("dialog").get_by_role("button", name="Enable user").click()
    expect(page.get_by_text("Nobody is disabled.")).to_be_visible()
    assert gateway.call("GET", "/api/v1/me", token=mallory.token).status_code == 200

    page.get_by_label("Disable", exact=True).fill("boss")
    page.get_by_role("button", name="Disable user").click()
    confirm(page, "Disable user", "myself")
    expect(page.get_by_text("You cannot disable yourself.")).to_be_visible()
    page.get_by_label("Show", exact=True).select_option("acts of admins")
    page.get_by_label("concerning").fill("mallory")
    page.get_by_label("concerning").press("Enter")
    records = page.get_by_role("region", name="Audit records").get_by_role("row")
    expect(records).to_have_count(3)
    expect(records.nth(1)).to_contain_text("boss")
    expect(records.nth(1)).to_contain_text("admin:user:enable")


async def _ended_sessions(state: Path, count: int) -> None:
    records = SqliteRecords(state / "records.sqlite")
    await records.open()
    month_ago = time.time() - 30 * 86400
    for i in range(count):
        user, reason = ("walter", "crash") if i % 50 == 7 else ("wendy", "idle_timeout")
        at = month_ago + i
        row = SessionRow(f"old-{i:04}", "t1", user, f"old {i}", "container", "ended", 1, at, at, reason, ended_at=at)
        await records.put_session(row)
    await records.close()


def test_the_gateway_finds_what_the_first_page_does_not_hold(
    start_gateway: Callable[..., Gateway], person: Callable[..., Person], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as thread:  # the browser's driver has a loop of its own in this one
        thread.submit(asyncio.run, _ended_sessions(tmp_path / "state0", 450)).result()
    gateway = start_gateway()
    root = person(gateway, "root", "t0", "admin")
    page = on_admin_page(root)
    expect(page.get_by_text("0 of 0 sessions shown")).to_be_visible()
    page.get_by_label("Ended ones too").check()
    expect(page.get_by_text("200 of 200 and more sessions shown")).to_be_visible()
    rows = page.get_by_role("region", name="Table of sessions").locator("tbody tr")
    expect(rows).to_have_count(200)
    for count in (400, 450):
        page.get_by_role("button", name="Show more sessions").click()
        expect(rows).to_have_count(count)
    expect(page.get_by_role("button", name="Show more sessions")).to_be_hidden()
    page.get_by_label("Owner is").fill("walter")
    page.get_by_label("Owner is").press("Enter")
    expect(rows).to_have_count(9)
    page.get_by_label("Last end").select_option("idle_timeout")
    expect(rows).to_have_count(0)
    page.get_by_label("Last end").select_option("crash")
    expect(rows).to_have_count(9)
    page.get_by_label("Active in").select_option("the last week")
    expect(rows).to_have_count(0)
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_text("0 of 0 sessions shown")).to_be_visible()
