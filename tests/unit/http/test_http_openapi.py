"""The OpenAPI document: every native route is in it, it is valid, it is what is served, and what it says of requests is what is checked."""

from __future__ import annotations

import json
import re
from pathlib import Path

from http_real import real, session
from http_served import assert_problem, js
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel

from gateway.http import operations, scopes
from gateway.http.app import make_app
from gateway.http.models import answers
from gateway.http.openapi import document

ROOT = Path(__file__).parents[3]
TOLD = json.loads(document())
WORDS = {"execution_id": "none", "artifact_id": "none", "user": "nobody", "path": "out/x.txt"}


def test_every_native_route_is_in_the_document() -> None:
    app = make_app(None, None)  # type: ignore[arg-type]
    served = {
        (scopes.shape(path), method.lower())
        for rule in app.wildcard_router.rules
        for path in [rule.matcher.regex.pattern.removesuffix("$")]  # type: ignore[attr-defined]
        if path.startswith("/api/v1")
        for method in scopes.methods_of(rule.target)
    }
    told = {(scopes.shape(path), method) for path, methods in TOLD["paths"].items() for method in methods}
    assert served == told and len(served) > 45


def test_the_document_is_valid_and_checked_in() -> None:
    OpenAPIV31SpecValidator(TOLD).validate()
    assert (ROOT / "docs" / "openapi.json").read_bytes() == document(), "run scripts/generate_docs.py"
    names = [op.name for methods in operations.TABLE.values() for op in methods.values()]
    assert len(names) == len(set(names))


def test_what_a_route_needs_is_in_the_document() -> None:
    paths = TOLD["paths"]
    run = paths["/api/v1/sessions/{session_id}/executions"]["post"]
    assert run["x-required-scopes"] == ["execute"] and {"200", "202", "400", "401", "403", "404", "409", "413"} <= set(run["responses"])
    assert run["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ExecuteBody"}
    assert [p["name"] for p in run["parameters"]] == ["session_id", "wait", "Idempotency-Key"]
    assert paths["/api/v1/openapi.json"]["get"]["security"] == []


async def test_what_the_document_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    """Each operation, with a key and with a query argument that it does not have: the known ones are those of the document."""
    async with real(tmp_path) as s:
        boss = s.token("boss", "t1", "admin")
        session_id = await session(s, boss)
        for path, methods in operations.TABLE.items():
            target = re.sub(r"\{(\w+)\}", lambda m: (WORDS | {"session_id": session_id})[m.group(1)], path)
            for method, op in methods.items():
                told = TOLD["paths"][path][method.lower()]
                if "security" in told:
                    continue
                known = sorted(p["name"] for p in told.get("parameters", ()) if p["in"] == "query")
                odd = await s.call(method, f"{target}?no_such=1", boss, {} if method in ("POST", "PUT") else None)
                problem = assert_problem(odd, 400, "bad_request")
                assert problem["key"] == "no_such" and problem["known"] == known, (method, path)
                if not isinstance(op.body, type):
                    continue
                schema = TOLD["components"]["schemas"][op.body.__name__]
                problem = assert_problem(await s.call(method, target, boss, {"no_such": 1}), 400, "bad_request")
                assert problem["key"] == "no_such" and problem["known"] == sorted(schema.get("properties", {})), (method, path)


def test_every_model_of_an_answer_is_in_the_document() -> None:
    models = {name for name, m in vars(answers).items() if isinstance(m, type) and issubclass(m, BaseModel) and m.__module__ == answers.__name__}
    assert models - {"Answer", "Open"} <= set(TOLD["components"]["schemas"])


async def test_it_is_served_to_everybody(tmp_path: Path) -> None:
    async with real(tmp_path) as s:
        found = await s.call("GET", "/api/v1/openapi.json")
        assert found.code == 200 and found.body == document() and js(found)["openapi"] == "3.1.0"
