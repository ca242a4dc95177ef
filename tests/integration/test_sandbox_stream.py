"""The stream's promises on a real engine: nothing lost over a re-attach, bounds, fairness, hostile messages."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from gateway.protocol import jupyter
from gateway.protocol.frames import Kind, Outbox, encode_json
from tests.integration.sandbox_client import Sandbox
from tests.integration.sandbox_fixtures import engine, new_sandbox, runtime, shared

__all__ = ["engine", "new_sandbox", "runtime", "shared"]

# user code that speaks on the kernel's own iopub socket, raw
RAW = """
from IPython import get_ipython
import json, uuid
_kernel = get_ipython().kernel
def raw(*frames): _kernel.iopub_thread.send_multipart([bytes(f) for f in frames])
_rest = {"session": "s", "username": "u", "date": "d", "version": "5.3"}
def header(msg_type): return json.dumps({"msg_id": uuid.uuid4().hex, "msg_type": msg_type} | _rest).encode()
def parent(): return json.dumps(_kernel.get_parent()["header"], default=str).encode()
def whole(msg_type, content, *buffers): raw(b"t", b"<IDS|MSG>", b"", header(msg_type), parent(), b"{}", content, *buffers)
"""


def drain(sandbox: Sandbox, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        sandbox.pump(left)


def test_a_gateway_killed_in_the_middle_of_a_printing_cell_loses_nothing(shared: Sandbox) -> None:
    sandbox = shared
    count = 3000
    execution = sandbox.execute_nowait(f"import time\nfor i in range({count}):\n  print(i, flush=True)\n  time.sleep(0.001)")
    for _ in range(5):
        have = len(execution.messages)
        sandbox.wait(lambda have=have: len(execution.messages) > have + 100 or execution.done, "some output")
        sandbox.detach()
        time.sleep(0.3)
        sandbox.reattach()
        assert sandbox.hello["epoch"] == sandbox.epoch
        if not execution.done:
            assert sandbox.hello["kernel"]["busy"] == [execution.msg_id]
    sandbox.wait(lambda: execution.done, "the end of the cell")
    assert execution.text == "".join(f"{i}\n" for i in range(count))
    for numbers in sandbox.numbers:
        assert numbers == list(range(1, len(numbers) + 1))
    assert not any(e["event"] in ("dropped", "truncated") for e in sandbox.events)


def test_what_was_not_acknowledged_comes_again_with_the_same_numbers(shared: Sandbox) -> None:
    sandbox = shared
    sandbox.acking = False
    before = list(sandbox.inbox.received)
    first = sandbox.execute("print('once')")
    bodies = [m.body for m in first.messages]
    sandbox.detach()
    first.messages.clear()
    sandbox.inbox.received[:] = before
    sandbox.sock = sandbox.engine.attach(sandbox.container)
    sandbox.attach()
    sandbox.wait(lambda: len(first.messages) >= len(bodies), "the same messages")
    assert [m.body for m in first.messages] == bodies
    for numbers in sandbox.numbers:
        numbers.clear()
    sandbox.acking = True
    sandbox.execute("1")


def test_an_older_epoch_is_ignored(shared: Sandbox) -> None:
    sandbox = shared
    stale = Outbox(sandbox.epoch)
    body = {"protocol": 1, "epoch": sandbox.epoch, "received": [0, 0, 0], "limits": {}}
    stale.put_unnumbered(Kind.ATTACH, encode_json(body))
    sandbox.sock.sendall(stale.next_frames())
    old = Outbox(sandbox.epoch - 1)
    old.put_unnumbered(Kind.PING, b"old")
    sandbox.sock.sendall(old.next_frames())
    pongs = sandbox.pongs
    sandbox.outbox.put_unnumbered(Kind.PING, b"new")
    sandbox.flush()
    sandbox.wait(lambda: sandbox.pongs > pongs, "the answer")
    drain(sandbox, 0.2)
    assert sandbox.pongs == pongs + 1
    assert sandbox.execute("1").result == "1"


def test_broken_frames_are_healed_by_the_marker(shared: Sandbox) -> None:
    sandbox = shared
    sandbox.sock.sendall(b"SG\x01\x04 this is no frame" * 100)
    drain(sandbox, 0.2)
    sandbox.detach()
    sandbox.reattach()
    assert sandbox.execute("2").result == "2"


def test_output_kept_while_nobody_listens_is_bounded_and_said(new_sandbox: Callable[..., Sandbox]) -> None:
    limits = {"retain_bytes": 4 * 1024**2, "output_bytes": 10**9, "output_messages": 10**9}
    sandbox = new_sandbox(relay_limits=limits).start()
    cells = [sandbox.execute_nowait("for i in range(20): print('x' * 1_000_000, flush=True)") for _ in range(3)]
    last = sandbox.execute_nowait("print('last')")
    sandbox.detach()
    time.sleep(6)
    sandbox.reattach()
    sandbox.wait(lambda: last.done, "the last cell's reply and idle")
    assert all(cell.done for cell in cells)
    sandbox.wait_event("dropped")
    stats = sandbox.call("stats")
    assert stats["relay_rss"] < 80 * 1024**2 and stats["kept_bytes"] < 1024**2
    assert sandbox.execute("print('again')").text == "again\n"


def test_a_gigabyte_with_a_reader_is_whole_and_leaves_the_relay_flat(new_sandbox: Callable[..., Sandbox]) -> None:
    limits = {"retain_bytes": 16 * 1024**2, "output_bytes": 10**12, "output_messages": 10**9}
    sandbox = new_sandbox(relay_limits=limits).start()
    sandbox.execute("x = 'x' * 1_000_000")
    execution = sandbox.execute_nowait("for i in range(1000): print(x)")
    got, most, began = 0, 0, time.monotonic()
    while not execution.done:
        assert time.monotonic() - began < 140
        sandbox.pump(1.0)
        got += sum(m.content_size for m in execution.messages if m.msg_type == "stream")
        if any(m.msg_type == "stream" for m in execution.messages):
            execution.messages.clear()
            sandbox.kernel.clear()
        if sandbox.numbers[1] and sandbox.numbers[1][-1] % 200 == 0:
            call = sandbox.call_nowait("stats")
            sandbox.wait(lambda call=call: call in sandbox.results, "stats")
            most = max(most, sandbox.results[call]["relay_rss"])
    got += sum(m.content_size for m in execution.messages if m.msg_type == "stream")
    assert not [e for e in sandbox.events if e["event"] in ("dropped", "truncated")]
    assert got > 1000 * 1_000_000
    most = max(most, sandbox.call("stats")["relay_rss"])
    resident = int(sandbox.execute("print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])").text)
    assert resident < 400 * 1024  # the kernel does not keep what it printed either
    assert most < 110 * 1024**2, most
    print(f"1 GB in {time.monotonic() - began:.1f} s, relay at most {most / 2**20:.0f} MiB")


def test_the_output_limit_cuts_with_an_event_and_the_cell_goes_on(new_sandbox: Callable[..., Sandbox]) -> None:
    limits = {"output_bytes": 1_000_000, "output_messages": 1000}
    sandbox = new_sandbox(relay_limits=limits).start()
    large = sandbox.execute("for i in range(100): print('y' * 100_000, flush=True)\nend = 1")
    assert len(large.text) <= 1_100_000 and "was cut here" in large.text
    assert large.reply is not None and large.reply["status"] == "ok"
    first, last = (e for e in sandbox.events if e["event"] == "truncated")
    assert first["parent"] == last["parent"] == large.msg_id and not first["final"] and last["final"]
    assert last["bytes"] > 8_900_000 and last["messages"] >= 90
    many = sandbox.execute("for i in range(5000): print(i, flush=True)")
    assert len(many.of_type("stream")) <= 1000
    assert sandbox.execute("print('fine')").text == "fine\n"


def test_a_large_print_comes_in_messages_of_a_bounded_size(shared: Sandbox) -> None:
    execution = shared.execute("print('z' * 20_000_000)\nfor i in range(10): print('y' * 700_000)", timeout=60)
    assert execution.text == "z" * 20_000_000 + "\n" + ("y" * 700_000 + "\n") * 10
    assert max(m.content_size for m in execution.of_type("stream")) < 2_500_000


def test_one_message_of_100_mb_is_cut_with_a_marker(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox(relay_limits={"output_bytes": 10**12, "message_bytes": 16 * 1024**2}).start()
    sandbox.execute(RAW)
    execution = sandbox.execute("whole('stream', b'{\"name\": \"stdout\", \"text\": \"' + b'z' * 99_999_700 + b'\"}')", timeout=120)
    assert execution.text.startswith("zzzz") and "[Sandglass: this output of 100.0 MB was cut here]" in execution.text
    assert 500_000 < len(execution.text) < 2_000_000
    picture = sandbox.execute("from IPython.display import publish_display_data as p\np({'text/html': 'q' * 50_000_000})", timeout=120)
    assert "display_data (text/html) of 50.0 MB was too large" in picture.errors
    reply = sandbox.execute("raise ValueError('v' * 30_000_000)", timeout=120)
    assert reply.reply is not None and reply.reply["status"] == "error" and reply.reply["ename"] == "SandglassTruncated"
    assert sandbox.execute("print('fine')").text == "fine\n"
    assert sandbox.call("stats")["relay_rss"] < 120 * 1024**2


def test_a_ping_and_an_interrupt_never_wait_behind_output(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox(relay_limits={"output_bytes": 10**12, "output_messages": 10**9}).start()
    execution = sandbox.execute_nowait("while True: print('x' * 500_000)")
    drain(sandbox, 2.0)
    times = []
    for _ in range(20):
        pongs, began = sandbox.pongs, time.monotonic()
        sandbox.outbox.put_unnumbered(Kind.PING, b"")
        sandbox.flush()
        sandbox.wait(lambda pongs=pongs: sandbox.pongs > pongs, "the answer")
        times.append(time.monotonic() - began)
    assert sorted(times)[10] < 0.5, times
    sandbox.call("interrupt", grace_ms=500)
    sandbox.wait(lambda: execution.done, "the interrupted cell", 30)


def test_an_attached_reader_that_does_not_read_holds_up_nobody(new_sandbox: Callable[..., Sandbox]) -> None:
    limits = {"retain_bytes": 2 * 1024**2, "output_bytes": 10**12, "output_messages": 10**9}
    sandbox = new_sandbox(relay_limits=limits).start()
    execution = sandbox.execute_nowait(
        "import time\nb = time.time()\nfor i in range(100): print('x' * 1_000_000, flush=True)\n"
        "open('/workspace/done', 'w').write(str(time.time() - b))"
    )
    time.sleep(15)  # attached, but nothing is read
    sandbox.wait(lambda: execution.done, "the cell")
    assert float(sandbox.get("done")[0]) < 14
    sandbox.wait_event("dropped")


@pytest.mark.parametrize(
    "code",
    [
        "raw(b'x')",
        "raw(b'<IDS|MSG>')",
        "raw(*[b'p'] * 20)",
        "raw(b't', b'<IDS|MSG>', b'', b'{}', b'{}', b'{}', b'{}')",
        "raw(b't', b'<IDS|MSG>', b'', b'\\xff\\xfe', b'{}', b'{}', b'{}')",
        "raw(b't', b'<IDS|MSG>', b'', b'[' * 10000, b'{}', b'{}', b'{}')",
        "raw(b't', b'<IDS|MSG>', b'', b'{\"a\":' * 60 + b'1' + b'}' * 60, b'{}', b'{}', b'{}')",
        "raw(b't', b'<IDS|MSG>', b'', header('stream'), b'[]', b'{}', b'{}')",
        "raw(b't', b'<IDS|MSG>', b'', header('stream'), b'{\"msg_id\": 3}', b'{}', b'{}')",
        "raw(b't', b'<IDS|MSG>', b'', header('x' * 100000), b'{}', b'{}', b'{}')",
        "raw(b't' * 10_000_000, b'<IDS|MSG>')",
        "raw(b't', b'<IDS|MSG>', b'', *[b''] * 3000)",
        "raw(*[b''] * 100_000)",
    ],
)
def test_malformed_messages_are_told_and_dropped(shared: Sandbox, code: str) -> None:
    shared.restart()
    shared.execute(RAW)
    shared.execute(code, timeout=30)
    event = shared.wait_event("relay_error")
    assert "message" in event["detail"]
    assert shared.execute("print('alive')").text == "alive\n"


def test_a_flood_of_forged_messages_stays_in_bounds(new_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = new_sandbox(relay_limits={"retain_bytes": 2 * 1024**2, "output_bytes": 10**12, "output_messages": 10**9}).start()
    sandbox.execute(RAW)
    flood = sandbox.execute_nowait(
        "for i in range(20_000):\n"
        "  whole('status', b'{\"execution_state\": \"idle\"}'); whole('execute_reply', b'{}'); raw(b'bad'); whole('comm_msg', b'{}' + b' ' * 1000)"
    )
    sandbox.detach()
    time.sleep(12)
    sandbox.reattach()
    assert sandbox.call("stats")["relay_rss"] < 60 * 1024**2
    sandbox.wait(lambda: flood.done, "the flood's end", 120)
    assert len([e for e in sandbox.events if e["event"] == "relay_error"]) <= 20
    dropped = sandbox.wait_event("dropped")
    assert dropped["comms"] > 0
    assert sandbox.execute("print('alive')").text == "alive\n"


def test_content_the_relay_does_not_read_is_carried_as_it_is(shared: Sandbox) -> None:
    shared.restart()
    shared.execute(RAW)
    execution = shared.execute("whole('display_data', b'\\xff not JSON')\nwhole('comm_msg', b'{}', b'one', b'', b'three' * 1000)")
    (broken,) = execution.of_type("display_data")
    with pytest.raises(jupyter.JupyterError):
        broken.content  # noqa: B018
    (comm,) = execution.of_type("comm_msg")
    assert [bytes(b) for b in comm.buffers] == [b"one", b"", b"three" * 1000]


def test_input_is_asked_and_answered(shared: Sandbox) -> None:
    shared.restart()
    execution = shared.execute_nowait("print('got', input('name? '))", allow_stdin=True)
    request = shared.wait(lambda: execution.of_type("input_request"), "the prompt")[0]
    assert request.channel == "stdin" and request.content["prompt"] == "name? "
    shared.send("stdin", "input_reply", {"value": "Ada", "status": "ok"}, request.header)
    shared.wait(lambda: execution.done, "the cell")
    assert execution.text == "got Ada\n"


def test_stdin_that_ends_ends_the_container(new_sandbox: Callable[..., Sandbox], engine: object) -> None:
    sandbox = new_sandbox().start()
    # only an engine that closes the container's input does this; a detached client does not
    sandbox.detach()
    time.sleep(1)
    assert sandbox.inspect()["State"]["Running"]
