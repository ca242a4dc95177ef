"""``/api/v1``: every row of the table, strict bodies, waiting, event streams."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from http_fake import FakeSession
from http_served import PATIENCE_S, Served, assert_problem, js, served

from gateway.protocol import jupyter
from gateway.service.journal import EntryKind


@served()
async def test_me_and_profiles(s: Served) -> None:
    me = js(await s.call("GET", "/api/v1/me", user="alice/t1/admin"))
    assert (me["user"], me["tenant"], me["roles"], me["expires_at"]) == ("alice", "t1", ["admin"], None)
    assert me["frame_url"] == f"http://127.0.0.1:{s.frame_port}" and me["server_time"].endswith("Z")
    named = js(await s.call("GET", "/api/v1/me", headers={"Host": f"localhost:{s.port}"}))
    assert named["frame_url"] == f"http://localhost:{s.frame_port}"
    odd = js(await s.call("GET", "/api/v1/me", headers={"Host": "a;b"}))
    assert odd["frame_url"] == f"http://127.0.0.1:{s.frame_port}"
    assert js(await s.call("GET", "/api/v1/profiles"))["default"] == "gvisor"


@served()
async def test_sessions(s: Served) -> None:
    response = await s.call("POST", "/api/v1/sessions", {"profile": "container", "name": "mine"})
    assert response.code == 201
    made = js(response)
    path = f"/api/v1/sessions/{made['session_id']}"
    assert response.headers["Location"] == path and made["name"] == "mine" and made["profile"] == "container"
    assert js(await s.call("GET", path)) == made
    assert [x["session_id"] for x in js(await s.call("GET", "/api/v1/sessions"))["sessions"]] == [made["session_id"]]
    assert js(await s.call("GET", "/api/v1/sessions", user="bob")) == {"sessions": []}
    assert_problem(await s.call("GET", path, user="bob"), 404, "not_found")
    session = s.gateway.held[made["session_id"]]
    assert (await s.call("POST", f"{path}/keep-alive")).code == 200
    assert (await s.call("POST", f"{path}/recycle", {})).code == 202
    assert (await s.call("POST", f"{path}/interrupt", {})).code == 204
    assert js(await s.call("POST", f"{path}/restart"))["generation"] == 2
    assert session.calls == ["keep_alive", "recycle", "interrupt", "restart"]
    assert js(await s.call("GET", f"{path}/notices"))["notices"][0]["kind"] == "recycled"
    assert (await s.call("DELETE", path)).code == 202
    assert js(await s.call("GET", path))["state"] == "ended"
    assert_problem(await s.call("POST", f"{path}/keep-alive"), 410, "session_ended")
    assert_problem(await s.call("GET", f"{path}/events"), 410, "session_ended")


@served()
async def test_bodies_are_checked(s: Served) -> None:
    cases: list[tuple[Any, str]] = [
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[]", "object"),
        (b'{"name": NaN}', "not JSON"),
        (b'{"a":' * 20000 + b"1" + b"}" * 20000, "nested"),
        ({"nmae": "x"}, "known are: name, profile"),
        ({"name": 1}, "must be a string"),
        ({"name": "x" * 201}, "at most 200"),
        ({"profile": ["x"]}, "must be a string"),
        (b'{"name": "\\ud800"}', "surrogate"),
    ]
    for body, says in cases:
        problem = assert_problem(await s.call("POST", "/api/v1/sessions", body), 400, "bad_request")
        assert says in problem["detail"], problem
    problem = assert_problem(await s.call("POST", "/api/v1/sessions", {"x": 1}), 400, "bad_request")
    assert problem["known"] == ["name", "profile"] and problem["unknown"] == ["x"]
    assert_problem(await s.call("POST", "/api/v1/sessions", {"profile": "nope"}), 404, "not_found")
    session = await s.session()
    path = f"/api/v1/sessions/{session.session_id}/executions"
    for bad in ({}, {"code": 1}, {"code": "1", "timeout_s": "x"}, {"code": "1", "timeout_s": -1}):
        assert_problem(await s.call("POST", path, bad), 400, "bad_request")
    for bad in (
        {"code": "1", "timeout_s": True},
        {"code": "1", "allow_stdin": 1},
        {"code": "1", "expect_generation": 1.5},
    ):
        assert_problem(await s.call("POST", path, bad), 400, "bad_request")
    for wait in ("x", "-1", "nan"):
        assert_problem(await s.call("POST", f"{path}?wait={wait}", {"code": "1"}), 400, "bad_request")
    assert not session.executions


@served()
async def test_executions(s: Served) -> None:
    session = await s.session()
    path = f"/api/v1/sessions/{session.session_id}/executions"
    response = await s.call("POST", path, {"code": "1", "timeout_s": 3, "allow_stdin": True})
    assert response.code == 202 and response.headers["Location"] == f"{path}/e1"
    assert session.calls == [("execute", "1", 3, True)]
    assert js(await s.call("GET", path))["executions"][0]["execution_id"] == "e1"
    assert (
        await s.call("POST", f"/api/v1/sessions/{session.session_id}/stdin", {"execution_id": "e1", "value": ""})
    ).code == 204
    assert (await s.call("DELETE", f"{path}/e1")).code == 200
    assert js(await s.call("GET", f"{path}/e1"))["state"] == "finished"
    assert_problem(await s.call("GET", f"{path}/nope"), 404, "not_found")
    assert_problem(await s.call("GET", f"{path}/nope?wait=5"), 404, "not_found")


@served(wait_s=0.2)
async def test_waiting_for_an_execution(s: Served) -> None:
    session = await s.session()
    path = f"/api/v1/sessions/{session.session_id}/executions"
    assert (await s.call("POST", f"{path}?wait=9999", {"code": "1"})).code == 202
    assert ("wait", 0.2) in session.calls
    asyncio.get_running_loop().call_later(0.05, session.finish, "e2")
    response = await s.call("POST", f"{path}?wait=0.15", {"code": "1"})
    assert response.code == 200 and js(response)["state"] == "finished"


@served()
async def test_waiting_ends_with_the_client(s: Served) -> None:
    session = await s.session()
    _, writer = await s.connect()
    body = b'{"code": "1"}'
    head = f"POST /api/v1/sessions/{session.session_id}/executions?wait=300 HTTP/1.1\r\nHost: x\r\n"
    writer.write(f"{head}Authorization: token alice\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await until(lambda: ("wait", 300.0) in session.calls)
    writer.close()
    await until(lambda: "wait cancelled" in session.calls)
    assert session.executions["e1"]["state"] == "running"  # the execution itself goes on


@served()
async def test_declarations_and_artifacts(s: Served) -> None:
    session = await s.session()
    path = f"/api/v1/sessions/{session.session_id}/declarations"
    response = await s.call("POST", path, {"pattern": "out/*.csv"})
    assert response.code == 201 and js(response)["keep"] is True
    assert js(await s.call("GET", path))["declarations"] == [{"pattern": "out/*.csv", "keep": True}]
    assert (await s.call("DELETE", f"{path}?pattern=out/%2A.csv")).code == 204
    assert_problem(await s.call("DELETE", path), 400, "bad_request")
    assert_problem(await s.call("DELETE", f"{path}?pattern=x"), 404, "not_found")
    assert js(await s.call("GET", f"/api/v1/sessions/{session.session_id}/artifacts")) == {"artifacts": []}
    got = await s.call("GET", "/api/v1/artifacts/a1")
    assert got.body == b"stored" and 'filename="report.txt"' in got.headers["Content-Disposition"]
    assert_problem(await s.call("GET", "/api/v1/artifacts/a2"), 404, "not_found")


@served()
async def test_admin_rows(s: Served) -> None:
    session = await s.session()
    for path in ("/api/v1/admin/sessions", "/api/v1/admin/audit"):
        assert_problem(await s.call("GET", path), 403, "forbidden")
        assert (await s.call("GET", path, user="root/t1/admin")).code == 200
    end = f"/api/v1/admin/sessions/{session.session_id}/end"
    assert_problem(await s.call("POST", end, {"reason_text": "x"}), 403, "forbidden")
    assert_problem(await s.call("POST", end, {}, user="root/t2/tenant_admin"), 404, "not_found")
    response = await s.call("POST", end, {"reason_text": "too long"}, user="root/t1/tenant_admin")
    assert response.code == 202 and session.calls == [("end by an admin", "root", "too long")]


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


# --- events


@dataclass
class Stream:
    """An event stream as a client reads it. ``events``: (id, event, data)."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str
    events: list[tuple[str, str, Any]] = field(default_factory=list)
    comments: int = 0
    _text: str = ""

    @classmethod
    async def open(
        cls, s: Served, session: FakeSession, query: str = "", headers: str = "", user: str = "alice"
    ) -> Stream:
        reader, writer = await s.connect()
        path = f"/api/v1/sessions/{session.session_id}/events{query}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {user}\r\n{headers}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        return cls(reader, writer, head)

    async def until(self, count: int) -> list[tuple[str, str, Any]]:
        """The first ``count`` events (or all, when the stream ends before)."""
        while len(self.events) < count and await self._more():
            pass
        return self.events

    async def _more(self) -> bool:
        size = int((await asyncio.wait_for(self.reader.readline(), PATIENCE_S)).strip() or b"0", 16)
        data = (await self.reader.readexactly(size + 2))[:-2]
        self._text += data.decode()
        *blocks, self._text = self._text.split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            self.comments += block.startswith(":")
            if "data" in fields:
                self.events.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
        return size > 0


