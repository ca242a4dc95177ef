"""Jupyter websockets against real kernels: framings, attachments, restart, replay, floods, a slow client, dormancy."""

from __future__ import annotations

import threading
import time

import pytest
import websocket
from e2e_clients import Kernel, Message, text
from e2e_gateway import Gateway


def is_idle(m: Message) -> bool:
    return m.msg_type == "status" and m.content["execution_state"] == "idle"


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "default"])
def test_code_runs_in_either_framing(kernel: Kernel, v1: bool) -> None:
    s = kernel.connect("me", v1=v1)
    assert s.run("x = 6 * 7\nprint(x)") == "42\n"
    msg_id = s.execute("x + 1")
    seen = [m for m in s.finished(msg_id) if m.parent == msg_id]
    kinds = [m.msg_type for m in seen if m.channel == "iopub"]
    assert kinds == ["status", "execute_input", "execute_result", "status"], kinds
    (result,) = [m for m in seen if m.msg_type == "execute_result"]
    assert result.content["data"]["text/plain"] == "43"
    msg_id = s.execute("1/0")
    seen = [m for m in s.finished(msg_id) if m.parent == msg_id]
    assert [m.content["ename"] for m in seen if m.msg_type == "error"] == ["ZeroDivisionError"]


def test_the_first_cell_right_after_connecting_loses_nothing(gateway: Gateway, profile: str) -> None:
    """A cell is sent while the sandbox may still be starting."""
    kernel = Kernel.start(gateway, profile)
    try:
        s = kernel.connect("first")
        msg_id = s.execute("print('early'); 'result'")
        seen = [m for m in s.finished(msg_id) if m.parent == msg_id]
        assert text(seen) == "early\n"
        assert next(m.msg_type for m in seen if m.channel == "iopub") == "status"
        assert any(m.msg_type == "execute_result" for m in seen)
    finally:
        kernel.end()


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "default"])
def test_a_hundred_immediate_executes_keep_all_their_output(gateway: Gateway, profile: str, v1: bool) -> None:
    kernel = Kernel.start(gateway, profile)
    try:
        s = kernel.connect("burst", v1=v1)
        ids = [s.execute(f"print('line {n}')") for n in range(100)]
        printed: dict[str, str] = {}
        replies: list[str] = []
        idles: list[str] = []
        while len(idles) < 100 or len(replies) < 100:
            m = s.next()
            if m.msg_type == "stream":
                printed[m.parent] = printed.get(m.parent, "") + m.content["text"]
            elif m.msg_type == "execute_reply":
                replies.append(m.parent)
            elif is_idle(m) and m.parent in ids:
                idles.append(m.parent)
        assert replies == ids and idles == ids
        assert [printed.get(i) for i in ids] == [f"line {n}\n" for n in range(100)]
    finally:
        kernel.end()


def test_several_attachments(kernel: Kernel) -> None:
    one, two, three = kernel.connect("one"), kernel.connect("two", v1=False), kernel.connect()
    assert one.run("print('warm')") == "warm\n"
    two.until(is_idle)
    three.until(is_idle)
    msg_id = one.execute("print('hello')")
    mine = one.finished(msg_id)
    assert sum(m.msg_type == "execute_reply" for m in mine) == 1
    for other in (two, three):
        seen = other.until(lambda m: is_idle(m) and m.parent == msg_id)
        assert text([m for m in seen if m.parent == msg_id]) == "hello\n"
        assert not [m for m in seen if m.msg_type == "execute_reply"]
    # each gets the replies to its own requests and to no other's
    first, second = one.send("kernel_info_request", {}), two.send("kernel_info_request", {})
    assert [m.parent for m in one.until(lambda m: m.msg_type == "kernel_info_reply") if m.channel == "shell"] == [first]
    assert [m.parent for m in two.until(lambda m: m.msg_type == "kernel_info_reply") if m.channel == "shell"] == [
        second
    ]
    assert kernel.model()["connections"] == 3


def test_completion_and_control(kernel: Kernel) -> None:
    s = kernel.connect("me")
    s.run("import math")
    s.send("complete_request", {"code": "math.fact", "cursor_pos": 9})
    reply = s.until(lambda m: m.msg_type == "complete_reply")[-1]
    assert "math.factorial" in reply.content["matches"] or "factorial" in str(reply.content["matches"])
    busy = s.execute("import time; time.sleep(3)")
    s.send("debug_request", {"type": "request", "command": "debugInfo", "seq": 1, "arguments": {}}, channel="control")
    begun = time.monotonic()
    s.until(lambda m: m.channel == "control" and m.msg_type == "debug_reply", 2.5)
    assert time.monotonic() - begun < 2.5  # control never waits behind the cell
    s.finished(busy)


