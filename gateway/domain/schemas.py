"""Whether a value is what a JSON Schema asks for. Pure.

Schema and value both come from people and programs that nobody vouches for, and this runs on everybody's loop: every look at a
node is counted, and past a budget the value counts as refused. A keyword that is not known here is refused when the schema is
taken, never passed over; regular expressions are among them, for they can be made to run for hours. What schema generators make
of typed classes (``$defs``, ``$ref``, ``anyOf``, ``const`` ...) is all here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import BadRequest

MAX_NODES = 2000
"""Of a schema."""
MAX_DEPTH = 64
STEPS = 100_000
"""What checking one value may cost."""
MAX_PATH = 200
Json = dict[str, Any]

_ANNOTATIONS = frozenset(
    {"$schema", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format", "$defs", "definitions"}
)
_SCHEMAS_BY_NAME = ("properties", "$defs", "definitions")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_ONE = ("not", "items", "additionalProperties")
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_OTHERS = frozenset({"type", "enum", "const", "required", "uniqueItems", "$ref"})
KNOWN = _ANNOTATIONS | _COUNTS | _BOUNDS | _OTHERS | {*_SCHEMAS_BY_NAME, *_LISTS, *_ONE}
TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "number": lambda v: _is_number(v),
    "integer": lambda v: _is_number(v) and (isinstance(v, int) or v.is_integer()),
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """``path``: where in the value, ``$`` for all of it. ``problem`` quotes the schema only, never the value."""

    path: str
    problem: str


class _Spent(Exception):
    """The budget is used up."""


def check_schema(schema: Json) -> None:
    """Raises BadRequest: a keyword that is not known here, one with a value that it cannot have, a ``$ref`` that leads nowhere."""
    nodes = 0
    stack: list[tuple[Any, str]] = [(schema, "#")]
    while stack:
        node, where = stack.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise BadRequest(f"result_schema may have at most {MAX_NODES} parts.", key="result_schema")
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise _bad(where, "a schema is an object, true or false")
        for name, value in node.items():
            _check_keyword(schema, name, value, f"{where}/{name}")
        stack += _below(node, where)


def _below(node: Json, where: str) -> Iterator[tuple[Any, str]]:
    for name in _SCHEMAS_BY_NAME:
        yield from ((each, f"{where}/{name}/{key}") for key, each in node.get(name, {}).items())
    for name in _LISTS:
        yield from ((each, f"{where}/{name}/{i}") for i, each in enumerate(node.get(name, [])))
    yield from ((node[name], f"{where}/{name}") for name in _ONE if name in node)


def _check_keyword(schema: Json, name: str, value: Any, where: str) -> None:
    if name not in KNOWN:
        raise BadRequest(
            f"result_schema: the keyword {name[:80]!r} is not supported (at {where[:MAX_PATH]}); known are: {', '.join(sorted(KNOWN))}.",
            key="result_schema", at=where[:MAX_PATH],
        )  # fmt: skip
    if name == "type":
        named = value if isinstance(value, list) and value else [value]
        if not all(isinstance(each, str) and each in TYPES for each in named):
            raise _bad(where, f"a type is one of {', '.join(TYPES)}, or a list of them")
    elif name in _COUNTS and not (_is_number(value) and value >= 0 and (isinstance(value, int) or value.is_integer())):
        raise _bad(where, "must be a whole number that is not negative")
    elif name in _BOUNDS and not (_is_number(value) and (name != "multipleOf" or value > 0)):
        raise _bad(where, "must be a number" + (" above 0" if name == "multipleOf" else ""))
    elif name in _SCHEMAS_BY_NAME and not isinstance(value, dict):
        raise _bad(where, "must be an object of schemas")
    elif name in _LISTS and not (isinstance(value, list) and value):
        raise _bad(where, "must be a list of schemas")
    elif name == "enum" and not isinstance(value, list):
        raise _bad(where, "must be a list")
    elif name == "required" and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise _bad(where, "must be a list of names")
    elif name == "uniqueItems" and not isinstance(value, bool):
        raise _bad(where, "must be true or false")
    elif name == "$ref":
        _resolve(schema, value, where)


def _bad(where: str, what: str) -> BadRequest:
    return BadRequest(f"result_schema, at {where[:MAX_PATH]}: {what}.", key="result_schema", at=where[:MAX_PATH])


def _resolve(schema: Json, ref: Any, where: str) -> Any:
    """What a reference within the schema leads to. Raises BadRequest."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        raise _bad(where, "a $ref leads to a place of the same schema, as in #/$defs/Name")
    node: Any = schema
    for part in ref.split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    if not isinstance(node, dict | bool):
        raise _bad(where, f"there is nothing at {ref[:80]}")
    return node


def mismatch(schema: Json, value: Any) -> Mismatch | None:
    """The first thing that is not as a checked schema asks; None when all of it is."""
    check = _Check(schema)
    try:
        return check.look(schema, value, "$", 0)
    except _Spent:
        return Mismatch("$", "it takes too long to check the value against this schema")


