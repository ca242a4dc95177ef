"""The outputs of a cell as a transcript keeps them: nbformat's shape whatever a kernel sends, and never more than the bound."""

from __future__ import annotations

import json
from typing import Any

import nbformat
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain import ipynb
from gateway.domain.cell_outputs import ERROR_BYTES, STREAM_BYTES, CellOutputs
from gateway.domain.transcript import Cell

Json = dict[str, Any]


def made(*messages: tuple[str, Json], most: int = 100_000) -> CellOutputs:
    out = CellOutputs(most)
    for kind, content in messages:
        out.take(kind, content)
    return out


def stream(text: object, name: str = "stdout") -> tuple[str, Json]:
    return "stream", {"name": name, "text": text}


def shown(data: object, display_id: str = "", kind: str = "display_data") -> tuple[str, Json]:
    return kind, {"data": data, "metadata": {}, "transient": {"display_id": display_id} if display_id else {}}


def cell(number: int, outputs: list[Json] | None = None, **more: Any) -> Cell:
    values: Json = {
        "execution_id": f"{number:024x}", "session_id": "s", "generation": 1, "source": "rest", "exit_reason": "ok", "created_at": 1.0,
        "started_at": 1.0, "finished_at": 2.0, "execution_count": number, "code_sha256": "c" * 64, "outputs_sha256": "o" * 64,
        "code_bytes": 1, "output_bytes": 2, "code": f"x = {number}", "outputs": outputs or [],
    }  # fmt: skip
    return Cell(**values | more)


def notebook(*cells: Json) -> Json:
    return {"cells": list(cells), "metadata": ipynb.METADATA, "nbformat": 4, "nbformat_minor": 5}


def test_what_stands_together_is_one_stream_and_the_order_stays() -> None:
    out = made(stream("a\n"), stream("b"), stream("!", "stderr"), shown({"text/plain": "1"}), stream("c"))
    texts = [(o["output_type"], o.get("name"), o.get("text")) for o in out.finished()]
    assert texts == [("stream", "stdout", "a\nb"), ("stream", "stderr", "!"), ("display_data", None, None), ("stream", "stdout", "c")]
    assert out.left_out == 0 and not out.full


def test_of_a_progress_bar_the_last_state_stays() -> None:
    bar = made(*(stream(f"\r{n:4d} of 5000") for n in range(5001)), stream("\ndone\r\n"), most=200)
    assert bar.finished() == [{"output_type": "stream", "name": "stdout", "text": "5000 of 5000\ndone\r\n"}]
    assert bar.left_out == 0
    assert made(stream("one\rtw"), stream("o\nthree")).finished()[0]["text"] == "two\nthree"


def test_cleared_output_is_gone_and_waits_when_it_is_asked_to() -> None:
    clear, wait = ("clear_output", {"wait": False}), ("clear_output", {"wait": True})
    assert made(stream("a"), clear).finished() == []
    assert [o["text"] for o in made(stream("a"), wait).finished()] == ["a"]
    assert [o["text"] for o in made(stream("a"), wait, stream("b")).finished()] == ["b"]
    full = made(stream("x" * 100), stream("y" * 100), clear, stream("z"), most=100)
    assert [o["text"] for o in full.finished()] == ["z"] and full.left_out == 0 and not full.full


def test_a_display_is_updated_in_place() -> None:
    out = made(shown({"text/plain": "old"}, "d"), stream("x"), ("update_display_data", shown({"text/plain": "new"}, "d")[1]))
    assert [o.get("data") for o in out.finished()] == [{"text/plain": "new"}, None]
    assert made(("update_display_data", shown({"text/plain": "new"}, "unknown")[1])).finished() == []