def test_input_is_asked_of_the_one_who_runs(kernel: Kernel) -> None:
    s, other = kernel.connect("me"), kernel.connect("other")
    msg_id = s.execute("print('got', input('name? '))", allow_stdin=True)
    asked = s.until(lambda m: m.msg_type == "input_request")[-1]
    assert asked.channel == "stdin" and asked.content["prompt"] == "name? " and asked.parent == msg_id
    s.send("input_reply", {"value": "Ada", "status": "ok"}, channel="stdin", parent=asked.header)
    assert "got Ada" in text(s.finished(msg_id))
    assert not [m for m in other.until(lambda m: is_idle(m) and m.parent == msg_id) if m.msg_type == "input_request"]


def test_interrupt(kernel: Kernel) -> None:
    s = kernel.connect("me")
    s.run("pass")
    msg_id = s.execute("while True: pass")
    s.until(lambda m: m.msg_type == "execute_input")
    time.sleep(0.3)
    begun = time.monotonic()
    assert kernel.call("POST", "/interrupt", {}).status_code == 204
    reply = next(m for m in s.finished(msg_id) if m.msg_type == "execute_reply")
    assert reply.content["status"] == "error" and reply.content["ename"] == "KeyboardInterrupt"
    assert time.monotonic() - begun < 5
    assert s.run("print('alive')") == "alive\n"


def test_restart_keeps_sockets_and_id_and_loses_variables(kernel: Kernel) -> None:
    one, two = kernel.connect("one"), kernel.connect("two", v1=False)
    one.run("x = 1")
    before = kernel.gateway.call("GET", f"/api/v1/sessions/{kernel.kernel_id}").json()["generation"]
    for _ in range(3):
        response = kernel.call("POST", "/restart", {})
        assert response.status_code == 200 and response.json()["id"] == kernel.kernel_id
        assert one.run("print('x' in dir())").endswith("False\n")
    assert two.run("print(1)").endswith("1\n")
    after = kernel.gateway.call("GET", f"/api/v1/sessions/{kernel.kernel_id}").json()
    assert after["generation"] == before + 3


def test_restart_while_busy(kernel: Kernel) -> None:
    s = kernel.connect("me")
    s.run("pass")
    msg_id = s.execute("import time; time.sleep(600)")
    s.until(lambda m: m.msg_type == "execute_input")
    assert kernel.call("POST", "/restart").status_code == 200
    reply = next(m for m in s.finished(msg_id) if m.msg_type == "execute_reply")
    assert reply.content["status"] == "error"
    assert s.run("print('fresh')").endswith("fresh\n")


def test_reconnecting_replays_once_in_order_and_only_to_the_same_client(kernel: Kernel) -> None:
    s = kernel.connect("me")
    s.run("import time")
    msg_id = s.execute("for n in range(40):\n    print(n, flush=True)\n    time.sleep(0.05)")
    seen = s.until(lambda m: m.msg_type == "stream")
    s.drop()
    time.sleep(3.0)
    stranger = kernel.connect("stranger")
    with pytest.raises(websocket.WebSocketTimeoutException):
        stranger.next(0.5)
    again = kernel.connect("me")
    seen += again.finished(msg_id)
    ids = [m.header["msg_id"] for m in seen]
    # Only what was in flight when the connection was cut may come twice, and then with its own msg_id.
    unique = list(dict.fromkeys(ids))
    assert len(ids) - len(unique) <= 5
    once = [next(m for m in seen if m.header["msg_id"] == i) for i in unique]
    assert text([m for m in once if m.parent == msg_id]).split() == [str(n) for n in range(40)]
    assert sum(m.msg_type == "execute_reply" for m in once if m.parent == msg_id) == 1
    with pytest.raises(websocket.WebSocketTimeoutException):
        again.next(1.0)  # this client answers pings while it reads; without that nothing counts as delivered
    quiet = kernel.connect("me")
    with pytest.raises(websocket.WebSocketTimeoutException):
        quiet.next(0.5)


def test_two_sockets_with_one_session_id(kernel: Kernel) -> None:
    old = kernel.connect("me")
    old.run("pass")
    new = kernel.connect("me")
    assert old.close_code() == 1000
    assert new.run("print('here')") == "here\n"