@served()
async def test_an_event_stream(s: Served) -> None:
    session = await s.session()
    stream = await Stream.open(s, session)
    assert "HTTP/1.1 200" in stream.head and "Content-Type: text/event-stream" in stream.head
    await stream.until(1)
    assert stream.events[0][:2] == ("", "session") and stream.events[0][2]["session"] == session.to_json()
    parent = jupyter.make_header("execute_request", "c", msg_id="m1")
    session.say("iopub", "stream", parent, {"name": "stdout", "text": "a\nb\r\n\u2028é"})
    session.say("shell", "complete_reply", parent, {"matches": []}, target="ws:x")
    session.say("control", "interrupt_reply", parent, {})
    session.say("iopub", "debug_event", parent, {})
    session.publish(b"garbage")
    session.publish(b'{"type":"execution","execution":{"execution_id":"e1"}}', EntryKind.STATE)
    session.publish(b'{"type":"notice","kind":"recycled"}', EntryKind.NOTICE)
    session.publish(b'{"sandbox_id":"x"}', EntryKind.MARK)
    session.say("shell", "execute_reply", parent, {"status": "ok"}, target="ws:x")
    session.say("stdin", "input_request", parent, {"prompt": "?"}, target="ws:x")
    events = (await stream.until(6))[1:]
    assert [e[1] for e in events] == ["message", "execution", "notice", "message", "message"]
    message = events[0][2]
    assert message["content"]["text"] == "a\nb\r\n\u2028é" and message["execution_id"] == "exec-of-m1"
    assert message["parent_msg_id"] == "m1" and message["channel"] == "iopub" and message["type"] == "message"
    assert {"msg_type", "msg_id", "metadata", "date"} <= set(message)
    ids = [int(e[0]) for e in events]
    assert ids == sorted(ids) and len(set(ids)) == 5
    stream.writer.close()
    await until(lambda: len(session.attachments) == 0)


