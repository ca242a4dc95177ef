"""The summary lines: ``abuse container: 71 of 71 contained``, one a tier."""

from __future__ import annotations

import pytest

from tests.abuse.cases import BY_NAME, CASES, TIERS

_outcomes: dict[str, dict[str, str]] = {tier: {} for tier in TIERS}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/abuse/" not in report.nodeid or "[" not in report.nodeid:
        return
    parts = report.nodeid.rpartition("[")[2].rstrip("]").split("-")
    tier = next((p for p in parts if p in TIERS), None)
    name = next((p for p in parts if p in BY_NAME), None)
    if tier is None or name is None:
        return
    # the neighbour is looked at after the case: a failure there counts as much
    if report.outcome != "passed" or report.when == "call":
        _outcomes[tier].setdefault(name, report.outcome)
        if report.outcome != "passed":
            _outcomes[tier][name] = report.outcome


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    wanted = [case.name for case in CASES if case.where != "elsewhere"]
    for tier, outcomes in _outcomes.items():
        if not outcomes:
            continue
        contained = [name for name in wanted if outcomes.get(name) == "passed"]
        line = f"abuse {tier}: {len(contained)} of {len(wanted)} contained"
        if broken := [name for name in wanted if outcomes.get(name) == "failed"]:
            line += f"; NOT: {', '.join(broken)}"
        if missing := len(wanted) - len([n for n in wanted if outcomes.get(n) in ("passed", "failed")]):
            line += f" ({missing} not run)"
        terminalreporter.write_line(line)
