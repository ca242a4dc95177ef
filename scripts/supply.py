#!/usr/bin/env python3
"""What Sandglass is made of, from its lock files: a bill of materials, licences, and what is known to be wrong. Works offline.

    scripts/supply.py sbom --out DIR      gateway.cdx.json and image.cdx.json (CycloneDX 1.6), the same bytes for the same locks
    scripts/supply.py report              licences and vulnerabilities from supply/recorded.json; exit 1 where a person must look
    scripts/supply.py record [--wheels DIR] [--audit FILE]...
                                          write supply/recorded.json anew: licences from this environment and from a folder of wheels,
                                          vulnerabilities from files that `pip-audit --format json` wrote (docs/updating.md)
"""

from __future__ import annotations

import argparse
import email.parser
import hashlib
import json
import re
import sys
import uuid
import zipfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "supply" / "recorded.json"
LOCKS = {"gateway": ROOT / "requirements.lock", "image": ROOT / "kernel-image" / "requirements.lock"}
DEBIAN = ROOT / "kernel-image" / "packages.txt"
SUITE = "trixie"
STALE_DAYS = 31
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)(?:\s*;\s*([^\\]*))?")
_ELSEWHERE = re.compile(r"(sys_platform|platform_system|os_name) == '(win32|Windows|nt|darwin|Darwin|emscripten|cygwin)'")
"""Markers of packages that no Linux machine installs; anything with ``or`` is taken for one that it may."""
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
Json = dict[str, Any]


@dataclass
class Locked:
    name: str
    version: str
    hashes: list[str] = field(default_factory=list)

    @property
    def pin(self) -> str:
        return f"{self.name}=={self.version}"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(path: Path) -> list[Locked]:
    """The packages of a lock file. Raises ValueError for one without a hash: it would be installed unchecked."""
    found: list[Locked] = []
    skipped = False
    for line in path.read_text().splitlines():
        if pin := _PIN.match(line):
            skipped = bool(pin[3]) and " or " not in pin[3] and _ELSEWHERE.search(pin[3]) is not None
            if not skipped:
                found.append(Locked(canonical(pin[1]), pin[2]))
        if found and not skipped:
            found[-1].hashes += _HASH.findall(line)
    if missing := [p.name for p in found if not p.hashes]:
        raise ValueError(f"{path.name}: no hash for {', '.join(missing)}")
    return found


def debian_packages() -> list[str]:
    return [name for line in DEBIAN.read_text().splitlines() if (name := line.partition("#")[0].strip())]


# --- the bill of materials ----------------------------------------------------------------------------------------------------


