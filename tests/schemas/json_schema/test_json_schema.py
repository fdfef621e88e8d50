"""JSON Schemas: what is one, and when one allows everything that another allows."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.schemas.parsed import unreadable
from headwater.schemas.schema import InvalidSchema
from tests.schemas.reading import kinds, read

S, I, N = {"type": "string"}, {"type": "integer"}, {"type": "number"}  # noqa: E741


def obj(properties: dict[str, Any], *, closed: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"additionalProperties": False} if closed else {}), **more}


# reader, writer, the kinds of what is wrong
CASES: dict[str, tuple[Any, Any, set[str]]] = {
    "the same": (obj({"a": S}), obj({"a": S}), set()),
    "everything": ({}, obj({"a": S}), set()),
    "nothing": (False, S, {"NOTHING_ALLOWED"}),
    "integer to number": (N, I, set()),
    "number to integer": (I, N, {"TYPE_CHANGED"}),
    "string to integer": (I, S, {"TYPE_CHANGED"}),
    "a type more": ({"type": ["string", "null"]}, S, set()),
    "a type less": (S, {"type": ["string", "null"]}, {"TYPE_NARROWED"}),
    "a property more, closed": (obj({"a": S, "b": S}, closed=True), obj({"a": S}, closed=True), set()),
    "a property more, open": (obj({"a": S, "b": S}), obj({"a": S}), {"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"}),
    "a property more of any kind, open": (obj({"a": S, "b": {}}), obj({"a": S}), set()),
    "a property less, open": (obj({"a": S}), obj({"a": S, "b": S}), set()),
    "a property less, closed": (
        obj({"a": S}, closed=True), obj({"a": S, "b": S}, closed=True), {"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"},
    ),
    "a property widened": (obj({"a": N}), obj({"a": I}), set()),
    "a property narrowed": (obj({"a": I}), obj({"a": N}), {"TYPE_CHANGED"}),
    "opened": (obj({"a": S}), obj({"a": S}, closed=True), set()),
    "closed": (obj({"a": S}, closed=True), obj({"a": S}), {"ADDITIONAL_PROPERTIES_REMOVED"}),
    "required now": (obj({"a": S}, required=["a"]), obj({"a": S}), {"REQUIRED_PROPERTY_ADDED"}),
    "required now, with a default": (obj({"a": {**S, "default": ""}}, required=["a"]), obj({"a": S}), set()),
    "not required any more": (obj({"a": S}), obj({"a": S}, required=["a"]), set()),
    "a longer text allowed": ({**S, "maxLength": 9}, {**S, "maxLength": 5}, set()),
    "a shorter text only": ({**S, "maxLength": 5}, {**S, "maxLength": 9}, {"MAX_LENGTH_CHANGED"}),
    "a length now": ({**S, "maxLength": 5}, S, {"MAX_LENGTH_ADDED"}),
    "a length no more": (S, {**S, "maxLength": 5}, set()),
    "a minimum lowered": ({**I, "minimum": 1}, {**I, "minimum": 5}, set()),
    "a minimum raised": ({**I, "minimum": 5}, {**I, "minimum": 1}, {"MINIMUM_CHANGED"}),
    "a minimum that is exclusive now": ({**I, "exclusiveMinimum": 1}, {**I, "minimum": 1}, {"MINIMUM_CHANGED"}),
    "draft 4's exclusive minimum": (
        {**I, "minimum": 1}, {**I, "minimum": 1, "exclusiveMinimum": True,
        "$schema": "http://json-schema.org/draft-04/schema#"}, set(),
    ),
    "a multiple of less": ({**I, "multipleOf": 2}, {**I, "multipleOf": 4}, set()),
    "a multiple of more": ({**I, "multipleOf": 4}, {**I, "multipleOf": 2}, {"MULTIPLE_OF_CHANGED"}),
    "a pattern now": ({**S, "pattern": "a"}, S, {"PATTERN_ADDED"}),
    "another pattern": ({**S, "pattern": "a"}, {**S, "pattern": "b"}, {"PATTERN_CHANGED"}),
    "a value more": ({"enum": ["a", "b"]}, {"enum": ["a"]}, set()),
    "a value less": ({"enum": ["a"]}, {"enum": ["a", "b"]}, {"ENUM_ARRAY_NARROWED"}),
    "values now": ({"enum": ["a"]}, S, {"ENUM_ARRAY_NARROWED"}),
    "values no more": (S, {"enum": ["a"]}, set()),
    "a constant of another type": (S, {"const": 1}, {"TYPE_CHANGED"}),
    "items widened": ({"type": "array", "items": N}, {"type": "array", "items": I}, set()),
    "items narrowed": ({"type": "array", "items": I}, {"type": "array", "items": N}, {"TYPE_CHANGED"}),
    "unique now": ({"type": "array", "uniqueItems": True}, {"type": "array"}, {"UNIQUE_ITEMS_ADDED"}),
    "tuples that get longer": (
        {"type": "array", "items": [I, S], "additionalItems": False}, {"type": "array", "items": [I],
        "additionalItems": False}, set(),
    ),
    "a choice more": ({"oneOf": [S, I]}, {"oneOf": [S]}, set()),
    "a choice less": ({"oneOf": [S]}, {"oneOf": [S, I]}, {"SUM_TYPE_NARROWED"}),
    "into a choice": ({"anyOf": [S, I]}, S, set()),
    "into no choice": ({"anyOf": [S, I]}, {"type": "boolean"}, {"SUM_TYPE_NARROWED"}),
    "a condition more": ({"allOf": [S, {"maxLength": 3}]}, S, {"MAX_LENGTH_ADDED", "PRODUCT_TYPE_EXTENDED"}),
    "a condition less": (S, {"allOf": [S, {"maxLength": 3}]}, set()),
    "not now": ({"not": S}, I, {"NOT_CHANGED"}),
    "a reference": ({"$ref": "#/$defs/a", "$defs": {"a": N}}, {"$ref": "#/$defs/a", "$defs": {"a": I}}, set()),
    "a reference to another type": (
        {"$ref": "#/$defs/a", "$defs": {"a": S}}, {"$ref": "#/$defs/a", "$defs": {"a": I}}, {"TYPE_CHANGED"},
    ),
    "one that holds itself": (
        obj({"a": N, "next": {"$ref": "#"}}, closed=True), obj({"a": I, "next": {"$ref": "#"}}, closed=True), set(),
    ),
    "one that holds itself, narrowed": (
        obj({"a": I, "next": {"$ref": "#"}}, closed=True), obj({"a": N, "next": {"$ref": "#"}}, closed=True),
        {"TYPE_CHANGED"},
    ),
    "patterns of properties": (
        obj({}, patternProperties={"^x": N}), obj({}, patternProperties={"^x": I}), set(),
    ),
    "a pattern of properties more": (obj({}, patternProperties={"^x": N}), obj({}), {"PATTERN_PROPERTY_ADDED"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_can_be_read(case: str) -> None:
    reader, writer, expected = CASES[case]
    assert kinds(unreadable(read("JSON", reader), read("JSON", writer))) == expected


def test_the_reason_names_the_path() -> None:
    reader, writer = obj({"a": obj({"b": I})}), obj({"a": obj({"b": S})})
    (found,) = unreadable(read("JSON", reader), read("JSON", writer))
    assert found.path == "#/properties/a/properties/b/type"


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_old_drafts_are_read(draft: str) -> None:
    read("JSON", {"$schema": f"http://json-schema.org/{draft}/schema#", "type": "object"})


@pytest.mark.parametrize("draft", ["2019-09", "2020-12"])
def test_new_drafts_are_read(draft: str) -> None:
    schema = {
        "$schema": f"https://json-schema.org/draft/{draft}/schema",
        "$defs": {"a": {"$anchor": "A"}},
        "$ref": "#A",
    }
    read("JSON", schema)


@pytest.mark.parametrize(
    "bad",
    ["[]", "5", '{"type": 5}', '{"type": "text"}', '{"required": "a"}', '{"minimum": "a"}', '{"$ref": "#/nowhere"}',
     '{"$ref": "other.json"}', '{"properties": []}', "{", '{"$schema": 5}', "[" * 10_000,
     '{"a":' * 500 + "1" + "}" * 500],
)  # fmt: skip
def test_what_is_no_schema_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSchema):
        read("JSON", bad)


def test_references_lead_to_other_schemas() -> None:
    named = {"address.json": '{"type": "object", "properties": {"city": {"type": "string"}}}'}
    one = read("JSON", obj({"home": {"$ref": "address.json"}}), named)
    assert not unreadable(one, one)
    other = read("JSON", obj({"home": {"$ref": "address.json#/properties/city"}}), named)
    assert kinds(unreadable(one, other)) == {"TYPE_CHANGED"}


SMALL = st.integers(0, 4)


def schemas(sums: tuple[str, ...], depth: int = 2) -> st.SearchStrategy[Any]:
    scalars = st.one_of(
        st.builds(dict, type=st.sampled_from(["string", "integer", "number", "boolean", "null"])),
        st.builds(lambda most: {"type": "integer", "maximum": most}, SMALL),
        st.builds(lambda least: {"type": "integer", "exclusiveMinimum": least}, SMALL),
        st.builds(lambda most: {"type": "string", "maxLength": most}, SMALL),
        st.builds(
            lambda values: {"enum": values}, st.lists(st.sampled_from([1, 2, "a", None]), min_size=1, unique=True)
        ),
        st.just({}),
    )
    if depth == 0:
        return scalars
    inner = schemas(sums, depth - 1)
    properties = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    return st.one_of(
        scalars,
        st.builds(obj, properties, closed=st.booleans(), required=st.lists(st.sampled_from("ab"), unique=True)),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda key, of: {key: of}, st.sampled_from(sums), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda members: {"allOf": members}, st.lists(inner, min_size=1, max_size=2)),
    )


SCALARS = st.one_of(st.sampled_from([None, True, 1.5, "", "a", "aaaaaa"]), st.integers(-1, 6))
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner)),
    max_leaves=4,
)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas(("anyOf",)), schemas(("anyOf", "oneOf")), st.lists(DOCUMENTS, min_size=5, max_size=20))
def test_whatever_counts_as_readable_is_valid_for_the_reader(reader: Any, writer: Any, documents: list[Any]) -> None:
    if unreadable(read("JSON", json.dumps(reader)), read("JSON", json.dumps(writer))):
        return
    accepts, writes = jsonschema.Draft7Validator(reader), jsonschema.Draft7Validator(writer)
    for document in documents:
        assert accepts.is_valid(document) or not writes.is_valid(document), document
