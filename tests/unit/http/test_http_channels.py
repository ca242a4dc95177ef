"""Websockets as attachments: the handshake, both framings, replay, confirmation, back pressure, close codes."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

import pytest
from http_fake import FakeSession
from http_served import PATIENCE_S, Served, assert_problem, closed_with, next_message, request, served
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClientConnection

from gateway.protocol import jupyter
from gateway.service.journal import EntryKind

DEFAULT_KEYS = {"channel", "msg_id", "msg_type", "header", "parent_header", "metadata", "content", "buffers"}


async def until(condition: Any) -> None:
    """Wait for something that another task brings about."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def refused(s: Served, kernel_id: str, **kwargs: Any) -> tuple[int, dict[str, Any]]:
    """The status and body of a handshake that must fail."""
    with pytest.raises(HTTPClientError) as caught:
        await s.ws(kernel_id, **kwargs)
    assert caught.value.response is not None
    assert caught.value.response.headers["Content-Type"] == "application/problem+json"
    return caught.value.code, json.loads(caught.value.response.body)


async def execute(ws: WebSocketClientConnection, code: str, msg_id: str = "m1") -> list[jupyter.KernelMessage]:
    """Run on a v1 socket; everything up to its idle."""
    await ws.write_message(request("execute_request", {"code": code}, msg_id=msg_id), binary=True)
    seen = []
    while True:
        seen.append(await next_message(ws))
        last = seen[-1]
        if last.msg_type == "status" and last.content["execution_state"] == "idle" and last.parent_id == msg_id:
            return seen


@served()
async def test_the_handshake_is_checked(s: Served) -> None:
    session = await s.session()
    kernel = session.session_id
    assert (await refused(s, kernel, query=""))[0] == 401
    assert (await refused(s, kernel, query="token=expired"))[0] == 401
    status, body = await refused(s, "s-999")
    assert status == 404 and body["reason"] == "not_found"
    assert (await refused(s, kernel, query="token=bob"))[0] == 404
    assert (await refused(s, kernel, headers={"Origin": "http://evil.example"}))[0] == 403
    assert (await refused(s, kernel, headers={"Origin": "null"}))[0] == 403
    assert (await refused(s, kernel, query="token=alice&session_id=" + "x" * 201))[0] == 400
    assert len(session.attachments) == 0
    for query, headers in (
        ("", {"Authorization": "Bearer alice"}),
        ("", {"Authorization": "token alice"}),
        ("", {"Authorization": "BEARER alice"}),
        ("token=alice", {}),
        ("token=alice", {"Origin": s.url}),
    ):
        ws = await s.ws(kernel, query=query, headers=headers)
        ws.close()
    assert_problem(await s.call("GET", f"/api/kernels/{kernel}/channels"), 400, "bad_request")
    odd = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "7", "Sec-WebSocket-Key": "x"}
    assert_problem(await s.call("GET", f"/api/kernels/{kernel}/channels", headers=odd), 400, "bad_request")


@served()
async def test_v1_only_when_offered(s: Served) -> None:
    kernel = (await s.session()).session_id
    for offered, selected in (
        ([jupyter.V1_PROTOCOL], jupyter.V1_PROTOCOL),
        (["other", jupyter.V1_PROTOCOL], jupyter.V1_PROTOCOL),
        (["other"], None),
        ([], None),
    ):
        ws = await s.ws(kernel, offered=offered)
        assert ws.selected_subprotocol == selected
        ws.close()


@served()
async def test_v1_messages_pass_untouched(s: Served) -> None:
    session = await s.session()
    ws = await s.ws(session.session_id, query="token=alice&session_id=c1")
    seen = await execute(ws, "print(1)")
    assert [m.msg_type for m in seen] == ["status", "stream", "execute_reply", "status"]
    assert [m.body for m in seen] == [e.body for e in session.journal.read(0)]
    body = jupyter.build("iopub", jupyter.make_header("display_data", "k"), {}, {}, {"data": {}}, [b"\x00\xff" * 10])
    session.publish(body)
    assert (await next_message(ws)).body == body
    ws.close()


