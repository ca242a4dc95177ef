# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""Countdowns, keep-alive, warnings at the maximum, and every way in which variables are lost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from e2e_gateway import Gateway
from page_fixture import START_MS, Person, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

HOUR_OFF = """(() => {
  const off = %d, real = Date.now, RealDate = Date;
  globalThis.Date = class extends RealDate {
    constructor(...a) { a.length ? super(...a) : super(real() + off); }
    static now() { return real() + off; }
  };
})()"""


def shown_seconds(alice: Person, timer: str) -> int:
    """What a countdown below an hour says."""
    expect(alice.page.locator(f"[data-timer={timer}]")).to_have_text(re.compile(r"\d+:\d\d"))
    text = alice.page.locator(f"[data-timer={timer}]").inner_text()
    found = re.fullmatch(r"(\d+):(\d\d)", text)
    assert found, text
    return int(found[1]) * 60 + int(found[2])


def test_countdowns_are_right_with_a_clock_an_hour_off(gateway: Gateway, person: Callable[..., Person]) -> None:
    for off_ms in (3_600_000, -3_600_000):
        alice = person(gateway)
        alice.context.add_init_script(HOUR_OFF % off_ms)
        alice.page.reload()
        alice.settled()
        alice.open_session(f"off {off_ms}")
        alice.run("x = 1")
        assert abs(alice.page.evaluate("Date.now()") / 1000 - time.time()) > 3500
        session = alice.session
        assert abs(shown_seconds(alice, "idle") - session["idle_timeout_s"]) < 20
        hours = int(session["max_lifetime_s"] // 3600)
        expect(alice.page.locator("[data-timer=max]")).to_contain_text(f"{hours - 1} h 5")


def test_idle_is_paused_while_running_and_only_activity_extends_it(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("idle")
    busy = alice.send("import time\ntime.sleep(3)")
    expect(busy).to_have_attribute("data-state", "running", timeout=START_MS)
    expect(page.locator("[data-timer=idle]")).to_have_text("running, idle paused")
    expect(busy.locator(".run-state")).to_have_text(re.compile(r"Running · [12] s"))
    expect(busy).to_have_attribute("data-state", "finished")

    before = alice.session["idle_deadline"]
    page.reload()
    expect(alice.runs).to_have_count(1)
    time.sleep(1)
    assert alice.session["idle_deadline"][:19] == before[:19], "an open page is no activity"

    calls: list[str] = []
    page.on("request", lambda request: calls.append(request.url) if request.url.endswith("/keep-alive") else None)
    alice.code.press_sequentially("x = 1; y = 2", delay=30)
    deadline = time.monotonic() + 5
    while not calls and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    alice.code.press_sequentially("; z = 3", delay=30)
    page.wait_for_timeout(300)
    assert len(calls) == 1, "typing keeps alive, at most once a minute"
    assert alice.session["idle_deadline"] > before

    maximum = alice.session["max_deadline"]
    before = alice.session["idle_deadline"]
    page.get_by_role("button", name="Keep alive").click()
    page.wait_for_timeout(300)
    after = alice.session
    assert after["idle_deadline"] > before
    assert after["max_deadline"][:19] == maximum[:19]


def test_at_the_maximum_the_warning_says_why_not_more(start_gateway: Callable[..., Gateway], person: Callable[..., Person]) -> None:
    gateway = start_gateway(SANDGLASS_MAX_LIFETIME="25", SANDGLASS_WARN_BEFORE="15")
    alice = person(gateway)
    page = alice.page
    alice.open_session("maximum")
    alice.run("kept = 1; open('out/a.txt', 'w').write('a'); open('b.txt', 'w').write('b');")
    warning = page.get_by_role("alert").filter(has_text="This sandbox ends in")
    expect(warning).to_be_visible(timeout=40_000)
    expect(warning).to_contain_text("maximum lifetime")
    expect(warning).to_contain_text("cannot be extended")
    expect(warning).to_contain_text("kept (int")
    expect(warning.get_by_role("button", name="Keep alive")).to_have_count(0)
    warning.get_by_role("button", name="Keep b.txt").click()
    expect(alice.kept("b.txt")).to_be_visible()
    expect(page.locator("li.divider")).to_contain_text("reached its maximum lifetime", timeout=60_000)
    expect(alice.kept("b.txt")).to_be_visible()


def test_keep_alive_takes_an_idle_warning_away(start_gateway: Callable[..., Gateway], person: Callable[..., Person]) -> None:
    gateway = start_gateway(SANDGLASS_IDLE_TIMEOUT="24", SANDGLASS_WARN_BEFORE="16")
    alice = person(gateway)
    alice.open_session("keep")
    alice.run("x = 1")
    warning = alice.page.get_by_role("alert").filter(has_text="This sandbox ends in")
    expect(warning).to_be_visible(timeout=30_000)
    warning.get_by_role("button", name="Keep alive").click()
    expect(alice.page.get_by_text("This sandbox ends in")).to_have_count(0)
    expect(alice.page).to_have_title("keep · Sandglass")
    assert alice.session["state"] == "active"


def test_recycle_and_restart_ask_first_and_leave_their_dividers(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("dividers")
    alice.run("first = 1")

    page.get_by_role("button", name="Restart", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("first (int")
    page.keyboard.press("Escape")
    expect(page.locator("li.divider")).to_have_count(0)
    page.get_by_role("button", name="Restart", exact=True).click()
    dialog.get_by_role("button", name="Restart").click()
    expect(page.locator("li.divider")).to_have_count(1, timeout=START_MS)
    expect(page.locator("li.divider").first).to_contain_text("The kernel was restarted")
    expect(page.locator("li.divider").first).to_contain_text("first (int")

    second = alice.run("second = 2")
    expect(second).to_contain_text("Variables lost: first")
    page.get_by_role("button", name="End sandbox now, keep files").click()
    dialog.get_by_role("button", name="End sandbox, keep files").click()
    expect(page.locator("li.divider")).to_have_count(2, timeout=START_MS)
    expect(page.locator("li.divider").last).to_contain_text("The sandbox ended: you ended it")
    expect(page.locator(".chip.state")).to_contain_text("asleep")

    page.reload()
    expect(page.locator("li.divider")).to_have_count(2)
    expect(page.locator(".timeline > li")).to_have_count(4)


def test_a_dead_kernel_fails_its_run_and_says_so(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("death")
    alice.run("gone = 1")
    dead = alice.send("import os, time\ntime.sleep(1)\nos.kill(os.getpid(), 9)")
    alice.send("print('after')")
    expect(dead).to_have_attribute("data-exit", "kernel_died", timeout=START_MS)
    expect(dead).to_contain_text("The kernel died during this run")
    expect(alice.page.locator("li.divider")).to_contain_text("The kernel died")
    expect(alice.page.locator("li.divider")).to_contain_text("gone (int")
    expect(alice.runs.last).to_have_attribute("data-state", "finished", timeout=START_MS)
