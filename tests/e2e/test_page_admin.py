# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""The admin's list, and who may see it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
import requests
from e2e_gateway import Gateway
from page_fixture import Person, axe_source, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import expect
from test_page_access import axe

pytestmark = pytest.mark.browser
SHOTS = os.environ.get("SANDGLASS_TEST_SHOTS", "")
"""A folder for pictures of what was looked at; empty: none are taken."""


def test_an_admin_sees_sessions_and_ends_one_with_a_reason(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway, "alice")
    alice.open_session("watched")
    alice.run("precious = 1")
    root = person(gateway, "root", "t0", "admin")
    page = root.page
    page.get_by_role("link", name="Admin").click()
    row = page.get_by_role("row").filter(has_text="watched")
    expect(row).to_contain_text("alice")
    expect(row).to_contain_text("t1")
    expect(row).to_contain_text("ready")
    page.get_by_label("Filter").fill("alice watched")
    expect(page.locator(".admin tbody").first.get_by_role("row")).to_have_count(1)
    page.get_by_role("button", name="Owner", exact=True).click()
    expect(page.get_by_role("columnheader", name="Owner")).to_have_attribute("aria-sort", "ascending")

    row.get_by_role("button", name="End the session of alice").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("precious")
    dialog.get_by_role("button", name="End session").click()
    expect(dialog, "a reason is needed").to_be_visible()
    dialog.get_by_label("Reason").fill("end of quarter")
    dialog.get_by_role("button", name="End session").click()
    expect(row).to_have_count(0, timeout=30_000)
    page.get_by_label("Ended ones too").check()
    expect(row).to_contain_text("an administrator ended it")
    page.get_by_role("button", name="Refresh the audit list").click()
    expect(page.locator(".audit")).to_contain_text("end of quarter")

    expect(alice.page.locator(".chip.state")).to_contain_text("ended: an administrator ended it", timeout=30_000)
    expect(alice.page.locator("li.divider").last).to_contain_text("precious")
    expect(alice.code).to_be_disabled()
    alice.page.reload()
    expect(alice.page.locator(".chip.state")).to_contain_text("ended")
    expect(alice.page.locator("li.divider").last).to_contain_text("precious")
    expect(alice.runs.first).to_contain_text("precious")


def test_a_tenant_admin_sees_one_tenant_and_a_user_none(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway, "alice", "t1")
    alice.open_session("in t1")
    mallory = person(gateway, "mallory", "t2")
    mallory.open_session("in t2")
    expect(mallory.page.get_by_role("link", name="Admin")).to_have_count(0)
    mallory.page.goto(f"{gateway.url}/#/s/{alice.session_id}")
    mallory.page.reload()
    expect(mallory.page.get_by_role("heading", name="No such session")).to_be_visible()

    tina = person(gateway, "tina", "t1", "tenant_admin")
    tina.page.get_by_role("link", name="Admin").click()
    expect(tina.page.get_by_role("row").filter(has_text="in t1")).to_have_count(1)
    expect(tina.page.get_by_role("row").filter(has_text="in t2")).to_have_count(0)


def test_without_a_login_the_page_says_how_to_get_in(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("leaving")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="You are logged out")).to_be_visible()
    page.reload()
    expect(page.get_by_text("login link").first).to_be_visible()
    assert page.request.get(gateway.url + "/api/v1/me").status == 401

    used = alice.login_url()
    page.goto(used)
    expect(page.get_by_role("heading", name="leaving")).to_be_visible()
    alice.context.clear_cookies()
    page.goto(used)
    expect(page.get_by_text("does not work any more")).to_be_visible()


def test_a_log_out_outlives_the_gateway(start_gateway: Callable[..., Gateway], person: Callable[..., Person]) -> None:
    gateway = start_gateway()
    leaves, stays = person(gateway, "alice"), person(gateway, "alice")
    left = next(c["value"] for c in leaves.context.cookies() if c["name"] == "sandglass_page")
    leaves.page.get_by_role("button", name="Log out").click()
    expect(leaves.page.get_by_role("heading", name="You are logged out")).to_be_visible()
    kept = next(c["value"] for c in stays.context.cookies() if c["name"] == "sandglass_page")
    gateway.kill()
    gateway.start()
    for cookie, status in ((left, 401), (kept, 200)):
        assert requests.get(f"{gateway.url}/api/v1/me", cookies={"sandglass_page": cookie}, timeout=10).status_code == status


def test_a_card_shows_use_over_time_and_what_the_owner_did(gateway: Gateway, person: Callable[..., Person], axe_source: str) -> None:
    alice = person(gateway, "alice")
    alice.open_session("busy")
    gateway.call("POST", f"/api/v1/sessions/{alice.session_id}/restart", {}, token=alice.token, expect=200)
    alice.send("import time\nkept = bytearray(200_000_000)\nend = time.time() + 25\nwhile time.time() < end: pass")
    root = person(gateway, "root", "t0", "admin")
    page = root.page
    page.get_by_role("link", name="Admin").click()
    page.get_by_role("row").filter(has_text="busy").get_by_role("button", name="Details of").click()
    card = page.locator("dialog.card")
    expect(card.locator(".life")).to_contain_text("alice restarted the kernel")
    memory, cpu = card.get_by_role("img", name="Memory over the last"), card.get_by_role("img", name="CPU over the last")
    expect(memory).to_be_visible(timeout=30_000)
    expect(cpu.locator("path")).to_have_attribute("d", re.compile("^M.* L"), timeout=30_000)
    percent = int(re.findall(r"at the most (\d+) %", cpu.get_attribute("aria-label") or "")[0])
    assert percent >= 5, "a cell that only computes, on a processor that it may share"
    for scheme, width in (("light", 1440), ("dark", 1440), ("dark", 390), ("light", 390)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 900})
        assert axe(page, axe_source) == [], (scheme, width)
        inside = page.evaluate("(() => { const d = document.querySelector('dialog.card'); return d.scrollWidth <= d.clientWidth; })()")
        assert inside, f"nothing is wider than the card at {width}"
        if SHOTS:
            page.screenshot(path=f"{SHOTS}/card-{scheme}-{width}.png")
