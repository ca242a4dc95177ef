# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""Text, colours, progress, tracebacks, big output; and markup that tries to get out of its frame."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from e2e_gateway import Gateway
from page_fixture import START_MS, Person, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import Browser, expect

pytestmark = pytest.mark.browser


def test_text_outputs(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("text")
    colours = alice.run("print('\\x1b[1;31mred\\x1b[0m plain \\x1b[38;5;208morange\\x1b[0m <img src=x onerror=alert(1)>')")
    expect(colours.locator(".a-fg1.a-bold")).to_have_text("red")
    expect(colours.locator(".a-fg-rgb")).to_have_text("orange")
    expect(colours.locator(".text-output")).to_contain_text("<img src=x onerror=alert(1)>")

    hidden = alice.run("print('invoice\\u202egpj.exe')  # \u202e hidden")
    expect(hidden.locator(".text-output .mark-hidden")).to_have_text("RLO")
    expect(hidden.locator("pre.code .mark-hidden")).to_have_text("RLO")

    bar = alice.run("import sys\nfor i in range(101):\n    sys.stdout.write(f'\\r{i:3d}% done')\nprint()")
    expect(bar.locator(".text-output pre")).to_have_text("100% done")

    both = alice.run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    expect(both.locator(".text-output.stderr")).to_contain_text("err")
    expect(both.locator(".text-output.stderr .stream-name")).to_have_text("stderr")


def test_tracebacks_fold_and_open(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("errors")
    entry = alice.run("def inner():\n    return 1 / 0\n\ndef outer():\n    return inner()\n\nouter()", "code_error")
    expect(entry.locator(".run-state")).to_contain_text("The code raised an error")
    expect(entry.locator(".error-name")).to_have_text("ZeroDivisionError: division by zero")
    shown = entry.locator(".error-output > pre")
    expect(shown).to_contain_text("inner()")
    expect(shown).not_to_contain_text("outer()")
    entry.get_by_text("Full traceback, 3 frames").click()
    expect(entry.locator("details pre")).to_contain_text("outer()")
    alice.context.grant_permissions(["clipboard-read", "clipboard-write"])
    entry.get_by_role("button", name="Copy traceback").click()
    expect(entry.get_by_text("Copied")).to_be_visible()
    copied = alice.page.evaluate("navigator.clipboard.readText()")
    assert "outer()" in copied and "ZeroDivisionError: division by zero" in copied and "\x1b" not in copied

    syntax = alice.run("x = = 1", "syntax_error")
    expect(syntax.locator(".error-output")).to_contain_text("invalid syntax")


def longest_task_ms(trace: bytes) -> float:
    """Processor time of the page's longest task: what freezes it, whatever else this machine is doing."""
    events = json.loads(trace)["traceEvents"]
    main = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"}
    tasks = [e.get("tdur", 0) for e in events if (e["pid"], e["tid"]) in main and e["name"].endswith("RunTask")]
    assert tasks
    return float(max(tasks)) / 1000


def test_ten_megabytes_leave_the_page_responsive(gateway: Gateway, browser: Browser, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("big")
    alice.run("x = 1")
    browser.start_tracing(page=page, categories=["toplevel"])
    entry = alice.run("for i in range(100_000):\n    print(f'{i:08d}', 'x' * 90)")
    fold = entry.locator(".fold")
    expect(fold).to_contain_text("lines not shown")
    expect(fold).to_contain_text("10 MB in all")
    expect(entry.locator(".text-output")).to_contain_text("00000000 xxx")
    expect(entry.locator(".text-output")).to_contain_text("00099999 xxx")
    assert longest_task_ms(browser.stop_tracing()) < 300, "the page was frozen for too long"
    assert page.locator("*").count() < 3000

    browser.start_tracing(page=page, categories=["toplevel"])
    fold.get_by_role("button", name="View all").click()
    expect(entry.locator(".blocks pre")).to_have_count(250, timeout=30_000)
    expect(entry.locator(".blocks pre").last).to_contain_text("00049999")
    assert longest_task_ms(browser.stop_tracing()) < 300
    with page.expect_download() as download:
        fold.get_by_role("button", name="Save as text").click()
    saved = download.value.path().read_text()
    assert saved.count("\n") == 100_000 and saved.startswith("00000000") and "00099999" in saved[-200:]

    one_line = alice.run("print('y' * 3_000_000)")
    expect(one_line.locator(".fold")).to_contain_text("3.0 MB in all")


def test_a_frame_grows_with_its_content_up_to_a_cap(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("frames")
    small = alice.run("from IPython.display import HTML, SVG\nHTML('<table class=dataframe><tr><th>a</th><td>1</td></tr></table>')")
    expect(small.frame_locator("iframe").locator("td")).to_have_text("1")
    alice.page.wait_for_timeout(300)
    assert small.locator("iframe").bounding_box()["height"] < 80  # type: ignore[index]

    tall = alice.run("HTML('<p>line</p>' * 200)")
    expect(tall.frame_locator("iframe").locator("p").last).to_be_attached()
    more = tall.get_by_role("button", name="Show all of it")
    expect(more).to_be_visible()
    assert tall.locator("iframe").bounding_box()["height"] < 700  # type: ignore[index]
    more.click()
    alice.page.wait_for_timeout(300)
    assert tall.locator("iframe").bounding_box()["height"] > 3000  # type: ignore[index]

    drawing = alice.run(
        'SVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40"><title>Box</title><rect width="80" height="40"/></svg>\')'
    )
    expect(drawing.frame_locator("iframe").get_by_role("img", name="Box")).to_be_visible()


class Listener:
    """Counts whoever reaches for it, over TCP or UDP."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        self.seen: list[str] = []
        for one in (self._accept, self._receive):
            threading.Thread(target=one, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.tcp.accept()
            except OSError:
                return
            self.seen.append("tcp")
            connection.close()

    def _receive(self) -> None:
        while True:
            try:
                self.udp.recvfrom(2048)
            except OSError:
                return
            self.seen.append("udp")

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


HOSTILE = """
<meta http-equiv="refresh" content="0;url={url}/meta">
<base href="{url}/">
<link rel="stylesheet" href="{url}/css"><link rel="preconnect" href="{url}"><link rel="prefetch" href="{url}/p">
<style>@import url({url}/import); body {{ background: url({url}/bg) }}
@font-face {{ font-family: x; src: url({url}/font) }} p {{ font-family: x }}</style>
<script>
  document.body.append('SCRIPT RAN ');
  try {{ document.body.append('parent ' + parent.document.title) }} catch (e) {{}}
  fetch('{url}/fetch'); new Image().src = '{url}/image'; navigator.sendBeacon('{url}/beacon');
  new RTCPeerConnection({{iceServers: [{{urls: 'stun:127.0.0.1:{port}'}}]}}).createDataChannel('x');
  location.href = '{url}/nav'; top.location.href = '{url}/top'; open('{url}/open');
</script>
<script src="{url}/script"></script>
<img src="{url}/img" onerror="document.body.append('HANDLER RAN')">
<svg onload="document.body.append('SVG RAN')"><image href="{url}/svg"/><a href="{url}/svga"><text y="20">svg link</text></a></svg>
<iframe src="{url}/iframe"></iframe><iframe srcdoc="<script src='{url}/srcdoc'></script>"></iframe>
<object data="{url}/object"></object><embed src="{url}/embed"><video src="{url}/video" autoplay></video>
<form action="{url}/form"><button>send</button></form><a id="link" href="{url}/link" ping="{url}/ping">follow me</a>
<p id="shown">the table</p>
"""


def test_hostile_markup_reads_nothing_and_reaches_no_network(gateway: Gateway, person: Callable[..., Person], listener: Listener) -> None:
    alice = person(gateway)
    page = alice.page
    alice.open_session("hostile")
    leaks: list[str] = []
    frame_origin = re.match(r"https?://[^/]+", gateway.call("GET", "/api/v1/me", token=alice.token).json()["frame_url"])[0]  # type: ignore[index]
    page.on(
        "response",
        lambda r: None if r.url.startswith((gateway.url, frame_origin, "data:", "blob:")) else leaks.append(r.url),
    )
    entry = alice.run(
        "from IPython.display import HTML\nHTML(" + repr(HOSTILE.format(url=f"http://127.0.0.1:{listener.port}", port=listener.port)) + ")"
    )
    inside = entry.frame_locator("iframe")
    expect(inside.locator("#shown")).to_have_text("the table")
    inside.locator("#link").click()
    inside.get_by_role("button", name="send").click()
    page.wait_for_timeout(2000)
    alice.faults = [f for f in alice.faults if "Content Security Policy" not in f and "sandbox" not in f]
    text = inside.locator("body").inner_text()
    assert "RAN" not in text, text
    assert "parent" not in text
    assert listener.seen == []
    assert leaks == []
    assert page.url.startswith(gateway.url)

    frame = next(f for f in page.frames if f != page.main_frame)
    assert frame.url.startswith(frame_origin)
    facts = frame.evaluate(
        """() => {
          const attempt = (f) => { try { return String(f()) } catch (e) { return e.name } };
          return [attempt(() => parent.document.title), attempt(() => document.cookie), attempt(() => localStorage.length),
                  attempt(() => indexedDB.open('x')), origin];
        }"""
    )
    assert facts[:3] == ["SecurityError"] * 3, facts
    assert facts[4] == "null"


def test_frame_messages_are_checked(gateway: Gateway, person: Callable[..., Person]) -> None:
    """What a script in the frame could send, had it got in."""
    alice = person(gateway)
    alice.open_session("messages")
    entry = alice.run("from IPython.display import HTML\nHTML('<p id=p>hello</p>')")
    expect(entry.frame_locator("iframe").locator("#p")).to_be_visible()
    frame = next(f for f in alice.page.frames if f != alice.page.main_frame)
    frame.evaluate("for (const m of [{type: 'ready'}, {type: 'height', height: 9e9}, 'x', {type: 'go', url: '/'}]) parent.postMessage(m, '*')")
    alice.page.wait_for_timeout(300)
    assert entry.locator("iframe").bounding_box()["height"] < 700  # type: ignore[index]
    expect(entry.frame_locator("iframe").locator("#p")).to_be_visible()


def test_rich_kinds_without_a_viewer_are_named(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("rich")
    entry = alice.run(
        "from IPython.display import display\n"
        "display({'application/vnd.vegalite.v5+json': {}, 'text/html': '<script>1</script>', 'text/plain': 'a chart'}, raw=True)"
    )
    expect(entry).to_contain_text("which this page cannot draw yet")
    expect(entry.locator(".text-output")).to_have_text("a chart")
    expect(entry.locator("iframe")).to_have_count(0)
    slow = alice.run("import time\nfrom IPython.display import clear_output\nfor i in range(3):\n    clear_output(wait=True)\n    print('frame', i)")
    expect(slow.locator(".text-output")).to_have_text("frame 2", timeout=START_MS)
