"""Values in the wire format: what is read, and bytes that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.schemas.decoding import Decode, Undecodable, decoder, for_json
from headwater.schemas.parsed import parse
from headwater.schemas.schema import Resolved, Schema, SchemaType
from headwater.schemas.wire_format import NotFramed, message_indexes, schema_id

TEXTS = {
    "AVRO": '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"bytes"}]}',
    "JSON": '{"type":"object"}',
    "PROTOBUF": 'syntax = "proto3"; message M { int64 a = 1; bytes b = 2; } message O { message P { string c = 1; } }',
}


def decode_of(kind: str) -> Decode:
    resolved = Resolved(Schema(SchemaType[kind], TEXTS[kind]))
    return decoder(parse(resolved), resolved)


def test_values_become_json() -> None:
    prefix = b"\0\0\0\0\1"
    assert for_json(decode_of("AVRO")(prefix + b"\x0e\x02\xff")) == {"a": 7, "b": "/w=="}
    assert decode_of("JSON")(prefix + b'{"a": 7}') == {"a": 7}
    assert decode_of("PROTOBUF")(prefix + b"\0\x08\x07\x12\x01\xff") == {"a": "7", "b": "/w=="}
    assert decode_of("PROTOBUF")(prefix + b"\x04\x02\x00\x0a\x01x") == {"c": "x"}, "a message inside of another"


@pytest.mark.parametrize("kind", TEXTS)
@given(data=st.binary(max_size=60))
def test_hostile_bytes_are_refused_or_read_and_nothing_else(kind: str, data: bytes) -> None:
    try:
        decode_of(kind)(b"\0\0\0\0\1" + data)
    except Undecodable as error:
        assert str(error)


@given(st.binary(max_size=20))
def test_the_prefix_is_read_or_refused(data: bytes) -> None:
    try:
        assert 0 <= schema_id(data) < 2**32
        indexes, position = message_indexes(data)
        assert indexes and position <= len(data)
    except NotFramed as error:
        assert str(error)
