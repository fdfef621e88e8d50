"""Which change each level allows, for every kind: a table of known cases."""

import json

import pytest

from headwater.schemas.levels import Level
from headwater.schemas.parsed import incompatibilities
from tests.schemas.reading import read


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


def obj(*names: str, required: tuple[str, ...] = ()) -> str:
    properties = {name: {"type": "string"} for name in names}
    return json.dumps(
        {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    )


def proto(body: str) -> str:
    return f'syntax = "proto3"; message M {{ {body} }}'


A = {"name": "a", "type": "string"}
B, B_DEFAULT = {"name": "b", "type": "int"}, {"name": "b", "type": "int", "default": 0}
B_TEXT, C = {"name": "b", "type": "string", "default": ""}, {"name": "c", "type": "string"}
ONE, TWO = "string a = 1;", "string a = 1; int32 b = 2;"

BACKWARD, FORWARD, FULL, NEITHER = "BACKWARD", "FORWARD", "FULL", "neither"
# kind, earlier versions, the new one, what it is to the latest, what it is to all of them
CASES = {
    "avro: a field with a default is added": ("AVRO", [record(A)], record(A, B_DEFAULT), FULL, FULL),
    "avro: a field without one is added": ("AVRO", [record(A)], record(A, B), FORWARD, FORWARD),
    "avro: a field with a default is removed": ("AVRO", [record(A, B_DEFAULT)], record(A), FULL, FULL),
    "avro: a field without one is removed": ("AVRO", [record(A, B)], record(A), BACKWARD, BACKWARD),
    "avro: a field is renamed": ("AVRO", [record(A)], record(C), NEITHER, NEITHER),
    "avro: a type is widened": ("AVRO", ['"int"'], '"long"', BACKWARD, BACKWARD),
    "avro: a type is narrowed": ("AVRO", ['"long"'], '"int"', FORWARD, FORWARD),
    "avro: a branch is added": ("AVRO", ['["null","int"]'], '["null","int","string"]', BACKWARD, BACKWARD),
    "avro: a default is dropped after all have the field": (
        "AVRO", [record(A), record(A, B_DEFAULT)], record(A, B), FULL, FORWARD,
    ),
    "avro: a field comes back with another type": (
        "AVRO", [record(A, B_DEFAULT), record(A)], record(A, B_TEXT), FULL, NEITHER,
    ),
    "json: a property is added": ("JSON", [obj("a")], obj("a", "b"), BACKWARD, BACKWARD),
    "json: a property is removed": ("JSON", [obj("a", "b")], obj("a"), FORWARD, FORWARD),
    "json: a property is required": ("JSON", [obj("a")], obj("a", required=("a",)), FORWARD, FORWARD),
    "json: a property is required no more": ("JSON", [obj("a", required=("a",))], obj("a"), BACKWARD, BACKWARD),
    "json: a type is changed": ("JSON", ['{"type":"string"}'], '{"type":"integer"}', NEITHER, NEITHER),
    "json: nothing is changed": ("JSON", [obj("a")], obj("a"), FULL, FULL),
    "json: a property comes back": (
        "JSON", [obj("a", required=("a",)), obj("a")], obj("a", required=("a",)), FORWARD, FORWARD,
    ),
    "json: a type is widened in two steps": (
        "JSON", ['{"enum":[1]}', '{"type":"integer"}'], '{"type":"number"}', BACKWARD, BACKWARD,
    ),
    "protobuf: a field is added": ("PROTOBUF", [proto(ONE)], proto(TWO), FULL, FULL),
    "protobuf: a field is removed": ("PROTOBUF", [proto(TWO)], proto(ONE), FULL, FULL),
    "protobuf: a type is changed": ("PROTOBUF", [proto(ONE)], proto("int32 a = 1;"), NEITHER, NEITHER),
    "protobuf: a message is added": (
        "PROTOBUF", [proto(ONE)], proto(ONE) + "message N {}", BACKWARD, BACKWARD,
    ),
    "protobuf: a choice grows": (
        "PROTOBUF", [proto(f"oneof o {{ {ONE} }}")], proto(f"oneof o {{ {TWO} }}"), BACKWARD, BACKWARD,
    ),
    "protobuf: a number is used again": (
        "PROTOBUF", [proto(TWO), proto(ONE)], proto("string a = 1; string b = 2;"),
        FULL, NEITHER,
    ),
    "another kind": ("AVRO", [record(A)], proto(ONE), NEITHER, NEITHER),
}  # fmt: skip


def allowed(what: str, level: Level) -> bool:
    if level is Level.NONE:
        return True
    return what == FULL or level.value.removesuffix("_TRANSITIVE") == what


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("case", CASES)
def test_what_a_level_allows(case: str, level: Level) -> None:
    kind, earlier, new, to_latest, to_all = CASES[case]
    new_kind = "PROTOBUF" if new.startswith("syntax") else kind
    found = incompatibilities(read(new_kind, new), [read(kind, text) for text in earlier], level)
    assert (not found) == allowed(to_all if level.is_transitive else to_latest, level), [str(each) for each in found]
    assert all(each.path and each.reason for each in found)
