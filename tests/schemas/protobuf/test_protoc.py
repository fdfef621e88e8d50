"""Protobuf's own compiler and this registry take and refuse the same files.

Not compared: an empty file and a custom option whose definition is not at hand, on purpose; comments in comments, a
reserved number beyond all numbers and the reserved names of editions, which the parser reads in its own way.
"""

from importlib import resources
from pathlib import Path

import pytest
from grpc_tools import protoc

from headwater.schemas.schema import InvalidSchema
from tests.schemas.protobuf.proto_sources import HEAD, PROTO2, RICH, message
from tests.schemas.reading import read

ONE = "string a = 1;"
TWO = 'syntax = "proto2"; '
NEW = 'edition = "2023"; '

TAKEN = [
    PROTO2,
    RICH.replace("option (custom)", "// "),
    message("map<string, int32> a = 1;"),
    message("map<string, M> a = 1;"),
    message("optional string a = 1;"),
    message("string a = 0x10; string b = 021;"),
    message("string a = 1;; ;"),
    message("string a = 18999; string b = 20000;"),
    message("reserved 1 to max;"),
    message("reserved 19000;"),
    message('reserved 2, 9 to 11; reserved "b"; string a = 1;'),
    message("bytes a = 1; repeated double d = 2; sfixed64 s = 536870911;"),
    message("string message = 1; string enum = 2; string syntax = 3;"),
    message("message N { message O {} } N.O a = 1; .p.M.N b = 2; p.M c = 3;"),
    message("string a = 1 [deprecated = true];"),
    message("repeated int32 a = 1 [packed = true];"),
    message("int64 a = 1 [jstype = JS_STRING];"),
    message("oneof o { string a = 1; int32 b = 2; }"),
    message(ONE, "enum E { option allow_alias = true; A = 0; B = 0; }"),
    message(ONE, 'enum E { A = 0; B = -2147483648; reserved 5, -3 to -1; reserved "C"; }'),
    message(
        ONE, "service S { rpc R (M) returns (stream M); rpc Q (stream M) returns (M) { option deprecated = true; } }"
    ),
    HEAD + 'import public "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; }',
    HEAD + "option java_package = 'a.b'; option optimize_for = CODE_SIZE; message M {}",
    TWO + "message M { required string a = 1; oneof o { string b = 2; } }",
    TWO + "message M { optional int32 a = 1 [default = -0x7f]; }",
    TWO + "message M { optional group G = 1 { optional int32 a = 1; } }",
    TWO + "message M { extensions 100 to max; } extend M { optional int32 x = 100; }",
    "message M { optional int32 a = 1; }",
    NEW + "message M { int32 a = 1; repeated int32 b = 2; }",
    NEW + "message M { int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; }",
]
REFUSED = [
    message("map<float, int32> a = 1;"),
    message("repeated map<string, int32> a = 1;"),
    message("required string a = 1;"),
    message('string a = 1 [default = "x"];'),
    message("reserved 1; string a = 1;"),
    message("reserved 3 to 7; string a = 1; string b = 7;"),
    message('reserved "a"; string a = 1;'),
    message("reserved 1 to 3, 2;"),
    message("reserved a;"),
    message("string a = 08;"),
    message("reserved 08;"),
    message("string a = 0x;"),
    message("string a = 0x10; string b = 020;"),
    message("string a = -1;"),
    message("string a = 1.0;"),
    message("string a;"),
    message("string a = 1"),
    message("string \u00e4 = 1;"),
    message("string a = 1; # no"),
    message("string a = 1; message a {}"),
    message("string a = 1; enum E { a = 0; }"),
    message("string a = 1; oneof a { string b = 2; }"),
    message("group G = 1 { int32 a = 1; }"),
    message("extensions 4 to 5;"),
    message("N.Missing a = 1; message N {}"),
    message("oneof o { }"),
    message("oneof o { repeated string a = 1; }"),
    message("oneof o { map<string, string> a = 1; }"),
    message("string a = 1 [deprecated = 1];"),
    message('string a = 1 [deprecated = "true"];'),
    message("string a = 1 [nope = 1];"),
    message("string a = 1 [ctype = NOPE];"),
    message("string a = 1 [deprecated = true, deprecated = false];"),
    message("repeated string a = 1 [packed = true];"),
    message("int32 a = 1 [packed = true];"),
    message("int32 a = 1 [jstype = JS_STRING];"),
    message("option message_set_wire_format = true;"),
    message("message AEntry {} map<string, string> a = 1;"),
    message(ONE, "message N { option map_entry = true; string key = 1; string value = 2; }"),
    message(ONE, "message M {}"),
    message(ONE, "enum E {}"),
    message(ONE, "enum E { A = 0; B = 0; }"),
    message(ONE, "enum E { A = 0; } enum F { A = 0; }"),
    message(ONE, "enum E { A = 0; reserved -5 to -1; B = -3; }"),
    message(ONE, 'enum E { A = 0; reserved "A"; }'),
    message(ONE, "enum E { A = 0; B = 0x80000000; }"),
    message(ONE, "service S { rpc R (M) returns (M); rpc R (M) returns (M); }"),
    message(ONE, "service S { rpc R (string) returns (M); }"),
    message(ONE, "service S { rpc R (E) returns (M); } enum E { A = 0; }"),
    message(ONE, "}"),
    HEAD + 'import "google/protobuf/any.proto"; import "google/protobuf/any.proto"; message M {}',
    HEAD + "package q; message M {}",
    HEAD + "option nope = 1; message M {}",
    'syntax = "proto3"; syntax = "proto3"; message M {}',
    TWO + "message M { string a = 1; }",
    TWO + 'message M { optional int32 a = 1 [default = "x"]; }',
    TWO + "message M { optional int32 a = 1 [default = 3000000000]; }",
    TWO + "message M { extensions 5 to 9; optional int32 a = 7; }",
    TWO + "message M { extensions 5 to 9; reserved 9; }",
    TWO + "message M { extensions 100 to 199; } extend M { optional int32 x = 200; }",
    NEW + "message M { optional int32 a = 1; }",
    NEW + "message M { required int32 a = 1; }",
    NEW + "message M { int32 a = 1 [features.nope = 1]; }",
    "/* open",
]


def is_taken_by_protoc(text: str, folder: Path) -> bool:
    (folder / "m.proto").write_text(text)
    known = resources.files("grpc_tools") / "_proto"
    status: int = protoc.main(
        ["", f"-I{folder}", f"-I{known}", f"--descriptor_set_out={folder}/out", f"{folder}/m.proto"]
    )
    return status == 0


@pytest.mark.parametrize("text", TAKEN)
def test_what_protoc_takes_is_taken_and_written_so_that_protoc_takes_it_again(text: str, tmp_path: Path) -> None:
    assert is_taken_by_protoc(text, tmp_path)
    assert is_taken_by_protoc(read("PROTOBUF", text).canonical, tmp_path)


@pytest.mark.parametrize("text", REFUSED)
def test_what_protoc_refuses_is_refused(text: str, tmp_path: Path) -> None:
    assert not is_taken_by_protoc(text, tmp_path)
    with pytest.raises(InvalidSchema):
        read("PROTOBUF", text)