@served()
async def test_the_default_framing(s: Served) -> None:
    session = await s.session()
    ws = await s.ws(session.session_id, v1=False)
    header = jupyter.make_header("execute_request", "c", msg_id="m1")
    sent = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": {"code": "é"}}
    await ws.write_message(json.dumps(sent))
    got = [json.loads(await ws.read_message() or "") for _ in range(4)]
    assert all(set(m) >= DEFAULT_KEYS and m["buffers"] == [] for m in got)
    assert [m["msg_type"] for m in got] == ["status", "stream", "execute_reply", "status"]
    assert got[1]["content"]["text"] == "é" and got[1]["parent_header"]["msg_id"] == "m1"
    # buffers make it binary, both ways
    head = json.dumps(sent).encode()
    offsets = struct.pack(">III", 2, 12, 12 + len(head))
    await ws.write_message(offsets + head + b"\x01\x02", binary=True)
    await ws.read_message()
    data = await ws.read_message()
    assert isinstance(data, bytes)
    count, start, end = struct.unpack_from(">III", data)
    assert count == 2 and json.loads(data[start:end])["msg_type"] == "stream" and data[end:] == b"\x01\x02"
    ws.close()


@served()
async def test_one_conversion_serves_all(s: Served) -> None:
    session = await s.session()
    sockets = [await s.ws(session.session_id, v1=False) for _ in range(4)]
    session.say("iopub", "stream", {}, {"name": "stdout", "text": "x"})
    texts = [await ws.read_message() for ws in sockets]
    assert len(set(texts)) == 1
    assert s.deps.converted.statistics()["misses"] == 1 and s.deps.converted.hits == 3
    for ws in sockets:
        ws.close()


@served()
async def test_replies_go_to_the_asker_output_to_all(s: Served) -> None:
    session = await s.session()
    one = await s.ws(session.session_id, query="token=alice&session_id=one")
    two = await s.ws(session.session_id, query="token=alice&session_id=two")
    await until(lambda: len(session.attachments) == 2)
    assert [m.msg_type for m in await execute(one, "1")] == ["status", "stream", "execute_reply", "status"]
    assert [(await next_message(two)).msg_type for _ in range(3)] == ["status", "stream", "status"]
    one.close()
    two.close()


@served()
async def test_no_delay_is_set(s: Served) -> None:
    session = await s.session()
    ws = await s.ws(session.session_id)
    await until(lambda: len(session.attachments) == 1)
    (reader,) = session.attachments._readers.values()
    stream = reader._sink.ws_connection.stream  # type: ignore[attr-defined]
    assert stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    ws.close()


@served()
async def test_frames_of_every_size_arrive_whole_and_in_order(s: Served) -> None:
    session = await s.session()
    ws = await s.ws(session.session_id)
    await until(lambda: len(session.attachments) == 1)
    sizes = [0, 1, 100, 125, 126, 127, 65_000, 65_535, 65_536, 70_000, 5_000_000, 3, 200_000, 7]
    sent = []
    for size in sizes:  # all within one turn of the loop
        session.say("iopub", "display_data", {}, {"n": size}, buffers=[b"x" * size])
        sent.append(size)
    got = [await next_message(ws) for _ in sizes]
    assert [(m.content["n"], len(m.buffers[0])) for m in got] == [(n, n) for n in sent]
    ws.close()