def test_a_slow_client_holds_back_nobody(kernel: Kernel) -> None:
    slow, quick = kernel.connect("slow"), kernel.connect("quick", v1=False)
    quick.run("pass")
    total = 24 * 1024**2
    msg_id = quick.execute(f"for _ in range({total // 65536}): print('x' * 65535, flush=True)")
    seen = quick.finished(msg_id)  # and the slow one has not read a byte
    assert len(text(seen)) == total
    assert quick.run("print('still quick')") == "still quick\n"
    late = slow.until(lambda m: is_idle(m) and m.parent == msg_id)
    assert len(text([m for m in late if m.parent == msg_id])) == total
    assert [m.header["msg_id"] for m in late if m.msg_type == "stream"] == [
        m.header["msg_id"] for m in seen if m.msg_type == "stream"
    ]


def test_large_messages_pass_whole(kernel: Kernel) -> None:
    for v1 in (True, False):
        s = kernel.connect(f"large{v1}", v1=v1)
        size = 12 * 1024**2
        assert len(s.run(f"print('y' * {size})")) == size + 1
        s.close()


def test_widget_buffers_pass_both_ways(kernel: Kernel) -> None:
    code = """
from comm import create_comm
c = create_comm(target_name='t', data={'a': 1}, buffers=[b'\\x00\\x01\\xff'])
"""
    for v1 in (True, False):
        s = kernel.connect(f"w{v1}", v1=v1)
        msg_id = s.execute(code)
        opened = [m for m in s.finished(msg_id) if m.msg_type == "comm_open"]
        assert [m.buffers for m in opened] == [[b"\x00\x01\xff"]]
        s.close()


def test_kernel_info_while_dormant_wakes_nothing(kernel: Kernel) -> None:
    s = kernel.connect("me")
    s.run("x = 1")
    kernel.gateway.call("POST", f"/api/v1/sessions/{kernel.kernel_id}/recycle", expect=202)
    kernel.gateway.wait_state(kernel.kernel_id, "dormant")
    model = kernel.model()
    assert model["execution_state"] == "idle" and model["id"] == kernel.kernel_id
    begun = time.monotonic()
    s.send("kernel_info_request", {})
    reply = s.until(lambda m: m.msg_type == "kernel_info_reply", 5)[-1]
    assert reply.content["language_info"]["name"] == "python" and time.monotonic() - begun < 2
    fresh = kernel.connect("fresh", v1=False)
    fresh.send("kernel_info_request", {})
    fresh.until(lambda m: m.msg_type == "kernel_info_reply", 5)
    assert kernel.gateway.call("GET", f"/api/v1/sessions/{kernel.kernel_id}").json()["state"] == "dormant"
    # the next cell opens a new sandbox and says what was lost
    msg_id = s.execute("print('x' in dir())")
    seen = [m for m in s.finished(msg_id) if m.parent == msg_id]
    assert text(seen) == "False\n" and "x" in text(seen, "stderr")


def test_restart_of_a_dormant_kernel_opens_a_sandbox(kernel: Kernel) -> None:
    s = kernel.connect("me")
    s.run("pass")
    kernel.gateway.call("POST", f"/api/v1/sessions/{kernel.kernel_id}/recycle", expect=202)
    kernel.gateway.wait_state(kernel.kernel_id, "dormant")
    assert kernel.call("POST", "/restart").status_code == 200
    assert s.run("print(1)").endswith("1\n")


def test_deleting_closes_with_a_code_of_its_own(gateway: Gateway, profile: str) -> None:
    kernel = Kernel.start(gateway, profile)
    s = kernel.connect("me")
    s.run("pass")
    s.execute("import time; time.sleep(600)")
    assert kernel.call("DELETE", "").status_code == 204
    assert kernel.call("GET", "").status_code == 404
    assert kernel.kernel_id not in [m["id"] for m in gateway.call("GET", "/api/kernels").json()]
    assert s.close_code() == 4404


def test_output_with_nobody_connected_is_kept_for_the_one_who_left(kernel: Kernel) -> None:
    s = kernel.connect("me")
    s.run("import time")
    time.sleep(0.2)
    msg_id = s.execute("time.sleep(0.5)\nfor n in range(100): print(n)")
    s.until(lambda m: m.msg_type == "execute_input")
    s.drop()
    time.sleep(2)
    seen = kernel.connect("me").finished(msg_id)
    assert text([m for m in seen if m.parent == msg_id]).split() == [str(n) for n in range(100)]


def test_parallel_starts_do_not_collide(gateway: Gateway, profile: str) -> None:
    made: list[Kernel] = []
    failed: list[Exception] = []

    def start() -> None:
        try:
            made.append(Kernel.start(gateway, profile))
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert not failed and len({k.kernel_id for k in made}) == 4
        for number, kernel in enumerate(made):
            assert kernel.connect("me").run(f"print({number})") == f"{number}\n"
    finally:
        for kernel in made:
            kernel.end()
