"""Fetch without a session: how topics are named, and that records stay where they arrived."""

import uuid

import numpy as np

from headwater.client.exchange import Sent
from headwater.client.fetch import FetchLimits, FetchPosition, plain_fetch
from headwater.client.topic_partition import TopicPartition
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.wire.api_keys import ApiKey
from headwater.wire.messages import write_response
from headwater.wire.typed.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

LIMITS = FetchLimits(max_wait_ms=5, max_bytes=1_000, isolation_level=1)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
A, B = uuid.uuid4(), uuid.uuid4()
WITH_IDS, WITHOUT_IDS = 13, 12


def test_topics_are_named_by_ids_if_all_of_them_are_known() -> None:
    fetch = plain_fetch([FetchPosition(A0, 7, A), FetchPosition(B0, 8, B), FetchPosition(A1, 9, A)], LIMITS)
    assert fetch.at_most is None
    places = [(topic.topic_id, [p.fetch_offset for p in topic.partitions]) for topic in fetch.request.topics]
    assert places == [(A, [7, 9]), (B, [8])]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=B, partitions=[PartitionData(error_code=3)])])
    assert fetch.read(response).partitions[B0].error_code == 3


def test_one_topic_without_an_id_makes_all_go_by_name() -> None:
    fetch = plain_fetch([FetchPosition(A0, 7, A), FetchPosition(B0, 8)], LIMITS)
    assert fetch.at_most == WITHOUT_IDS
    response = FetchResponse(responses=[FetchableTopicResponse(topic="b", partitions=[PartitionData()])])
    assert set(fetch.read(response).partitions) == {B0}


def test_records_are_not_copied_out_of_the_response() -> None:
    batch = build_batch([Record(None, b"v" * 500)])
    partitions = [PartitionData(high_watermark=1, records=batch)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=A, partitions=partitions)])
    frame = np.frombuffer(write_response(ApiKey.FETCH, WITH_IDS, 1, response), np.uint8)
    read = plain_fetch([FetchPosition(A0, 0, A)], LIMITS).read(Sent(FetchRequest, WITH_IDS, 1).read(frame.data))
    records = read.partitions[A0].records
    assert records == batch
    assert np.shares_memory(np.frombuffer(records, np.uint8), frame)
