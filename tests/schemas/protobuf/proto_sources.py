"""Protobuf schemas as text."""

HEAD = 'syntax = "proto3"; package p; '


def message(body: str, rest: str = "") -> str:
    return HEAD + f"message M {{ {body} }} {rest}"


RICH = """// A comment.
syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
option java_package = "org.example";
option (custom) = { depth: 1 names: ["x", "y"] };
message Outer {
  option deprecated = true;
  message Inner { optional string note = 1; }
  enum Kind { option allow_alias = true; UNKNOWN = 0; NONE = 0; LOW = -1; reserved 5 to 9; }
  repeated Inner inners = 1 [json_name = "list", deprecated = true];
  map<string, Inner> by_name = 2;
  oneof choice { string text = 3; int32 number = 4; }
  Kind kind = 5;
  google.protobuf.Timestamp at = 6;
  reserved 20, 30 to 40, 100 to max;
  reserved "old";
}
service Talk { rpc Say (Outer) returns (stream Outer); }
"""
PROTO2 = """syntax = "proto2";
message M {
  required int32 a = 1 [default = 5];
  optional string b = 2 [default = "x\\"y"];
  optional group G = 3 { optional int32 c = 1; }
  extensions 100 to 199;
  extend M { optional string d = 100; }
}
"""
