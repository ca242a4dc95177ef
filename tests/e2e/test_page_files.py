# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""Files: the two groups, keeping, uploading several with an error for one, replacing, dropping, downloading."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from e2e_gateway import Gateway
from page_fixture import START_MS, Person, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  for (const type of ['dragover', 'drop']) document.querySelector('.timeline-box').dispatchEvent(
    new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: data }));
}"""


def test_two_groups_and_the_keep_toggle(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("groups")
    alice.run("open('out/kept.txt', 'w').write('k'); open('loose.txt', 'w').write('l');")
    lost = page.get_by_role("region", name="Lost at recycle")
    expect(alice.kept("out/kept.txt")).to_contain_text("saved", timeout=20_000)
    expect(lost.get_by_role("link", name="loose.txt")).to_be_visible()

    alice.file_row("loose.txt").get_by_role("checkbox").check()
    expect(alice.kept("loose.txt")).to_be_visible()
    alice.file_row("loose.txt").get_by_role("checkbox").uncheck()
    expect(lost.get_by_role("link", name="loose.txt")).to_be_visible()
    alice.file_row("out/kept.txt").get_by_role("checkbox").uncheck()
    expect(lost.get_by_role("link", name="out/kept.txt")).to_be_visible()
    alice.file_row("out/kept.txt").get_by_role("checkbox").check()
    expect(alice.kept("out/kept.txt")).to_be_visible()

    with page.expect_download() as download:
        alice.file_row("loose.txt").get_by_role("link").click()
    assert download.value.path().read_text() == "l"

    alice.file_row("loose.txt").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(alice.file_row("loose.txt")).to_have_count(0)


def test_uploads_have_an_outcome_each(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("uploads")
    alice.upload(("one.csv", b"a\n1\n"), ("two.csv", b"b\n2\n"), ("név és 漢字.txt", b"x"))
    for name in ("in/one.csv", "in/two.csv", "in/név és 漢字.txt"):
        expect(alice.kept(name)).to_be_visible(timeout=START_MS)

    alice.upload(("one.csv", b"a\n99\n"), ("three.csv", b"c\n3\n"))
    conflict = page.locator(".uploads li.failed").filter(has_text="one.csv")
    expect(conflict).to_be_visible()
    expect(alice.kept("in/three.csv")).to_be_visible()
    conflict.get_by_role("button", name="Replace one.csv").click()
    expect(page.locator(".uploads li").filter(has_text="one.csv").filter(has_text="uploaded, 5 B")).to_be_visible()
    expect(page.locator(".uploads li.failed")).to_have_count(0)
    entry = alice.run("print(open('in/one.csv').read().strip())")
    expect(entry.locator(".text-output")).to_contain_text("99")

    page.evaluate(DROP, ["dropped.txt", "from the desk"])
    expect(alice.kept("in/dropped.txt")).to_be_visible()


def test_a_refused_upload_says_why(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("refused")
    alice.page.route(
        "**/files/huge.bin*",
        lambda route: route.fulfill(
            status=413,
            content_type="application/problem+json",
            body='{"code": "too_large", "detail": "At most 256 MiB a file."}',
        ),
    )
    alice.upload(("huge.bin", b"x"), ("fine.txt", b"y"))
    failed = alice.page.locator(".uploads li.failed")
    expect(failed).to_contain_text("huge.bin")
    expect(failed).to_contain_text("At most 256 MiB a file.")
    expect(alice.kept("in/fine.txt")).to_be_visible(timeout=START_MS)
    failed.get_by_role("button", name="Dismiss huge.bin").click()
    expect(failed).to_have_count(0)


def test_what_is_not_let_in_or_out_says_why(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("inspected")
    alice.upload(("picture.png", b"no picture"), ("fine.txt", b"y"))
    failed = page.locator(".uploads li.failed")
    expect(failed).to_contain_text("picture.png holds text/plain", timeout=START_MS)
    alice.run("import zipfile\nwith zipfile.ZipFile('out/bad.zip', 'w') as z:\n    z.writestr('../x', 'x')")

    def told() -> bool:
        page.locator(".files-panel").get_by_role("button", name="Refresh").click()
        page.wait_for_timeout(200)
        return "not downloadable: An entry's path is absolute" in (alice.kept("out/bad.zip").text_content() or "")

    assert any(told() for _ in range(100))
    expect(alice.kept("in/fine.txt")).not_to_contain_text("not downloadable")


def test_a_cancelled_upload_stops(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("cancel")
    alice.run("x = 1")
    slow = alice.context.new_cdp_session(alice.page)
    slow.send("Network.enable")
    slow.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000},
    )
    alice.upload(("slow.bin", b"x" * 5_000_000))
    row = alice.page.locator(".uploads li").filter(has_text="slow.bin")
    expect(row).to_contain_text("of 5.0 MB")
    row.get_by_role("button", name="Cancel upload of slow.bin").click()
    expect(row).to_contain_text("Canceled")
    slow.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    alice.page.get_by_role("button", name="Refresh").click()
    expect(alice.file_row("in/slow.bin")).to_have_count(0)
