"""Internal topics through kafka-console-consumer and the formatters that come with it: they show what is in Kafka's
format, and skip the rest."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition

from headwater.testing import Broker
from tests.clients.judged import OTHER_BROKER
from tests.clients.kafka_tools import run_all
from tests.clients.share_workers import configure

READ_TIMEOUT_S = 60.0
FORMATTERS = {
    "Offsets": "__consumer_offsets",
    "GroupMetadata": "__consumer_offsets",
    "ShareGroup": "__consumer_offsets",
    "TransactionLog": "__transaction_state",
    "group.share.ShareGroupState": "__share_group_state",
}


@pytest.fixture(scope="module")
def used() -> Iterator[str]:
    """The address of a broker whose internal topics hold something of everything."""
    if OTHER_BROKER:
        use(OTHER_BROKER)
        yield OTHER_BROKER
        return
    one: dict[str, Any] = dict.fromkeys(("offsets_topic_partitions", "transaction_state_topic_partitions"), 1)
    with Broker(share_state_topic_partitions=1, **one) as broker:
        use(broker.bootstrap)
        yield broker.bootstrap


def use(bootstrap: str) -> None:
    """Records, read by groups of all three protocols, and a transaction with a group's offsets in it."""
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer({**common, "transactional.id": "shown"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(4):
        producer.produce("shown", b"%d" % number)
    producer.commit_transaction()
    configure(bootstrap, "shown-queue", share_auto_offset_reset="earliest")
    for protocol in ("classic", "consumer"):
        group: dict[str, Any] = {"group.id": f"shown-{protocol}", "group.protocol": protocol}
        consumer = Consumer({**common, **group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(["shown"])
        while (message := consumer.poll(READ_TIMEOUT_S)) is not None and message.error():
            pass
        assert message is not None
        consumer.commit(offsets=[TopicPartition("shown", 0, 3, metadata=f"by {protocol}")], asynchronous=False)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("shown", 0, 4)], consumer.consumer_group_metadata())
        producer.commit_transaction() if protocol == "classic" else producer.abort_transaction()
        consumer.close()
    worker = ShareConsumer({**common, "group.id": "shown-queue"})
    worker.subscribe(["shown"])
    taken = 0
    while taken < 4:
        taken += len(worker.poll(READ_TIMEOUT_S))
    worker.commit_sync(READ_TIMEOUT_S)
    worker.close()


@pytest.fixture(scope="module")
def shown(used: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each formatter prints, as JSON; or how it fails, as text."""
    runs = [arguments(used, name, topic) for name, topic in FORMATTERS.items()]
    blocks = run_all("Formatters", runs, tmp_path_factory.mktemp("formatters"))
    return {
        name: [json.loads(line) if line.startswith("{") else line for line in lines(block)]
        for name, block in zip(FORMATTERS, blocks, strict=True)
    }


def arguments(bootstrap: str, name: str, topic: str) -> str:
    formatter = f"org.apache.kafka.tools.consumer.{name}MessageFormatter"
    if OTHER_BROKER:
        where = "--from-beginning --timeout-ms 5000"
    else:
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
        _, end = reader.get_watermark_offsets(TopicPartition(topic, 0))
        reader.close()
        assert end > 0, f"{topic} is empty"
        where = f"--partition 0 --offset earliest --max-messages {end}"
    return f"--bootstrap-server {bootstrap} --topic {topic} {where} --formatter {formatter}"


def lines(block: str) -> list[str]:
    """Without the arguments. Records are printed one behind the other."""
    return [line for line in block.replace("}{", "}\n{").split("\n")[1:] if line]


def test_no_formatter_fails(shown: dict[str, list[Any]]) -> None:
    for name, printed in shown.items():
        failures = [line for line in printed if isinstance(line, str) and line.startswith("!")]
        assert failures == [], name


def test_committed_offsets_are_shown(shown: dict[str, list[Any]]) -> None:
    found = {
        (
            record["key"]["data"]["group"],
            record["value"]["data"]["metadata"].rstrip("\0"),
            record["value"]["data"]["offset"],
        )
        for record in shown["Offsets"]
        if isinstance(record, dict) and record["value"] is not None
    }
    assert {("shown-classic", "by classic", 3), ("shown-consumer", "by consumer", 3), ("shown-classic", "", 4)} <= found
    assert ("shown-consumer", "", 4) not in found or OTHER_BROKER, "Kafka shows what was aborted, too"


def test_groups_of_all_protocols_are_shown(shown: dict[str, list[Any]]) -> None:
    classic = {record["key"]["data"]["group"] for record in shown["GroupMetadata"] if isinstance(record, dict)}
    assert "shown-classic" in classic
    of_queue = [
        record
        for record in shown["ShareGroup"]
        if isinstance(record, dict) and record["key"]["data"]["groupId"] == "shown-queue" and record["value"]
    ]
    members = [record["value"]["data"] for record in of_queue if record["key"]["type"] == 10]
    assert [member["subscribedTopicNames"] for member in members] == [["shown"]]
    assert any(record["value"]["data"]["epoch"] >= 1 for record in of_queue if record["key"]["type"] == 11)
