"""Clients that ask what they may do are told, with the numbers that Kafka 4.3 gives without an authorizer: with
HEADWATER_TEST_BOOTSTRAP these tests judge another broker."""

import os
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.testing.broker import Broker
from tests.support.eventually import eventually
from tests.support.messages import nested
from tests.support.wire import ask

NOT_ASKED = -(2**31)
CLUSTER, TOPIC, GROUP = 8096, 3576, 3400
TOPIC_NAME = "operations"
UNKNOWN = "no-such-topic"
CREATE, METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, FIND_COORDINATOR = 19, 3, 60, 75, 10
DESCRIBE_GROUPS, DESCRIBE_CONSUMER_GROUPS, DESCRIBE_SHARE_GROUPS = 15, 69, 77
NULL = uuid.UUID(int=0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    other = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
    if other:
        host, port = other.split(":")
        yield arranged(SimpleNamespace(host=host, port=int(port)))
    else:
        with Broker() as broker:
            yield arranged(broker)


def arranged(broker: Any) -> Any:
    """A topic, and a group of each kind."""
    topic = nested(name=TOPIC_NAME, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    ask(broker, CREATE, 7, topics=[topic], timeout_ms=10_000, validate_only=False)
    answered(broker, FIND_COORDINATOR, 4, "coordinators", key_type=0, coordinator_keys=["classic"])
    answered(
        broker, 11, 3, None, group_id="classic", session_timeout_ms=60_000, rebalance_timeout_ms=60_000, member_id="",
        protocol_type="consumer", protocols=[nested(name="range", metadata=b"")],
    )  # fmt: skip
    answered(
        broker, 68, 1, None, group_id="consumer", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC_NAME], topic_partitions=[],
    )  # fmt: skip
    answered(
        broker, 76, 1, None, group_id="share", member_id=str(uuid.uuid4()), member_epoch=0,
        subscribed_topic_names=[TOPIC_NAME],
    )  # fmt: skip
    return broker


def answered(broker: Any, api_key: int, version: int, inside: str | None, **fields: Any) -> None:
    """Ask until there is no error: coordinators may be loading."""

    def has_no_error() -> bool:
        answer = ask(broker, api_key, version, **fields)
        return bool((getattr(answer, inside)[0] if inside else answer).error_code == 0)

    eventually(has_no_error, f"api {api_key} is answered without an error")


def metadata(broker: Any, version: int, asks: bool, **named: Any) -> Any:
    topics = [nested(name=name, topic_id=NULL) for name in (TOPIC_NAME, UNKNOWN)]
    asked = {f"include_{what}_authorized_operations": asks for what in ("cluster", "topic")}
    fields = {"topics": topics, "allow_auto_topic_creation": False, **asked, **named}
    return ask(broker, METADATA, version, **fields)


@pytest.mark.parametrize("version", [8, 9, 10, 11, 12, 13])
def test_metadata_says_what_may_be_done_with_topics_and_the_cluster(broker: Any, version: int) -> None:
    told, untold = metadata(broker, version, True), metadata(broker, version, False)
    assert [topic.topic_authorized_operations for topic in told.topics] == [TOPIC, TOPIC]
    assert [topic.topic_authorized_operations for topic in untold.topics] == [NOT_ASKED, NOT_ASKED]
    if version <= 10:
        assert told.cluster_authorized_operations == CLUSTER
        assert untold.cluster_authorized_operations == NOT_ASKED


def test_nothing_is_said_of_a_topic_that_is_only_an_unknown_id(broker: Any) -> None:
    (topic,) = metadata(broker, 12, True, topics=[nested(name=None, topic_id=uuid.UUID(int=9))]).topics
    assert (topic.error_code, topic.topic_authorized_operations) == (100, NOT_ASKED)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(
    "asked", [nested(name=TOPIC_NAME, topic_id=uuid.UUID(int=9)), nested(name=None, topic_id=NULL)]
)
def test_versions_10_and_11_know_no_ids(broker: Any, version: int, asked: dict[str, Any]) -> None:
    answer = metadata(broker, version, True, topics=[asked, nested(name=TOPIC_NAME, topic_id=NULL)])
    assert [(topic.error_code, topic.name) for topic in answer.topics] == [(42, asked["name"] or ""), (42, TOPIC_NAME)]
    assert [topic.topic_authorized_operations for topic in answer.topics] == [NOT_ASKED, NOT_ASKED]


def test_describe_cluster_agrees(broker: Any) -> None:
    for asks, expected in ((True, CLUSTER), (False, NOT_ASKED)):
        answer = ask(broker, DESCRIBE_CLUSTER, 2, include_cluster_authorized_operations=asks, endpoint_type=1)
        assert answer.cluster_authorized_operations == expected


def test_describe_topic_partitions_always_says_it(broker: Any) -> None:
    topics = [nested(name=TOPIC_NAME), nested(name=UNKNOWN)]
    answer = ask(broker, DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, response_partition_limit=10, cursor=None)
    assert [topic.topic_authorized_operations for topic in answer.topics] == [TOPIC, TOPIC]


@pytest.mark.parametrize(
    ("api_key", "version", "group", "expected"),
    [
        (DESCRIBE_GROUPS, 5, "classic", GROUP),
        (DESCRIBE_GROUPS, 6, "classic", GROUP),
        (DESCRIBE_GROUPS, 5, "no-such-group", GROUP),
        (DESCRIBE_GROUPS, 6, "no-such-group", NOT_ASKED),
        (DESCRIBE_CONSUMER_GROUPS, 1, "consumer", GROUP),
        (DESCRIBE_CONSUMER_GROUPS, 1, "no-such-group", NOT_ASKED),
        (DESCRIBE_SHARE_GROUPS, 1, "share", GROUP),
        (DESCRIBE_SHARE_GROUPS, 1, "no-such-group", NOT_ASKED),
    ],
)
def test_groups_say_it_where_there_is_one(broker: Any, api_key: int, version: int, group: str, expected: int) -> None:
    for asks in (True, False):
        named = {"groups" if api_key == DESCRIBE_GROUPS else "group_ids": [group]}
        (described,) = ask(broker, api_key, version, include_authorized_operations=asks, **named).groups
        assert described.authorized_operations == (expected if asks else NOT_ASKED)
