"""What is carried of a kernel's messages: limits, retention, and that nobody is left waiting."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relay.incoming import Incoming
from relay.outputs import HEAD, MAX_PROMPTS, MAX_REQUESTS, Limits, Outputs, limits_from


def message(msg_type: str, parent: str = "p", *, channel: str = "iopub", size: int = 100, content: Any = None) -> Incoming:
    if content is None:
        content = {"name": "stdout", "text": "x" * max(0, size - 60)} if msg_type == "stream" else {}
    parts: list[bytes | bytearray] = [b"{}", json.dumps({"msg_id": parent}).encode(), b"{}", json.dumps(content).encode()]
    return Incoming(channel, parts, msg_type, parent, size)


def status(state: str, parent: str = "p") -> Incoming:
    return message("status", parent, content={"execution_state": state})


def reply(parent: str = "p", size: int = 100) -> Incoming:
    return message("execute_reply", parent, channel="shell", size=size, content={"status": "ok"})


def names(items: list[Any]) -> list[str]:
    return [i.msg_type if isinstance(i, Incoming) else f"event:{i['event']}" for i in items]


def test_everything_is_carried_while_there_is_room() -> None:
    outputs = Outputs()
    outputs.issued("p")
    for m in (status("busy"), message("stream"), message("comm_msg"), message("display_data"), reply(), status("idle"), message("stream", "unknown")):
        assert outputs.admit(m, 0) == [m]


def test_the_output_limit_speaks_at_once_and_before_idle() -> None:
    outputs = Outputs(Limits(output_bytes=1000, output_messages=100))
    outputs.issued("p")
    assert names(outputs.admit(message("stream", size=900), 0)) == ["stream"]
    crossing = outputs.admit(message("stream", size=900), 0)
    assert names(crossing) == ["stream", "event:truncated"] and "cut here" in json.loads(crossing[0].parts[3])["text"]
    assert crossing[1] == {"event": "truncated", "parent": "p", "bytes": 900, "messages": 1, "final": False}
    for _ in range(50):
        assert outputs.admit(message("display_data", size=900), 0) == []
    # what is no output goes on
    for m in (message("comm_msg"), message("error"), message("sandglass_variables"), message("clear_output"), reply()):
        assert outputs.admit(m, 0) == [m]
    idle = outputs.admit(status("idle"), 0)
    assert names(idle) == ["event:truncated", "status"] and idle[0]["final"] and idle[0]["messages"] == 51 and idle[0]["bytes"] == 900 * 51
    # another cell has a limit of its own
    outputs.issued("q")
    assert names(outputs.admit(message("stream", "q", size=900), 0)) == ["stream"]


def test_the_number_of_messages_is_a_limit_too() -> None:
    outputs = Outputs(Limits(output_messages=3))
    outputs.issued("p")
    found = [names(outputs.admit(message("stream"), 0)) for _ in range(5)]
    assert found == [["stream"]] * 3 + [["event:truncated"], []]


def test_made_up_parents_share_one_allowance() -> None:
    outputs = Outputs(Limits(output_messages=10))
    carried = sum(len([i for i in outputs.admit(message("stream", f"fake{i}"), 0) if isinstance(i, Incoming)]) for i in range(1000))
    assert carried == 10


def test_past_the_retention_bound_what_ends_a_request_is_kept_and_nothing_else() -> None:
    outputs = Outputs(Limits(retain_bytes=1000))
    outputs.issued("p")
    full = 1000
    assert outputs.admit(message("stream"), full) == []
    assert outputs.dropping
    assert names(outputs.admit(status("busy"), full)) == ["status"]
    assert names(outputs.admit(reply(), full)) == ["execute_reply"]
    assert names(outputs.admit(status("idle"), full)) == ["status"]
    assert names(outputs.admit(message("input_request", channel="stdin"), full)) == ["input_request"]
    # once each: a flood of the same is output like any other
    for m in (status("busy"), reply(), status("idle"), status("idle", "unknown"), reply("unknown"), status("starting")):
        assert outputs.admit(m, full) == []
    for _ in range(MAX_PROMPTS - 1):
        assert len(outputs.admit(message("input_request", channel="stdin"), full)) == 1
    assert outputs.admit(message("input_request", channel="stdin"), full) == []
    assert outputs.admit(message("comm_msg"), full) == []
    # still dropping while there is a little room, so that the gap is one
    assert outputs.admit(message("stream"), 900) == []
    assert outputs.room(900) is None
    event = outputs.room(400)
    assert event is not None and event["event"] == "dropped" and event["comms"] == 1 and event["messages"] == 10
    assert outputs.room(0) is None and not outputs.dropping
    assert names(outputs.admit(message("stream"), 0)) == ["stream"]


def test_a_large_reply_is_shortened_only_when_it_must_be_kept() -> None:
    outputs = Outputs(Limits(retain_bytes=1000))
    outputs.issued("p")
    outputs.issued("q")
    large = reply("p", size=2 * 1024 * 1024)
    assert outputs.admit(large, 0) == [large]
    (kept,) = outputs.admit(reply("q", size=2 * 1024 * 1024), 5000)
    assert isinstance(kept, Incoming) and kept.size < 2000 and json.loads(kept.parts[3])["status"] == "ok"


def test_a_message_past_its_limit_is_replaced() -> None:
    outputs = Outputs(Limits(message_bytes=100_000))
    (m,) = outputs.admit(message("stream", size=200_000), 0)
    assert isinstance(m, Incoming) and "cut here" in json.loads(m.parts[3])["text"] and len(m.parts[3]) < 60_000
    cut = message("update_display_data", size=50)
    cut.cut = True
    assert names(outputs.admit(cut, 0)) == ["stream"]


def test_requests_are_remembered_within_bounds() -> None:
    outputs = Outputs(Limits(retain_bytes=1))
    for i in range(MAX_REQUESTS * 2):
        outputs.issued(f"r{i}")
    assert outputs.admit(reply("r0"), 10) == []
    assert len(outputs.admit(reply(f"r{MAX_REQUESTS * 2 - 1}"), 10)) == 1
    outputs.forget()
    assert outputs.admit(status("idle", f"r{MAX_REQUESTS * 2 - 1}"), 10) == []


@settings(max_examples=80)
@given(st.integers(0, 30), st.integers(1, 400), st.randoms(use_true_random=False))
def test_what_is_kept_is_bounded_and_every_request_ends(requests: int, count: int, rng: random.Random) -> None:
    """A kernel that says anything at all, and a gateway that never acknowledges."""
    limits = Limits(retain_bytes=20_000, output_bytes=50_000, output_messages=200, message_bytes=64 * 1024)
    outputs = Outputs(limits)
    ids = [f"r{i}" for i in range(requests)]
    for i in ids:
        outputs.issued(i)
    flood = [
        message(
            rng.choice(["stream", "display_data", "comm_msg", "error", "status", "x"]),
            rng.choice([*ids, "none", ""]),
            size=rng.choice([1, 500, 70_000, 10**6]),
        )
        for _ in range(count)
    ]
    for i in ids:
        for m in (status("busy", i), reply(i), status("idle", i)):
            flood.insert(rng.randrange(len(flood) + 1), m)
    kept, carried = 0, Counter[tuple[str, str]]()
    for m in flood:
        for item in outputs.admit(m, kept):
            if isinstance(item, Incoming):
                kept += item.size
                carried[item.msg_type, item.parent_id] += 1
            else:
                kept += 100
    assert kept <= limits.retain_bytes + HEAD + requests * 2000 + 2 * 100 * (requests + 1)
    for i in ids:
        assert carried["execute_reply", i] == 1 and carried["status", i] >= 2


@pytest.mark.parametrize(
    "value", [None, [], {"message_bytes": "x"}, {"retain_bytes": -1}, {"output_bytes": 0}, {"output_messages": True}, {"other": 1}]
)
def test_limits_that_make_no_sense_keep_their_default(value: Any) -> None:
    assert limits_from(value) == Limits()


def test_limits_are_bounded() -> None:
    limits = limits_from({"message_bytes": 10**12, "retain_bytes": 1, "output_bytes": 10**12, "output_messages": 5})
    assert limits == Limits(64 * 1024**2, 1024**2, 10**12, 5)
