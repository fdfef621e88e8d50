"""Produce and Fetch are coded by hand; kio is the judge of every version."""

import contextlib
import io
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader

from headwater.model.errors import ErrorCode
from headwater.wire import fetch, produce
from headwater.wire.codec import struct_reader, struct_writer
from headwater.wire.cursor import Cursor, MalformedRequest
from headwater.wire.message import Message
from headwater.wire.message_classes import response_class
from headwater.wire.messages import read_header
from headwater.wire.schema import request_schema, response_schema
from headwater.wire.typed.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from headwater.wire.typed.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC_ID = uuid.UUID(int=99)
PRODUCE_VERSIONS = range(produce.MIN_VERSION, produce.MAX_VERSION + 1)
FETCH_VERSIONS = range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1)


def request_frame(api_key: int, version: int, message: Message) -> bytearray:
    schema = request_schema(api_key, version)
    head = struct_head(api_key, version, schema.is_flexible)
    struct_writer(schema)(head, message)
    return head


def struct_head(api_key: int, version: int, is_flexible: bool) -> bytearray:
    head = bytearray(api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + (77).to_bytes(4, "big") + b"\0\2me")
    if is_flexible:
        head.append(0)
    return head


def response_body(api_key: int, version: int, data: bytes) -> Any:
    schema = response_schema(api_key, version)
    cursor = Cursor(data, 5 if schema.is_flexible else 4)
    message = struct_reader(schema, response_class(api_key))(cursor)
    assert cursor.position == len(data)
    return message


def produce_message() -> ProduceRequest:
    partitions = [PartitionProduceData(index=3, records=b"batch"), PartitionProduceData(index=4, records=None)]
    topic = TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=partitions)
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1500, topic_data=[topic])


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_request_is_read_in_every_version(version: int) -> None:
    frame = request_frame(0, version, produce_message())
    entity: Any
    entity, _ = entity_reader(load_request_schema(0, version))(bytes(frame), read_header(frame).body_position)
    assert entity.timeout == timedelta(milliseconds=1500)  # the frame is one that kio agrees with
    request = produce.read_request(frame, read_header(frame))
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 1500, None)
    (topic,) = request.topics
    assert (topic.name, topic.topic_id) == ((None, TOPIC_ID) if version >= 13 else ("t", None))
    assert [(data.index, data.records and bytes(data.records)) for data in topic.partitions] == [
        (3, b"batch"),
        (4, None),
    ]


def test_records_are_a_writable_slice_of_the_frame() -> None:
    frame = request_frame(0, 9, produce_message())
    records = produce.read_request(frame, read_header(frame)).topics[0].partitions[0].records
    assert records is not None
    records[0:5] = b"BATCH"
    assert b"BATCH" in frame


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_response_is_written_in_every_version(version: int) -> None:
    frame = request_frame(0, version, produce_message())
    failed = produce.ProducePartitionResult(
        4, ErrorCode.INVALID_RECORD, record_errors=[(0, "no key")], error_message="refused"
    )
    results = [produce.ProduceTopicResult("t", TOPIC_ID, [produce.ProducePartitionResult(3, base_offset=10), failed])]
    body = response_body(0, version, bytes(produce.write_response(read_header(frame), results)))
    first, second = body.responses[0].partition_responses
    assert (first.index, first.error_code, first.base_offset) == (3, 0, 10)
    assert (second.index, second.error_code) == (4, ErrorCode.INVALID_RECORD)
    if version >= 8:
        assert second.error_message == "refused"
        assert [(error.batch_index, error.batch_index_error_message) for error in second.record_errors] == [
            (0, "no key")
        ]


