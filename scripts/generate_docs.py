#!/usr/bin/env python3
"""Write the documents that follow from the code: docs/states.md, docs/exit-reasons.md, docs/metrics.md and docs/openapi.json.

With --check nothing is written, and the exit status says whether they are up to date (a unit test calls it).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gateway.backends.metrics import catalog  # noqa: E402
from gateway.domain import advice  # noqa: E402
from gateway.domain import execution as ex  # noqa: E402
from gateway.domain import sandbox as box  # noqa: E402
from gateway.domain import session as machine  # noqa: E402
from gateway.domain import session_events as ev  # noqa: E402
from gateway.domain import session_state as known  # noqa: E402
from gateway.domain.model import EndReason, ExecutionState, ExitReason, SandboxState, SessionState  # noqa: E402
from gateway.domain.texts import WHY_ENDED  # noqa: E402
from gateway.http.openapi import document  # noqa: E402

NOW = 1e6


def states() -> str:
    """The three tables as diagrams, and what each event does to a session."""
    out = ["# States", "", "Generated from the tables in `gateway/domain/` by `scripts/generate_docs.py`. What is not in a table is refused.", ""]
    out += ["## A session (`session.py`)", "", "Commands that the event gives are in brackets; the notices among them are `Tell`.", ""]
    edges = {
        (before.state, after.state, type(event).__name__) for before, event in _probes() for after, _ in [machine.step(before, event, NOW)]
        if after.state is not before.state
    }  # fmt: skip
    out += _diagram(SessionState.NEW, SessionState.ENDED, edges)
    out += ["", "| state | event | leads to |", "|---|---|---|"]
    rows = {(a, e): set[str]() for a, e in ((s, t.__name__) for s, t in machine.TABLE)}
    for before, event in _probes():
        after, commands = machine.step(before, event, NOW)
        did = ", ".join(type(c).__name__ for c in commands)
        rows[before.state, type(event).__name__].add(f"{after.state}" + (f" ({did})" if did else ""))
    out += [f"| {a} | {e} | {'; or '.join(sorted(to))} |" for (a, e), to in sorted(rows.items())]
    out += ["", "A result of another sandbox than the session's own is stale and changes nothing in any state; a `SandboxReady` that comes when",
            "none is awaited gives `Discard`.", ""]  # fmt: skip
    out += ["### Its drain", "", "`draining` has these phases; only the maximum lifetime begins with `finishing`, all else with `killing`.", ""]
    phases = {
        (before.phase or before.state, after.phase or after.state, type(event).__name__) for before, event in _probes()
        for after, _ in [machine.step(before, event, NOW)]
        if before.state in (SessionState.DRAINING, SessionState.QUARANTINED) and (after.phase, after.state) != (before.phase, before.state)
    }  # fmt: skip
    out += _diagram(known.Phase.FINISHING, None, phases)
    out += ["", "## A sandbox (`sandbox.py`)", "", "Used once: nothing leads back to `warm`, and only the engine's word to `gone`.", ""]
    boxes = {(a, b, e) for (a, e), b in box.TABLE.items()}
    out += _diagram(SandboxState.CREATING, SandboxState.GONE, boxes)
    out += ["", "## An execution (`execution.py`)", "", "Its exit reason follows from what was imposed, replied and raised.", ""]
    runs = {(a, b, e) for (a, e), b in ex.TABLE.items() if a is not ExecutionState.FINISHED}
    out += _diagram(ExecutionState.QUEUED, ExecutionState.FINISHED, runs)
    return "\n".join(out) + "\n"


def _diagram(first: StrEnum, last: StrEnum | None, edges: Iterable[tuple[StrEnum, StrEnum, str]]) -> list[str]:
    """One arrow from a state to another, with every event that leads there."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for a, b, event in edges:
        arrows.setdefault((a, b), []).append(event)
    out = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    out += [f"    {a} --> {b}: {', '.join(sorted(events))}" for (a, b), events in sorted(arrows.items())]
    return [*out, *([f"    {last} --> [*]"] if last else []), "```"]


