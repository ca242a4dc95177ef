"""A browser for the page's tests, and one person in it.

Needs Debian's Chromium and playwright; without them these tests are skipped, with the reason.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="the page's tests need playwright")
from e2e_gateway import Gateway
from playwright.sync_api import Browser, BrowserContext, Error, Locator, Page, expect, sync_playwright

WEB = Path(__file__).resolve().parents[2] / "web"
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or ""
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_MS = 60_000
"""Until a sandbox is up and has answered."""
expect.set_options(timeout=15_000)


class Person:
    """One logged-in page, and what a person does with it."""

    def __init__(self, gateway: Gateway, context: BrowserContext, user: str, tenant: str, role: str) -> None:
        self.gateway, self.context, self.user = gateway, context, user
        self.token = gateway.token(user, tenant, role)
        self.page = context.new_page()
        self.faults: list[str] = []
        self.watch(self.page)

    def watch(self, page: Page) -> None:
        """A script error, or anything that the policy stopped, is a fault of the page."""
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda m: self.faults.append(m.text) if m.type == "error" and not _expected(m.text) else None)

    def login_url(self) -> str:
        answer = self.gateway.call("POST", "/api/v1/tickets", {"purpose": "login"}, token=self.token, expect=201)
        return str(answer.json()["url"])

    def login(self) -> Person:
        self.page.goto(self.login_url())
        self.settled()
        return self

    def settled(self) -> None:
        """The page has drawn itself: a session, or the form for one."""
        expect(self.page.get_by_text(self.user, exact=True).first).to_be_visible()
        expect(self.page.locator("#name-welcome:visible, .session-bar:visible")).to_have_count(1)

    def open_session(self, name: str, profile: str = "") -> str:
        """Start one by the form; its id."""
        page = self.page
        if page.locator("#name-welcome").is_visible():
            place = "welcome"
        else:
            button, place = page.get_by_text("New session", exact=True), "list"
            if not button.is_visible():  # a narrow page shows one pane
                page.get_by_role("group", name="Show").get_by_role("button", name="Sessions").click()
            button.click()
        page.locator(f"#name-{place}").fill(name)
        if profile:
            page.locator(f"#profile-{place}").select_option(profile)
        page.locator(f"form:has(#name-{place})").get_by_role("button", name="Start session").click()
        page.wait_for_url(re.compile(r"#/s/"))
        expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
        return self.session_id

    @property
    def session_id(self) -> str:
        return self.page.url.split("#/s/")[1]

    @property
    def session(self) -> dict[str, Any]:
        answer = self.gateway.call("GET", f"/api/v1/sessions/{self.session_id}", token=self.token, expect=200)
        return dict(answer.json())

    @property
    def code(self) -> Locator:
        return self.page.get_by_role("textbox", name="Code", exact=True)

    @property
    def runs(self) -> Locator:
        return self.page.locator(".timeline > li.run")

    def send(self, code: str) -> Locator:
        """Run code and do not wait for its end; its entry in the timeline."""
        before = self.runs.count()
        self.code.fill(code)
        self.code.press("Shift+Enter")
        expect(self.runs).to_have_count(before + 1)
        return self.runs.nth(before)

    def run(self, code: str, exit_reason: str = "ok", timeout_ms: float = START_MS) -> Locator:
        entry = self.send(code)
        expect(entry).to_have_attribute("data-state", "finished", timeout=timeout_ms)
        expect(entry).to_have_attribute("data-exit", exit_reason)
        return entry

    def upload(self, *files: tuple[str, bytes]) -> None:
        """Choose files as the file dialog would."""
        chosen: Any = [{"name": name, "mimeType": "application/octet-stream", "buffer": data} for name, data in files]
        self.page.locator("#upload-input").set_input_files(chosen)

    def file_row(self, path: str) -> Locator:
        return self.page.locator(".files-panel .file-list li").filter(has=self.page.get_by_role("link", name=path, exact=True))

    def kept(self, path: str) -> Locator:
        """The file's row in the group Kept."""
        row = self.page.get_by_role("region", name="Kept", exact=True).locator("li")
        return row.filter(has=self.page.get_by_role("link", name=path, exact=True))


def _expected(text: str) -> bool:
    """Refusals and broken connections that a test provokes are logged by the browser too."""
    return text.startswith("Failed to load resource")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("the page's tests need Debian's chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield launched
        launched.close()


@pytest.fixture
def person(browser: Browser) -> Iterator[Callable[..., Person]]:
    """Logs people in: ``person(gateway, "alice", role="admin", viewport={...})``. No page of theirs may have had a fault."""
    people: list[Person] = []

    def make(gateway: Gateway, user: str = "alice", tenant: str = "t1", role: str = "user", **context: Any) -> Person:
        context.setdefault("viewport", {"width": 1440, "height": 900})
        made = Person(gateway, browser.new_context(**context), user, tenant, role)
        people.append(made)
        return made.login()

    yield make
    for one in people:
        with contextlib.suppress(Exception):
            deadline = time.monotonic() + 30
            # until they are gone: the next page of the same user would open with one that is ending
            while (sessions := one.gateway.call("GET", "/api/v1/sessions", token=one.token).json()["sessions"]) and time.monotonic() < deadline:
                for session in sessions:
                    one.gateway.call("DELETE", f"/api/v1/sessions/{session['session_id']}", token=one.token)
                time.sleep(0.1)
        with contextlib.suppress(Error):
            one.context.close()
    assert [fault for one in people for fault in one.faults] == []


@pytest.fixture(scope="session")
def axe_source(web_packages: Path) -> str:
    script = web_packages / "axe-core" / "axe.min.js"
    return script.read_text(encoding="utf-8")
