"""Compacted and expired logs, as clients read them. Offsets have holes there, and batches are not full."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from headwater.testing import Broker
from tests.clients.every_client import every_client
from tests.clients.judged import EVERY_CODEC, Client, ErrorCode, Received, Record, Refused
from tests.support.eventually import eventually

SEGMENT_BYTES = 1_048_576
"""The smallest that Kafka 4 allows."""
VALUE_BYTES = 40_000
KEYS = 8
VERSIONS = 20
CLEAN_TIMEOUT_S = 60.0
HOUR_MS = 3_600_000

OpenClient = Callable[[str, str], Client]


@dataclass(frozen=True, slots=True)
class CompactedTopic:
    name: str
    latest: dict[bytes, bytes | None]
    """Value by key after all updates; None where the last word was a tombstone."""


@pytest.fixture(scope="module")
def cleaning(ours_only: None) -> Iterator[Broker]:
    """A broker that looks for work ten times a second."""
    with Broker(subprocess=True, retention_check_interval_ms=100, cleaner_interval_ms=100) as broker:
        yield broker
        print(broker.log)


@pytest.fixture
def client(request: pytest.FixtureRequest, cleaning: Broker, open_client: OpenClient) -> Client:
    return open_client(request.param, cleaning.bootstrap)


@pytest.fixture(scope="module")
def preparing(cleaning: Broker, open_client: OpenClient) -> Client:
    return open_client("confluent", cleaning.bootstrap)


@pytest.fixture(scope="module")
def compacted(preparing: Client) -> CompactedTopic:
    """Many versions of a few keys, written with every codec, and the time to compact them."""
    topic = "compacted"
    config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}
    preparing.create_topic(topic, config=config | {"delete.retention.ms": "100"})
    latest: dict[bytes, bytes | None] = {}
    for version in range(VERSIONS):
        records = [Record(value_of(key, version), b"key %d" % key) for key in range(KEYS)]
        preparing.produce(topic, records, codec=EVERY_CODEC[version % len(EVERY_CODEC)])
        latest |= {record.key: record.value for record in records if record.key}
    preparing.produce(topic, [Record(None, b"key 0")])
    latest[b"key 0"] = None
    latest[b"filler"] = b"." * (SEGMENT_BYTES - 100_000)
    for _ in range(2):  # what is in the open segment is not compacted: start new ones
        preparing.produce(topic, [Record(latest[b"filler"], b"filler")])
    eventually(
        lambda: len(read_to_end(preparing, topic)) <= KEYS + 2, "the log is compacted", patience_s=CLEAN_TIMEOUT_S
    )
    return CompactedTopic(topic, latest)


def value_of(key: int, version: int) -> bytes:
    """Text that no codec makes small enough to fit into one segment."""
    return b"".join(b"%d/%d/%d " % (key, version, (at * 2654435761 + key * version) % 4294967296) for at in range(2500))


def read_to_end(client: Client, topic: str) -> list[Received]:
    """All there is, by a member of a new group: the number of records is not known from the offsets."""
    _, end = client.ends(topic, 0)
    member = client.member(topic, f"reader-{time.monotonic_ns()}")
    received: list[Received] = []

    def has_all() -> bool:
        received.extend(member.poll(0.1))
        return bool(received) and received[-1].offset >= end - 1

    try:
        claim = f"records up to offset {end} are read"
        eventually(has_all, claim, patience_s=CLEAN_TIMEOUT_S)
    finally:
        member.close()
    return received


@every_client("group")
def test_a_compacted_log_gives_the_latest_value_of_each_key(client: Client, compacted: CompactedTopic) -> None:
    received = read_to_end(client, compacted.name)
    offsets = [record.offset for record in received]
    assert offsets == sorted(set(offsets)), "in order, each once"
    assert len(offsets) <= offsets[-1], "with holes where older values were"
    found = {record.key: record.value for record in received}
    assert {key: value for key, value in compacted.latest.items() if value is not None} == {
        key: value for key, value in found.items() if value is not None
    }


@every_client("read")
def test_reading_from_a_hole_starts_at_the_next_record(client: Client, compacted: CompactedTopic) -> None:
    _, end = client.ends(compacted.name, 0)
    [received] = client.read(compacted.name, 0, 1, 1)
    assert 1 < received.offset < end


@every_client("admin")
def test_segments_older_than_the_retention_time_are_gone(client: Client) -> None:
    topic, now_ms = f"expiring-{client.name}", int(time.time() * 1000)
    client.create_topic(topic, config={"retention.ms": str(HOUR_MS), "segment.bytes": str(SEGMENT_BYTES)})
    for _ in range(30):
        client.produce(topic, [Record(b"o" * VALUE_BYTES, timestamp_ms=now_ms - 2 * HOUR_MS)])
    for _ in range(30):
        client.produce(topic, [Record(b"n" * VALUE_BYTES)])
    wait_for_earliest(client, topic)
    received = eventually(partial(read_all, client, topic), "what is young can be read")
    assert 0 < received[0].offset <= 30, "nothing young was deleted"
    assert received[-1].offset == 59
    assert received[-1].value == b"n" * VALUE_BYTES
    with pytest.raises(Refused) as refusal:
        client.read(topic, 0, 0, 1)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@every_client("configs")
def test_a_smaller_size_limit_takes_effect_at_once(client: Client) -> None:
    topic = f"shrinking-{client.name}"
    client.create_topic(topic, config={"segment.bytes": str(SEGMENT_BYTES)})
    for _ in range(6):
        client.produce(topic, [Record(b"." * VALUE_BYTES)] * 20)
    assert client.ends(topic, 0) == (0, 120)
    # one change at a time: the older AlterConfigs call replaces all that was set
    client.set_topic_config(topic, "retention.bytes", str(2 * SEGMENT_BYTES))
    earliest = wait_for_earliest(client, topic)
    kept_bytes = (120 - earliest) * VALUE_BYTES
    assert kept_bytes >= 2 * SEGMENT_BYTES - VALUE_BYTES * 2, "no more is deleted than must be"
    assert len(client.read(topic, 0, earliest, 120 - earliest)) == 120 - earliest


def read_all(client: Client, topic: str) -> list[Received] | None:
    """All records; None if the first of them were deleted meanwhile: a busy broker may take two rounds for it."""
    earliest, end = client.ends(topic, 0)
    try:
        return client.read(topic, 0, earliest, end - earliest)
    except Refused:
        return None


def wait_for_earliest(client: Client, topic: str) -> int:
    """The earliest offset, once it has moved."""
    return eventually(lambda: client.ends(topic, 0)[0], "old segments are deleted", patience_s=CLEAN_TIMEOUT_S)
