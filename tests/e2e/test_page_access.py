# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""Everybody can use it: axe in both themes, the keyboard alone, narrow and wide, announcements, a strict policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from e2e_gateway import Gateway
from page_fixture import START_MS, Person, axe_source, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import Frame, Page, expect

pytestmark = pytest.mark.browser

CONTENT = (
    "import pandas as pd, sys\nprint('\\x1b[31mred\\x1b[0m \\x1b[38;5;244mgrey\\x1b[0m \\x1b[42mon green\\x1b[0m')\n"
    "print('err', file=sys.stderr)\ndf = pd.DataFrame({'a': [1, 2]})\ndf"
)


def axe(target: Page | Frame, source: str) -> list[str]:
    """What axe finds of serious or critical impact."""
    target.evaluate(source)
    found: dict[str, Any] = target.evaluate("axe.run(document, {iframes: false, preload: false, resultTypes: ['violations']})")
    return [
        f"{v['id']}: {json.dumps([[n['target'], n.get('failureSummary', '')[:200]] for n in v['nodes'][:4]])}"
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(gateway: Gateway, person: Callable[..., Person], axe_source: str, scheme: str) -> None:
    alice = person(gateway, color_scheme=scheme, reduced_motion="reduce")
    page = alice.page
    assert axe(page, axe_source) == [], "welcome"
    alice.open_session("access")
    entry = alice.run(CONTENT)
    expect(entry.frame_locator("iframe").locator("table")).to_be_visible()
    alice.run("def f():\n    raise ValueError('no')  # why\nf()", "code_error")
    alice.run("for i in range(500):\n    print(i)")
    page.get_by_role("button", name="Restart", exact=True).click()
    assert axe(page, axe_source) == [], "dialog"
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(page.locator("li.divider")).to_be_visible(timeout=START_MS)
    alice.run("x = 1")
    assert axe(page, axe_source) == [], "notebook"
    frame = next(f for f in page.frames if f != page.main_frame)
    assert axe(frame, axe_source) == [], "frame"
    page.set_viewport_size({"width": 390, "height": 844})
    for pane in ("Notebook", "Files", "Variables", "Sessions"):
        page.get_by_role("group", name="Show").get_by_role("button", name=pane).click()
        assert axe(page, axe_source) == [], pane


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_on_the_warning_and_the_admin_view(
    start_gateway: Callable[..., Gateway],
    person: Callable[..., Person],
    axe_source: str,
    scheme: str,
) -> None:
    gateway = start_gateway(SANDGLASS_IDLE_TIMEOUT="60", SANDGLASS_WARN_BEFORE="58")
    root = person(gateway, "root", "t0", "admin", color_scheme=scheme)
    root.open_session("warned")
    root.run("x = 1")
    expect(root.page.get_by_text("This sandbox ends in")).to_be_visible(timeout=20_000)
    assert axe(root.page, axe_source) == [], "warning"
    root.page.set_viewport_size({"width": 390, "height": 844})
    root.page.get_by_role("group", name="Show").get_by_role("button", name="Files").click()
    expect(root.page.get_by_text("This sandbox ends in"), "on every pane").to_be_visible()
    expect(root.code).not_to_be_visible()
    root.page.set_viewport_size({"width": 1440, "height": 900})
    root.page.get_by_role("link", name="Admin").click()
    expect(root.page.get_by_role("row").filter(has_text="warned")).to_be_visible()
    assert axe(root.page, axe_source) == [], "admin"
    root.page.get_by_role("button", name="Log out").click()
    expect(root.page.get_by_role("heading", name="You are logged out")).to_be_visible()
    assert axe(root.page, axe_source) == [], "logged out"


@pytest.mark.parametrize("width", [360, 390, 768, 1024, 1440, 1600])
def test_nothing_sticks_out(gateway: Gateway, person: Callable[..., Person], width: int) -> None:
    alice = person(gateway, viewport={"width": width, "height": 800})
    page = alice.page
    alice.open_session("width " + "x" * 40)
    alice.run("print('w' * 3000)\n" + "very_long_name_" * 20 + " = 1")
    panes = ["Notebook"] if width > 1180 else ["Notebook", "Files", "Variables", "Sessions"]
    for pane in panes:
        if len(panes) > 1:
            page.get_by_role("group", name="Show").get_by_role("button", name=pane).click()
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, (pane, over)


def test_the_keyboard_is_enough(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("keyboard")
    page.reload()
    expect(alice.code).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(alice.code).to_be_focused()
    page.keyboard.type("if True:")
    page.keyboard.press("Enter")
    page.keyboard.type("print('typed')")
    assert alice.code.input_value() == "if True:\n    print('typed')"
    page.keyboard.press("Shift+Tab")
    assert alice.code.input_value() == "if True:\nprint('typed')"
    page.keyboard.press("Tab")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert alice.code.input_value() == "if True:\n    print('typed')"
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(alice.runs.first).to_have_attribute("data-exit", "ok", timeout=START_MS)
    expect(page.locator("#announcer")).to_contain_text("started")
    expect(page.locator("#announcer")).to_contain_text("finished")

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("e")
    expect(alice.code).to_be_focused()
    page.keyboard.type("a?b")
    assert alice.code.input_value() == "a?b"
    expect(page.get_by_role("dialog")).to_have_count(0)

    seen = set()
    page.keyboard.press("Escape")
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id || document.activeElement.tagName"))
    assert {"Keep alive", "Upload files", "Edit", "Log out"} <= seen


def test_the_policy_is_strict_and_the_draft_survives(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("policy")
    policy = page.request.get(gateway.url + "/").headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe-eval" not in policy
    refused = page.evaluate(
        """() => { const out = [];
          try { document.createElement('p').innerHTML = '<b>x</b>'; out.push('markup') } catch (e) { out.push(e.name) }
          const s = document.createElement('div'); s.setAttribute('style', 'color: red'); document.body.append(s);
          out.push(getComputedStyle(s).color); s.remove(); return out; }"""
    )
    assert refused[0] == "TypeError"
    assert refused[1] != "rgb(255, 0, 0)"
    alice.faults.clear()
    alice.code.fill("unsent = 'draft'")
    page.reload()
    expect(alice.code).to_have_value("unsent = 'draft'")
