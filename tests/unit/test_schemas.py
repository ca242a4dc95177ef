"""``result_schema``: what is taken, what fits, and that neither schema nor value can hold up the loop."""

from __future__ import annotations

import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.schemas import MAX_PATH, check_schema, mismatch
from gateway.errors import BadRequest

ROWS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["rows"],
    "additionalProperties": False,
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}, "maxItems": 3},
        "note": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}], "default": None},
    },
    "$defs": {"Row": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}, "kind": {"enum": ["a", 1]}}, "required": ["n"]}},
}


@pytest.mark.parametrize(
    ("value", "path", "says"),
    [
        ({"rows": [{"n": 1, "kind": "a"}, {"n": 2.0, "kind": 1.0}], "note": None}, None, ""),
        ({}, "$", "lacks the property 'rows'"),
        ({"rows": [{"n": 1}, {"n": -1}]}, "$.rows[1].n", "at least 0"),
        ({"rows": [{"n": True}]}, "$.rows[0].n", "must be integer"),
        ({"rows": [{"n": 1, "kind": True}]}, "$.rows[0].kind", "enum"),
        ({"rows": [{"n": 1}] * 4}, "$.rows", "at most 3 items"),
        ({"rows": [], "note": "x"}, "$.note", "anyOf"),
        ({"rows": [], "more": 1}, "$.more", "does not have"),
        ([], "$", "must be object"),
    ],
)
def test_the_first_thing_that_does_not_fit_is_named(value: Any, path: str | None, says: str) -> None:
    check_schema(ROWS)
    found = mismatch(ROWS, value)
    assert (found.path if found else None) == path
    assert found is None or says in found.problem


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"pattern": "(a+)+$"}, "'pattern' is not supported"),
        ({"properties": {"x": {"patternProperties": {}}}}, "#/properties/x/patternProperties"),
        ({"$ref": "https://elsewhere.example/schema"}, "same schema"),
        ({"$ref": "#/$defs/None"}, "nothing at"),
        ({"type": "integr"}, "a type is one of"),
        ({"anyOf": []}, "list of schemas"),
        ({"items": 3}, "a schema is an object"),
        ({"minItems": -1}, "not negative"),
        ({"multipleOf": 0}, "above 0"),
        ({"maximum": "9"}, "must be a number"),
        ({"allOf": [{"type": "string"}] * 3000}, "at most 2000 parts"),
    ],
)
def test_what_is_no_schema_here_is_refused_and_never_passed_over(schema: Any, says: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check_schema(schema)
    assert says in refused.value.detail and refused.value.extra["key"] == "result_schema"


def test_neither_loops_nor_sizes_take_long() -> None:
    everything: dict[str, Any] = {"$ref": "#"}
    check_schema(everything)
    assert "nest" in str(mismatch(everything, 1))
    doubled: dict[str, Any] = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
    check_schema(doubled)
    begun = time.perf_counter()
    assert "too long" in str(mismatch(doubled, [])) or "anyOf" in str(mismatch(doubled, []))
    assert "too long" in str(mismatch({"items": {"enum": list(range(500))}}, [499] * 100_000))
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    assert mismatch({"uniqueItems": True}, [deep, deep]) is not None
    assert time.perf_counter() - begun < 5
    found = mismatch({"additionalProperties": {"type": "string"}}, {"k" * 5000: 1})
    assert found is not None and len(found.path) <= MAX_PATH
    assert mismatch({"type": "number", "multipleOf": 0.1, "maximum": 10**400}, 10**400) is not None


scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, -2.0]), st.text("ab", max_size=3))
values = st.recursive(scalars, lambda inner: st.one_of(st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)), max_leaves=8)
plain = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"type": st.sampled_from(["null", "boolean", "string", "array", "object", "number", "integer"])}),
    st.fixed_dictionaries({"enum": st.lists(values, max_size=3)}),
    st.fixed_dictionaries({"const": values}),
    st.fixed_dictionaries({"minimum": st.integers(-2, 2), "exclusiveMaximum": st.integers(-1, 3)}),
    st.fixed_dictionaries({"minLength": st.integers(0, 2), "maxItems": st.integers(0, 2), "minProperties": st.integers(0, 2)}),
    st.fixed_dictionaries({"required": st.lists(st.sampled_from("xyz"), max_size=2, unique=True), "uniqueItems": st.booleans()}),
)
schemas = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"items": inner, "prefixItems": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("xyz"), inner, max_size=2), "additionalProperties": inner}),
        *(st.fixed_dictionaries({name: st.lists(inner, min_size=1, max_size=2)}) for name in ("anyOf", "oneOf", "allOf")),
        st.fixed_dictionaries({"not": inner}),
    ),
    max_leaves=6,
).filter(lambda schema: isinstance(schema, dict))


@settings(max_examples=200, deadline=None)
@given(schemas, values)
def test_it_says_what_a_full_validator_says(schema: Any, value: Any) -> None:
    check_schema(schema)
    assert (mismatch(schema, value) is None) == jsonschema.Draft202012Validator(schema).is_valid(value)
