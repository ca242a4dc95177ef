"""JSON as every reader takes it, whatever a kernel put into a message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.jsonio import dumps
from gateway.protocol.frames import parse_json


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize("text", [b"1e999", b"-1e999", b'[1, {"a": 1e999}]', b'{"a": [[-1e400]]}', b'"\\ud800"', b'{"\\ud800": 1}'])
def test_what_a_kernel_may_say_is_read_by_everybody(text: bytes) -> None:
    """``1e999`` is a number by the standard, and infinity to Python."""
    said = dumps({"data": parse_json(text), "rest": [1.5, "x"]})
    found: Any = json.loads(said.decode("utf-8", "strict"), parse_constant=refuse)
    assert found["rest"] == [1.5, "x"]
    json.dumps(found, ensure_ascii=False).encode()


def test_finite_values_are_as_they_were() -> None:
    value = {"a": [1, 2.5, None, True, "x"], "b": {"c": -0.0}}
    assert json.loads(dumps(value)) == value
    assert json.loads(dumps([float("nan"), (float("inf"), 1)])) == [None, [None, 1]]
