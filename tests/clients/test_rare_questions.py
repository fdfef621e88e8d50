"""What tools ask now and then, by Java's admin client, which checks answers more strictly than any other."""

import time
import uuid
from collections.abc import Callable

import pytest

from tests.clients.judged import Client, ErrorCode, NewTopic, Record, Refused
from tests.clients.with_java import JavaClient
from tests.support.eventually import eventually, gathered

LOG_DIR_NOT_FOUND = 57
ELECTION_NOT_NEEDED = 84
GROUP_SUBSCRIBED_TO_TOPIC = 86
JOIN_TIMEOUT_S = 60.0


@pytest.fixture
def java(bootstrap: str, open_client: Callable[[str, str], Client]) -> JavaClient:
    client = open_client("java", bootstrap)
    assert isinstance(client, JavaClient)
    return client


@pytest.fixture
def topic(new_topic: NewTopic, java: JavaClient) -> str:
    """Five records, of which the third is the youngest."""
    name, now_ms = new_topic(), int(time.time() * 1000)
    ages_ms = (50_000, 40_000, 0, 20_000, 10_000)
    for number, age_ms in enumerate(ages_ms):
        java.produce(name, [Record(b"%d" % number, timestamp_ms=now_ms - age_ms)])
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


def test_offsets_are_listed_by_earliest_latest_and_youngest(java: JavaClient, topic: str) -> None:
    assert java.ask("listOffsets", topic=topic) == {"earliest": 0, "latest": 5, "maxTimestamp": 2}


def test_nothing_lies_in_remote_storage(java: JavaClient, topic: str) -> None:
    offsets = {"earliestLocal": 0, "latestTiered": -1, "earliestPendingUpload": -1}
    assert java.ask("tieredOffsets", topic=topic) == offsets


def test_everything_may_be_done_with_a_topic(java: JavaClient, topic: str) -> None:
    assert java.ask("topicOperations", topic=topic) == [
        "ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE",
    ]  # fmt: skip


def test_a_replica_moves_to_the_directory_that_it_has_and_to_no_other(java: JavaClient, topic: str) -> None:
    java.ask("moveToLogDir", topic=topic, path=java.ask("logDir", topic=topic))
    with pytest.raises(Refused) as refusal:
        java.ask("moveToLogDir", topic=topic, path="/nowhere")
    assert refusal.value.code == LOG_DIR_NOT_FOUND


def test_the_offsets_of_a_group_are_set_read_and_deleted_by_hand(java: JavaClient, topic: str, group: str) -> None:
    java.ask("setGroupOffset", topic=topic, group=group, offset=3)
    assert java.ask("groupOffset", topic=topic, group=group) == [3, "set by hand"]
    assert group in java.groups()
    member = java.member(topic, group)
    received = gathered(lambda: [record.value for record in member.poll(0.1)], 2, patience_s=JOIN_TIMEOUT_S)
    assert received == [b"3", b"4"], "a member starts where the group was set"
    with pytest.raises(Refused) as refusal:
        java.ask("deleteGroupOffset", topic=topic, group=group)
    assert refusal.value.code == GROUP_SUBSCRIBED_TO_TOPIC
    member.close()
    java.ask("deleteGroupOffset", topic=topic, group=group)
    assert java.ask("groupOffset", topic=topic, group=group) is None


def test_the_offsets_of_an_unknown_group_are_none_and_no_error(java: JavaClient, topic: str, group: str) -> None:
    try:
        assert java.ask("groupOffset", topic=topic, group=group) is None
    except Refused as refusal:
        assert refusal.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_members_are_removed_by_an_admin(java: JavaClient, topic: str, group: str) -> None:
    member = java.member(topic, group, instance_id="static")
    eventually(lambda: member.poll(0.1) is not None and member.assigned(), "it joins", patience_s=JOIN_TIMEOUT_S)
    member.close()
    assert java.group(group).members == 1, "a static member stays when it closes"
    java.ask("removeMembers", group=group)
    view = java.group(group)
    assert (view.state, view.members) == ("EMPTY", 0)


def test_the_producers_of_a_partition_are_described(java: JavaClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    java.produce(topic, [Record(b"x")] * 4, idempotent=True)
    [last_sequence] = java.ask("producers", topic=topic)
    assert last_sequence >= 3


def test_an_election_is_not_needed_where_the_leader_is_there(java: JavaClient, topic: str) -> None:
    assert java.ask("electLeaders", topic=topic) == ELECTION_NOT_NEEDED


def test_config_resources_are_listed(java: JavaClient, new_topic: NewTopic) -> None:
    name = new_topic(config={"retention.ms": "1000000"})
    assert name in java.ask("configResources")


def test_a_broker_describes_its_configs(java: JavaClient) -> None:
    config = java.ask("brokerConfig")
    for name in ("log.retention.ms", "num.partitions", "auto.create.topics.enable", "message.max.bytes", "log.dirs"):
        assert name in config


def test_a_config_is_reset_to_its_default(java: JavaClient, new_topic: NewTopic) -> None:
    topic = new_topic(config={"retention.ms": "1000000"})
    java.ask("resetTopicConfig", topic=topic, key="retention.ms")
    eventually(lambda: java.topic_config(topic)["retention.ms"] == "604800000", "the default is back")


def test_a_topic_is_described_and_deleted_by_its_id(java: JavaClient, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    assert java.ask("describeById", topic=topic) == [topic, 3]
    java.ask("deleteById", topic=topic)
    eventually(lambda: topic not in java.topics(), "the topic is gone")


def test_features_are_told(java: JavaClient) -> None:
    assert isinstance(java.ask("features"), list)
