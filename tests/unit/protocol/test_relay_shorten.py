"""What takes the place of a message that is too large: readable, ends the request, names what is missing."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from relay.incoming import Incoming
from relay.shorten import amount, shorten, text_head


def incoming(msg_type: str, content: bytes, channel: str = "iopub", size: int = 10**8) -> Incoming:
    header = json.dumps({"msg_id": "m", "msg_type": msg_type}).encode()
    return Incoming(channel, [header, b'{"msg_id": "p"}', b"{}", content], msg_type, "p", size, True)


def content_of(m: Incoming) -> dict[str, object]:
    assert json.loads(m.parts[0])["msg_type"] == m.msg_type and m.parts[1] == b'{"msg_id": "p"}' and m.parent_id == "p"
    value = json.loads(m.parts[3])
    assert isinstance(value, dict)
    return value


@given(st.text(max_size=60), st.integers(0, 400), st.booleans(), st.booleans())
def test_the_head_of_a_text_is_a_prefix_wherever_it_breaks_off(text: str, cut: int, ascii_only: bool, spaces: bool) -> None:
    text = text.encode("utf-8", "ignore").decode()
    separators = (", ", ": ") if spaces else (",", ":")
    data = json.dumps({"name": "stderr", "text": text}, ensure_ascii=ascii_only, separators=separators).encode()
    found = text_head(data[:cut], 10**6)
    if found is None:
        assert cut < len('{"name": "stderr", "text": "')
    else:
        assert found[0] == "stderr" and text.startswith(found[1])
        if cut >= len(data) - 1:
            assert found[1] == text
    whole = text_head(data, 10)
    assert whole is not None and text.startswith(whole[1])


@given(st.binary(max_size=60))
def test_the_head_of_anything_is_harmless(tail: bytes) -> None:
    text_head(b'{"name": "stdout", "text": "' + tail, 10**6)
    assert text_head(tail, 10**6) is None


def test_the_head_takes_linear_time() -> None:
    began = time.perf_counter()
    for tail in (b'\\"' * 1_000_000, b"\\" * 2_000_000, b"\\u12" * 500_000, b"\xf0" * 2_000_000, b'a\\"' * 700_000):
        text_head(b'{"name": "stdout", "text": "' + tail, 2_000_000)
    assert time.perf_counter() - began < 5


def test_a_stream_keeps_its_head() -> None:
    m = shorten(incoming("stream", b'{"name": "stdout", "text": "' + b"a" * 1000), 100)
    content = content_of(m)
    assert content["name"] == "stdout" and content["text"] == "a" * 100 + "\n[Sandglass: this output of 100.0 MB was cut here]\n"


@pytest.mark.parametrize(
    ("content", "status", "count"),
    [
        (b'{"status": "ok", "execution_count": 7, "payload": [' + b"x" * 50_000, "ok", 7),
        (b'{"traceback": [' + b"x" * 50_000 + b'], "status": "error", "execution_count": 3}', "error", 3),
        (b'{"status":"aborted"' + b" " * 50_000, "aborted", 0),
        (b"x" * 50_000, "error", 0),
        (b"", "error", 0),
    ],
)
def test_a_reply_ends_the_request_all_the_same(content: bytes, status: str, count: int) -> None:
    value = content_of(shorten(incoming("execute_reply", content, "shell"), 100))
    assert value["status"] == status and value["execution_count"] == count
    if status == "error":
        assert value["ename"] == "SandglassTruncated" and "100.0 MB" in str(value["evalue"])


def test_anything_else_becomes_a_line_that_names_it() -> None:
    m = shorten(incoming("display_data", b'{"data": {"image/png": "' + b"a" * 1000), 100)
    assert m.msg_type == "stream" and m.channel == "iopub"
    assert content_of(m) == {"name": "stderr", "text": "[Sandglass: display_data (image/png) of 100.0 MB was too large to be carried]\n"}
    m = shorten(incoming("comm_msg", b"", "iopub", 1500), 100)
    assert "comm_msg of 1.5 kB" in str(content_of(m)["text"])
    m = shorten(incoming("stream", b'{"text": "odd order'), 100)
    assert "stream of 100.0 MB" in str(content_of(m)["text"])
    prompt = shorten(incoming("input_request", b"", "stdin"), 100)
    assert prompt.channel == "stdin" and content_of(prompt)["password"] is False


def test_amounts_read_well() -> None:
    assert [amount(n) for n in (0, 999, 1000, 1_500_000, 2 * 10**9, 10**13)] == ["0 bytes", "999 bytes", "1.0 kB", "1.5 MB", "2.0 GB", "10000.0 GB"]