@served()
async def test_reconnecting_gets_what_was_missed_once_and_nobody_else_does(s: Served) -> None:
    session = await s.session()
    query = "token=alice&session_id=me"
    ws = await s.ws(session.session_id, query=query)
    await execute(ws, "first")
    await until(lambda: session.journal.position("ws:me") == session.journal.last_index)
    ws.close()
    await until(lambda: len(session.attachments) == 0)
    for n in range(3):
        session.say("iopub", "stream", {}, {"name": "stdout", "text": f"missed {n}"})
    session.say("shell", "execute_reply", {}, {"status": "ok"}, target="ws:me")
    again = await s.ws(session.session_id, query=query)
    seen = [await next_message(again) for _ in range(4)]
    assert [m.content.get("text", m.msg_type) for m in seen] == ["missed 0", "missed 1", "missed 2", "execute_reply"]
    other = await s.ws(session.session_id, query="token=alice&session_id=other")
    await until(lambda: len(session.attachments) == 2)
    session.say("iopub", "stream", {}, {"name": "stdout", "text": "now"})
    assert (await next_message(other)).content["text"] == "now"
    assert (await next_message(again)).content["text"] == "now"
    again.close()
    other.close()


@served()
async def test_the_newer_of_two_sockets_wins(s: Served) -> None:
    session = await s.session()
    query = "token=alice&session_id=me"
    old = await s.ws(session.session_id, query=query)
    await until(lambda: len(session.attachments) == 1)
    new = await s.ws(session.session_id, query=query)
    assert await closed_with(old) == 1000
    assert (await execute(new, "x"))[2].msg_type == "execute_reply"
    new.close()


@served()
async def test_delivery_is_confirmed_in_order(s: Served) -> None:
    session = await s.session()
    ws = await s.ws(session.session_id, query="token=alice&session_id=me")
    await until(lambda: len(session.attachments) == 1)
    for n in range(500):
        session.say("iopub", "stream", {}, {"name": "stdout", "text": str(n)})
    for n in range(500):
        assert (await next_message(ws)).content["text"] == str(n)
    await until(lambda: session.journal.position("ws:me") == session.journal.last_index)
    ws.close()


@served()
async def test_without_reading_nothing_is_confirmed_and_nothing_piles_up(s: Served) -> None:
    """A client that does not read: bounded in memory, unconfirmed, and it holds back nobody."""
    session = await s.session()
    slow = await s.ws(session.session_id, query="token=alice&session_id=slow")
    quick = await s.ws(session.session_id, query="token=alice&session_id=quick")
    await until(lambda: len(session.attachments) == 2)
    (sink,) = [r._sink for r in session.attachments._readers.values() if r.key == "ws:slow"]
    text = "x" * 100_000
    for n in range(200):
        session.say("iopub", "stream", {}, {"name": "stdout", "text": f"{n} {text}"})
        assert (await next_message(quick)).content["text"].startswith(f"{n} ")
    assert sink.flow.queued < 4 * 1024**2  # type: ignore[attr-defined]
    assert (session.journal.position("ws:slow") or 0) < 200
    for n in range(200):
        assert (await next_message(slow)).content["text"].startswith(f"{n} ")
    await until(lambda: session.journal.position("ws:slow") == session.journal.last_index)
    slow.close()
    quick.close()


@served(bad_messages=5)
async def test_bad_messages_are_dropped_alone(s: Served) -> None:
    session = await s.session()
    good = await s.ws(session.session_id, query="token=alice&session_id=good")
    bad = await s.ws(session.session_id, v1=False)
    header = jupyter.make_header("x", "c")
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    for text in ("not json", "[]", json.dumps({"channel": "iopub2", "header": header}), deep):
        await bad.write_message(text)
    await bad.write_message(json.dumps({"channel": "shell", "header": jupyter.make_header("kernel_info_request", "c")}))
    assert json.loads(await bad.read_message() or "")["msg_type"] == "kernel_info_reply"
    await bad.write_message(b"\x00\x00\x00\x09short", binary=True)
    assert await closed_with(bad) == 4400
    assert (await execute(good, "fine"))[1].content["text"] == "fine"
    v1 = await s.ws(session.session_id)
    await v1.write_message(b"\xff" * 40, binary=True)
    await v1.write_message("text on v1")
    await v1.write_message(request("kernel_info_request"), binary=True)
    assert (await next_message(v1)).msg_type == "kernel_info_reply"
    v1.close()
    good.close()


