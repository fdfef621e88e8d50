"""Protobuf schemas: text and descriptors, and what can read what."""

import base64

import pytest

from headwater.schemas.parsed import unreadable
from headwater.schemas.schema import InvalidSchema
from tests.schemas.protobuf.proto_sources import HEAD, PROTO2, RICH, message
from tests.schemas.reading import kinds, read

ONE, TWO = "string a = 1;", "string a = 1; int32 b = 2;"

# reader, writer, the kinds of what is wrong
CASES: dict[str, tuple[str, str, set[str]]] = {
    "the same": (message(ONE), message(ONE), set()),
    "a field more": (message(TWO), message(ONE), set()),
    "a field less": (message(ONE), message(TWO), set()),
    "a field renamed": (message("string z = 1;"), message(ONE), set()),
    "a field renumbered": (message("string a = 2;"), message(ONE), set()),
    "int32 to int64": (message("int64 a = 1;"), message("int32 a = 1;"), set()),
    "bool to uint64": (message("uint64 a = 1;"), message("bool a = 1;"), set()),
    "int32 to sint32": (message("sint32 a = 1;"), message("int32 a = 1;"), {"FIELD_SCALAR_KIND_CHANGED"}),
    "fixed32 to sfixed32": (message("sfixed32 a = 1;"), message("fixed32 a = 1;"), set()),
    "fixed32 to fixed64": (message("fixed64 a = 1;"), message("fixed32 a = 1;"), {"FIELD_SCALAR_KIND_CHANGED"}),
    "string to bytes": (message("bytes a = 1;"), message(ONE), set()),
    "string to int32": (message("int32 a = 1;"), message(ONE), {"FIELD_SCALAR_KIND_CHANGED"}),
    "float to double": (message("double a = 1;"), message("float a = 1;"), {"FIELD_SCALAR_KIND_CHANGED"}),
    "a scalar to a message": (
        message("N a = 1;", "message N {}"), message(ONE, "message N {}"), {"FIELD_KIND_CHANGED"},
    ),
    "another message": (
        message("O a = 1;", "message N {} message O {}"), message("N a = 1;", "message N {} message O {}"),
        {"FIELD_NAMED_TYPE_CHANGED"},
    ),
    "one string to many": (message("repeated string a = 1;"), message(ONE), set()),
    "one number to many": (
        message("repeated int32 a = 1;"), message("int32 a = 1;"), {"FIELD_NUMERIC_LABEL_CHANGED"},
    ),
    "a message more": (message(ONE, "message N {}"), message(ONE), set()),
    "a message less": (message(ONE), message(ONE, "message N {}"), {"MESSAGE_REMOVED"}),
    "another package": (message(ONE).replace("package p", "package q"), message(ONE), {"PACKAGE_CHANGED"}),
    "an enum value more": (
        message("E e = 1;", "enum E { A = 0; B = 1; }"), message("E e = 1;", "enum E { A = 0; }"), set(),
    ),
    "a choice more": (message(ONE + "oneof o { int32 x = 5; }"), message(ONE), set()),
    "a choice less": (message(ONE), message(ONE + "oneof o { int32 x = 5; }"), {"ONEOF_REMOVED"}),
    "a field of a choice more": (
        message("oneof o { int32 x = 1; int32 y = 2; }"), message("oneof o { int32 x = 1; }"), set(),
    ),
    "a field of a choice less": (
        message("oneof o { int32 x = 1; }"), message("oneof o { int32 x = 1; int32 y = 2; }"), {"ONEOF_FIELD_REMOVED"},
    ),
    "one field into a new choice": (message("oneof o { string a = 1; }"), message(ONE), set()),
    "two fields into a choice": (
        message("oneof o { string a = 1; int32 b = 2; }"), message(TWO), {"MULTIPLE_FIELDS_MOVED_TO_ONEOF"},
    ),
    "a field into a choice that was there": (
        message("oneof o { string a = 1; int32 x = 3; }"), message(ONE + "oneof o { int32 x = 3; }"),
        {"FIELD_MOVED_TO_EXISTING_ONEOF"},
    ),
    "required now": (
        'syntax = "proto2"; package p; message M { required string a = 1; }',
        'syntax = "proto2"; package p; message M { }', {"REQUIRED_FIELD_ADDED"},
    ),
    "required no more": (
        'syntax = "proto2"; package p; message M { }',
        'syntax = "proto2"; package p; message M { required string a = 1; }', {"REQUIRED_FIELD_REMOVED"},
    ),
    "a map of another type": (
        message("map<string, int32> a = 1;"), message("map<string, string> a = 1;"), {"FIELD_SCALAR_KIND_CHANGED"},
    ),
    "a message inside changed": (
        message("message N { int32 x = 1; } N n = 1;"), message("message N { string x = 1; } N n = 1;"),
        {"FIELD_SCALAR_KIND_CHANGED"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_can_be_read(case: str) -> None:
    reader, writer, expected = CASES[case]
    assert kinds(unreadable(read("PROTOBUF", reader), read("PROTOBUF", writer))) == expected


@pytest.mark.parametrize("text", [RICH, PROTO2, 'edition = "2023"; message M { int32 a = 1; }'])
def test_text_and_descriptor_are_the_same_schema(text: str) -> None:
    one = read("PROTOBUF", text)
    assert read("PROTOBUF", one.canonical).canonical == one.canonical
    assert read("PROTOBUF", one.serialized).canonical == one.canonical
    assert not unreadable(one, read("PROTOBUF", one.canonical))
    for kept in ("by_name", "choice", "30 to 40", "100 to max", "(custom)", "stream") if text is RICH else ():
        assert kept in one.canonical


def test_numbers_may_be_hexadecimal_or_octal() -> None:
    text = message('string a = 0x10; string b = 021 [json_name = "0x10"]; reserved 0x20 to 0x2f; /* 017 */')
    decimal = message('string a = 16; string b = 17 [json_name = "0x10"]; reserved 32 to 47;')
    assert read("PROTOBUF", text).canonical == read("PROTOBUF", decimal).canonical


def test_normal_schemas_have_their_fields_in_order() -> None:
    one, other = read("PROTOBUF", message(TWO)), read("PROTOBUF", message("int32 b = 2; string a = 1;"))
    assert one.canonical != other.canonical and one.normal == other.normal


def test_imports_are_read_first() -> None:
    named = {"other.proto": HEAD + "message Other { string a = 1; }"}
    text = HEAD + 'import "other.proto"; message M { Other other = 1; }'
    one = read("PROTOBUF", text, named)
    changed = read("PROTOBUF", text, {"other.proto": named["other.proto"].replace("string", "int32")})
    (found,) = unreadable(changed, one)
    assert (found.kind, found.path) == ("FIELD_SCALAR_KIND_CHANGED", "/p.M/other/a")
    with pytest.raises(InvalidSchema, match=r"other\.proto"):
        read("PROTOBUF", text)


@pytest.mark.parametrize(
    "bad",
    ["message {", "message M { strng a = ; }", message("Missing a = 1;"), message("string a = 1; string b = 1;"),
     message("string a = 0;"), message("string a = 19000;"), message("string a = 536870912;"),
     'syntax = "proto4"; message M {}', 'edition = "1999"; message M {}', HEAD + "enum E { A = 1; }",
     message("reserved 5 to 1;"), "message M { option deprecated = 7.5; }" + "{" * 50, "message M {" * 10_000,
     "x" * 200_000, base64.b64encode(b"\xff\xff\xff").decode(), 'import "default.proto"; message M {}'],
)  # fmt: skip
def test_what_is_no_schema_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSchema):
        read("PROTOBUF", bad)
