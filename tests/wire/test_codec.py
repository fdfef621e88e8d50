"""Our bytes are read by kio, and kio's by us, for every API and version that is served; hostile bytes are refused."""

import io
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from headwater.broker.dispatch import load_handlers
from headwater.wire.codec import struct_reader, struct_writer
from headwater.wire.cursor import MAX_ELEMENTS, Cursor, MalformedRequest
from headwater.wire.message import Message
from headwater.wire.message_classes import request_class, response_class
from headwater.wire.messages import read_body, read_header, request_reader, write_response
from headwater.wire.schema import Struct, StructField, request_schema, response_schema
from headwater.wire.typed.api_versions import ApiVersionsResponse
from headwater.wire.typed.init_producer_id import InitProducerIdResponse
from headwater.wire.typed.metadata import MetadataRequest

SERVED = sorted(
    (entry.api.key, version)
    for entry in load_handlers().values()
    for version in range(entry.api.min_version, entry.api.max_version + 1)
)
BY_HAND = {0, 1}


def example(schema: Struct, message_class: Any) -> Message:
    """A message in which every field of its version has a value that is not its default."""
    structs = message_class.STRUCTS
    fields = {field.name: _example_value(field, structs.get(field.name)) for field in schema.fields}
    message: Message = message_class(**fields)
    return message


def _example_value(field: StructField, message_class: Any) -> Any:
    value: Any
    if isinstance(field.type, Struct):
        value = example(field.type, message_class)
    else:
        value = {
            "bool": True,
            "string": "text",
            "bytes": b"\x00bytes",
            "records": b"",
            "uuid": uuid.UUID(int=7),
            "float64": 1.5,
        }.get(field.type, 11)
    return [value, value] if field.is_array else value


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_kio_reads_what_we_write_in_every_served_version(api_key: int, version: int) -> None:
    schema = response_schema(api_key, version)
    out = bytearray()
    struct_writer(schema)(out, example(schema, response_class(api_key)))
    entity, size = entity_reader(load_response_schema(api_key, version))(bytes(out), 0)
    assert size == len(out)
    again = io.BytesIO()
    entity_writer(type(entity))(again, entity)
    assert again.getvalue() == bytes(out)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_a_request_written_by_kio_is_read_whole(api_key: int, version: int) -> None:
    schema = request_schema(api_key, version)
    out = bytearray()
    struct_writer(schema)(out, example(schema, request_class(api_key)))
    entity, _ = entity_reader(load_request_schema(api_key, version))(bytes(out), 0)
    by_kio = io.BytesIO()
    entity_writer(type(entity))(by_kio, entity)
    cursor = Cursor(by_kio.getvalue())
    message = request_reader(api_key, version)(cursor)
    assert cursor.position == len(out)
    assert type(message) is request_class(api_key)
    for field in schema.fields:
        if not isinstance(field.type, Struct) and not field.is_array:
            assert getattr(message, field.name) == _example_value(field, None)


def test_a_response_is_written_with_the_fields_of_its_version_and_the_rest_is_left_out() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[], throttle_time_ms=5)
    assert len(write_response(18, 0, 1, response)) == 4 + 2 + 4
    assert len(write_response(18, 1, 1, response)) == 4 + 2 + 4 + 4


def test_fields_left_out_of_a_response_get_their_defaults() -> None:
    body = write_response(22, 4, 9, InitProducerIdResponse(producer_id=5))
    assert body[-1:] == b"\0"
    assert len(body) == 4 + 1 + 4 + 2 + 8 + 2 + 1


@pytest.mark.parametrize("announced", [2**31 - 1, 1_000_000, 200])
def test_an_array_count_that_the_rest_cannot_hold_is_refused_without_allocating(announced: int) -> None:
    frame = _header(3, 4) + announced.to_bytes(4, "big") + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest, match="announced"):
            read_body(frame, read_header(frame))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_more_elements_than_one_request_may_have_are_refused() -> None:
    count = MAX_ELEMENTS + 1
    frame = _header(3, 4) + count.to_bytes(4, "big") + bytes(2 * count)
    with pytest.raises(MalformedRequest, match="more than"):
        read_body(frame, read_header(frame))


def test_a_flood_of_tagged_fields_is_refused() -> None:
    body = b"\x01" + b"\x00\x00" + b"\xff\xff\xff\xff\x07"
    frame = _header(3, 12) + b"\0" + body
    with pytest.raises(MalformedRequest):
        read_body(frame, read_header(frame))


def test_unknown_tagged_fields_are_skipped() -> None:
    frame = _header(3, 12) + b"\0" + b"\x00\x01\x00" + b"\x02" + b"\x63\x03abc" + b"\x64\x00"
    message = read_body(frame, read_header(frame))
    assert isinstance(message, MetadataRequest)
    assert message.topics is None
    assert "abc" not in repr(message)


@pytest.mark.parametrize("size", range(10))
def test_a_frame_without_room_for_a_header_is_refused(size: int) -> None:
    with pytest.raises(MalformedRequest):
        read_header((_header(3, 12) + b"\0")[:size] if size < 8 else _header(3, 12)[:8] + b"\x00\x50")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(api=st.sampled_from(SERVED), body=st.binary(max_size=300), cut=st.integers(0, 60), flip=st.integers(0, 2**31))
def test_hostile_bytes_give_a_message_or_a_clear_refusal(
    api: tuple[int, int], body: bytes, cut: int, flip: int
) -> None:
    api_key, version = api
    schema = request_schema(api_key, version)
    out = bytearray()
    struct_writer(schema)(out, example(schema, request_class(api_key)))
    if out:
        out[flip % len(out)] ^= 1 + flip % 255
    for hostile in (body, bytes(out), bytes(out[: max(len(out) - cut, 0)])):
        frame = _header(api_key, version) + (b"\0" if schema.is_flexible else b"") + hostile
        try:
            header = read_header(frame)
            read_body(frame, header)
        except MalformedRequest:
            pass


def test_a_round_trip_keeps_every_field() -> None:
    for api_key, version in SERVED:
        if api_key in BY_HAND:
            continue
        schema = request_schema(api_key, version)
        message = example(schema, request_class(api_key))
        out = bytearray()
        struct_writer(schema)(out, message)
        assert struct_reader(schema, request_class(api_key))(Cursor(out)) == message, (api_key, version)


def _header(api_key: int, version: int) -> bytes:
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
