"""The OpenAPI 3.1 document of the native API, from the tables of operations and scopes and the models that check requests."""

from __future__ import annotations

import asyncio
import functools
import http
import json
import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .. import __version__
from ..domain.scopes import MEANING
from . import scopes
from .base import Base
from .errors import CONTENT_TYPE
from .models import answers
from .operations import TABLE, Operation

Json = dict[str, Any]
REF = "#/components/schemas/{model}"
ID_PATTERN = "^[A-Za-z0-9_.-]{1,128}$"
REFUSALS = {
    400: "Malformed: `bad_request` or `path_refused`; `key` names what is wrong", 401: "No credential that holds",
    403: "The role or a scope is missing: `scope` names it", 404: "Unknown, ended long ago, or somebody else's", 405: "No such method here",
    409: "The present state does not admit it", 410: "The session has ended", 413: "Over a limit", 422: "A file's content is not let in or out",
    429: "A quota is reached", 503: "A part of the platform does not serve now",
}  # fmt: skip


@functools.cache
def document() -> bytes:
    """As it is served and checked in: the same bytes for the same source."""
    return json.dumps(build(), indent=1, ensure_ascii=False).encode() + b"\n"


def build() -> Json:
    models: set[type[BaseModel]] = {answers.Problem}
    for methods in TABLE.values():
        for op in methods.values():
            models |= {content for content in (op.answer, op.body) if isinstance(content, type)}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in ordered], ref_template=REF)
    opened = "; ".join(f"`{scope}`: {text}" for scope, text in MEANING.items())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sandglass", "version": __version__,
            "description": "Stateful sessions in sandboxes. Every refusal is problem+json with a stable `code`. An error of the user's code is no "
            "refusal: its execution answers 200 with the status `error`.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"page": []}],
        "paths": {path: {method.lower(): _operation(path, method, op) for method, op in methods.items()} for path, methods in TABLE.items()},
        "components": {
            "schemas": {name: _plain(schema) for name, schema in sorted(schemas["$defs"].items())},
            "responses": {_name(status): _refusal(status) for status in REFUSALS},
            "securitySchemes": {
                "bearer": {
                    "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
                    "description": f"Its claim `scope` narrows it to some of: {opened}.",
                },
                "page": {"type": "apiKey", "in": "cookie", "name": "sandglass_page", "description": "Of the page, from a login link."},
            },
        },
    }  # fmt: skip


def _refusal(status: int) -> Json:
    value: Json = {"description": REFUSALS[status], "content": _content(answers.Problem, CONTENT_TYPE)}
    if status in (429, 503):
        value["headers"] = {"Retry-After": {"description": "Seconds", "required": True, "schema": {"type": "integer", "minimum": 1}}}
    return value


def _operation(path: str, method: str, op: Operation) -> Json:
    needed = scopes.TABLE[path][method]
    public = needed is scopes.PUBLIC
    statuses = {400, *op.refuses} if public else {400, 401, 403, 503, *op.refuses}
    if "{" in path:
        statuses.add(404)
    if op.body is not None:
        statuses.add(413)
    answered = {str(status): _answer(op.answer, status) for status in (op.status, *op.also)}
    value: Json = {"operationId": op.name, "summary": op.does, "tags": [_tag(path)]}
    if public:
        value["security"] = []
    else:
        value["x-required-scopes"] = [str(scope) for scope in needed or ()]
    if parameters := [*_path_parameters(path), *_query_parameters(op), *_header_parameters(op)]:
        value["parameters"] = parameters
    if isinstance(op.body, str):
        value["requestBody"] = {"required": True, "content": {op.body: {}}}
    elif op.body is not None:
        required = any(field.is_required() for field in op.body.model_fields.values())
        value["requestBody"] = {"required": required, "content": _content(op.body, "application/json")}
    value["responses"] = answered | {str(status): {"$ref": f"#/components/responses/{_name(status)}"} for status in sorted(statuses)}
    return value


def _answer(content: type[BaseModel] | str | None, status: int) -> Json:
    described: Json = {"description": http.HTTPStatus(status).phrase}
    if isinstance(content, str):
        described["content"] = {content: {}}
    elif content is not None:
        described["content"] = _content(content, "application/json")
    return described


def _content(model: type[BaseModel], media_type: str) -> Json:
    return {media_type: {"schema": {"$ref": REF.format(model=model.__name__)}}}


def _path_parameters(path: str) -> list[Json]:
    found = []
    for name in re.findall(r"\{(\w+)\}", path):
        schema: Json = {"type": "string", "minLength": 1}
        if name.endswith("_id"):
            schema["pattern"] = ID_PATTERN
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    return found


def _query_parameters(op: Operation) -> list[Json]:
    schema = op.query.model_json_schema()
    return [_parameter(name, each, name in schema.get("required", ())) for name, each in schema.get("properties", {}).items()]


def _parameter(name: str, schema: Json, required: bool) -> Json:
    """An argument is a text or absent, never null."""
    schema = dict(schema)
    choices = [choice for choice in schema.pop("anyOf", []) if choice.get("type") != "null"]
    schema |= choices[0] if choices else {}
    default = schema.pop("default", None)
    if default is not None:
        schema["default"] = str(int(default)) if isinstance(default, bool) else default
    said = schema.pop("description", "")
    value: Json = {"name": name, "in": "query", "required": required, "schema": _plain(schema)}
    return value | ({"description": said} if said else {})


def _header_parameters(op: Operation) -> list[Json]:
    told = (op.headers or {}).items()
    return [{"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}} for name, text in told]


def _plain(schema: Any) -> Any:
    """Without the titles that repeat the names."""
    if isinstance(schema, dict):
        return {name: _plain(value) for name, value in schema.items() if not (name == "title" and isinstance(value, str))}
    return [_plain(each) for each in schema] if isinstance(schema, list) else schema


def _name(status: int) -> str:
    return http.HTTPStatus(status).name.title().replace("_", "")


def _tag(path: str) -> str:
    parts = path.removeprefix(f"{scopes.V1}/").split("/")
    return "admin" if parts[0] == "admin" else parts[2] if len(parts) > 2 and parts[0] == "sessions" else parts[0].removesuffix(".json")


class OpenApiHandler(Base):
    """For everybody: it is the same for all, and holds nobody's data."""

    async def get(self) -> None:
        text = await asyncio.to_thread(document)  # made once; that takes a moment
        self.set_header("Content-Type", "application/json")
        self.finish(text)
