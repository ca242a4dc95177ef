"""A kernel's life as a script of events: no socket, no process, no clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from relay.incoming import DELIMITER, Incoming, Malformed, parse, signed
from relay.life import KILL_S, MAX_ERRORS, MAX_HELD, SETTLE_S, START_S, WARM_S, Life
from relay.outputs import Outputs
from relay.zmtp import Raw

from gateway.protocol.frames import Lane


class FakePorts:
    """Writes down what is asked. ``full``: the directory cannot be made; ``deaf``: the kernel does not read."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.full = self.deaf = False

    def make(self, life: int) -> bytes:
        if self.full:
            raise OSError(28, "No space left on device")
        self.did.append(f"make {life}")
        return b"key"

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.did.append(" ".join([name, *map(str, args)]))

    def send(self, channel: str, frames: list[bytes]) -> bool:
        assert frames[0] == DELIMITER and len(frames[1]) == 64
        if self.deaf:
            return False
        self.sent.append((channel, json.loads(frames[2])))
        return True

    def last_words(self, life: int) -> str:
        return "Traceback"


class Script:
    def __init__(self) -> None:
        self.ports = FakePorts()
        self.out: list[Any] = []
        self.kept = 0
        self.life = Life(self.ports, Outputs(), self.out.append, lambda: self.kept)
        self.now = 1000.0
        self.results: list[dict[str, Any]] = []
        self.number = 0

    def take(self) -> list[Any]:
        """What was done, sent and emitted since the last look, as short words."""
        words = [*self.ports.did, *(f"send {c} {h['msg_type']}" for c, h in self.ports.sent)]
        words += [f"{i.msg_type}<{i.parent_id}" if isinstance(i, Incoming) else f"event {i['event']}" for i in self.out]
        self.last_sent, self.last_out = list(self.ports.sent), list(self.out)
        self.ports.did.clear()
        self.ports.sent.clear()
        self.out.clear()
        return words

    def start(self, **arguments: Any) -> None:
        self.life.start(self.now, self.results.append, **arguments)

    def restart(self, **arguments: Any) -> None:
        self.life.restart(self.now, self.results.append, **arguments)

    def kernel(self, channel: str, msg_type: str, parent: str = "", content: Any = None) -> None:
        header = json.dumps({"msg_id": "k", "msg_type": msg_type}).encode()
        frames: list[bytes | bytearray] = [b"id", DELIMITER, b"", header, json.dumps({"msg_id": parent} if parent else {}).encode(), b"{}"]
        frames.append(json.dumps(content or {}).encode())
        self.life.message(self.now, channel, Raw(frames, sum(map(len, frames))))

    def own(self, msg_type: str) -> str:
        """The id of the relay's own request that was sent last."""
        return next(h["msg_id"] for c, h in reversed(self.ports.sent or self.last_sent) if h["msg_type"] == msg_type)

    def ready(self) -> None:
        if self.life.state != "starting":
            self.start()
        self.life.started(self.life.number)
        self.life.connected(self.now)
        self.kernel("iopub", "iopub_welcome")
        self.kernel("shell", "kernel_info_reply", self.own("kernel_info_request"), {"banner": "b"})
        assert self.life.state == "ready"
        self.take()

    def request(self, msg_id: str, msg_type: str = "execute_request", channel: str = "shell", lane: int = Lane.KERNEL) -> None:
        self.number += 1
        parts = [json.dumps({"msg_id": msg_id, "msg_type": msg_type}).encode(), b"{}", b"{}", b"{}"]
        self.life.request(self.now, lane, self.number, channel, parts, msg_id, msg_type)

    def finish(self, msg_id: str) -> None:
        self.kernel("shell", "execute_reply", msg_id, {"status": "ok"})
        self.kernel("iopub", "status", msg_id, {"execution_state": "idle"})

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.life.tick(self.now)


@pytest.fixture
def script() -> Script:
    return Script()


