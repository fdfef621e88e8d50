"""How large a fetch response may be (KIP-74): its first batch is sent however large it is, so that every consumer gets
on; everything behind it fits into the limits of the response and of its partition."""

import uuid
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.records.batch import split
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing import Broker
from tests.clients.judged import OTHER_BROKER
from tests.clients.transaction_wire import Wire
from tests.support.eventually import eventually
from tests.support.messages import nested

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
SIZES = ((300, 300, 5_000, 300), (300, 9_000), (9_000, 300), (2_000, 2_000), (300, 300, 300, 300))
"""Of the values in each partition; each is a batch, which adds less than OVERHEAD bytes."""
OVERHEAD = 100


@pytest.fixture(scope="module", params=["memory", "disk"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if OTHER_BROKER:
        yield OTHER_BROKER
        return
    with Broker(tail_cache_bytes=0 if request.param == "disk" else 64 * 1024 * 1024) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def wire(bootstrap: str) -> Iterator[Wire]:
    opened = Wire(bootstrap)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def topic(wire: Wire) -> str:
    name = f"limits-{uuid.uuid4()}"
    made = nested(name=name, num_partitions=len(SIZES), replication_factor=1, assignments=[], configs=[])
    assert wire.ask(CREATE_TOPICS, 4, topics=[made], timeout_ms=30_000, validate_only=False).topics[0].error_code == 0
    for partition, sizes in enumerate(SIZES):
        for size in sizes:
            produce(wire, name, partition, bytes(build_batch([Record(None, bytes(size))])))
    return name


def produce(wire: Wire, topic: str, partition: int, batch: bytes) -> None:
    data = nested(name=topic, partition_data=[nested(index=partition, records=batch)])

    def is_taken() -> bool:
        answer = wire.ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        return bool(answer.responses[0].partition_responses[0].error_code == 0)

    eventually(is_taken, "the topic is led")  # Kafka answers before its broker leads it


def fetch(
    wire: Wire, topic: str, asked: Sequence[tuple[int, int]], max_bytes: int, partition_max_bytes: int, isolation: int
) -> dict[int, bytes]:
    """The bytes of each partition, for (partition, offset) in that order."""
    partitions = [
        nested(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes, log_start_offset=-1,
            current_leader_epoch=-1,
        )
        for partition, offset in asked
    ]  # fmt: skip
    answer = wire.ask(
        FETCH, 11, replica_id=-1, max_wait_ms=60_000, min_bytes=1, max_bytes=max_bytes, isolation_level=isolation,
        session_id=0, session_epoch=-1, topics=[nested(topic=topic, partitions=partitions)], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip
    assert all(each.error_code == 0 for each in answer.responses[0].partitions)
    return {each.partition_index: each.records or b"" for each in answer.responses[0].partitions}


def complete(data: bytes) -> list[int]:
    """The offsets of whole batches: Kafka cuts off where the limit is, inside a batch."""
    offsets, position = [], 0
    while len(data) - position >= 12:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if len(data) - position < size:
            break
        offsets += [header.last_offset for header, _ in split(data[position : position + size])]
        position += size
    return offsets


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("partition_max_bytes", [0, 700, 2_100, 5_500, 1_000_000])
@pytest.mark.parametrize("max_bytes", [0, 700, 2_500, 9_500, 15_000])
def test_only_the_first_batch_of_a_response_may_exceed_a_limit_and_all_arrive(
    wire: Wire, topic: str, max_bytes: int, partition_max_bytes: int, isolation: int
) -> None:
    asked = [(partition, 0) for partition in range(len(SIZES))]
    while asked:
        found = fetch(wire, topic, asked, max_bytes, partition_max_bytes, isolation)
        first, offset = asked[0]
        first_batch = SIZES[first][offset] + OVERHEAD
        assert complete(found[first]), "the first partition gets on"
        assert sum(map(len, found.values())) <= max(max_bytes, first_batch)
        assert len(found[first]) <= max(partition_max_bytes, first_batch)
        assert all(len(data) <= partition_max_bytes for partition, data in found.items() if partition != first)
        offsets = dict(asked) | {
            partition: max(read) + 1 for partition, data in found.items() if (read := complete(data))
        }
        # As clients do: what has been read goes to the back.
        asked = [(partition, offsets[partition]) for partition, _ in [*asked[1:], asked[0]]]
        asked = [(partition, offset) for partition, offset in asked if offset < len(SIZES[partition])]


def test_a_consumer_with_a_small_limit_reads_large_and_small_records(bootstrap: str) -> None:
    topic, limit, count = f"mixed-{uuid.uuid4()}", 1_000_000, 24
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": limit, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, bytes(900_000 if number % 3 else 10), partition=0)
        assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "limited",
            "fetch.max.bytes": limit,
            "max.partition.fetch.bytes": 10_000_000,
            "message.max.bytes": limit,
            "receive.message.max.bytes": limit + 512,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[int] = []
    while len(read) < count:
        message = consumer.poll(60)
        assert message is not None and message.error() is None, message and message.error()
        read.append(message.offset())
    consumer.close()
    assert read == list(range(count))
