"""Records go in and come out unchanged, through every client."""

import time
import uuid

import pytest

from tests.clients.every_client import every_client, every_client_and
from tests.clients.judged import Client, NewTopic, Received, Record

BIG_VALUE_BYTES = 1_048_000
"""Just under the default limit of 1 MiB for a batch, of which the record's framing takes a little."""


def contents(received: list[Received]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in received]


def numbered(count: int, partition: int = 0) -> list[Record]:
    return [
        Record(b"value %d of partition %d" % (number, partition), b"key %d" % number, partition=partition)
        for number in range(count)
    ]


@every_client_and("acks", lambda client: ("0", "1", "all"), "produce")
def test_each_acks_level_stores_the_records(client: Client, acks: str, new_topic: NewTopic) -> None:
    topic, records = new_topic(), numbered(20)
    client.produce(topic, records, acks=acks)
    received = client.read(topic, 0, 0, 20)
    assert contents(received) == [(record.key, record.value) for record in records]
    assert [record.offset for record in received] == list(range(20))


@every_client_and("acks", lambda client: ("1", "all"), "produce")
def test_a_topic_needs_no_more_replicas_than_it_has(client: Client, acks: str, new_topic: NewTopic) -> None:
    topic, records = new_topic(config={"min.insync.replicas": "2"}), numbered(3)
    client.produce(topic, records, acks=acks)
    assert contents(client.read(topic, 0, 0, 3)) == [(record.key, record.value) for record in records]


@every_client_and("codec", lambda client: client.codecs, "produce")
def test_each_codec_is_read_by_its_own_and_by_another_client(
    client: Client, codec: str, new_topic: NewTopic, confluent: Client
) -> None:
    topic, records = new_topic(), numbered(50)
    client.produce(topic, records, codec=codec)
    sent = [(record.key, record.value) for record in records]
    assert contents(client.read(topic, 0, 0, 50)) == sent
    assert contents(confluent.read(topic, 0, 10, 40)) == sent[10:]


@every_client("produce", "idempotent")
def test_an_idempotent_producer_writes_each_record_once(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    records = [record for partition in range(3) for record in numbered(100, partition)]
    offsets = client.produce(topic, records, idempotent=True)
    if min(offsets) >= 0:
        assert offsets == [*range(100)] * 3
    for partition in range(3):
        received = client.read(topic, partition, 0, 100)
        assert [record.value for record in received] == [record.value for record in numbered(100, partition)]
        assert client.ends(topic, partition) == (0, 100)


@every_client("produce", "admin")
def test_keys_nulls_headers_and_timestamps_come_back_unchanged(
    client: Client, new_topic: NewTopic, confluent: Client
) -> None:
    topic, now_ms = new_topic(), int(time.time() * 1000)
    headers = (("trace", b"\x00\xff binary"), ("trace", b"a second value"), ("empty", b""))
    records = [
        Record(b"both", b"key", headers, now_ms - 60_000),
        Record(None, b"a tombstone", (), now_ms - 50_000),
        Record(b"no key", None, (), now_ms - 40_000),
        Record(b"", b"", (), now_ms - 30_000),
        Record("Straße, 東京, 🌊".encode(), "ключ".encode(), (), now_ms - 20_000),
    ]
    assert client.produce(topic, records) == [0, 1, 2, 3, 4]
    expected = [
        Received(0, offset, record.key, record.value, record.headers, record.timestamp_ms or 0)
        for offset, record in enumerate(records)
    ]
    assert client.read(topic, 0, 0, 5) == expected
    assert confluent.read(topic, 0, 0, 5) == expected


@every_client("read")
def test_reading_starts_at_any_offset(client: Client, new_topic: NewTopic, confluent: Client) -> None:
    topic = new_topic()
    for start in range(0, 60, 20):  # three batches, so that an offset falls inside one
        confluent.produce(topic, numbered(60)[start : start + 20])
    for offset in (0, 1, 19, 20, 37, 59):
        assert [record.offset for record in client.read(topic, 0, offset, 1)] == [offset]
    assert client.ends(topic, 0) == (0, 60)


@every_client("time")
def test_an_offset_is_found_by_time(client: Client, new_topic: NewTopic, confluent: Client) -> None:
    topic, start_ms = new_topic(), int(time.time() * 1000) - 100_000
    for number in range(10):
        confluent.produce(topic, [Record(b"x", timestamp_ms=start_ms + number * 1000)])
    assert client.offset_for_time(topic, 0, start_ms) == 0
    assert client.offset_for_time(topic, 0, start_ms + 3000) == 3
    assert client.offset_for_time(topic, 0, start_ms + 3001) == 4
    assert client.offset_for_time(topic, 0, start_ms + 9001) is None


@every_client("read")
def test_an_empty_topic_has_equal_ends_until_its_first_record(
    client: Client, new_topic: NewTopic, confluent: Client
) -> None:
    topic = new_topic()
    assert client.ends(topic, 0) == (0, 0)
    confluent.produce(topic, numbered(1))
    assert client.ends(topic, 0) == (0, 1)
    assert contents(client.read(topic, 0, 0, 1)) == [(b"key 0", b"value 0 of partition 0")]


@every_client("produce")
def test_records_near_a_mebibyte_pass(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    values = [bytes([ord("a") + number]) * BIG_VALUE_BYTES for number in range(3)]
    for value in values:
        client.produce(topic, [Record(value)])
    received = client.read(topic, 0, 0, 3)
    assert [len(record.value or b"") for record in received] == [BIG_VALUE_BYTES] * 3
    assert [record.value for record in received] == values


@every_client("produce", "admin")
def test_a_hundred_partitions_keep_their_records_apart(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=100)
    client.produce(topic, [Record(b"of %d" % partition, partition=partition) for partition in range(100)])
    for partition in (0, 1, 50, 99):
        assert contents(client.read(topic, partition, 0, 1)) == [(None, b"of %d" % partition)]


@every_client("produce")
def test_producing_to_a_topic_that_is_not_there_creates_it(client: Client, confluent: Client) -> None:
    topic = f"judged-auto-{uuid.uuid4().hex[:8]}"
    client.produce(topic, [Record(b"first")])
    assert confluent.topics()[topic] == 1
    assert contents(client.read(topic, 0, 0, 1))[0][1] == b"first"


@pytest.mark.parametrize("codec", ["none", "zstd"])
@every_client("read")
def test_a_long_log_is_read_whole_and_in_order(
    client: Client, codec: str, new_topic: NewTopic, confluent: Client
) -> None:
    """More bytes than one fetch answers, so that the client continues inside a batch and across answers."""
    topic = new_topic()
    records = [Record(b"%06d" % number + b"." * 500) for number in range(6000)]
    confluent.produce(topic, records, codec=codec)
    received = client.read(topic, 0, 0, 6000)
    assert [record.value for record in received] == [record.value for record in records]
    assert [record.offset for record in received] == list(range(6000))