def test_ready_needs_a_reply_and_an_iopub_message(script: Script) -> None:
    script.start()
    assert script.results == [{"ok": True, "life": 1}]
    assert script.take() == ["make 1", "fork", "connect 1"]
    script.request("early")
    script.life.started(1)
    script.life.connected(script.now)
    script.kernel("shell", "kernel_info_reply", script.own("kernel_info_request"), {"banner": "b"})
    script.kernel("shell", "kernel_info_reply", "somebody else's")
    assert script.life.state == "starting"
    script.later(0.5)
    script.kernel("iopub", "status", "", {"execution_state": "starting"})
    assert script.life.state == "ready"
    words = script.take()
    assert words == ["send shell kernel_info_request", "send shell kernel_info_request", "send shell execute_request", "event ready"]
    ready = script.last_out[0]
    assert ready["life"] == 1 and ready["kernel_info"] == {"banner": "b"} and ready["ms"] == 500


def test_own_requests_are_swallowed_with_all_that_belongs_to_them(script: Script) -> None:
    script.ready()
    script.life.interrupt(script.now, script.results.append, 0.5)
    own = script.own("interrupt_request")
    script.kernel("iopub", "status", own, {"execution_state": "busy"})
    script.kernel("control", "interrupt_reply", own)
    script.kernel("iopub", "status", own, {"execution_state": "idle"})
    assert script.take() == ["send control interrupt_request"]


def test_busy_ends_with_both_reply_and_idle(script: Script) -> None:
    script.ready()
    for i in ("a", "b"):
        script.request(i)
    assert script.life.facts()["busy"] == ["a", "b"]
    script.kernel("iopub", "status", "a", {"execution_state": "idle"})
    assert script.life.facts()["busy"] == ["a", "b"]
    script.kernel("shell", "execute_reply", "a")
    script.kernel("shell", "execute_reply", "b")
    script.kernel("iopub", "status", "b", {"execution_state": "busy"})
    assert script.life.facts()["busy"] == ["b"]
    script.kernel("iopub", "status", "b", {"execution_state": "idle"})
    assert script.life.facts()["busy"] == []
    script.request("c", "complete_request")
    assert script.life.facts()["busy"] == []


def test_restart_kills_first_and_holds_what_comes_meanwhile(script: Script) -> None:
    script.ready()
    script.request("running")
    script.take()
    script.restart(after=script.number + 1)
    assert script.take() == ["kill_user", "prepare"]
    script.request("for the old one")
    script.request("for the new one")
    script.life.killed(script.now, 0)
    assert script.take() == []  # the zygote has not told the end yet
    script.kernel("iopub", "stream", "running", {"name": "stdout", "text": "last words"})
    script.life.exited(script.now, 1, 9)
    script.life.closed(script.now)
    assert script.take() == ["disconnect 1", "make 2", "fork", "connect 2", "stream<running", "event exited"]
    assert script.last_out[1] == {"event": "exited", "life": 1, "signal": 9, "expected": True, "taken": 1}
    assert script.results[-1] == {"ok": True, "life": 2}
    assert script.life.facts()["busy"] == ["for the new one"]
    script.ready()
    assert [h["msg_id"] for _, h in script.last_sent if h["msg_type"] == "execute_request"] == ["for the new one"]


def test_a_fork_that_is_not_the_user_yet_is_killed_only_after_it_is(script: Script) -> None:
    script.start()
    script.take()
    script.restart()
    assert script.take() == ["prepare"]
    script.life.started(1)
    assert script.take() == ["kill_user"]
    script.life.exited(script.now, 1, 9)
    script.life.killed(script.now, 0)
    script.life.closed(script.now)
    assert "fork" in script.take() and script.life.number == 2


def test_a_fork_that_dies_before_it_is_the_user_does_not_stop_the_kill(script: Script) -> None:
    script.start()
    script.take()
    script.life.kill(script.now, script.results.append)
    script.life.exited(script.now, 1, 256)
    script.life.closed(script.now)
    assert script.take() == ["kill_user", "disconnect 1", "event exited"]
    script.life.killed(script.now, 0)
    assert script.results[-1] == {"ok": True, "remaining": 0} and script.life.state == "dead"