def sbom(part: str, recorded: Json) -> str:
    """CycloneDX 1.6 JSON of one part. It depends on its lock and on recorded licences alone, so that two of them can be compared."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from packageurl import PackageURL

    lock = LOCKS[part]
    digest = hashlib.sha256(lock.read_bytes() + (DEBIAN.read_bytes() if part == "image" else b"")).hexdigest()
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"sandglass:{part}:{digest}"))
    bom.metadata.timestamp = datetime.fromtimestamp(0, UTC)  # a time of its own would make two of the same lock differ
    kind = ComponentType.APPLICATION if part == "gateway" else ComponentType.CONTAINER
    root = Component(name=f"sandglass-{part}", version=_version(), type=kind, bom_ref=f"sandglass-{part}")
    root.properties.add(Property(name="sandglass:lock-sha256", value=digest))
    bom.metadata.component = root
    licences, parts = LicenseFactory(), []
    for package in locked(lock):
        purl = PackageURL("pypi", None, package.name, package.version)
        made = Component(name=package.name, version=package.version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl))
        # a file of any of these hashes is taken, according to the platform
        made.hashes.update(HashType(alg=HashAlgorithm.SHA_256, content=value) for value in package.hashes)
        if known := licence_of(package, recorded):
            made.licenses.add(licences.make_from_string(known))
        parts.append(made)
    if part == "image":
        for name in debian_packages():
            purl = PackageURL("deb", "debian", name, None, {"distro": SUITE})
            parts.append(Component(name=name, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl)))
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1) + "\n"


def _version() -> str:
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "gateway" / "__init__.py").read_text())
    return found[1] if found else "0"


# --- licences -----------------------------------------------------------------------------------------------------------------

_NAMES = (
    (r"\bagpl|affero", "AGPL-3.0"), (r"\blgpl|lesser general", "LGPL-3.0"), (r"\bgpl|general public", "GPL-3.0"), (r"mozilla|mpl", "MPL-2.0"),
    (r"apache", "Apache-2.0"), (r"\bisc\b", "ISC"), (r"python software|psf", "PSF-2.0"), (r"hpnd|historical permission", "HPND"),
    (r"bsd.?2|simplified bsd", "BSD-2-Clause"), (r"bsd", "BSD-3-Clause"), (r"\bmit\b|expat", "MIT"), (r"unlicense", "Unlicense"),
)  # fmt: skip
ADMITTED = re.compile(
    r"\b(MIT(-CMU|-0)?|BSD-[0-9]-Clause|0BSD|Apache-2\.0|ISC|PSF-2\.0|Python-2\.0|MPL-2\.0|Zlib|HPND|Unlicense|BSL-1\.0|CC0-1\.0|"
    r"LGPL-[23]\.[01](-or-later|-only)?|LLVM-exception|GCC-exception-3\.1|GPL-3\.0(-or-later|-only)?-with-GCC-exception)\b"
)
"""LGPL: used as a library, unchanged. Others need a look, and words that are no licence at all."""


def licence_in(message: Any) -> str:
    """What a package's metadata says, as an SPDX expression where it can be told; empty where it says nothing."""
    if expression := message.get("License-Expression"):
        return str(expression)
    classifiers = [c.rpartition("::")[2].strip() for c in message.get_all("Classifier") or () if c.startswith("License ::")]
    words = (message.get("License") or "").strip().splitlines()[:1]
    said = [c for c in classifiers if c != "OSI Approved"] or [line for line in words if len(line) < 80]
    names = {next((spdx for pattern, spdx in _NAMES if re.search(pattern, text, re.IGNORECASE)), text) for text in said}
    return " AND ".join(sorted(names))


def licence_of(package: Locked, recorded: Json) -> str:
    return str(recorded["packages"].get(package.pin, ""))


def admitted(licence: str) -> bool:
    """Whether each licence of the expression is admitted (of alternatives, one)."""
    if not licence:
        return False
    return all(any(ADMITTED.fullmatch(one.strip(" ()")) for one in re.split(r"\bOR\b", all_of)) for all_of in re.split(r"\bAND\b|\bWITH\b", licence))


# --- recording ----------------------------------------------------------------------------------------------------------------


def record(wheels: Path | None, audits: list[Path], today: str) -> Json:
    """Licences of the locked versions, as far as this environment and the wheels have them; what the audits found."""
    old = load()
    here = {f"{canonical(d.name)}=={d.version}": licence_in(d.metadata) for d in metadata.distributions() if d.name}
    said = old["packages"] | (_of_wheels(wheels) if wheels else {}) | here
    packages = {p.pin: said[p.pin] for path in LOCKS.values() for p in locked(path) if said.get(p.pin)}
    vulnerabilities = old["vulnerabilities"]
    if audits:
        checked: set[str] = set()
        found: dict[str, list[Json]] = {}
        for path in audits:
            for each in json.loads(path.read_text())["dependencies"]:
                if "version" not in each:
                    continue  # pip-audit could not look it up
                pin = f"{canonical(each['name'])}=={each['version']}"
                checked.add(pin)
                for v in each.get("vulns", ()):
                    found.setdefault(pin, []).append({"id": v["id"], "aliases": v.get("aliases", []), "fixed_in": v.get("fix_versions", [])})
        if checked:  # an audit that reached no database says nothing, and calls that "no known vulnerabilities"
            vulnerabilities = {"at": today, "checked": sorted(checked), "found": dict(sorted(found.items()))}
    return {"licences_at": today, "packages": dict(sorted(packages.items())), "vulnerabilities": vulnerabilities, "accepted": old["accepted"]}