@served(message_bytes=50_000)
async def test_a_message_over_its_size(s: Served) -> None:
    session = await s.session()
    ws = await s.ws(session.session_id)
    await ws.write_message(request("execute_request", {"code": "x" * 60_000}, msg_id="big"), binary=True)
    await ws.write_message(request("kernel_info_request"), binary=True)
    assert (await next_message(ws)).msg_type == "kernel_info_reply"
    await ws.write_message(b"x" * 3_000_000, binary=True)
    assert await closed_with(ws) in (1009, None)  # None: the connection was cut before the close frame was read
    assert len(session.calls) == 1


@served()
async def test_a_request_that_is_not_taken_is_answered(s: Served) -> None:
    session = await s.session()
    session.refuse_executes = True
    ws = await s.ws(session.session_id)
    seen = await execute(ws, "x")
    assert [m.msg_type for m in seen] == ["status", "error", "execute_reply", "status"]
    assert seen[2].channel == "shell" and seen[2].content["ename"] == "quota_exceeded"
    assert session.journal.last_index == 0
    ws.close()


@served()
async def test_a_defect_costs_one_message(s: Served) -> None:
    session = await s.session()
    ws = await s.ws(session.session_id)
    await ws.write_message(request("boom"), binary=True)
    assert len(await execute(ws, "x")) == 4
    ws.close()


@served()
async def test_a_flood_waits_at_its_sender(s: Served) -> None:
    session = await s.session()
    session.full = asyncio.Event()
    ws = await s.ws(session.session_id)
    for _ in range(50):
        await ws.write_message(request("comm_msg", {"data": {}}), binary=True)
    await asyncio.sleep(0.1)
    assert len(session.calls) == 1
    session.full.set()
    await until(lambda: len(session.calls) == 50)
    ws.close()


@served()
async def test_an_expired_token_closes_the_socket_and_nothing_else(s: Served) -> None:
    session = await s.session()
    ws = await s.ws(session.session_id, query="token=alice@0.3&session_id=me")
    await until(lambda: len(session.attachments) == 1)
    assert await closed_with(ws) == 4401
    await until(lambda: len(session.attachments) == 0)
    assert not session.ended
    session.say("iopub", "stream", {}, {"name": "stdout", "text": "meanwhile"})
    fresh = await s.ws(session.session_id, query="token=alice&session_id=me")
    assert (await next_message(fresh)).content["text"] == "meanwhile"
    fresh.close()


@served()
async def test_what_comes_after_the_token_expired_is_not_taken(s: Served) -> None:
    session = await s.session()
    reader, writer = await s.connect()
    path = f"/api/kernels/{session.session_id}/channels?token=alice@0.2"
    head = (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    )
    writer.write(f"{head}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    closing = await reader.readexactly(4)
    assert closing[0] == 0x88 and int.from_bytes(closing[2:4], "big") == 4401  # and this client does not close in turn
    message = json.dumps(
        {"channel": "shell", "header": jupyter.make_header("execute_request", "c"), "content": {"code": "x"}}
    )
    writer.write(b"\x81\xfe" + len(message).to_bytes(2, "big") + b"\0\0\0\0" + message.encode())
    await writer.drain()
    await asyncio.sleep(0.2)
    assert session.calls == []


@served()
async def test_close_codes(s: Served) -> None:
    session = await s.session()
    for word, code in (("session_ended", 4404), ("shutdown", 1012), ("fault", 4500), ("unauthenticated", 4401)):
        ws = await s.ws(session.session_id)
        await until(lambda: len(session.attachments) == 1)
        session.attachments.close_all(word)
        assert await closed_with(ws) == code
    ws = await s.ws(session.session_id)
    await until(lambda: len(session.attachments) == 1)
    await s.call("DELETE", f"/api/kernels/{session.session_id}")
    assert await closed_with(ws) == 4404


@served(attachment_limit=2)
async def test_too_many_attachments(s: Served) -> None:
    session = await s.session()
    sockets = [await s.ws(session.session_id) for _ in range(2)]
    await until(lambda: len(session.attachments) == 2)
    assert await closed_with(await s.ws(session.session_id)) == 4429
    for ws in sockets:
        ws.close()


@served(ping_s=0.1, silence_s=0.5)
async def test_a_dead_client_is_dropped_a_quiet_one_is_not(s: Served) -> None:
    session = await s.session()
    alive = await s.ws(session.session_id, query="token=alice&session_id=alive")
    reader, writer = await s.connect()
    head = f"GET /api/kernels/{session.session_id}/channels?token=alice&session_id=dead HTTP/1.1\r\nHost: x\r\n"
    head += "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    writer.write(head.encode() + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 101")
    await until(lambda: "ws:dead" in session.attachments._readers)
    await until(lambda: "ws:dead" not in session.attachments._readers)
    await asyncio.sleep(1.0)
    assert list(session.attachments._readers) == ["ws:alive"]
    writer.close()
    alive.close()


