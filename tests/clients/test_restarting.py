"""A broker that stops and starts again is the same broker to its clients, who stay connected in spirit."""

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from headwater.testing import Broker
from tests.clients.every_client import every_client
from tests.clients.judged import Client, Record
from tests.support.eventually import gathered

BATCHES, RECORDS_PER_BATCH = 30, 10
TIMEOUT_S = 60.0

OpenClient = Callable[[str, str], Client]


@pytest.fixture(scope="module")
def restarted(ours_only: None) -> Iterator[Broker]:
    """A broker of this file alone: the others' tests would notice its restarts."""
    with Broker(subprocess=True) as broker:
        yield broker


@pytest.fixture
def client(request: pytest.FixtureRequest, restarted: Broker, open_client: OpenClient) -> Client:
    return open_client(request.param, restarted.bootstrap)


def new_name() -> str:
    return f"restarted-{uuid.uuid4().hex[:10]}"


@every_client("produce", "group", "admin")
def test_a_restart_amid_producing_and_consuming_loses_and_repeats_nothing(client: Client, restarted: Broker) -> None:
    topic, group, total = new_name(), new_name(), BATCHES * RECORDS_PER_BATCH
    client.create_topic(topic)
    failures: list[BaseException] = []
    is_amid = threading.Event()

    def produce() -> None:
        try:
            for batch in range(BATCHES):
                numbers = range(batch * RECORDS_PER_BATCH, (batch + 1) * RECORDS_PER_BATCH)
                client.produce(topic, [Record(b"%d" % number) for number in numbers], idempotent=True)
                if batch == BATCHES // 4:
                    is_amid.set()
        except BaseException as failure:
            failures.append(failure)

    member = client.member(topic, group)
    received: list[bytes | None] = []
    try:
        client.produce(topic, [Record(b"before")], idempotent=True)
        received += gathered(lambda: [record.value for record in member.poll(0.1)], 1, patience_s=TIMEOUT_S)
        assert received == [b"before"]
        member.commit()

        producing = threading.Thread(target=produce)
        producing.start()
        assert is_amid.wait(TIMEOUT_S) or failures
        restarted.restart()
        producing.join()
        assert failures == []
        received += gathered(lambda: [record.value for record in member.poll(0.1)], total, patience_s=TIMEOUT_S)
        member.commit()
    finally:
        member.close()
    assert received == [b"before", *(b"%d" % number for number in range(total))]
    assert client.ends(topic, 0) == (0, total + 1)


@every_client("admin", "configs")
def test_topics_configs_records_and_commits_are_there_after_a_restart(client: Client, restarted: Broker) -> None:
    topic, group = new_name(), new_name()
    client.create_topic(topic, partitions=3, config={"retention.ms": "86400000", "max.message.bytes": "5000"})
    client.produce(topic, [Record(b"%d" % number, partition=2) for number in range(20)])
    member = client.member(topic, group)
    try:
        gathered(lambda: member.poll(0.1), 20, patience_s=TIMEOUT_S)
        member.commit()
    finally:
        member.close()
    cluster = client.cluster()

    restarted.restart()

    assert client.cluster() == cluster
    assert client.topics()[topic] == 3
    config = client.topic_config(topic)
    assert (config["retention.ms"], config["max.message.bytes"]) == ("86400000", "5000")
    assert [record.value for record in client.read(topic, 2, 0, 20)] == [b"%d" % number for number in range(20)]
    assert client.group(group).state == "EMPTY"
    client.produce(topic, [Record(b"after", partition=2)])
    member = client.member(topic, group)
    try:
        values = gathered(lambda: [record.value for record in member.poll(0.1)], 1, patience_s=TIMEOUT_S)
    finally:
        member.close()
    assert values == [b"after"], "the group resumes behind what it committed"


@every_client("produce", "admin")
def test_deleted_records_stay_deleted_after_a_restart(client: Client, restarted: Broker) -> None:
    topic = new_name()
    client.create_topic(topic)
    client.produce(topic, [Record(b"%d" % number) for number in range(10)])
    client.delete_records(topic, 0, 4)
    restarted.restart()
    assert client.ends(topic, 0) == (4, 10)
    assert [record.value for record in client.read(topic, 0, 4, 1)] == [b"4"]