class _Check:
    def __init__(self, schema: Json) -> None:
        self._schema = schema
        self._left = STEPS

    def _spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise _Spent

    def look(self, node: Any, value: Any, at: str, depth: int) -> Mismatch | None:
        self._spend()
        if depth > MAX_DEPTH:
            return Mismatch(at[:MAX_PATH], f"value and schema nest more than {MAX_DEPTH} levels deep")
        if isinstance(node, bool):
            return None if node else Mismatch(at[:MAX_PATH], "nothing is allowed here")
        for problem in self._own(node, value):
            return Mismatch(at[:MAX_PATH], problem)
        return self._combined(node, value, at, depth) or self._within(node, value, at, depth)

    def _own(self, node: Json, value: Any) -> Iterator[str]:
        if "type" in node:
            named = node["type"] if isinstance(node["type"], list) else [node["type"]]
            if not any(TYPES[name](value) for name in named):
                yield f"must be {' or '.join(named)}"
        if "const" in node and self._form(node["const"]) != self._form(value):
            yield "must be the schema's const"
        if "enum" in node:
            form = self._form(value)
            if not any(self._form(each) == form for each in node["enum"]):
                yield "must be one of the schema's enum"
        if isinstance(value, str):
            yield from _counted(node, len(value), "Length", "characters")
        elif isinstance(value, list):
            yield from _counted(node, len(value), "Items", "items")
            if node.get("uniqueItems") and len({self._form(each) for each in value}) < len(value):
                yield "must not have the same item twice"
        elif isinstance(value, dict):
            yield from _counted(node, len(value), "Properties", "properties")
            missing = next((name for name in node.get("required", ()) if name not in value), None)
            if missing is not None:
                yield f"lacks the property {missing[:80]!r}"
        elif _is_number(value):
            yield from _bounded(node, value)

    def _combined(self, node: Json, value: Any, at: str, depth: int) -> Mismatch | None:
        if "$ref" in node and (found := self.look(_resolve(self._schema, node["$ref"], at), value, at, depth + 1)):
            return found
        for each in node.get("allOf", ()):
            if found := self.look(each, value, at, depth + 1):
                return found
        if "anyOf" in node and all(self.look(each, value, at, depth + 1) for each in node["anyOf"]):
            return Mismatch(at[:MAX_PATH], "fits none of the schema's anyOf")
        if "oneOf" in node and sum(self.look(each, value, at, depth + 1) is None for each in node["oneOf"]) != 1:
            return Mismatch(at[:MAX_PATH], "must fit exactly one of the schema's oneOf")
        if "not" in node and self.look(node["not"], value, at, depth + 1) is None:
            return Mismatch(at[:MAX_PATH], "fits what the schema's not excludes")
        return None

    def _within(self, node: Json, value: Any, at: str, depth: int) -> Mismatch | None:
        if isinstance(value, dict):
            known = node.get("properties", {})
            for name, each in value.items():
                self._spend()
                below = known.get(name, node.get("additionalProperties", True))
                if below is not True and (found := self.look(below, each, f"{at}.{name[:80]}", depth + 1)):
                    return found if below is not False else Mismatch(found.path, "is a property that the schema does not have")
        elif isinstance(value, list):
            first = node.get("prefixItems", ())
            for i, each in enumerate(value):
                self._spend()
                below = first[i] if i < len(first) else node.get("items", True)
                if below is not True and (found := self.look(below, each, f"{at}[{i}]", depth + 1)):
                    return found
        return None

    def _form(self, value: Any, depth: int = 0) -> Any:
        """Comparable as JSON compares: 1 is 1.0, and neither is true."""
        self._spend()
        if depth > MAX_DEPTH:
            raise _Spent
        if isinstance(value, dict):
            return ("object", frozenset((name, self._form(each, depth + 1)) for name, each in value.items()))
        if isinstance(value, list):
            return ("array", tuple(self._form(each, depth + 1) for each in value))
        return ("number", value) if _is_number(value) else (type(value).__name__, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _counted(node: Json, count: int, what: str, unit: str) -> Iterator[str]:
    if count < node.get(f"min{what}", 0):
        yield f"must have at least {node[f'min{what}']} {unit}"
    if count > node.get(f"max{what}", math.inf):
        yield f"may have at most {node[f'max{what}']} {unit}"


def _bounded(node: Json, value: Any) -> Iterator[str]:
    if value < node.get("minimum", -math.inf):
        yield f"must be at least {node['minimum']}"
    if value > node.get("maximum", math.inf):
        yield f"may be at most {node['maximum']}"
    if "exclusiveMinimum" in node and value <= node["exclusiveMinimum"]:
        yield f"must be more than {node['exclusiveMinimum']}"
    if "exclusiveMaximum" in node and value >= node["exclusiveMaximum"]:
        yield f"must be less than {node['exclusiveMaximum']}"
    if "multipleOf" in node and not _is_multiple(value, node["multipleOf"]):
        yield f"must be a multiple of {node['multipleOf']}"


def _is_multiple(value: Any, of: Any) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return value % of == 0
    try:
        times = value / of
    except OverflowError:
        return False
    return math.isfinite(times) and abs(times - round(times)) < 1e-9
