"""What must be refused is refused with the error that clients know how to handle."""

import time
import uuid

import pytest

from tests.clients.every_client import every_client
from tests.clients.judged import Client, ErrorCode, NewTopic, Record, Refused
from tests.support.eventually import eventually


@every_client("admin")
def test_a_topic_that_exists_is_not_created_again(client: Client, new_topic: NewTopic) -> None:
    with pytest.raises(Refused) as refusal:
        client.create_topic(new_topic())
    assert refusal.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["with space", "x" * 250, ".."])
@every_client("admin")
def test_an_invalid_topic_name_is_refused(client: Client, name: str) -> None:
    with pytest.raises(Refused) as refusal:
        client.create_topic(name)
    assert refusal.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


@every_client("admin")
def test_a_topic_without_partitions_is_refused(client: Client) -> None:
    with pytest.raises(Refused) as refusal:
        client.create_topic(f"judged-{uuid.uuid4().hex[:8]}", partitions=0)
    assert refusal.value.code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize(
    ("key", "value"),
    [("no.such.config", "1"), ("retention.ms", "soon"), ("cleanup.policy", "recycle"), ("segment.bytes", "-5")],
)
@every_client("configs")
def test_an_invalid_config_is_refused_at_creation(client: Client, key: str, value: str) -> None:
    with pytest.raises(Refused) as refusal:
        client.create_topic(f"judged-{uuid.uuid4().hex[:8]}", config={key: value})
    assert refusal.value.code == ErrorCode.INVALID_CONFIG


@every_client("configs")
def test_an_invalid_config_change_is_refused_and_changes_nothing(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    before = client.topic_config(topic)
    with pytest.raises(Refused) as refusal:
        client.set_topic_config(topic, "retention.ms", "soon")
    assert refusal.value.code == ErrorCode.INVALID_CONFIG
    assert client.topic_config(topic) == before


@every_client("admin")
def test_an_unknown_topic_cannot_be_deleted_or_described(client: Client) -> None:
    topic = f"judged-missing-{uuid.uuid4().hex[:8]}"
    with pytest.raises(Refused) as refusal:
        client.delete_topic(topic)
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(Refused) as refusal:
        client.topic_config(topic)
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@every_client("admin")
def test_partitions_are_never_taken_away(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    with pytest.raises(Refused) as refusal:
        client.add_partitions(topic, 2)
    assert refusal.value.code == ErrorCode.INVALID_PARTITIONS


@every_client("produce")
def test_a_record_above_the_limit_is_refused(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(Refused) as refusal:
        client.produce(topic, [Record(b"." * 1_100_000)])
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


@every_client("produce")
def test_the_limit_is_set_per_topic(client: Client, new_topic: NewTopic) -> None:
    small, large = new_topic(config={"max.message.bytes": "2000"}), new_topic(config={"max.message.bytes": "3000000"})
    with pytest.raises(Refused) as refusal:
        client.produce(small, [Record(b"." * 5_000)])
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    client.produce(large, [Record(b"." * 2_000_000)])
    [received] = client.read(large, 0, 0, 1)
    assert len(received.value or b"") == 2_000_000


@every_client("produce", "invalid-record")
def test_a_record_without_a_key_is_refused_on_a_compacted_topic(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(config={"cleanup.policy": "compact"})
    client.produce(topic, [Record(b"value", b"key")])
    with pytest.raises(Refused) as refusal:
        client.produce(topic, [Record(b"no key")])
    assert refusal.value.code == ErrorCode.INVALID_RECORD
    assert client.ends(topic, 0) == (0, 1)


@every_client("produce", "admin")
def test_a_timestamp_far_in_the_future_is_refused(client: Client, new_topic: NewTopic) -> None:
    topic, tomorrow_ms = new_topic(), int(time.time() * 1000) + 86_400_000
    with pytest.raises(Refused) as refusal:
        client.produce(topic, [Record(b"x", timestamp_ms=tomorrow_ms)])
    assert refusal.value.code == ErrorCode.INVALID_TIMESTAMP


@every_client("read")
def test_an_offset_beyond_the_end_is_out_of_range(client: Client, new_topic: NewTopic, confluent: Client) -> None:
    topic = new_topic()
    confluent.produce(topic, [Record(b"only")])
    with pytest.raises(Refused) as refusal:
        client.read(topic, 0, 1_000, 1)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@every_client("records")
def test_records_beyond_the_end_cannot_be_deleted(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Record(b"only")])
    with pytest.raises(Refused) as refusal:
        client.delete_records(topic, 0, 50)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@every_client("groups")
def test_a_group_with_members_and_an_unknown_group_are_not_deleted(client: Client, new_topic: NewTopic) -> None:
    topic, group = new_topic(), f"group-{uuid.uuid4().hex[:10]}"
    client.produce(topic, [Record(b"x")])
    with pytest.raises(Refused) as refusal:
        client.delete_group(group)
    assert refusal.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    member = client.member(topic, group)
    try:
        eventually(lambda: member.poll(0.1) is not None and member.assigned(), "the member joins")
        with pytest.raises(Refused) as refusal:
            client.delete_group(group)
        assert refusal.value.code == ErrorCode.NON_EMPTY_GROUP
    finally:
        member.close()
