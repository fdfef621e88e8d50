"""What is asked of the whole cluster, where bindings are in force: each API's refusal has its own place."""

import uuid
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import SUPPORTED_BITS, Operation, ResourceType
from tests.support.guarded import Guarded, assert_says
from tests.support.messages import nested

WRITE_TXN_MARKERS, ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS, ELECT, REASSIGN, LIST_REASSIGNMENTS = 27, 34, 35, 43, 45, 46
DESCRIBE_USERS, ALTER_USERS, QUORUM, DESCRIBE_CLUSTER, UNREGISTER = 50, 51, 55, 60, 64
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NOT_ASKED = -(2**31)


@pytest.fixture
def topic(guarded: Guarded) -> str:
    name = f"t-{uuid.uuid4().hex}"
    guarded.create(name)
    return name


def ask(guarded: Guarded, api_key: int, version: int, **fields: Any) -> Any:
    with guarded.client() as client:
        return client.ask(api_key, version, **fields)


@pytest.mark.parametrize(
    ("api_key", "version", "needed", "fields", "answered_with"),
    [
        (DESCRIBE_LOG_DIRS, 3, Operation.DESCRIBE, {"topics": None}, 0),
        (DESCRIBE_LOG_DIRS, 5, Operation.DESCRIBE, {"topics": None}, 0),
        (ELECT, 1, Operation.ALTER, {"election_type": 0, "topic_partitions": None, "timeout_ms": 1000}, 0),
        (ELECT, 2, Operation.ALTER, {"election_type": 0, "topic_partitions": None, "timeout_ms": 1000}, 0),
        (REASSIGN, 1, Operation.ALTER, {"timeout_ms": 1000, "topics": []}, 0),
        (LIST_REASSIGNMENTS, 0, Operation.DESCRIBE, {"timeout_ms": 1000, "topics": None}, 0),
        (DESCRIBE_USERS, 0, Operation.DESCRIBE, {"users": None}, 0),
        (QUORUM, 2, Operation.DESCRIBE, {"topics": []}, 0),
        (UNREGISTER, 0, Operation.ALTER, {"broker_id": 77}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_a_refusal_stands_at_the_top(
    guarded: Guarded, api_key: int, version: int, needed: Operation, fields: dict[str, Any], answered_with: int
) -> None:
    refused = ask(guarded, api_key, version, **fields)
    assert refused.error_code == REFUSED
    if hasattr(refused, "error_message"):
        assert_says(refused.error_message, f"User:alice may not {needed.name.lower()} the cluster.")
    for name in ("results", "topics", "responses", "brokers", "nodes"):
        assert not getattr(refused, name, None)
    guarded.allow_on_cluster(needed)
    assert ask(guarded, api_key, version, **fields).error_code == answered_with


@pytest.mark.parametrize("version", [1, 2])
def test_log_dirs_without_a_place_for_an_error_are_empty(guarded: Guarded, version: int) -> None:
    assert ask(guarded, DESCRIBE_LOG_DIRS, version, topics=None).results == []
    guarded.allow_on_cluster(Operation.DESCRIBE)
    assert len(ask(guarded, DESCRIBE_LOG_DIRS, version, topics=None).results) == 1


def test_an_election_without_a_place_for_an_error_is_refused_in_each_partition(guarded: Guarded, topic: str) -> None:
    partitions = [nested(topic=topic, partitions=[0, 1])]
    answer = ask(guarded, ELECT, 0, topic_partitions=partitions, timeout_ms=1000)
    (result,) = answer.replica_election_results
    assert (result.topic, [each.error_code for each in result.partition_result]) == (topic, [REFUSED, REFUSED])
    assert_says(result.partition_result[0].error_message, "User:alice may not alter the cluster.")
    assert ask(guarded, ELECT, 0, topic_partitions=None, timeout_ms=1000).replica_election_results == []
    guarded.allow_on_cluster(Operation.ALTER)
    answer = ask(guarded, ELECT, 0, topic_partitions=partitions, timeout_ms=1000)
    codes = [each.error_code for each in answer.replica_election_results[0].partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", [1, 2])
def test_replicas_are_moved_to_no_directory_by_those_who_may_not(guarded: Guarded, topic: str, version: int) -> None:
    dirs = [
        nested(path="/nowhere", topics=[nested(name=topic, partitions=[0]), nested(name="missing", partitions=[0])])
    ]

    def codes() -> list[int]:
        answer = ask(guarded, ALTER_LOG_DIRS, version, dirs=dirs)
        return [each.error_code for result in answer.results for each in result.partitions]

    assert codes() == [REFUSED, REFUSED]
    guarded.allow_on_cluster(Operation.ALTER)
    assert codes() == [ErrorCode.LOG_DIR_NOT_FOUND] * 2


@pytest.mark.parametrize("granted", [Operation.ALTER, Operation.CLUSTER_ACTION])
@pytest.mark.parametrize("version", [1, 2])
def test_transactions_are_ended_in_partitions_by_those_who_may_alter_the_cluster_or_act_as_its_nodes(
    guarded: Guarded, topic: str, version: int, granted: Operation
) -> None:
    of_partition = nested(name=topic, partition_indexes=[0, 1])
    marker = nested(
        producer_id=7, producer_epoch=0, transaction_result=False, coordinator_epoch=0, topics=[of_partition]
    )

    def codes() -> list[int]:
        answer = ask(guarded, WRITE_TXN_MARKERS, version, markers=[marker])
        return [each.error_code for each in answer.markers[0].topics[0].partitions]

    assert codes() == [REFUSED, REFUSED]
    guarded.allow_on_cluster(granted)
    assert codes() == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_users_are_made_by_those_who_may_alter_the_cluster(guarded: Guarded) -> None:
    upsertion = nested(name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32)
    deletion = nested(name="carol", mechanism=1)
    answer = ask(guarded, ALTER_USERS, 0, deletions=[deletion], upsertions=[upsertion])
    assert {each.user: each.error_code for each in answer.results} == {"bob": REFUSED, "carol": REFUSED}
    assert_says(answer.results[0].error_message, "User:alice may not alter the cluster.")
    known = guarded.admin.ask(DESCRIBE_USERS, 0, users=None).results
    assert {each.user for each in known} == {"admin", "alice"}


@pytest.mark.parametrize("version", [0, 2])
def test_every_user_knows_the_nodes_and_those_who_may_describe_the_cluster_what_they_may_do(
    guarded: Guarded, version: int
) -> None:
    fields: dict[str, Any] = {"endpoint_type": 1} if version else {}

    def operations(asks: bool = True) -> int:
        answer = ask(guarded, DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=asks, **fields)
        assert (answer.error_code, len(answer.brokers)) == (0, 1)
        return int(answer.cluster_authorized_operations)

    assert (operations(), operations(asks=False)) == (0, NOT_ASKED)
    guarded.allow_on_cluster(Operation.CREATE)
    assert operations() == 0, "Kafka, too, tells it only to those who may describe the cluster"
    guarded.allow_on_cluster(Operation.DESCRIBE)
    assert operations() == 1 << Operation.CREATE | 1 << Operation.DESCRIBE
    guarded.allow_on_cluster(Operation.ALL)
    assert operations() == SUPPORTED_BITS[ResourceType.CLUSTER]
