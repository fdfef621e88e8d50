"""Kafka's tools kafka-metadata-quorum, kafka-cluster and kafka-log-dirs; and what kafka-python takes the broker for."""

import json
import re
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, TopicPartitionReplica
from kafka.errors import LogDirNotFoundError, NoError

from tests.clients.kafka_tools import run_all

COMMANDS = {
    "status": "MetadataQuorumCommand --bootstrap-server {bootstrap} describe --status",
    "replication": "MetadataQuorumCommand --bootstrap-server {bootstrap} describe --replication",
    "endpoints": "ClusterTool list-endpoints --bootstrap-server {bootstrap}",
    "unregister": "ClusterTool unregister --bootstrap-server {bootstrap} --id 99",
    "log dirs": "LogDirsCommand --bootstrap-server {bootstrap} --describe --topic-list {topic}",
}


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    name = f"tools-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
    return name


@pytest.fixture(scope="module")
def printed(bootstrap: str, topic: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """What each command prints, and its exit code."""
    runs = [command.format(bootstrap=bootstrap, topic=topic) for command in COMMANDS.values()]
    outcomes = (block.rpartition("\n= ") for block in run_all("Tools", runs, tmp_path_factory.mktemp("tools")))
    return {name: (text, code.strip()) for name, (text, _, code) in zip(COMMANDS, outcomes, strict=True)}


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def test_the_quorum_has_a_leader_that_is_one_of_its_voters(printed: dict[str, tuple[str, str]]) -> None:
    text, code = printed["status"]
    assert code == "0", text
    leader = re.search(r"LeaderId: +(\d+)", text)
    voters = re.search(r"CurrentVoters: +(\[.*\])", text)
    assert leader is not None, text
    assert voters is not None, text
    assert [voter["id"] for voter in json.loads(voters[1])] == [int(leader[1])]
    assert "MaxFollowerLag:         0" in text
    text, code = printed["replication"]
    assert code == "0", text
    assert re.search(rf"^{leader[1]}\s.*Leader\s*$", text, re.MULTILINE), text


def test_a_broker_that_was_never_there_cannot_be_unregistered(printed: dict[str, tuple[str, str]]) -> None:
    assert printed["unregister"][1] == "1"
    assert printed["endpoints"][1] == "0"
    assert "unfenced" in printed["endpoints"][0]


def test_the_directory_of_a_topic_is_shown(printed: dict[str, tuple[str, str]], topic: str) -> None:
    text, code = printed["log dirs"]
    assert code == "0", text
    shown = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    (directory,) = shown["brokers"][0]["logDirs"]
    assert {each["partition"] for each in directory["partitions"]} == {f"{topic}-0", f"{topic}-1"}
    assert directory["error"] is None


def test_kafka_python_takes_it_for_kafka_4_3(admin: KafkaAdminClient, topic: str) -> None:
    assert admin._manager.broker_version == (4, 3)
    (broker,) = admin.describe_log_dirs()
    (directory,) = broker["log_dirs"]
    assert topic in {each["topic"] if "topic" in each else each["name"] for each in directory["topics"]}
    assert directory["is_cordoned"] is False
    replica = TopicPartitionReplica(topic, 0, broker["broker"])
    assert admin.alter_replica_log_dirs({replica: directory["log_dir"]}) == {replica: NoError}
    assert admin.alter_replica_log_dirs({replica: "/nowhere"}) == {replica: LogDirNotFoundError}
    (found,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
    assert found["leader_id"] in [voter["replica_id"] for voter in found["current_voters"]]
