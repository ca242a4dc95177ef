"""Schemathesis, from the served OpenAPI document, at a whole gateway on the fake runtime: no 500, and no answer that the document does not tell."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from pathlib import Path

import pytest
from http_real import Real, real, session
from http_served import js

from gateway.http.deps import HttpLimits
from gateway.http.operations import TABLE

BUDGET_S = 30
ENDLESS = ("events", "execution_events")
"""An event stream ends with its session; tests of its own read it."""
OWN_SESSION = ("end_session", "admin_end", "recycle", "restart")
"""What takes the sandbox away from the others gets a session of its own."""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


async def test_no_request_that_the_document_suggests_leads_to_a_500(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").mkdir()
    async with real(tmp_path / "state", http=HttpLimits(wait_s=0.2)) as s:
        token = s.token("boss", "t1", "admin")
        config = await _prepared(s, token, tmp_path)
        with caplog.at_level(logging.ERROR):
            code, said = await _run(s, token, config, tmp_path)
        print(said)  # shown where it fails
        assert code == 0
        tested = re.search(r"Tested: (\d+)", said)
        assert tested is not None and int(tested.group(1)) > 30, "hardly anything was tried"
        assert not [r for r in caplog.records if r.getMessage() == "a request failed"]
        assert s.rig.tasks.failures == 0
        assert js(await s.call("GET", "/api/v1/me", token))["user"] == "boss"  # it goes on serving


async def _prepared(s: Real, token: str, tmp_path: Path) -> Path:
    """Sessions with something in them, and a configuration that names them: made-up ids would only ever be not found."""
    main, *others = [await session(s, token) for _ in range(1 + len(OWN_SESSION))]
    path = f"/api/v1/sessions/{main}"
    ran = js(await s.call("POST", f"{path}/executions?wait=5", token, {"code": "print:hello\nwrite:out/a.txt:text\nkeep:out/*"}))
    stored = [js(await s.call("PUT", f"{path}/files/in/{name}.txt", token, name)) for name in ("one", "two")]
    assert all(each["artifact_id"] for each in stored), stored
    ids = {"session_id": main, "execution_id": ran["execution_id"], "artifact_id": stored[0]["artifact_id"]}
    lines = ["[parameters]", *(f'"path.{name}" = "{value}"' for name, value in ids.items())]
    for operation, session_id in zip(OWN_SESSION, others, strict=True):
        lines += ["[[operations]]", f'include-operation-id = "{operation}"', f'parameters = {{ "path.session_id" = "{session_id}" }}']
    lines += ["[[operations]]", 'include-operation-id = "delete_artifact"', f'parameters = {{ "path.artifact_id" = "{stored[1]["artifact_id"]}" }}']
    config = tmp_path / "schemathesis.toml"
    config.write_text("\n".join(lines))
    return config


async def _run(s: Real, token: str, config: Path, tmp_path: Path) -> tuple[int, str]:
    names = [op.name for methods in TABLE.values() for op in methods.values()]
    assert set(ENDLESS) | set(OWN_SESSION) <= set(names)
    arguments = [
        str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config), "run", f"http://127.0.0.1:{s.port}/api/v1/openapi.json",
        "--header", f"Authorization: Bearer {token}", "--phases", "coverage,fuzzing", "--max-examples", "5", "--max-time", str(BUDGET_S),
        "--checks", CHECKS, "--seed", "7", "--request-timeout", "10", "--continue-on-failure", "--warnings", "off", "--no-color",
        *(each for name in ENDLESS for each in ("--exclude-operation-id", name)),
    ]  # fmt: skip
    made = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}
    )
    try:
        said, _ = await asyncio.wait_for(made.communicate(), 3 * BUDGET_S)
    finally:
        if made.returncode is None:
            made.kill()
            await made.wait()
    return made.returncode or 0, said.decode(errors="replace")