def test_death_is_told_after_the_last_output_and_nothing_restarts(script: Script) -> None:
    script.ready()
    script.request("a")
    script.take()
    script.life.exited(script.now, 1, 3 << 8)
    script.kernel("iopub", "stream", "a")
    assert script.take() == ["stream<a"]
    script.later(0.25)  # another process holds the sockets open
    assert script.take() == ["disconnect 1", "event exited"]
    assert script.last_out[0] == {"event": "exited", "life": 1, "code": 3, "expected": False, "taken": 1}
    assert script.life.facts() == {"state": "dead", "life": 1, "busy": []}
    script.request("b")
    assert script.take() == [] and script.life.facts()["busy"] == ["b"]
    script.restart(after=script.number)
    script.life.killed(script.now, 0)
    assert "fork" in script.take() and script.life.facts()["busy"] == []


def test_a_kernel_that_ends_while_it_starts_has_its_reason_told(script: Script) -> None:
    script.start()
    script.life.started(1)
    script.take()
    script.life.exited(script.now, 1, 6)
    script.life.closed(script.now)
    assert script.take() == ["disconnect 1", "event start_failed"]
    assert script.last_out[0]["detail"] == "the kernel ended while it started (signal SIGABRT)\nTraceback"
    script.start()
    assert script.results[-1] == {"ok": True, "life": 2}


def test_no_kernel_in_time_is_told_and_killed(script: Script) -> None:
    script.start()
    script.life.started(1)
    script.take()
    script.later(START_S)
    assert script.take() == ["kill_user", "event start_failed"]
    script.life.killed(script.now, 0)
    script.life.exited(script.now, 1, 9)
    script.life.closed(script.now)
    assert script.take() == ["disconnect 1"]  # its end is no news
    script.start()
    assert script.life.number == 2


def test_a_full_disk_fails_the_start(script: Script) -> None:
    script.ports.full = True
    script.start()
    assert script.take() == ["event start_failed"] and "No space" in script.last_out[0]["detail"]
    assert script.life.state == "dead"


def test_what_cannot_be_killed_is_told(script: Script) -> None:
    script.ready()
    script.life.kill(script.now, script.results.append)
    script.life.exited(script.now, 1, 9)
    script.life.closed(script.now)
    script.life.killed(script.now, 3)
    assert script.results[-1] == {"ok": False, "error": "not_killed", "remaining": 3}
    script.life.kill(script.now, script.results.append)
    script.later(KILL_S)
    assert script.results[-1]["error"] == "not_killed"
    script.restart()
    script.life.killed(script.now, 0)
    assert script.results[-1] == {"ok": True, "life": 2}


def test_calls_that_do_not_fit_are_refused(script: Script) -> None:
    script.ready()
    script.start()
    assert script.results[-1] == {"ok": False, "error": "running"}
    script.restart()
    script.restart()
    script.life.kill(script.now, script.results.append)
    assert script.results[-2:] == [{"ok": False, "error": "ending"}] * 2


def test_interrupt_escalates_only_while_what_it_meant_runs(script: Script) -> None:
    script.ready()
    script.request("a")
    script.request("b")
    script.take()
    script.life.interrupt(script.now, script.results.append, 0.5)
    assert script.results[-1] == {"ok": True, "busy": True}
    assert script.take() == ["send control interrupt_request"]
    script.kernel("control", "interrupt_reply", script.own("interrupt_request"))
    assert script.take() == ["send shell kernel_info_request"]
    script.later(0.1)
    assert script.take() == ["send shell kernel_info_request"]
    script.finish("a")
    script.finish("b")
    script.request("c")
    script.take()
    script.later(1.0)
    assert script.take() == []  # c was not meant


def test_interrupt_ends_in_a_signal_and_a_poke(script: Script) -> None:
    script.ready()
    script.request("a")
    script.take()
    script.life.interrupt(script.now, script.results.append, 0.5)
    script.later(0.6)
    assert script.take() == ["sigint", *["send control interrupt_request"], *["send shell kernel_info_request"] * 3]
    script.later(0.1)
    assert script.take() == ["send shell kernel_info_request"]
    assert script.life.next_deadline() is None


def test_an_interrupt_of_nothing_signals_nothing(script: Script) -> None:
    script.life.interrupt(script.now, script.results.append, 0.0)
    assert script.take() == []
    script.ready()
    script.life.interrupt(script.now, script.results.append, 0.0)
    script.later(1)
    assert "sigint" not in script.take()


