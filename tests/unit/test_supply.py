"""The bill of materials is valid, complete and the same for the same locks; the report works offline and says what a person must look at."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("supply", ROOT / "scripts" / "supply.py")
assert _spec is not None and _spec.loader is not None
supply = importlib.util.module_from_spec(_spec)
sys.modules["supply"] = supply
_spec.loader.exec_module(supply)


@pytest.mark.parametrize("part", ["gateway", "image"])
def test_the_bill_of_materials(part: str) -> None:
    text = supply.sbom(part, supply.load())
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert text == supply.sbom(part, supply.load())
    made = json.loads(text)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    debian = [c["name"] for c in made["components"] if c["purl"].startswith("pkg:deb/")]
    by_name = {c["name"]: c for c in made["components"] if c["purl"].startswith("pkg:pypi/")}
    packages = supply.locked(supply.LOCKS[part])
    assert len(packages) > 10
    for package in packages:
        component = by_name.pop(package.name)
        assert component["version"] == package.version and component["purl"] == f"pkg:pypi/{package.name}@{package.version}"
        assert {h["content"] for h in component["hashes"]} == set(package.hashes)
    assert not by_name and sorted(debian) == (sorted(supply.debian_packages()) if part == "image" else [])


def test_every_locked_package_has_a_recorded_licence_that_is_admitted() -> None:
    recorded = supply.load()
    bad = {
        f"{p.name} {p.version}": supply.licence_of(p, recorded)
        for path in supply.LOCKS.values() for p in supply.locked(path) if not supply.admitted(supply.licence_of(p, recorded))
    }  # fmt: skip
    assert not bad, "run scripts/supply.py record (docs/updating.md), and look at these"


def test_a_lock_without_a_hash_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text("good==1 \\\n    --hash=sha256:" + "a" * 64 + "\nbad==2\n")
    with pytest.raises(ValueError, match="bad"):
        supply.locked(lock)


@pytest.mark.parametrize(
    ("licence", "good"),
    [
        ("MIT", True), ("Apache-2.0 OR BSD-2-Clause", True), ("GPL-3.0 OR MIT", True), ("BSD-3-Clause AND GPL-3.0", False), ("AGPL-3.0", False),
        ("", False), ("UNKNOWN", False), ("MIT and something", False), ("BSD-3-Clause AND MIT AND Zlib", True),
    ],
)  # fmt: skip
def test_which_licences_are_admitted(licence: str, good: bool) -> None:
    assert supply.admitted(licence) is good


def recorded_for_all(found: Any = None) -> dict[str, Any]:
    packages = [p for path in supply.LOCKS.values() for p in supply.locked(path)]
    return {
        "licences_at": "2026-01-01", "packages": {p.pin: "MIT" for p in packages}, "accepted": {},
        "vulnerabilities": {"at": "2026-01-01", "checked": [p.pin for p in packages], "found": found or {}},
    }  # fmt: skip


def test_the_report_says_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = supply.locked(supply.LOCKS["gateway"])
    monkeypatch.setattr(supply, "LOCKS", {"gateway": supply.LOCKS["gateway"]})
    good = recorded_for_all()
    lines, look = supply.report(good, "2026-01-15")
    assert not look and len(lines) > len(gateway)
    (tornado,) = (p.pin for p in gateway if p.name == "tornado")
    hole = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["99"]}
    bad = recorded_for_all({tornado: [hole]})
    (said,) = supply.report(bad, "2026-01-15")[1]
    assert "tornado" in said and "PYSEC-1" in said and "99" in said
    assert not supply.report(bad | {"accepted": {"CVE-1": "not reached"}}, "2026-01-15")[1]
    assert "days ago" in supply.report(good, "2026-03-15")[1][0]
    good["vulnerabilities"]["checked"].remove(tornado)
    assert "not recorded for this version" in supply.report(good, "2026-01-15")[1][0]
    good["packages"][tornado] = "AGPL-3.0"
    assert any("AGPL" in each for each in supply.report(good, "2026-01-15")[1])


def test_recording_takes_what_an_audit_found(tmp_path: Path) -> None:
    audit = tmp_path / "audit.json"
    vulns = [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"], "description": "long"}]
    skipped = {"name": "odd", "skip_reason": "not there"}
    found = [{"name": "Tor_nado", "version": "1", "vulns": vulns}, {"name": "b", "version": "2", "vulns": []}, skipped]
    audit.write_text(json.dumps({"dependencies": found}))
    made = supply.record(None, [audit], "2026-01-01")["vulnerabilities"]
    assert made["checked"] == ["b==2", "tor-nado==1"]
    assert made["found"] == {"tor-nado==1": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["2"]}]}


def test_an_audit_that_reached_no_database_records_nothing(tmp_path: Path) -> None:
    audit = tmp_path / "audit.json"
    audit.write_text(json.dumps({"dependencies": [{"name": "b", "skip_reason": "not there"}]}))
    assert supply.record(None, [audit], "2026-01-01")["vulnerabilities"] == supply.load()["vulnerabilities"]
