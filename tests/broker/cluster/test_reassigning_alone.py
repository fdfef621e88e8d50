"""A node that is alone is asked for reassignments, too: it has one place for everything."""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.support.messages import nested
from tests.support.wire import ask

REASSIGN, REASSIGNMENTS = 45, 46


@pytest.fixture
def broker(headwater: Broker) -> Broker:
    admin = AdminClient({"bootstrap.servers": headwater.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    return headwater


@pytest.mark.parametrize(
    ("topic", "index", "nodes", "expected"),
    [
        ("t", 0, [1], ErrorCode.NONE),
        ("t", 0, [2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 5, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("none", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_replicas_can_only_be_where_they_are(
    broker: Broker, topic: str, index: int, nodes: list[int] | None, expected: ErrorCode
) -> None:
    asked = [nested(name=topic, partitions=[nested(partition_index=index, replicas=nodes)])]
    for version in (0, 1):
        answer = ask(broker, REASSIGN, version, timeout_ms=1000, topics=asked, allow_replication_factor_change=True)
        assert answer.error_code == ErrorCode.NONE
        assert answer.responses[0].partitions[0].error_code == expected


def test_nothing_is_on_its_way(broker: Broker) -> None:
    for topics in (None, [nested(name="t", partition_indexes=[0])]):
        answer = ask(broker, REASSIGNMENTS, 0, timeout_ms=1000, topics=topics)
        assert (answer.error_code, list(answer.topics)) == (ErrorCode.NONE, [])
