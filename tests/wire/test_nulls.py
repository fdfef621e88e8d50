"""Null where the schema allows none, lengths that are none, and tagged fields that come twice are refused: in every
place of every request that is served, in every version."""

import uuid
from typing import Any

import pytest

from headwater.broker.api import Api
from headwater.broker.dispatch import load_handlers
from headwater.wire import fetch, produce
from headwater.wire.cursor import MalformedRequest
from headwater.wire.messages import read_body, read_header
from headwater.wire.schema import StructField, request_schema
from headwater.wire.typed.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from tests.wire.hostile_messages import UNKNOWN_TWICE, body, doubled_tags, good_message, null_bodies, places

APIS = sorted((entry.api for entry in load_handlers().values()), key=lambda api: api.key)
BY_HAND: dict[int, Any] = {produce.KEY: produce.read_request, fetch.KEY: fetch.read_request}


def good(field: StructField) -> Any:
    return {"bool": True, "string": "text", "bytes": b"bytes", "records": b"records", "uuid": uuid.UUID(int=7)}.get(
        str(field.type), 11
    )


def read(api_key: int, version: int, data: bytes) -> Any:
    flexible = request_schema(api_key, version).is_flexible
    start = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + bytes(flexible)
    frame = bytearray(start + data)
    return BY_HAND.get(api_key, read_body)(frame, read_header(frame))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_null_and_senseless_lengths_are_refused_in_every_place(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        read(api.key, version, body(api.key, version, good_message(api.key, version, good)))
        for place, hostile in null_bodies(api.key, version, good):
            try:
                read(api.key, version, hostile)
            except MalformedRequest as error:
                assert " null" in str(error) or "has the length -2" in str(error), (version, str(place), error)
            else:
                raise AssertionError(f"{api.name} {version} takes null or a length of -2 in {place}")


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_null_is_read_where_it_is_allowed(api: Api) -> None:
    if api.key in BY_HAND:
        return
    for version in range(api.min_version, api.max_version + 1):
        schema = request_schema(api.key, version)
        message = good_message(api.key, version, good)
        for place in places(schema):
            if place.field.is_nullable:
                data = body(api.key, version, place.put(message, None))
                assert place.get(read(api.key, version, data)) is None, (version, str(place))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_tagged_field_that_comes_twice_is_refused(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        hostile = doubled_tags(api.key, version, good)
        if hostile is not None:
            with pytest.raises(MalformedRequest, match="twice"):
                read(api.key, version, hostile)


def test_a_tagged_field_that_comes_twice_is_refused_in_the_header_and_in_a_struct_inside() -> None:
    start = (3).to_bytes(2, "big") + (12).to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    with pytest.raises(MalformedRequest, match="twice"):
        read_header(start + b"\x02\x01\x00\x01\x00")
    inside = b"\x02" + bytes(16) + b"\x00" + b"\x02\x05\x00\x05\x00" + b"\x00\x00\x00"
    with pytest.raises(MalformedRequest, match="twice"):
        read(3, 12, inside)


def test_a_known_tagged_field_is_refused_when_it_comes_twice() -> None:
    version = fetch.MAX_VERSION
    plain = doubled_tags(fetch.KEY, version, good)
    assert plain is not None
    once = b"\x01\x0d" + (5).to_bytes(4, "big") + bytes(9)
    start = plain[: -len(UNKNOWN_TWICE)]
    assert read(fetch.KEY, version, start + b"\x01" + once).replica_id == 5
    with pytest.raises(MalformedRequest, match="twice"):
        read(fetch.KEY, version, start + b"\x02" + once + once)
    with pytest.raises(MalformedRequest, match="replica"):
        read(fetch.KEY, version, start + b"\x01" + b"\x01\x02\0\0")


def test_a_client_id_has_no_length_but_minus_one_to_be_null() -> None:
    start = (3).to_bytes(2, "big") + (1).to_bytes(2, "big") + bytes(4)
    assert read_header(start + b"\xff\xff").client_id is None
    with pytest.raises(MalformedRequest, match="-2"):
        read_header(start + b"\xff\xfe")


def test_a_struct_that_may_be_null_is_there_or_null_and_nothing_else() -> None:
    message = DescribeTopicPartitionsRequest(
        response_partition_limit=1, cursor=Cursor(topic_name="t", partition_index=0)
    )
    data = body(75, 0, message)
    position = data.index(b"\x01\x02t")
    assert read(75, 0, data).cursor.topic_name == "t"
    assert read(75, 0, data[:position] + b"\xff\x00").cursor is None
    with pytest.raises(MalformedRequest, match="cursor"):
        read(75, 0, data[:position] + b"\x00" + data[position + 1 :])
