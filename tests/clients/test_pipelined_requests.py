"""Requests that are sent without waiting for answers: each sees what those before it on its connection did, as in
Kafka, which works on one request of a connection at a time."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing import Broker
from tests.clients.judged import OTHER_BROKER
from tests.clients.transaction_wire import Code, Wire
from tests.support.eventually import eventually
from tests.support.messages import nested

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 19, 20, 21, 32, 44
CREATE_PARTITIONS, DELETE_GROUPS = 37, 42
LATEST, EARLIEST = -1, -2
TIMES = 10
"""An answer that overtakes another one does not do so every time."""


class Pipeline(Wire):
    """A connection whose requests leave together, in one piece, when the first answer is waited for."""

    def __init__(self, bootstrap: str) -> None:
        self._unsent = bytearray()
        super().__init__(bootstrap)

    def send(self, api_key: int, version: int, **fields: Any) -> None:
        self._unsent += self.frame(api_key, version, **fields)

    def answer(self, api_key: int, version: int) -> Any:
        self._socket.sendall(self._unsent)
        self._unsent.clear()
        return super().answer(api_key, version)


@pytest.fixture(scope="module")
def patient_bootstrap() -> Iterator[str]:
    """A broker that takes its time for each append: until the disk has it."""
    if OTHER_BROKER:
        yield OTHER_BROKER
        return
    with Broker(durability="sync") as broker:
        yield broker.bootstrap


@pytest.fixture
def wire(patient_bootstrap: str) -> Iterator[Wire]:
    opened = Pipeline(patient_bootstrap)
    yield opened
    opened.close()


@pytest.fixture
def topic(wire: Wire) -> str:
    name = f"pipelined-{uuid.uuid4()}"
    made = nested(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert wire.ask(CREATE_TOPICS, 4, topics=[made], timeout_ms=30_000, validate_only=False).topics[0].error_code == 0

    def is_led() -> bool:
        send_list_offsets(wire, name, LATEST)
        return bool(wire.answer(LIST_OFFSETS, 7).topics[0].partitions[0].error_code == 0)

    eventually(is_led, "the topic is led")  # Kafka answers before its broker leads it
    return name


def send_produce(wire: Wire, topic: str, values: int = 1, acks: int = -1) -> None:
    batch = bytes(build_batch([Record(None, b"v") for _ in range(values)]))
    data = nested(name=topic, partition_data=[nested(index=0, records=batch)])
    wire.send(PRODUCE, 9, transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[data])


def produced(wire: Wire) -> int:
    result = wire.answer(PRODUCE, 9).responses[0].partition_responses[0]
    assert result.error_code == 0
    offset: int = result.base_offset
    return offset


def send_list_offsets(wire: Wire, topic: str, timestamp: int) -> None:
    asked = nested(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    wire.send(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[nested(name=topic, partitions=[asked])])


def listed_offset(wire: Wire) -> int:
    result = wire.answer(LIST_OFFSETS, 7).topics[0].partitions[0]
    assert result.error_code == 0
    offset: int = result.offset
    return offset


def send_fetch(wire: Wire, topic: str, offset: int, wait_ms: int = 0) -> None:
    asked = nested(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, log_start_offset=-1)
    wire.send(
        FETCH, 11, replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
        session_id=0, session_epoch=-1, topics=[nested(topic=topic, partitions=[asked])], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip


def send_metadata(wire: Wire, topic: str) -> None:
    wire.send(METADATA, 8, topics=[nested(name=topic)], allow_auto_topic_creation=False)


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_the_latest_offset_counts_what_was_produced_before(wire: Wire, topic: str, acks: int) -> None:
    for number in range(TIMES):
        send_produce(wire, topic, acks=acks)
        send_list_offsets(wire, topic, LATEST)
        if acks != 0:
            assert produced(wire) == number
        assert listed_offset(wire) == number + 1


def test_the_earliest_offset_is_behind_what_was_deleted_before(wire: Wire, topic: str) -> None:
    send_produce(wire, topic, values=TIMES)
    produced(wire)
    for number in range(1, TIMES + 1):
        asked = nested(partition_index=0, offset=number)
        wire.send(DELETE_RECORDS, 1, topics=[nested(name=topic, partitions=[asked])], timeout_ms=30_000)
        send_list_offsets(wire, topic, EARLIEST)
        assert wire.answer(DELETE_RECORDS, 1).topics[0].partitions[0].error_code == 0
        assert listed_offset(wire) == number


def test_a_fetch_has_what_was_produced_before_and_a_produce_behind_it_waits(wire: Wire, topic: str) -> None:
    for number in range(TIMES):
        send_produce(wire, topic)
        send_fetch(wire, topic, 2 * number)
        send_fetch(wire, topic, 2 * number + 1, wait_ms=20)
        send_produce(wire, topic)
        assert produced(wire) == 2 * number
        found, later = (wire.answer(FETCH, 11).responses[0].partitions[0] for _ in range(2))
        assert found.records
        assert not later.records, "what is sent later is not there yet"
        assert found.high_watermark == later.high_watermark == 2 * number + 1
        assert produced(wire) == 2 * number + 1


def test_topics_and_partitions_are_known_to_what_asks_for_them_next(wire: Wire, ours_only: None) -> None:
    """Kafka's brokers learn of topics from their controller, and may answer before they have."""
    for _ in range(TIMES):
        topic = f"made-{uuid.uuid4()}"
        made = nested(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        wire.send(CREATE_TOPICS, 4, topics=[made], timeout_ms=30_000, validate_only=False)
        send_metadata(wire, topic)
        more = nested(name=topic, count=3, assignments=None)
        wire.send(CREATE_PARTITIONS, 1, topics=[more], timeout_ms=30_000, validate_only=False)
        send_metadata(wire, topic)
        changed = nested(name="retention.ms", config_operation=0, value="12345")
        altered = nested(resource_type=2, resource_name=topic, configs=[changed])
        wire.send(ALTER_CONFIGS, 0, resources=[altered], validate_only=False)
        asked = nested(resource_type=2, resource_name=topic, configuration_keys=["retention.ms"])
        wire.send(DESCRIBE_CONFIGS, 1, resources=[asked], include_synonyms=False)
        wire.send(DELETE_TOPICS, 3, topic_names=[topic], timeout_ms=30_000)
        send_metadata(wire, topic)
        assert wire.answer(CREATE_TOPICS, 4).topics[0].error_code == 0
        assert len(wire.answer(METADATA, 8).topics[0].partitions) == 1
        assert wire.answer(CREATE_PARTITIONS, 1).results[0].error_code == 0
        assert len(wire.answer(METADATA, 8).topics[0].partitions) == 3
        assert wire.answer(ALTER_CONFIGS, 0).responses[0].error_code == 0
        assert wire.answer(DESCRIBE_CONFIGS, 1).results[0].configs[0].value == "12345"
        assert wire.answer(DELETE_TOPICS, 3).responses[0].error_code == 0
        assert wire.answer(METADATA, 8).topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_position_is_the_one_committed_before_and_gone_with_its_group(wire: Wire, topic: str) -> None:
    group = f"group-{uuid.uuid4()}"
    asked = [nested(name=topic, partition_indexes=[0])]
    eventually(  # a broker whose first group this is makes the topic for it
        lambda: (
            wire.ask(FIND_COORDINATOR, 2, key=group, key_type=0).error_code == 0
            and wire.ask(OFFSET_FETCH, 6, group_id=group, topics=asked).error_code == 0
        ),
        "the group has a coordinator",
    )
    for number in range(TIMES):
        offset = nested(partition_index=0, committed_offset=number, committed_leader_epoch=-1, committed_metadata="")
        wire.send(
            OFFSET_COMMIT, 7, group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
            topics=[nested(name=topic, partitions=[offset])],
        )  # fmt: skip
        wire.send(OFFSET_FETCH, 6, group_id=group, topics=asked)
        wire.send(DELETE_GROUPS, 1, groups_names=[group])
        wire.send(OFFSET_FETCH, 6, group_id=group, topics=asked)
        committed = wire.answer(OFFSET_COMMIT, 7).topics[0].partitions[0].error_code
        before = wire.answer(OFFSET_FETCH, 6).topics[0].partitions[0].committed_offset
        deleted = wire.answer(DELETE_GROUPS, 1).results[0].error_code
        after = wire.answer(OFFSET_FETCH, 6).topics[0].partitions[0].committed_offset
        assert (committed, before, deleted, after) == (0, number, 0, -1)