def fetch_message() -> FetchRequest:
    partition = FetchPartition(
        partition=2,
        current_leader_epoch=7,
        fetch_offset=55,
        last_fetched_epoch=6,
        log_start_offset=1,
        partition_max_bytes=1000,
    )
    topic = FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=[partition])
    forgotten = ForgottenTopic(topic="u", topic_id=TOPIC_ID, partitions=[1, 2])
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=9999,
        isolation_level=1,
        session_id=12,
        session_epoch=3,
        topics=[topic],
        forgotten_topics_data=[forgotten],
        rack_id="r",
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_request_is_read_in_every_version(version: int) -> None:
    frame = request_frame(1, version, fetch_message())
    request = fetch.read_request(frame, read_header(frame))
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (500, 1, 9999, 1)
    assert request.replica_id == -1
    assert (request.session_id, request.session_epoch) == ((12, 3) if version >= 7 else (0, -1))
    (topic,) = request.topics
    assert (topic.name, topic.topic_id) == ((None, TOPIC_ID) if version >= 13 else ("t", None))
    (partition,) = topic.partitions
    assert (partition.index, partition.fetch_offset, partition.max_bytes) == (2, 55, 1000)
    assert partition.current_leader_epoch == (7 if version >= 9 else -1)
    assert [forgotten.partitions for forgotten in request.forgotten] == ([[1, 2]] if version >= 7 else [])


@pytest.mark.parametrize("version", range(15, 19))
def test_a_client_that_claims_to_be_a_replica_is_seen_through(version: int) -> None:
    message = fetch_message()
    message.replica_state = ReplicaState(replica_id=3, replica_epoch=1)
    frame = request_frame(1, version, message)
    assert fetch.read_request(frame, read_header(frame)).replica_id == 3


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_response_is_written_in_every_version(version: int) -> None:
    frame = request_frame(1, version, fetch_message())
    full = fetch.FetchPartitionResult(2, ErrorCode.NONE, 60, 60, 1, [b"batch one", memoryview(b"batch two")], 18)
    failed = fetch.FetchPartitionResult(
        3, ErrorCode.OFFSET_OUT_OF_RANGE, aborted=[(9, 8)], diverging_epoch=(1, 2), current_leader=(3, 4)
    )
    pieces = fetch.write_response(
        read_header(frame), ErrorCode.NONE, 12, [fetch.FetchTopicResult("t", TOPIC_ID, [full, failed])]
    )
    body = response_body(1, version, b"".join(pieces))
    (topic,) = body.responses
    first, second = topic.partitions
    assert (first.partition_index, first.high_watermark, first.records) == (2, 60, b"batch onebatch two")
    assert (second.partition_index, second.error_code) == (3, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert [(txn.producer_id, txn.first_offset) for txn in second.aborted_transactions] == [(9, 8)]
    if version >= 12:
        assert (second.diverging_epoch.epoch, second.diverging_epoch.end_offset) == (1, 2)
        assert (second.current_leader.leader_id, second.current_leader.leader_epoch) == (3, 4)
        assert first.diverging_epoch is None
    if version >= 7:
        assert body.session_id == 12


def test_records_are_not_copied_into_a_fetch_response() -> None:
    frame = request_frame(1, 12, fetch_message())
    batch = memoryview(b"batch")
    result = fetch.FetchPartitionResult(2, records=[batch], size_bytes=5)
    pieces = fetch.write_response(read_header(frame), ErrorCode.NONE, 0, [fetch.FetchTopicResult("t", None, [result])])
    assert any(piece is batch for piece in pieces)


@settings(max_examples=300, deadline=None)
@given(
    version=st.sampled_from(list(PRODUCE_VERSIONS)),
    cut=st.integers(0, 80),
    position=st.integers(0, 10_000),
    value=st.integers(0, 255),
)
def test_a_damaged_produce_or_fetch_request_is_read_or_refused(
    version: int, cut: int, position: int, value: int
) -> None:
    for frame, read in (
        (request_frame(0, version, produce_message()), produce.read_request),
        (request_frame(1, version + 2, fetch_message()), fetch.read_request),
    ):
        header = read_header(frame)
        body = len(frame) - header.body_position
        frame[header.body_position + position % body] = value
        hostile = frame[: len(frame) - cut % body]
        with contextlib.suppress(MalformedRequest):
            read(hostile, header)


def test_kio_agrees_that_an_empty_fetch_response_is_one() -> None:
    frame = request_frame(1, 12, fetch_message())
    pieces = fetch.write_response(read_header(frame), ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])
    buffer = io.BytesIO(b"".join(pieces))
    from kio.schema.fetch.v12.response import FetchResponse

    entity, size = entity_reader(FetchResponse)(buffer.getvalue(), 5)
    assert size == len(buffer.getvalue()) - 5
    assert int(entity.error_code.value) == int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