def test_imports_wait_for_a_quiet_kernel(script: Script) -> None:
    script.ready()
    script.later(SETTLE_S)
    assert script.take() == ["load"]
    script.request("a")
    script.life.loaded(script.now, last=False)
    script.later(1)
    assert "load" not in script.take()
    script.finish("a")
    script.take()
    script.later(SETTLE_S)
    assert script.take() == ["load"]
    script.life.loaded(script.now, last=True)
    script.later(10)
    assert script.take() == []


def test_a_warm_start_forks_when_everything_is_imported(script: Script) -> None:
    script.start(warm=True)
    assert script.take() == ["load"] and script.life.state == "starting" and not script.results
    script.life.loaded(script.now, last=False)
    assert script.take() == ["load"]
    script.life.loaded(script.now, last=True)
    assert script.take() == ["make 1", "fork", "connect 1"] and script.results == [{"ok": True, "life": 1}]


def test_a_warm_start_has_an_end(script: Script) -> None:
    script.start(warm=True)
    script.later(WARM_S)
    assert script.results == [{"ok": False, "error": "the imports take too long"}] and script.life.state == "none"
    script.start(warm=True)
    script.life.kill(script.now, script.results.append)
    assert script.results[1] == {"ok": False, "error": "ended"}
    script.life.killed(script.now, 0)
    assert script.results[2] == {"ok": True, "remaining": 0}


def test_what_waits_is_bounded_and_refusals_are_told(script: Script) -> None:
    for i in range(MAX_HELD + 2):
        script.request(f"r{i}")
    assert script.take() == ["event relay_error"] * 2 and script.last_out[0]["parent"] == f"r{MAX_HELD}"
    script.ready()
    script.ports.deaf = True
    script.request("x")
    assert script.take() == ["event relay_error"] and script.last_out[0]["parent"] == "x" and script.life.facts()["busy"][-1] != "x"


def test_control_messages_of_before_a_restart_are_discarded(script: Script) -> None:
    script.request("old", "debug_request", "control", Lane.CONTROL)
    script.restart()
    script.request("new", "debug_request", "control", Lane.CONTROL)
    script.life.killed(script.now, 0)
    script.life.started(1)
    script.ready()
    assert [h["msg_id"] for _, h in script.last_sent if h["msg_type"] == "debug_request"] == ["new"]


def test_malformed_messages_are_told_a_few_times(script: Script) -> None:
    script.ready()
    for _ in range(MAX_ERRORS * 3):
        script.life.message(script.now, "iopub", Raw([b"x"], 1))
    assert script.take() == ["event relay_error"] * MAX_ERRORS
    assert "not told" in script.last_out[-1]["detail"]


def test_sockets_that_close_under_a_living_kernel_are_told(script: Script) -> None:
    script.ready()
    script.life.closed(script.now)
    assert script.take() == ["event relay_error"]


def test_reports_of_another_life_are_ignored(script: Script) -> None:
    script.ready()
    script.life.exited(script.now, 7, 0)
    script.life.started(7)
    assert not script.life.draining and script.life.state == "ready"


@pytest.mark.parametrize(
    "frames",
    [[], [b"x"] * 20, [DELIMITER], [DELIMITER, b"", b"{}", b"{}", b"{}"], [DELIMITER, b"", b"{}", b"{}", b"{}", b"{}"],
     [b"x"] * 9 + [DELIMITER, *[b"{}"] * 5],
     [DELIMITER, b"", b"\xff", b"{}", b"{}", b"{}"], [DELIMITER, b"", b'{"msg_type": 5}', b"{}", b"{}", b"{}"]],
)  # fmt: skip
def test_what_is_no_message_is_malformed(frames: list[bytes]) -> None:
    with pytest.raises(Malformed):
        parse("iopub", Raw(list(frames), sum(map(len, frames))))


def test_messages_are_signed_as_jupyter_does() -> None:
    session = pytest.importorskip("jupyter_client.session").Session(key=b"secret", signature_scheme="hmac-sha256")
    parts = [b'{"msg_id": "a", "msg_type": "x", "date": "2026-01-01T00:00:00Z"}', b"{}", b"{}", b'{"a": 1}', b"buffer"]
    _, frames = session.feed_identities(signed(b"secret", list(parts)))
    message = session.deserialize(frames)
    assert message["content"] == {"a": 1} and [bytes(b) for b in message["buffers"]] == [b"buffer"]