@served(journal_bytes=300_000)
async def test_what_is_no_longer_kept_leaves_a_marker(s: Served) -> None:
    session = await s.session()
    query = "token=alice&session_id=me"
    ws = await s.ws(session.session_id, query=query)
    await until(lambda: len(session.attachments) == 1)
    ws.close()
    await until(lambda: len(session.attachments) == 0)
    for n in range(200):
        session.say("iopub", "stream", {}, {"name": "stdout", "text": f"{n} " + "x" * 10_000})
    for v1 in (True, False):
        again = await s.ws(session.session_id, query=query + ("" if v1 else "2"), v1=v1)
        if v1:
            first = await next_message(again)
            assert first.msg_type == "stream" and "no longer kept" in first.content["text"]
            assert (await next_message(again)).content["text"].split(" ")[0] != "0"
        again.close()


async def _bad_attempts(s: Served, count: int, at_once: int = 50) -> None:
    """Handshakes with ids that do not exist: one connection for all, and as many requests in a row as a client may send."""
    reader, writer = await s.connect()
    head = "HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    head += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    for start in range(0, count, at_once):
        ids = range(start, start + at_once)
        requests = (f"GET /api/kernels/none-{n}/channels?token=alice&session_id=c{n} {head}" for n in ids)
        writer.write("".join(requests).encode())
        for _ in ids:
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 404 "), answer
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            assert json.loads(await reader.readexactly(length))["code"] == "not_found"
    writer.close()
    await writer.wait_closed()


@pytest.mark.timeout(900)
@served(patience_s=850.0)
async def test_ten_thousand_bad_attempts_leave_nothing(s: Served) -> None:
    import gc
    from collections import Counter

    def census() -> Counter[str]:
        gc.collect()
        return Counter(type(o).__name__ for o in gc.get_objects())

    await _bad_attempts(s, 200)
    await asyncio.sleep(0.05)
    before = census()
    await asyncio.gather(*(_bad_attempts(s, 1000) for _ in range(10)))
    await asyncio.sleep(0.05)
    after = census()
    grown = {name: n - before[name] for name, n in after.items() if n - before[name] > 200}
    assert not grown, grown
    assert not s.gateway.held and len(s.deps.notebooks) == 0 and s.deps.converted.statistics()["entries"] == 0


@served()
async def test_only_messages_reach_jupyter_clients(s: Served) -> None:
    session: FakeSession = await s.session()
    ws = await s.ws(session.session_id)
    await until(lambda: len(session.attachments) == 1)
    session.publish(b'{"type":"session"}', EntryKind.STATE)
    session.publish(b'{"type":"notice"}', EntryKind.NOTICE)
    session.say("iopub", "stream", {}, {"text": "m"})
    assert (await next_message(ws)).content["text"] == "m"
    ws.close()