def test_past_the_bound_it_is_counted_but_the_error_stays() -> None:
    error = ("error", {"ename": "ValueError", "evalue": "bad", "traceback": ["line 1"]})
    out = made(stream("é" * 1000), stream("b" * 500), shown({"image/png": "i" * 5000, "text/plain": "<Figure>"}), error, most=300)
    kinds = [o["output_type"] for o in out.finished()]
    assert kinds == ["stream", "error"] and out.full
    assert out.finished()[0]["text"] == "é" * ((300 - STREAM_BYTES) // 6), "as JSON it takes six bytes a letter"
    assert out.left_out >= 950 * 2 + 500 + 5000
    picture = made(shown({"image/png": "i" * 5000, "text/plain": "<Figure>"}), most=300)
    assert picture.finished()[0]["data"] == {"text/plain": "<Figure>"} and picture.left_out >= 5000
    huge = made(("error", {"ename": "E", "evalue": "v" * 10**6, "traceback": ["t" * 10**6]}), most=300)
    assert len(json.dumps(huge.finished())) < ERROR_BYTES


HOSTILE: list[tuple[str, Json]] = [
    ("stream", {}),
    ("stream", {"name": 5, "text": ["a"]}),
    ("stream", {"name": "stdout", "text": "\ud800 half"}),
    ("display_data", {"data": 7}),
    ("display_data", {"data": {"text/html": {"a": 1}, "image/png": 3, "application/json": [1], "application/x+json": None}, "metadata": []}),
    ("display_data", {"data": {"text/plain": ["a", 1]}, "transient": {"display_id": ["x"]}}),
    ("execute_result", {"data": {}, "execution_count": True}),
    ("execute_result", {"data": {"text/plain": "x"}, "execution_count": -4}),
    ("execute_result", {"data": {"text/plain": "x"}, "execution_count": "9"}),
    ("error", {}),
    ("error", {"ename": None, "evalue": {"a": 1}, "traceback": "not a list"}),
    ("error", {"ename": "E", "evalue": "v", "traceback": [1, "two", None]}),
    ("unknown", {"data": {}}),
]


def test_whatever_a_kernel_sends_the_notebook_is_valid() -> None:
    out = made(*HOSTILE)
    value = notebook(ipynb.code_cell(cell(1, out.finished())))
    nbformat.validate(nbformat.from_dict(json.loads(json.dumps(value))), relax_add_props=False)
    nbformat.validate(json.loads(json.dumps(value)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text/plain", "application/json", "wait", "x"]), inner, max_size=3),
    max_leaves=6,
)
contents = st.fixed_dictionaries(
    {},
    optional={
        name: json_values | st.text("ab\r\n\x1bé", max_size=30)
        for name in ("name", "text", "data", "metadata", "transient", "ename", "evalue", "traceback", "execution_count", "wait")
    },
)
kinds = st.sampled_from(["stream", "display_data", "execute_result", "update_display_data", "error", "clear_output"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(kinds, contents), max_size=12), st.integers(20, 400))
def test_any_messages_give_valid_outputs_within_the_bound(messages: list[tuple[str, Json]], most: int) -> None:
    out = made(*messages, most=most)
    found = out.finished()
    nbformat.validate(notebook(ipynb.code_cell(cell(1, found))))
    errors = [o for o in found if o["output_type"] == "error"]
    rest = [o for o in found if o["output_type"] != "error"]
    assert len(json.dumps(rest, separators=(",", ":"))) <= most + len(rest) + 2, rest
    assert all(len(json.dumps(o)) < ERROR_BYTES for o in errors)
    assert out.left_out >= 0


def test_losses_are_dividers_and_names_are_no_markup() -> None:
    told = [("variables_lost", 2, "Variables lost: df, <b>x</b>, a_b."), ("recycled", 2, "The sandbox ended."), ("restored", 2, "Files are back.")]
    cells = [cell(1), cell(2, generation=2), cell(3, generation=2), cell(4, generation=5)]
    value = notebook(*ipynb.with_dividers(cells, told))
    nbformat.validate(value)
    assert [c["cell_type"] for c in value["cells"]] == ["code", "markdown", "code", "code", "markdown", "code"]
    first, second = (c["source"] for c in value["cells"] if c["cell_type"] == "markdown")
    assert "df, \\<b\\>x" in first and "a\\_b" in first and "The sandbox ended" in first and "Files" not in first
    assert "Generation 5" in second and "The variables were lost" in second


def test_a_cell_without_code_is_words() -> None:
    value = ipynb.code_cell(cell(1, code=None))
    nbformat.validate(notebook(value))
    assert value["cell_type"] == "markdown" and "c" * 64 in value["source"]
