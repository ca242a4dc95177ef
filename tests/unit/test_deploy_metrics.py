"""Dashboard, alerts and scrape example speak of figures that exist, with labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gateway.backends.metrics import catalog

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
METRIC = re.compile(r"\b(?:sandglass|process)_[a-z_]+\b")
ADDED = {"instance", "job", "le"}  # by Prometheus, and by histograms


def known() -> dict[str, set[str]]:
    """Every name that a query may use, with the labels that it has."""
    found: dict[str, set[str]] = {}
    for name, kind, labels, _ in catalog():
        for full in [f"{name}_{end}" for end in ("bucket", "sum", "count")] if kind == "histogram" else [name]:
            found[full] = set(labels) | ADDED
    return found


def board() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana" / "sandglass.json").read_text())  # type: ignore[no-any-return]


def dashboard_queries() -> Iterator[str]:
    for panel in board()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in board()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def rules() -> list[dict[str, Any]]:
    content = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def check(query: str) -> set[str]:
    names = set(METRIC.findall(re.sub(r'"[^"]*"', '""', query)))
    assert names <= known().keys(), (query, names - known().keys())
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", query))
    labels |= {label.strip() for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(",")}
    allowed = set.union(*(known()[name] for name in names)) if names else ADDED
    assert labels <= allowed, (query, labels - allowed)
    return names


def test_the_dashboard_asks_for_what_there_is() -> None:
    used = set[str]().union(*map(check, dashboard_queries()))
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    missing = {name for name, *_ in catalog() if name.startswith("sandglass_")} - shown
    assert missing == {"sandglass_profile_available"}, "a figure that no panel shows"


def test_the_dashboard_can_be_imported_anywhere() -> None:
    panels = board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert board()["templating"]["list"][0]["type"] == "datasource"
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & cells and at["x"] + at["w"] <= 24, panel["title"]
        cells |= mine
        if panel["type"] != "row":
            assert panel["datasource"] == source and all(t["datasource"] == source for t in panel["targets"])
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == ["Sessions and pool", "Starts", "Executions", "Recycles and ends", "Traffic and queues", "Gateway process"]


def test_alerts_ask_for_what_there_is_and_say_it_in_a_sentence() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 5
    for rule in rules():
        used = check(rule["expr"])
        summary = rule["annotations"]["summary"]
        assert summary[0].isupper() and summary.endswith(".") and rule["labels"]["severity"] in ("warning", "critical")
        by = re.findall(r"by \(([^)]*)\)", rule["expr"])
        has = {x.strip() for x in by[0].split(",")} if by else set[str]().union(*(known()[name] for name in used)) | ADDED
        assert set(re.findall(r"\$labels\.(\w+)", summary)) <= has, rule["alert"]


def test_the_scrape_example_reads_metrics_with_a_token() -> None:
    content = yaml.safe_load((DEPLOY / "prometheus" / "sandglass.yml").read_text())
    [job] = content["scrape_configs"]
    assert job["metrics_path"] == "/metrics" and job["authorization"]["type"] == "Bearer" and "credentials" not in job["authorization"]
    assert all(f'job="{job["job_name"]}"' in rule["expr"] for rule in rules() if "job=" in rule["expr"])
    assert content["rule_files"] == ["alerts.yml"]
