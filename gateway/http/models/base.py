"""The base of every request model, and its errors as ``BadRequest``: one sentence, the key that is wrong, never the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from ...errors import BadRequest
from ..body import load

SHOWN_CHARS = 80
"""Of a key that the caller made up."""


class Body(BaseModel):
    """A JSON object with no keys but its fields. Null is the same as absent. A subclass' docstring is published, in the OpenAPI document."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        return {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = handler(core_schema)
        schema = handler.resolve_ref_schema(made)
        for name, each in schema.get("properties", {}).items():
            if name not in schema.get("required", ()):
                schema["properties"][name] = _or_null(each)
        return made


class Query(BaseModel):
    """Query arguments, which are texts; none but the fields. An empty one is the same as an absent one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


B = TypeVar("B", bound=Body)
Q = TypeVar("Q", bound=Query)


def parse_body(raw: bytes, model: type[B]) -> B:
    """A request's JSON body; an empty one is ``{}``. Raises BadRequest, which names the key and, for an unknown one, the known ones."""
    value = load(raw) if raw.strip() else {}
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    only_known(value, model, "key")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _refusal(error, "key") from None


def parse_query(given: Mapping[str, str], model: type[Q]) -> Q:
    """A request's query arguments. Raises BadRequest, as ``parse_body``."""
    only_known(given, model, "query argument")
    try:
        return model.model_validate({name: text for name, text in given.items() if text.strip()})
    except ValidationError as error:
        raise _refusal(error, "query argument") from None


def only_known(value: Mapping[str, Any], model: type[BaseModel], what: str) -> None:
    unknown = sorted(set(value) - set(model.model_fields))
    if unknown:
        known = sorted(model.model_fields)
        raise BadRequest(
            f"Unknown {what} {unknown[0][:SHOWN_CHARS]!r}; known are: {', '.join(known) or 'none'}.",
            key=unknown[0][:SHOWN_CHARS],
            unknown=[name[:SHOWN_CHARS] for name in unknown[:10]],
            known=known,
        )


_MUST_BE = {
    "string_type": "a string", "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "finite_number": "a finite number", "bool_type": "true or false", "list_type": "a list", "dict_type": "an object",
    "model_type": "an object", "model_attributes_type": "an object", "string_unicode": "text; it holds half of a surrogate pair",
}  # fmt: skip
_BOUNDS = {
    "string_too_long": "may have at most {max_length} characters", "string_too_short": "must have at least {min_length} characters",
    "too_long": "may have at most {max_length} entries", "too_short": "must have at least {min_length} entries",
    "greater_than": "must be more than {gt:.16g}", "greater_than_equal": "must be at least {ge:.16g}",
    "less_than": "must be less than {lt:.16g}", "less_than_equal": "may be at most {le:.16g}",
    "literal_error": "must be one of: {expected}", "string_pattern_mismatch": "must have the form {pattern}",
}  # fmt: skip


def _refusal(error: ValidationError, what: str) -> BadRequest:
    """Of several errors the first is told: whoever mends it sees the next."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])[:SHOWN_CHARS]
    if first["type"] == "missing":
        return BadRequest(f"The {what} {key!r} is missing.", key=key)
    if first["type"] == "extra_forbidden":
        return BadRequest(f"Unknown {what} {key!r}.", key=key, unknown=[key])
    named = f"?{key}=" if what != "key" else repr(key)
    return BadRequest(f"{named} {_says(first)}.", key=key)


def _says(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind in _MUST_BE:
        return f"must be {_MUST_BE[kind]}"
    if kind in _BOUNDS:
        return _BOUNDS[kind].format_map(error.get("ctx", {}))
    if kind == "value_error":  # a validator's own words, which say what must be
        return str(error.get("ctx", {}).get("error", "is not valid")).rstrip(".")
    return "is not valid"


def _or_null(schema: JsonSchemaValue) -> JsonSchemaValue:
    """The schema of a key that may be null, which is then absent."""
    choices = schema.get("anyOf", ())
    if any(choice.get("type") == "null" for choice in choices):
        return schema
    apart: JsonSchemaValue = {name: schema[name] for name in ("title", "description", "default", "examples") if name in schema}
    rest = {name: value for name, value in schema.items() if name not in apart}
    return {**apart, "anyOf": [rest, {"type": "null"}]}
