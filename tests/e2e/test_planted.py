"""Code, output, file contents, names of files and credentials are planted, and then looked for wherever they must not be.

They may be in the user's own document (the transcript), in the session's journal (which that user reads) and in the store. A name
of a file also stands where files are listed: artifacts, declarations, notices, the session's own row, and what an execution took and made
as its user is told it. There the hints stand too: of code, they name the modules that it imports.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_clients import Kernel
from e2e_gateway import Gateway

from gateway.auth.settings import SECRET_FILE

CODE, OUTPUT, ERROR, CONTENT, INPUT = (f"planted-{kind}-7c1f" for kind in ("code", "output", "error", "content", "input"))
NAME = "planted-name-7c1f"
QUERY = "planted-query-7c1f"
OWN = ("journals", "store")
LISTS_FILES = {"artifacts", "declarations", "notices", "sessions", "cells", "executions"}
_HINTS = re.compile(r'"hints": ?\[[^\]]*\]')


def split(marker: str) -> str:
    """An expression whose value is the marker and whose text is not."""
    return f"'{marker[:9]}' + '{marker[9:]}'"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, list[str]]]:
    """A gateway that logs all it can, after a session in which everything was planted; and the credentials that were used."""
    gateway = Gateway(tmp_path_factory.mktemp("planted"), {"SANDGLASS_LOG_LEVEL": "debug", "SANDGLASS_LOG_FORMAT": "json"}).start()
    profile = gateway.available()[0]
    session = gateway.call("POST", "/api/v1/sessions", {"profile": profile}, expect=201).json()["session_id"]
    base = f"/api/v1/sessions/{session}"
    gateway.call("PUT", f"{base}/files/in/{NAME}.csv", f"a,b\n1,{INPUT}\n".encode(), expect=201)
    gateway.call("PUT", f"{base}/files/in/{NAME}.csv", b"again", expect=409)
    gateway.call("PUT", f"{base}/files/in/{NAME}.png", b"no picture", expect=422)
    gateway.call("GET", f"{base}/files/in/{NAME}.csv", expect=200)
    gateway.call("GET", f"{base}/files/{NAME}/missing", expect=404)
    cells = (
        f"secret = '{CODE}'\nprint({split(OUTPUT)})",
        f"# {CODE}\nraise ValueError({split(ERROR)})",
        f"import {CODE.replace('-', '_')}",
        f"def f(:  # {CODE}",
        f"import sys\nsys.stderr.write({split(OUTPUT)})\n{split(OUTPUT)}",
        f"import os\nos.makedirs('out', exist_ok=True)\nopen('out/{NAME}.txt', 'w').write({split(CONTENT)})",
        f"import os, sys\nos.write(2, ({split(OUTPUT)}).encode())\nos._exit(3)  # {CODE}",
    )
    reasons = [gateway.run_code(session, cell)["exit_reason"] for cell in cells]
    assert reasons == ["ok", "code_error", "dependency_missing", "syntax_error", "ok", "ok", "kernel_died"]
    for body in ({"code": CODE, QUERY: 1}, {"code": [CODE]}, {"code": CODE, "timeout_s": CODE}):
        gateway.call("POST", f"{base}/executions", body, expect=400)
    gateway.call("POST", f"{base}/executions", f'{{"code": "{CODE}'.encode(), expect=400)
    gateway.call("GET", f"{base}/declarations?x={QUERY}", expect=400)
    gateway.call("GET", f"{base}/executions?{QUERY}=1", expect=400)
    lab = Kernel(gateway, session).connect("lab")
    assert OUTPUT in lab.run(f"print({split(OUTPUT)})  # {CODE}")
    lab.ws.send(json.dumps({"header": {"msg_type": "execute_request", "msg_id": "m"}, "channel": "nowhere", "content": {"code": CODE}}))
    bad = gateway.token("mallory")[:-6] + "AAAAAA"
    gateway.call("GET", f"{base}?token={bad}", token=bad, expect=401)
    ticket = gateway.call("POST", "/api/v1/tickets", {"purpose": "login"}, expect=201).json()["ticket"]
    gateway.call("GET", f"/login?ticket={ticket}", token="", allow_redirects=False)
    link = gateway.call("POST", f"/api/v1/artifacts/{_artifact(gateway, base)}/link", {}, expect=201).json()["url"].partition("link=")[2]
    gateway.call("POST", f"{base}/recycle", {}, expect=202)
    gateway.wait_state(session, "dormant")
    assert CONTENT in gateway.run_code(session, f"print(open('out/{NAME}.txt').read())")["stdout"]
    gateway.call("DELETE", f"{base}/files/in/{NAME}.csv", expect=204)
    assert gateway.stop() == 0, gateway.tail()
    key = (gateway.state / SECRET_FILE).read_text().strip()
    yield gateway, [gateway.token(), bad, ticket, link, key]


def _artifact(gateway: Gateway, base: str) -> str:
    deadline = time.monotonic() + 30
    while True:
        found = gateway.call("GET", f"{base}/artifacts", expect=200).json()["artifacts"]
        for artifact in found:
            if artifact["path"] == f"out/{NAME}.txt":
                return str(artifact["artifact_id"])
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def lines_with(text: str, marker: str) -> list[str]:
    return [line[:500] for line in text.splitlines() if marker in line]


def test_logs_hold_nothing_of_it(planted: tuple[Gateway, list[str]]) -> None:
    gateway, credentials = planted
    log = gateway.log.read_text(errors="replace")
    assert '"event": "execution"' in log and '"level": "debug"' in log, "there is something to look through"
    for marker in (CODE, CODE.replace("-", "_"), OUTPUT, ERROR, CONTENT, INPUT, NAME, QUERY, *credentials):
        assert not lines_with(log, marker), marker


def test_records_hold_it_in_the_transcript_alone(planted: tuple[Gateway, list[str]]) -> None:
    gateway, credentials = planted
    with sqlite3.connect(gateway.state / "records.sqlite") as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
        held = {table: "\n".join(map(str, db.execute(f"SELECT * FROM {table}"))) for table in tables}
    assert CODE in held["cells"] and OUTPUT in held["cells"] and ERROR in held["cells"], "its own document has all of it"
    assert len(held["executions"].splitlines()) >= 9 and NAME in held["artifacts"]
    held["executions"], hints = _HINTS.subn("", held["executions"])
    assert hints >= 2, "the import and the broken one"
    for table, text in held.items():
        for marker in (CODE, CODE.replace("-", "_"), OUTPUT, ERROR, CONTENT) if table != "cells" else ():
            assert not lines_with(text, marker), (table, marker)
        for marker in (INPUT, QUERY, *credentials):
            assert not lines_with(text, marker), (table, marker)
        if table not in LISTS_FILES:
            assert not lines_with(text, NAME), table


def test_no_other_file_of_the_gateway_holds_it(planted: tuple[Gateway, list[str]]) -> None:
    gateway, credentials = planted
    looked_at = 0
    for path in gateway.state.rglob("*"):
        parts = path.relative_to(gateway.state).parts
        if not path.is_file() or parts[0] in OWN or parts[0].startswith("records.sqlite"):
            continue
        looked_at += 1
        content = path.read_bytes()
        for marker in (CODE, OUTPUT, ERROR, CONTENT, INPUT, NAME, QUERY, *credentials[:-1]):
            assert marker.encode() not in content, (path, marker)
    assert looked_at >= 2


def test_the_traces_that_an_admin_sees_hold_hashes(planted: tuple[Gateway, list[str]]) -> None:
    gateway, credentials = planted
    gateway.start()
    root = gateway.token("root", "t1", "admin")
    found = gateway.call("GET", "/api/v1/admin/executions", token=root, expect=200)
    assert len(found.json()["executions"]) >= 9
    assert any(e["inputs"] for e in found.json()["executions"]) and all(len(h) == 64 for e in found.json()["executions"] for h in e["inputs"] or ())
    audit = gateway.call("GET", "/api/v1/admin/audit", token=root, expect=200)
    for marker in (CODE, OUTPUT, ERROR, CONTENT, INPUT, NAME, QUERY, *credentials):
        assert marker not in found.text and marker not in audit.text, marker
    assert gateway.stop() == 0, gateway.tail()


def test_the_store_holds_contents_and_no_names(planted: tuple[Gateway, list[str]]) -> None:
    gateway, _ = planted
    files: list[Path] = [p for p in (gateway.state / "store").rglob("*") if p.is_file()]
    assert any(CONTENT.encode() in p.read_bytes() for p in files)
    assert not any(NAME in str(p) for p in files)
