"""Which cells a rebuild takes by itself, and what it is to bring back."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.rebuild import Rebuild, RebuildState, Step, missing_names, suggested
from gateway.domain.transcript import Cell


def cell(number: int, generation: int = 1, exit_reason: str = "ok", code: str | None = "x") -> Cell:
    values: dict[str, Any] = {
        "execution_id": str(number), "session_id": "s", "generation": generation, "source": "rest", "exit_reason": exit_reason,
        "created_at": 1.0, "started_at": 1.0, "finished_at": 2.0, "execution_count": number, "code_sha256": "", "outputs_sha256": "",
        "code_bytes": 1, "output_bytes": 2, "code": code,
    }  # fmt: skip
    return Cell(**values)


def rebuild(generation: int, state: RebuildState, *steps: tuple[str, str, str]) -> Rebuild:
    return Rebuild("r", generation, 1.0, [Step(*step) for step in steps], ["a", "b"], state=state)


ONE_LIFE = [cell(1), cell(2, exit_reason="code_error"), cell(3, exit_reason="output_limit"), cell(4, code=None)]


@pytest.mark.parametrize(
    ("cells", "generation", "last", "expected"),
    [
        (ONE_LIFE, 1, None, []),
        (ONE_LIFE, 2, None, ["1", "3"]),
        ([*ONE_LIFE, cell(5, 2)], 3, None, ["5"]),
        ([*ONE_LIFE, cell(5, 2)], 2, None, ["1", "3"]),
        ([*ONE_LIFE, cell(5, 2)], 9, None, ["5"]),
        ([], 2, None, []),
        ([*ONE_LIFE, cell(5, 2), cell(6, 2)], 3, rebuild(2, RebuildState.DONE, ("1", "5", "ok"), ("3", "6", "ok")), ["5", "6"]),
        ([*ONE_LIFE, cell(5, 2)], 2, rebuild(2, RebuildState.CUT, ("1", "5", "ok"), ("3", "", "")), ["3"]),
        ([*ONE_LIFE, cell(5, 2)], 2, rebuild(2, RebuildState.CUT, ("1", "5", ""), ("3", "", "")), ["3"]),
        (
            [*ONE_LIFE, cell(5, 2), cell(6, 2, "code_error")], 2,
            rebuild(2, RebuildState.STOPPED, ("1", "5", "ok"), ("2", "6", "code_error"), ("3", "", "")), ["3"],
        ),
        (
            [*ONE_LIFE, cell(5, 2, "sandbox_ended"), cell(6, 2)], 3,
            rebuild(2, RebuildState.STOPPED, ("1", "5", "sandbox_ended"), ("3", "", "")), ["1", "3", "6"],
        ),
    ],
    ids=[
        "nothing is lost", "what succeeded", "the last life only", "the present life is not lost", "lives in which nothing ran", "no cell",
        "one that ended well is like any life", "the rest of one that was cut", "its last cell may have run after the cut",
        "what failed both times is not",
        "one that was lost itself",
    ],
)  # fmt: skip
def test_what_is_suggested(cells: list[Cell], generation: int, last: Rebuild | None, expected: list[str]) -> None:
    assert [c.execution_id for c in suggested(cells, generation, last)] == expected


def test_what_an_unfinished_one_was_to_bring_back_is_still_wanted() -> None:
    assert missing_names(["c", "a"], None) == ["c", "a"]
    assert missing_names(["c", "a"], rebuild(2, RebuildState.STOPPED)) == ["c", "a", "b"]
    assert missing_names(["c"], rebuild(2, RebuildState.DONE)) == ["c"]


def test_a_rebuild_comes_back_from_its_row() -> None:
    made = rebuild(2, RebuildState.RUNNING, ("1", "5", "ok"), ("3", "", ""))
    made.end(RebuildState.STOPPED, 9.0, ["b", "x"], "why")
    assert (made.back, made.done) == (["b"], 1)
    assert Rebuild.from_row(made.to_row()) == made
    assert Rebuild.from_row(made.to_row() | {"of_a_later_release": 1}) == made
