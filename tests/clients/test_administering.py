"""Topics, configs, records and groups through each client's admin calls."""

import uuid

from tests.clients.every_client import every_client
from tests.clients.judged import Client, NewTopic, Record, Refused
from tests.support.eventually import eventually, gathered

SEEN_TIMEOUT_S = 60.0


def new_name() -> str:
    return f"judged-{uuid.uuid4().hex[:12]}"


@every_client("admin")
def test_a_topic_is_created_seen_and_deleted(client: Client) -> None:
    topic = new_name()
    client.create_topic(topic, partitions=3)
    eventually(lambda: client.topics().get(topic) == 3, "the topic is listed")
    client.delete_topic(topic)
    eventually(lambda: topic not in client.topics(), "the topic is gone")


@every_client("admin")
def test_a_topic_created_again_under_its_old_name_is_empty(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Record(b"of the first topic")] * 5)
    client.delete_topic(topic)
    eventually(lambda: topic not in client.topics(), "the topic is gone")
    client.create_topic(topic)
    eventually(lambda: topic in client.topics(), "the topic is back")
    assert client.ends(topic, 0) == (0, 0)
    client.produce(topic, [Record(b"of the second")])
    assert [record.value for record in client.read(topic, 0, 0, 1)] == [b"of the second"]


@every_client("admin")
def test_partitions_are_added_and_written_to(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    client.produce(topic, [Record(b"before")])
    client.add_partitions(topic, 5)
    eventually(lambda: client.topics()[topic] == 5, "five partitions")
    eventually(lambda: ends_if_known(client, topic, 4) == (0, 0), "the last one is there")
    assert [record.value for record in client.read(topic, 0, 0, 1)] == [b"before"]


def ends_if_known(client: Client, topic: str, partition: int) -> tuple[int, int] | None:
    try:
        return client.ends(topic, partition)
    except Refused:
        return None


@every_client("configs")
def test_a_topic_is_created_with_its_configs_and_defaults_for_the_rest(client: Client) -> None:
    topic = new_name()
    client.create_topic(topic, config={"retention.ms": "123456", "cleanup.policy": "compact"})
    eventually(lambda: topic in client.topics(), "the topic is listed")
    config = client.topic_config(topic)
    assert (config["retention.ms"], config["cleanup.policy"]) == ("123456", "compact")
    assert config["max.message.bytes"] == "1048588"
    assert config["compression.type"] == "producer"
    assert config["message.timestamp.type"] == "CreateTime"
    assert int(config["segment.bytes"]) > 0


@every_client("configs", "produce", "records")
def test_a_topic_is_created_without_a_cleanup_policy_and_with_keys_of_features_that_it_does_not_use(
    client: Client,
) -> None:
    topic = new_name()
    asked = {
        "cleanup.policy": "",
        "remote.storage.enable": "false",
        "remote.log.copy.disable": "true",
        "remote.log.delete.on.disable": "false",
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "*",
    }
    client.create_topic(topic, config=asked)
    eventually(lambda: topic in client.topics(), "the topic is listed")
    found = client.topic_config(topic)
    assert {name: found[name] for name in asked} == asked
    client.produce(topic, [Record(b"1"), Record(b"2"), Record(b"3")])
    assert client.delete_records(topic, 0, 2) == 2


@every_client("configs")
def test_a_topic_config_is_changed(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.set_topic_config(topic, "retention.ms", "777000")
    eventually(lambda: client.topic_config(topic)["retention.ms"] == "777000", "the new value")


@every_client("records")
def test_deleted_records_move_the_earliest_offset(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Record(b"%d" % number) for number in range(10)])
    assert client.delete_records(topic, 0, 6) == 6
    assert client.ends(topic, 0) == (6, 10)
    assert [record.value for record in client.read(topic, 0, 6, 4)] == [b"6", b"7", b"8", b"9"]


@every_client("groups")
def test_an_empty_group_is_deleted_with_its_offsets(client: Client, new_topic: NewTopic) -> None:
    topic, group = new_topic(), f"group-{uuid.uuid4().hex[:10]}"
    client.produce(topic, [Record(b"x")] * 3)
    for _ in range(2):  # the second time the group starts anew from the beginning
        member = client.member(topic, group)
        gathered(lambda member=member: member.poll(0.1), 3, patience_s=SEEN_TIMEOUT_S)  # type: ignore[misc]
        member.commit()
        member.close()
        client.delete_group(group)
        assert group not in client.groups()


@every_client("cluster")
def test_the_cluster_names_the_broker_by_its_advertised_address(client: Client, bootstrap: str) -> None:
    cluster = client.cluster()
    assert cluster.brokers == (bootstrap,)
    assert cluster.cluster_id


@every_client("logs")
def test_log_dirs_tell_the_bytes_of_each_topic(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.produce(topic, [Record(b"." * 10_000)] * 10)
    assert client.log_sizes()[topic] >= 100_000
