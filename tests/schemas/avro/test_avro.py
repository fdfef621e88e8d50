"""Avro schemas: what is one, how it is written, and what can read what."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.schemas.parsed import unreadable
from headwater.schemas.schema import InvalidSchema
from tests.schemas.reading import kinds, read


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


A = field("a", "int")
TREE = record(A, field("next", ["null", "R"], default=None))

# reader, writer, the kinds of what is wrong
CASES: dict[str, tuple[Any, Any, set[str]]] = {
    "the same": (record(A), record(A), set()),
    "a field more, with a default": (record(A, field("b", "string", default="")), record(A), set()),
    "a field more, without": (record(A, field("b", "string")), record(A), {"READER_FIELD_MISSING_DEFAULT_VALUE"}),
    "a field less": (record(A), record(A, field("b", "string")), set()),
    "an optional field more": (record(A, field("b", ["null", "string"], default=None)), record(A), set()),
    "a field renamed": (record(field("b", "int")), record(A), {"READER_FIELD_MISSING_DEFAULT_VALUE"}),
    "a field renamed, with an alias": (record(field("b", "int", aliases=["a"])), record(A), set()),
    "another name": (record(A, name="S"), record(A), {"NAME_MISMATCH"}),
    "another name, with an alias": (record(A, name="S", aliases=["R"]), record(A), set()),
    "another namespace": (record(A, namespace="x"), record(A, namespace="y"), set()),
    "int to long": ("long", "int", set()),
    "int to float": ("float", "int", set()),
    "int to double": ("double", "int", set()),
    "long to float": ("float", "long", set()),
    "long to double": ("double", "long", set()),
    "float to double": ("double", "float", set()),
    "string to bytes": ("bytes", "string", set()),
    "bytes to string": ("string", "bytes", set()),
    "long to int": ("int", "long", {"TYPE_MISMATCH"}),
    "double to float": ("float", "double", {"TYPE_MISMATCH"}),
    "int to string": ("string", "int", {"TYPE_MISMATCH"}),
    "boolean to int": ("int", "boolean", {"TYPE_MISMATCH"}),
    "null to int": ("int", "null", {"TYPE_MISMATCH"}),
    "array of a wider type": ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, set()),
    "array of another type": (
        {"type": "array", "items": "int"}, {"type": "array", "items": "string"}, {"TYPE_MISMATCH"},
    ),
    "map of a wider type": ({"type": "map", "values": "double"}, {"type": "map", "values": "int"}, set()),
    "map of another type": ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, {"TYPE_MISMATCH"}),
    "map to array": ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, {"TYPE_MISMATCH"}),
    "a symbol more": (enum("A", "B"), enum("A"), set()),
    "a symbol less": (enum("A"), enum("A", "B"), {"MISSING_ENUM_SYMBOLS"}),
    "a symbol less, with a default": (enum("A", default="A"), enum("A", "B"), set()),
    "fixed of the same size": (fixed(4), fixed(4), set()),
    "fixed of another size": (fixed(4), fixed(8), {"FIXED_SIZE_MISMATCH"}),
    "fixed of another name": (fixed(4, "G"), fixed(4), {"NAME_MISMATCH"}),
    "into a union": (["null", "int"], "int", set()),
    "into a union, promoted": (["null", "long"], "int", set()),
    "into a union without it": (["null", "string"], "int", {"MISSING_UNION_BRANCH"}),
    "a union of one out": ("int", ["int"], set()),
    "a union out": ("int", ["null", "int"], {"TYPE_MISMATCH"}),
    "a union that grows": (["null", "int", "string"], ["null", "int"], set()),
    "a union that shrinks": (["null", "int"], ["null", "int", "boolean"], {"MISSING_UNION_BRANCH"}),
    "a type that holds itself": (TREE, TREE, set()),
    "a type that holds itself, changed": (
        record(field("a", "string"), field("next", ["null", "R"], default=None)), TREE, {"TYPE_MISMATCH"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_can_be_read(case: str) -> None:
    reader, writer, expected = CASES[case]
    assert kinds(unreadable(read("AVRO", reader), read("AVRO", writer))) == expected


def test_the_reason_names_the_path() -> None:
    inner = {"type": "array", "items": record(A, name="Item")}
    other = {"type": "array", "items": record(field("a", "string"), name="Item")}
    (found,) = unreadable(read("AVRO", record(field("items", inner))), read("AVRO", record(field("items", other))))
    assert found.path == "/fields/0/type/items/fields/0/type"
    assert str(found) == "TYPE_MISMATCH at /fields/0/type/items/fields/0/type: a reader of int gets string"


@pytest.mark.parametrize(
    "bad",
    [
        '{"type":"record","name":"R"}', '{"type":"record","fields":[]}', '{"type":"enum","name":"E"}',
        '{"type":"enum","name":"E","symbols":["A","A"]}', '{"type":"enum","name":"E","symbols":["1"]}',
        '{"type":"fixed","name":"F"}', '{"type":"fixed","name":"F","size":-1}', '{"type":"array"}', '{"type":"map"}',
        '["int","int"]', '["null",["int"]]', '"integer"', "5", "{}", '{"type":"record","name":"1","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":1}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":2147483648}]}',
        '{"type":"record","name":"R","fields":[{"name":"a"}]}', '{"type":"record","name":"R","fields":[5]}',
        '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
        '[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":2}]', '{"type":NaN}',
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSchema):
        read("AVRO", bad)


def test_hostile_schemas_are_bounded() -> None:
    chain = [record(field("n", f"R{index + 1}") if index < 299 else A, name=f"R{index}") for index in range(300)]
    chain.reverse()
    head = {"type": "record", "name": "Head", "fields": [field("types", chain), field("first", "R0")]}
    assert "TOO_COMPLEX" in kinds(unreadable(read("AVRO", head), read("AVRO", head)))
    wide = [{"type": "fixed", "name": f"F{index}", "size": 1} for index in range(1_000)]
    others = [{"type": "fixed", "name": f"G{index}", "size": 1} for index in range(1_000)]
    assert unreadable(read("AVRO", wide), read("AVRO", others))
    for text in ("[" * 2_000_000, '{"type":"array","items":' * 200 + '"int"' + "}" * 200, '"' + "x" * 2_000_000 + '"'):
        with pytest.raises(InvalidSchema):
            read("AVRO", text)


def test_the_order_of_attributes_and_blanks_make_no_difference() -> None:
    one = read("AVRO", '{"name": "R", "type": "record", "fields": [{"type": {"type": "int"}, "name": "a"}]}')
    assert one.canonical == '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    assert read("AVRO", one.canonical).canonical == one.canonical


def test_normal_schemas_have_full_names() -> None:
    one = read("AVRO", record(A, field("r", ["null", "R"]), namespace="x", doc="d"))
    other = read("AVRO", record(A, field("r", ["null", "x.R"]), name="x.R", doc="d"))
    assert one.canonical != other.canonical and one.normal == other.normal
    assert read("AVRO", one.normal).normal == one.normal


def test_references_are_read_first() -> None:
    named = {"x.Address": json.dumps(record(A, name="Address", namespace="x"))}
    read("AVRO", record(field("home", "x.Address")), named)
    with pytest.raises(InvalidSchema, match=r"x\.Address"):
        read("AVRO", record(field("home", "x.Address")))


# What is called readable is readable

PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
VALUES: dict[str, Any] = {
    "null": None, "boolean": True, "int": 7, "long": 8, "float": 1.5, "double": 2.5, "bytes": b"b", "string": "s",
}  # fmt: skip


def plain_types(depth: int = 2) -> st.SearchStrategy[Any]:
    if depth == 0:
        return PRIMITIVES
    inner = plain_types(depth - 1)
    return st.one_of(
        PRIMITIVES,
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
    )


def types() -> st.SearchStrategy[Any]:
    kinds = st.one_of(plain_types(), st.lists(PRIMITIVES, min_size=1, unique=True))
    fields = st.lists(
        st.tuples(st.sampled_from("abc"), kinds, st.booleans()), max_size=3, unique_by=lambda each: each[0]
    )
    return st.one_of(plain_types(), st.lists(PRIMITIVES, min_size=1, unique=True), st.builds(_record_of, fields))


def _record_of(fields: list[tuple[str, Any, bool]]) -> dict[str, Any]:
    # One name for all records: records inside of records do not occur here, as fields are plain.
    return record(
        *(field(name, kind, default=_default(kind)) if with_default else field(name, kind)
          for name, kind, with_default in fields)
    )  # fmt: skip


def _default(kind: Any) -> Any:
    if isinstance(kind, list):
        return _default(kind[0])
    if isinstance(kind, dict):
        return [] if kind["type"] == "array" else {}
    return "b" if kind == "bytes" else VALUES[kind]


def _values(kind: Any) -> list[Any]:
    """One of each branch."""
    if isinstance(kind, list):
        return [value for branch in kind for value in _values(branch)]
    if isinstance(kind, str):
        return [VALUES[kind]]
    if kind["type"] == "array":
        return [[], *([value] for value in _values(kind["items"]))]
    if kind["type"] == "map":
        return [{}, *({"k": value} for value in _values(kind["values"]))]
    rows: list[dict[str, Any]] = [{}]
    for each in kind["fields"]:
        rows = [{**row, each["name"]: value} for row in rows for value in _values(each["type"])][:20]
    return rows


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(types(), types())
def test_whatever_counts_as_readable_is_read_by_fastavro(reader: Any, writer: Any) -> None:
    verdict = unreadable(read("AVRO", reader), read("AVRO", writer))
    failures = []
    for value in _values(writer):
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(writer))), value)
        data.seek(0)
        try:
            fastavro.schemaless_reader(
                data,
                fastavro.parse_schema(json.loads(json.dumps(writer))),
                fastavro.parse_schema(json.loads(json.dumps(reader))),
            )
        except Exception as error:
            failures.append(error)
    if not verdict:
        assert not failures