def _of_wheels(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith(".dist-info/METADATA") and name.count("/") == 1:
                    message = email.parser.Parser().parsestr(wheel.read(name).decode("utf-8", "replace"), headersonly=True)
                    found[f"{canonical(str(message['Name']))}=={message['Version']}"] = licence_in(message)
    return found


def load() -> Json:
    if RECORDED.exists():
        return dict(json.loads(RECORDED.read_text()))
    return {"licences_at": "", "packages": {}, "vulnerabilities": {"at": "", "checked": [], "found": {}}, "accepted": {}}


# --- the report ---------------------------------------------------------------------------------------------------------------


def report(recorded: Json, today: str) -> tuple[list[str], list[str]]:
    """``(lines, what a person must look at)``."""
    lines, look = [], []
    known = recorded["vulnerabilities"]
    if not known["at"]:
        look.append("vulnerabilities were never recorded (docs/updating.md says how)")
    elif (datetime.fromisoformat(today) - datetime.fromisoformat(known["at"])).days > STALE_DAYS:
        look.append(f"vulnerabilities were recorded on {known['at']}, more than {STALE_DAYS} days ago")
    for part, path in LOCKS.items():
        lines.append(f"{part}: {path.relative_to(ROOT)}")
        for package in locked(path):
            licence = licence_of(package, recorded)
            words = [licence or "licence not recorded"]
            if not admitted(licence):
                look.append(f"{part}: {package.name} {package.version}: {words[0]}")
            if known["at"]:
                words += _vulnerabilities(part, package, recorded, look)
            lines.append(f"  {package.name} {package.version}: {'; '.join(words)}")
    lines.append(f"image: {len(debian_packages())} packages of Debian {SUITE} and what they need, as of the last build of the base")
    return lines, look


def _vulnerabilities(part: str, package: Locked, recorded: Json, look: list[str]) -> list[str]:
    known = recorded["vulnerabilities"]
    if package.pin not in known["checked"]:
        look.append(f"{part}: {package.name} {package.version}: vulnerabilities not recorded for this version")
        return ["not checked"]
    words = []
    for each in known["found"].get(package.pin, ()):
        names = {each["id"], *each["aliases"]}
        reason = next((recorded["accepted"][n] for n in sorted(names) if n in recorded["accepted"]), "")
        words.append(f"{each['id']} ({'accepted: ' + reason if reason else 'fixed in ' + (', '.join(each['fixed_in']) or 'nothing yet')})")
        if not reason:
            look.append(f"{part}: {package.name} {package.version}: {words[-1]}")
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sbom").add_argument("--out", type=Path, required=True)
    commands.add_parser("report")
    one = commands.add_parser("record")
    one.add_argument("--wheels", type=Path)
    one.add_argument("--audit", type=Path, action="append", default=[])
    options = parser.parse_args()
    today = datetime.now(UTC).date().isoformat()
    if options.command == "sbom":
        options.out.mkdir(parents=True, exist_ok=True)
        for part in LOCKS:
            (options.out / f"{part}.cdx.json").write_text(sbom(part, load()))
            print(f"written: {options.out / f'{part}.cdx.json'}")
        return 0
    if options.command == "record":
        RECORDED.parent.mkdir(exist_ok=True)
        RECORDED.write_text(json.dumps(record(options.wheels, options.audit, today), indent=1) + "\n")
        return 0
    lines, look = report(load(), today)
    print("\n".join(lines))
    print("\n".join(["", "to look at:", *(f"  {each}" for each in look)] if look else ["", "nothing to look at"]))
    return 1 if look else 0


if __name__ == "__main__":
    sys.exit(main())
