"""The list is whole: every case has its attack, and what other suites show is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.abuse import attacks, attacks_files, probes_host, probes_resources, probes_rights
from tests.abuse.cases import BY_NAME, CASES, names
from tests.abuse.world import PROBES

ROOT = Path(__file__).resolve().parents[2]
__all__ = ["attacks_files", "probes_host", "probes_resources", "probes_rights"]


def test_every_case_has_one_attack_and_no_attack_is_without_a_case() -> None:
    assert len(BY_NAME) == len(CASES)
    assert sorted(PROBES) == sorted(names("sandbox"))
    assert sorted(attacks.ATTACKS) == sorted(names("gateway"))


@pytest.mark.parametrize("shown", [test for case in CASES for test in case.shown_by])
def test_what_other_suites_show_is_there(shown: str) -> None:
    path, _, name = shown.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_case_says_what_is_tried_and_what_is_seen() -> None:
    for case in CASES:
        assert case.attack and case.outside and bool(case.shown_by) == (case.where == "elsewhere"), case.name