def _probes() -> list[tuple[known.Session, ev.Event]]:
    from gateway.domain.model import Lifetimes

    base = known.Session(Lifetimes(idle_s=10, max_s=20, warn_before_s=()), sandbox_id="a", claimed_at=0.0, idle_since=0.0)
    from dataclasses import replace

    variants = {
        SessionState.NEW: [replace(base, sandbox_id="", claimed_at=None)],
        SessionState.STARTING: [replace(base, state=SessionState.STARTING, sandbox_id=s) for s in ("", "a")],
        SessionState.ACTIVE: [replace(base, state=SessionState.ACTIVE), replace(base, state=SessionState.ACTIVE, busy=True)],
        SessionState.DRAINING: [
            replace(base, state=SessionState.DRAINING, phase=phase, drain_since=0.0, ending=ending, wanted=wanted)
            for phase in known.Phase for ending in (False, True) for wanted in (False, True)
        ],
        SessionState.QUARANTINED: [
            replace(base, state=SessionState.QUARANTINED, quarantined_at=since, retry_at=0.0) for since in (NOW - 1, NOW - machine.QUARANTINE_MAX_S)
        ],
        SessionState.DORMANT: [replace(base, state=SessionState.DORMANT, sandbox_id="", claimed_at=None)],
        SessionState.ENDED: [replace(base, state=SessionState.ENDED, sandbox_id="", claimed_at=None)],
    }  # fmt: skip
    probes: list[tuple[known.Session, ev.Event]] = []
    for state, kind in machine.TABLE:
        for session in variants[state]:
            if issubclass(kind, ev.SandboxEvent):
                if session.sandbox_id or kind is ev.SandboxReady:
                    probes.append((session, kind(session.sandbox_id or "a")))
            elif kind is ev.TimerFired:
                probes += [(session, ev.TimerFired(name)) for name in known.timers(session)] or [(session, ev.TimerFired("none"))]
            else:
                probes.append((session, kind()))
    return probes


def exit_reasons() -> str:
    out = ["# Exit reasons", "", "Generated from `gateway/domain/` by `scripts/generate_docs.py`.", ""]
    out += ["`tests/e2e/test_words.py` provokes them on real sandboxes.", ""]
    out += ["## Of an execution", "", "| exit reason | status | next action | retry | in words, and what to do |", "|---|---|---|---|---|"]
    for r in ExitReason:
        found = advice.advise(r) or {"retry": "-", "text": ""}
        words = f"{ex.SENTENCES[r]} {found['text']}".strip()
        out.append(f"| `{r}` | {ex.status(r)} | {ex.next_action(r) or '-'} | {found['retry']} | {words} |")
    out += [
        "",
        "The same failure for the third time in a row answers `stop`. An Execution has the advice as `advice`: `{\"retry\", \"text\"}`, and",
        "`retry_after_s` with `later`, `tool` (what to use instead) with `network_denied`, and with `dependency_missing` the module that is",
        "`missing`, the packages `offered` by the image and those among them that sound `similar`. `retry` says whether the same code may run again:",
        "",
        "| retry | the same code |",
        "|---|---|",
        "| `changed` | not as it is |",
        "| `rebuilt` | once the variables that it needs are there again |",
        "| `later` | as it is, after a while |",
        "| `same` | as it is, whenever it is wanted |",
        "| `no` | would end in the same way until somebody else changes something |",
        "",
        "`generation_mismatch` and `artifact_rejected` come as refusals (409, 422), `capacity_exhausted` and `image_unavailable` also (503), when",
        "there is no execution yet; the problem then has the same `next_action` and `advice`. `approval_required` is not used yet: nothing can be",
        "approved (P30).",
        "",
        "## Of a sandbox",
        "",
        "| reason | the sandbox ended because |",
        "|---|---|",
    ]
    out += [f"| `{r}` | {WHY_ENDED[r]} |" for r in EndReason]
    out += [
        "",
        "`policy`: the gateway was started again with a policy that does not admit the profile (`SANDGLASS_ALLOW_CONTAINER=no`). `retention` ends a",
        "session that slept too long (`SANDGLASS_RETAIN_DORMANT`); its sandbox ended before, for a reason of its own.",
    ]
    return "\n".join(out) + "\n"


def metrics() -> str:
    out = ["# Metrics", "", "Generated from `gateway/backends/metrics_table.py` by `scripts/generate_docs.py`.", ""]
    out += [
        "`GET /metrics` answers in Prometheus' text format, to `Authorization: Bearer` with `SANDGLASS_METRICS_TOKEN` or the token of an admin",
        "of the platform. No label names a user, tenant, session or execution. Counters begin at zero with each process. A histogram `x` is",
        "shown as `x_bucket` (with `le`), `x_sum` and `x_count`. `deploy/` has a scrape configuration, alerts and a dashboard.",
        "", "| name | type | labels | meaning |", "|---|---|---|---|",
    ]  # fmt: skip
    out += [f"| `{name}` | {kind} | {', '.join(f'`{x}`' for x in labels) or '-'} | {meaning} |" for name, kind, labels, meaning in catalog()]
    return "\n".join(out) + "\n"


def main() -> int:
    stale = []
    made = {"states.md": states(), "exit-reasons.md": exit_reasons(), "metrics.md": metrics(), "openapi.json": document().decode()}
    for name, text in made.items():
        path = ROOT / "docs" / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
                print(f"written: docs/{name}")
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run scripts/generate_docs.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
