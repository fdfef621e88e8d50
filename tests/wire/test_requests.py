"""The client's side of the wire: what a server reads of our requests, and what we read of its responses."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.wire import requests
from headwater.wire.message import Request
from headwater.wire.messages import read_body, read_header, write_response
from headwater.wire.requests import MalformedResponse, read_response, write_request
from headwater.wire.typed.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.typed.fetch import FetchRequest
from headwater.wire.typed.list_offsets import ListOffsetsRequest
from headwater.wire.typed.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

METADATA, API_VERSIONS = 3, 18
EVERY_METADATA = range(14)


@pytest.mark.parametrize("version", EVERY_METADATA)
def test_a_server_reads_the_request_that_was_written(version: int) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    request = write_request(asked, version, 77, "spark")
    assert int.from_bytes(request[:4], "big") == len(request) - 4
    header = read_header(request[4:])
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (
        METADATA,
        version,
        77,
        "spark",
    )
    body = read_body(request[4:], header)
    assert isinstance(body, MetadataRequest)
    assert [topic.name for topic in body.topics or ()] == ["orders"]


@pytest.mark.parametrize("version", EVERY_METADATA)
def test_the_response_of_a_server_is_read_in_the_shape_of_the_newest_version(version: int) -> None:
    sent = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=2)], topics=[MetadataResponseTopic(name="t")]
    )
    got = read_response(write_response(METADATA, version, 5, sent), MetadataRequest, version, 5)
    assert (got.brokers[0].host, got.topics[0].name) == ("h", "t")
    assert got.topics[0].is_internal is False
    assert got.throttle_time_ms == 0


def test_the_response_of_api_versions_has_no_tags_in_its_header() -> None:
    sent = ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=1, min_version=4, max_version=18)])
    for version in range(5):
        got = read_response(write_response(API_VERSIONS, version, 5, sent), ApiVersionsRequest, version, 5)
        assert got.api_keys[0].max_version == 18


def test_the_response_to_another_request_is_refused() -> None:
    response = write_response(METADATA, 9, 5, MetadataResponse())
    with pytest.raises(MalformedResponse, match="request 5 came in place of that to 6"):
        read_response(response, MetadataRequest, 9, 6)


def test_elements_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_RESPONSE_ELEMENTS", 3)
    response = write_response(METADATA, 9, 5, MetadataResponse(topics=[MetadataResponseTopic(name="t")] * 4))
    with pytest.raises(MalformedResponse, match="elements"):
        read_response(response, MetadataRequest, 9, 5)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([(FetchRequest, 4), (FetchRequest, 13), (ListOffsetsRequest, 7), (MetadataRequest, 12)]),
    st.binary(max_size=200),
)
def test_hostile_responses_are_read_or_refused(asked: tuple[type[Request[Any]], int], data: bytes) -> None:
    with contextlib.suppress(MalformedResponse):
        read_response(bytes(4) + data, *asked, 0)
