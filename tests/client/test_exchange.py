"""Requests and responses of one connection as bytes: the handshake, numbers, versions, and bytes that are hostile."""

import pytest

from headwater.client.errors import NotServed
from headwater.client.exchange import MAX_CORRELATION_ID, Exchange
from headwater.client.versions import SPOKEN, BrokerVersions
from headwater.model.errors import ErrorCode
from headwater.wire.api_keys import ApiKey
from headwater.wire.message import Message
from headwater.wire.messages import read_header, write_response
from headwater.wire.requests import MalformedResponse
from headwater.wire.schema import request_schema, response_schema
from headwater.wire.typed.api_versions import ApiVersion, ApiVersionsResponse
from headwater.wire.typed.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from headwater.wire.typed.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

LENGTH_BYTES = 4


def answered(request: bytearray, message: Message) -> bytearray:
    """The frame that a broker sends back."""
    header = read_header(request[LENGTH_BYTES:])
    return write_response(header.api_key, header.api_version, header.correlation_id, message)


def serving(*served: tuple[int, int, int], error_code: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=api, min_version=least, max_version=most) for api, least, most in served]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)


def shaken(*served: tuple[int, int, int]) -> Exchange:
    exchange = Exchange("test")
    steps = exchange.handshake()
    with pytest.raises(StopIteration):
        steps.send(answered(next(steps), serving(*served)))
    return exchange


def test_the_handshake_asks_what_the_broker_serves_in_the_version_that_every_broker_knows() -> None:
    header = read_header(next(Exchange("test").handshake())[LENGTH_BYTES:])
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.API_VERSIONS, 0, "test")


def test_requests_are_numbered_in_their_order_and_the_numbers_begin_again() -> None:
    exchange = shaken((ApiKey.METADATA, 0, 12))
    numbers = [exchange.send(MetadataRequest())[0].correlation_id for _ in range(3)]
    assert numbers == [1, 2, 3], "the handshake was 0"
    exchange._next_id = MAX_CORRELATION_ID - 1
    assert [exchange.send(MetadataRequest())[0].correlation_id for _ in range(2)] == [MAX_CORRELATION_ID - 1, 0]


@pytest.mark.parametrize(("served", "spoken"), [((0, 20), 12), ((0, 9), 9), ((12, 13), 12), ((4, 4), 4)])
def test_the_newest_version_is_spoken_that_both_sides_know(served: tuple[int, int], spoken: int) -> None:
    sent, data = shaken((ApiKey.METADATA, *served)).send(MetadataRequest())
    assert sent.version == read_header(data[LENGTH_BYTES:]).api_version == spoken


def test_a_caller_may_mean_what_only_an_older_version_says() -> None:
    sent, _ = shaken((ApiKey.METADATA, 0, 12)).send(MetadataRequest(), at_most=7)
    assert sent.version == 7


@pytest.mark.parametrize("served", [(), ((ApiKey.METADATA, 0, 3),), ((ApiKey.METADATA, 13, 15),)])
def test_a_broker_that_is_too_old_or_too_new_does_not_serve_it(served: tuple[tuple[int, int, int], ...]) -> None:
    with pytest.raises(NotServed, match="API 3"):
        shaken(*served).send(MetadataRequest())


def test_a_broker_that_does_not_tell_what_it_serves_serves_nothing() -> None:
    with pytest.raises(NotServed, match="UNSUPPORTED_VERSION"):
        BrokerVersions(serving(error_code=ErrorCode.UNSUPPORTED_VERSION))


@pytest.mark.parametrize("api_key", SPOKEN, ids=lambda api: ApiKey(api).name)
def test_every_version_that_is_spoken_has_a_schema(api_key: int) -> None:
    least, most = SPOKEN[api_key]
    for version in range(least, most + 1):
        assert request_schema(api_key, version) and response_schema(api_key, version)


def test_a_response_is_read_as_that_of_its_request() -> None:
    sent, data = shaken((ApiKey.METADATA, 0, 12)).send(MetadataRequest())
    brokers = [MetadataResponseBroker(host="here", port=9092)]
    assert sent.read(answered(data, MetadataResponse(brokers=brokers))).brokers[0].host == "here"


def test_the_response_to_another_request_is_refused() -> None:
    sent, data = shaken((ApiKey.METADATA, 0, 12)).send(MetadataRequest())
    frame = answered(data, MetadataResponse())
    frame[3] ^= 1
    with pytest.raises(MalformedResponse, match="in place of"):
        sent.read(frame)


def test_a_response_that_ends_early_is_refused_wherever_it_ends() -> None:
    sent, data = shaken((ApiKey.METADATA, 0, 12)).send(MetadataRequest())
    brokers = [MetadataResponseBroker(host="here", port=9092)]
    frame = answered(data, MetadataResponse(brokers=brokers, cluster_id="cluster"))
    for size in range(len(frame)):
        with pytest.raises(MalformedResponse):
            sent.read(frame[:size])


def test_other_bytes_in_a_response_are_read_or_refused_and_nothing_else() -> None:
    sent, data = shaken((ApiKey.METADATA, 0, 12)).send(MetadataRequest())
    brokers = [MetadataResponseBroker(host="here", port=9092)]
    frame = answered(data, MetadataResponse(brokers=brokers, cluster_id="cluster"))
    for position in range(LENGTH_BYTES, len(frame)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            changed = bytearray(frame)
            changed[position] = value
            try:
                sent.read(changed)
            except MalformedResponse:
                continue


def test_records_are_a_view_of_the_frame_that_brought_them() -> None:
    sent, data = shaken((ApiKey.FETCH, 4, 12)).send(FetchRequest())
    partition = PartitionData(partition_index=0, records=b"batch")
    frame = answered(data, FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])]))
    records = sent.read(frame).responses[0].partitions[0].records
    assert isinstance(records, memoryview) and records.obj is frame and bytes(records) == b"batch"
