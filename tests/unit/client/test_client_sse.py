"""The parser of server-sent events, and what a session's events mean for one execution."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sandglass_client as sg
from hypothesis import given
from hypothesis import strategies as st
from sandglass_client.events import Reading
from sandglass_client.sse import Parser, ServerEvent

STREAM = (
    b"\xef\xbb\xbfretry: 1500\n\n: still here\n\nevent: session\ndata: {}\n\n"
    b"id: 7\nevent: message\ndata: {\"a\":\ndata:  \"\xc3\xa9\"}\n\nid: 8\nevent: notice\ndata:x\nfoo: bar\n\nid: 9\nevent: lost\n\n"
    b"id: nine\ndata: plain\n\nid: 10\nevent: message\ndata: never finished\n"
)  # fmt: skip
EVENTS = [
    ServerEvent("session", "{}"), ServerEvent("message", '{"a":\n "é"}', 7), ServerEvent("notice", "x", 8), ServerEvent("message", "plain"),
]  # fmt: skip


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_cut_of_the_stream_gives_the_same_events(end: bytes) -> None:
    data = STREAM.replace(b"\n", end)
    for size in range(1, len(data) + 1):
        parser, found = Parser(), []
        for at in range(0, len(data), size):
            found += parser.feed(data[at : at + size])
        assert found == EVENTS, size
        assert parser.retry_s == 1.5


@given(st.lists(st.tuples(st.integers(0, 10**18 - 1), st.text(st.characters(exclude_categories=["Cs", "Cc"])))), st.integers(1, 9))
def test_what_the_gateway_writes_is_read_back(written: list[tuple[int, str]], size: int) -> None:
    from gateway.http.render import frame

    data = b"".join(frame("message", json.dumps({"text": text}).encode(), index) for index, text in written)
    parser = Parser()
    found = [event for at in range(0, len(data), size) for event in parser.feed(data[at : at + size])]
    assert [(event.id, json.loads(event.data)["text"]) for event in found] == written


def event(type: str, **data: Any) -> ServerEvent:
    return ServerEvent(type, json.dumps(data))


def message(msg_type: str, content: dict[str, Any], execution_id: str = "e1") -> ServerEvent:
    return event("message", msg_type=msg_type, content=content, execution_id=execution_id)


def execution(state: str, position: int | None = None, execution_id: str = "e1") -> ServerEvent:
    return event("execution", execution={"execution_id": execution_id, "state": state, "position": position})


def test_an_execution_is_told_from_the_others_of_its_session() -> None:
    reading = Reading("e1", 1)
    given = [
        event("session", session={"generation": 1}), execution("running", execution_id="e0"), execution("queued", 1), execution("queued", 1),
        message("stream", {"name": "stdout", "text": "another's"}, "e0"), execution("finished", execution_id="e0"), execution("queued", 0),
        execution("running"), message("stream", {"name": "stdout", "text": "a"}), message("stream", {"name": "stderr", "text": "b"}),
        message("display_data", {"data": {"text/plain": "d"}, "transient": {"display_id": "x"}}),
        message("update_display_data", {"data": {"text/plain": "d2"}, "transient": {"display_id": "x"}}),
        event("notice", notice_id=3, kind="variables_lost", text="Gone.", variables=[{"name": "df", "type": "DataFrame", "size": None}]),
        event("session", session={"generation": 2}), message("execute_result", {"data": {"text/plain": "42"}}),
        message("error", {"ename": "E", "evalue": "v", "traceback": ["t"]}), event("gap", after=3, oldest=9),
        ServerEvent("message", "not JSON"), event("something new", x=1), execution("finished"),
    ]  # fmt: skip
    found = [told for each in given for told in reading.take(each)]
    assert reading.finished
    assert [each.type for each in found] == [
        "queued", "queued", "started", "stdout", "stderr", "display", "display", "warning", "generation_changed", "result", "error", "gap",
    ]  # fmt: skip
    assert found[:2] == [sg.Queued("e1", 1), sg.Queued("e1", 0)]
    assert found[5:7] == [
        sg.Display(sg.Output({"text/plain": "d"}), "x"), sg.Display(sg.Output({"text/plain": "d2"}), "x", update=True),
    ]  # fmt: skip
    warned = found[7]
    assert isinstance(warned, sg.Warned) and warned.notice.is_loss and warned.notice.variables == (sg.Variable("df", "DataFrame"),)
    assert found[8] == sg.GenerationChanged(1, 2)
    assert found[10] == sg.Error(sg.CodeError("E", "v", ("t",))) and found[11] == sg.Gap(3, 9)


def test_the_end_of_the_session_is_the_end_of_its_execution() -> None:
    reading = Reading("e1", 1)
    assert not list(reading.take(event("bye", code="shutdown"))) and not reading.finished
    assert not list(reading.take(event("bye", code="session_ended"))) and reading.finished


def test_an_execution_as_the_gateway_says_it() -> None:
    value = {
        "execution_id": "e1", "session": {"id": "s1", "generation": 3, "state": "active", "idle_deadline": "2026-01-31T10:00:00.000000Z"},
        "state": "finished", "status": "ok", "exit_reason": "output_limit", "next_action": "reduce_data", "position": None, "execution_count": 4,
        "stdout": "out\n", "results": [{"data": {"image/png": "x"}}, {"data": {"text/plain": "42"}, "metadata": {}, "is_main_result": True}],
        "truncated": {"stdout": True, "bytes_dropped": 5, "full_output_url": "/x"}, "value": [1], "hints": [{"kind": "syntax"}], "new": 1,
    }  # fmt: skip
    made = sg.Execution.of(value)
    assert made.ok and made.finished and made.text == "out\n42" and made.value == [1] and made.hints and made.raw["new"] == 1
    assert made.session.session_id == "s1" and made.session.idle_deadline is not None and made.session.idle_deadline.utcoffset() is not None
    assert made.truncated is not None and made.truncated.bytes_dropped == 5 and made.truncated.full_output_url == "/x"
    assert made.check() is made and made.position is None and made.duration_ms is None
    nothing = {"stdout": False, "stderr": False, "results": False, "bytes_dropped": 0, "full_output_url": None}
    died = {"name": "KernelDied", "value": "v"}
    bad = sg.Execution.of(value | {"status": "lost", "exit_reason": "kernel_died", "truncated": nothing, "error": died})
    assert bad.truncated is None and bad.lost
    with pytest.raises(sg.ExecutionFailed) as caught:
        bad.check()
    assert caught.value.code == "kernel_died" and caught.value.execution is bad and "KernelDied: v" in str(caught.value)


@pytest.mark.parametrize("value", [{}, {"execution_id": 5, "session": [], "results": "x", "error": [], "truncated": 1, "position": "1"}])
def test_a_malformed_execution_is_an_empty_one(value: dict[str, Any]) -> None:
    made = sg.Execution.of(value)
    assert made.execution_id == "" and not made.finished and made.results == () and made.truncated is None