@served()
async def test_resuming_exactly_once(s: Served) -> None:
    session = await s.session()
    for n in range(5):
        session.say("iopub", "stream", {}, {"text": str(n)})
    for query, headers, expected in (
        ("?after=0", "", "01234"),
        ("?after=2", "", "234"),
        ("?after=0", "Last-Event-ID: 4\r\n", "4"),
        ("", "Last-Event-ID: 3\r\n", "34"),
    ):
        stream = await Stream.open(s, session, query, headers)
        await stream.until(1 + len(expected))
        assert "".join(e[2]["content"]["text"] for e in stream.events[1:]) == expected
        stream.writer.close()
    for bad in ("x", "-1", "1.5", "9" * 30):
        response = await s.call("GET", f"/api/v1/sessions/{session.session_id}/events?after={bad}")
        assert_problem(response, 400, "bad_request")


@served(journal_bytes=200_000)
async def test_a_gap_is_told_once(s: Served) -> None:
    session = await s.session()
    for n in range(100):
        session.say("iopub", "stream", {}, {"text": f"{n} " + "x" * 10_000})
    stream = await Stream.open(s, session, "?after=1")
    await stream.until(3)
    ident, event, data = stream.events[1]
    assert event == "gap" and data["after"] == 1 and int(ident) == data["oldest"] - 1
    assert int(stream.events[2][0]) == data["oldest"]
    stream.writer.close()


@served(heartbeat_s=0.05)
async def test_heartbeats_and_the_last_word(s: Served) -> None:
    session = await s.session()
    stream = await Stream.open(s, session)
    while stream.comments < 3:
        await stream._more()
    session.attachments.close_all("session_ended")
    await stream.until(99)
    assert stream.events[-1] == ("", "bye", {"type": "bye", "code": "session_ended"})
    stream = await Stream.open(s, session, user="alice@0.2")
    await stream.until(99)
    assert stream.events[-1][2]["code"] == "unauthenticated"
    stream = await Stream.open(s, session)
    await until(lambda: len(session.attachments) == 1)
    session.attachments.close_all("shutdown")
    await stream.until(99)
    assert stream.events[-1][2]["code"] == "shutdown"


@served()
async def test_a_slow_reader_holds_back_nobody(s: Served) -> None:
    session = await s.session()
    slow = await Stream.open(s, session)
    quick = await Stream.open(s, session)
    await until(lambda: len(session.attachments) == 2)
    text = "x" * 100_000
    for n in range(200):
        session.say("iopub", "stream", {}, {"text": f"{n} {text}"})
        await quick.until(n + 2)
    assert all(r._sink.flow.queued < 4 * 1024**2 for r in session.attachments._readers.values())  # type: ignore[attr-defined]
    await slow.until(201)
    assert [e[2]["content"]["text"].split(" ")[0] for e in slow.events[1:]] == [str(n) for n in range(200)]
    slow.writer.close()
    quick.writer.close()


@served(attachment_limit=1)
async def test_too_many_streams(s: Served) -> None:
    session = await s.session()
    stream = await Stream.open(s, session)
    refused = await s.call("GET", f"/api/v1/sessions/{session.session_id}/events")
    assert_problem(refused, 429, "quota_exceeded")
    assert int(refused.headers["Retry-After"]) >= 1
    stream.writer.close()
