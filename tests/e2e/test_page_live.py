# ruff: noqa: F811 - fixtures are imported by name, and arguments bear that name
"""The event stream: reload, two tabs, other clients, a lost network, a killed gateway, questions, interrupts."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

import pytest
from e2e_clients import Kernel
from e2e_gateway import Gateway
from page_fixture import START_MS, Person, browser, person  # noqa: F401  (fixtures)
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

TICKS = "import time\nfor i in range({n}):\n    print('tick', i, flush=True)\n    time.sleep({s})"


def all_ticks(n: int) -> re.Pattern[str]:
    return re.compile("^" + r"\n".join(f"tick {i}" for i in range(n)) + "$")


def test_a_reload_in_the_middle_has_no_gap_and_no_duplicate(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("reload")
    alice.run("print('before')")
    entry = alice.send(TICKS.format(n=30, s=0.1))
    for seen in (3, 8, 14):
        expect(entry).to_contain_text(f"tick {seen}", timeout=START_MS)
        alice.page.reload()
        expect(alice.runs).to_have_count(2)
    expect(entry).to_have_attribute("data-state", "finished", timeout=START_MS)
    expect(entry.locator(".text-output.stdout pre")).to_have_text(all_ticks(30))
    expect(alice.runs.first.locator(".text-output.stdout pre")).to_have_text("before")
    expect(entry.locator("pre.code")).to_contain_text("for i in range(30)")


def test_two_tabs_show_the_same(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("tabs")
    other = alice.context.new_page()
    alice.watch(other)
    other.goto(alice.page.url)
    alice.send(TICKS.format(n=80, s=0.1))
    alice.send("print('queued')")
    theirs = other.locator(".timeline > li.run")
    expect(theirs).to_have_count(2, timeout=START_MS)
    expect(theirs.nth(1).locator(".run-state")).to_have_text("Waiting, next in line")
    for page in (alice.page, other):
        runs = page.locator(".timeline > li.run")
        expect(runs.nth(1)).to_have_attribute("data-state", "finished", timeout=START_MS)
        expect(runs.nth(0).locator(".text-output.stdout pre")).to_have_text(all_ticks(80))
        expect(runs.nth(1).locator(".text-output.stdout pre")).to_have_text("queued")


def test_what_others_run_appears_with_its_code(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    session_id = alice.open_session("others")
    alice.run("x = 20")
    done = gateway.call("POST", f"/api/v1/sessions/{session_id}/executions?wait=30", {"code": "x + 1"}, token=alice.token, expect=200)
    assert done.json()["status"] == "ok"
    expect(alice.runs).to_have_count(2)
    expect(alice.runs.nth(1).locator("pre.code")).to_have_text("x + 1")
    expect(alice.runs.nth(1).locator(".text-output")).to_have_text("21")


def test_a_jupyter_client_in_the_same_session(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    kernel = Kernel(gateway, alice.open_session("lab"), alice.user)
    alice.run("shared = 41")
    socket = kernel.connect()
    try:
        assert socket.run("print(shared + 1)") == "42\n"
        theirs = alice.runs.nth(1)
        expect(theirs).to_have_attribute("data-state", "finished")
        expect(theirs.locator("pre.code")).to_have_text("print(shared + 1)")
        expect(theirs.locator(".text-output.stdout pre")).to_have_text("42")
        expect(theirs.locator(".badge")).to_have_text("from a Jupyter client")
        socket.run("shared = 50", silent=True, store_history=False)
        asking = socket.execute("input('Theirs? ')", allow_stdin=True)
        expect(alice.page.get_by_text("Waits for an answer in the client that started it: Theirs?")).to_be_visible()
        expect(alice.page.get_by_role("textbox", name="Theirs?")).to_have_count(0)
        request = socket.until(lambda m: m.msg_type == "input_request")[-1]
        socket.send("input_reply", {"value": "yes"}, channel="stdin", parent=request.header)
        socket.finished(asking)
        expect(alice.runs.last).to_have_attribute("data-exit", "ok")
        expect(alice.page.get_by_text("The code is no longer kept")).to_have_count(0)
        alice.run("print(shared)")
    finally:
        for one in kernel.sockets:
            one.close()


def test_a_lost_network_is_said_and_claims_no_loss(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("offline")
    alice.run("x = 1")
    entry = alice.send(TICKS.format(n=40, s=0.1))
    expect(entry).to_contain_text("tick 2", timeout=START_MS)
    alice.context.set_offline(True)
    alice.page.evaluate("dispatchEvent(new Event('offline'))")
    alice.page.wait_for_timeout(1500)
    alice.context.set_offline(False)
    expect(entry).to_have_attribute("data-state", "finished", timeout=START_MS)
    expect(entry.locator(".text-output.stdout pre")).to_have_text(all_ticks(40))
    expect(alice.page.locator("li.divider")).to_have_count(0)


def test_a_killed_gateway_is_said_and_the_stream_goes_on(start_gateway: Callable[..., Gateway], person: Callable[..., Person]) -> None:
    with socket.socket() as probe, socket.socket() as frame_probe:
        probe.bind(("127.0.0.1", 0))
        frame_probe.bind(("127.0.0.1", 0))
        ports = [str(s.getsockname()[1]) for s in (probe, frame_probe)]
    gateway = start_gateway(SANDGLASS_PORT=ports[0], SANDGLASS_FRAME_PORT=ports[1])
    alice = person(gateway)
    page = alice.page
    alice.open_session("kill")
    alice.run("before = 1")
    entry = alice.send(TICKS.format(n=80, s=0.1))
    expect(entry).to_contain_text("tick 3", timeout=START_MS)
    gateway.kill()
    expect(page.get_by_role("status").filter(has_text="Reconnecting")).to_be_visible()
    gateway.start()
    expect(entry).to_have_attribute("data-state", "finished", timeout=START_MS)
    expect(entry.locator(".text-output.stdout pre")).to_have_text(all_ticks(80))
    expect(page.get_by_text("Reconnecting")).to_have_count(0)
    expect(page.locator("li.divider")).to_have_count(0)


def test_a_question_gets_its_answer(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("question")
    entry = alice.send("name = input('Your name? ')\nprint('hello', name)")
    field = entry.get_by_role("textbox", name="Your name?")
    expect(field).to_be_visible(timeout=START_MS)
    expect(entry.locator(".run-state")).to_contain_text("Waits for input")
    field.fill("Ada <b>")
    field.press("Enter")
    expect(entry).to_have_attribute("data-state", "finished", timeout=START_MS)
    expect(entry.locator(".text-output.stdout pre")).to_have_text("hello Ada <b>")
    expect(entry.get_by_role("textbox")).to_have_count(0)


def test_interrupt_and_cancel(gateway: Gateway, person: Callable[..., Person]) -> None:
    alice = person(gateway)
    alice.open_session("interrupt")
    busy = alice.send("while True:\n    pass")
    waiting = alice.send("print('never')")
    third = alice.send("print('third')")
    expect(busy).to_have_attribute("data-state", "running", timeout=START_MS)
    expect(third.locator(".run-state")).to_have_text("Waiting, number 2 in line")
    waiting.get_by_role("button", name="Cancel").click()
    expect(waiting).to_have_attribute("data-state", "finished")
    expect(third.locator(".run-state")).to_have_text("Waiting, next in line")
    busy.get_by_role("button", name="Interrupt").click()
    expect(busy).to_have_attribute("data-exit", "interrupted")
    expect(third).to_have_attribute("data-state", "finished", timeout=START_MS)
    expect(waiting.locator(".text-output")).to_have_count(0)
