"""The threat model names tests: each is there, and every risk of its tables has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text()
CASES = ROOT / "tests" / "abuse" / "cases.py"
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", TEXT)))
ABUSE = sorted(set(re.findall(r"`abuse:(\w+)`", TEXT)))
TABLES = TEXT.split("## What no layer stops")[0].split("## The kernel's side")[1]
RISKS = [line for line in TABLES.splitlines() if line.startswith("| ") and "---" not in line]


@pytest.mark.parametrize("path", sorted({test.partition("::")[0] for test in TESTS}))
def test_each_named_test_exists(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    missing = {test.partition("::")[2] for test in TESTS if test.startswith(f"{path}::")} - there
    assert not missing


def test_every_risk_names_what_shows_it() -> None:
    rows = [line for line in RISKS if not line.startswith("| risk |")]
    assert len(rows) > 35
    for line in rows:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == 3 and all(cells), line
        assert re.search(r"`(tests/[\w/]+\.py::\w+|abuse:\w+)`", cells[2]), line


def test_each_named_abuse_case_exists() -> None:
    known = set(re.findall(r'_(?:sandbox|gateway|elsewhere)\(\s*"(\w+)"', CASES.read_text()))
    assert not set(ABUSE) - known


def test_the_parts_that_a_reader_looks_for_are_there() -> None:
    for heading in ("Attackers", "Assets", "What no layer stops", "Which tier for which risk"):
        assert f"## {heading}\n" in TEXT
    for word in ("shares the host's kernel", "Side channels", "root on the engine's host", "No claim of absolute safety"):
        assert word in TEXT
