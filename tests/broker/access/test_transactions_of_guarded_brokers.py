"""Transactions where bindings are in force: all or nothing where a request is one thing, one by one where it is not."""

import uuid
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.wire.api_keys import ApiKey
from tests.support.guarded import Guarded, LoggedIn, assert_hides
from tests.support.messages import nested, values_at

TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_ID, NO_CLUSTER = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NOT_ATTEMPTED, UNKNOWN = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
IN_PARTITIONS = "topics[].partitions[].error_code"
ADDED = "results_by_topic_v3_and_below[].results_by_partition[].partition_error_code"


class Scene:
    """A transactional id of the user, and two topics, the first of which is the user's to write and read."""

    def __init__(self, guarded: Guarded) -> None:
        self.mark = uuid.uuid4().hex
        self.guarded, self.admin = guarded, guarded.admin
        self.known, self.secret, self.missing = (f"{name}-{self.mark}" for name in ("known", "secret", "missing"))
        guarded.create(self.known, self.secret)
        self.id, self.group = f"id-{self.mark}", f"group-{self.mark}"
        guarded.allow(Operation.WRITE, ID, self.id)

    def began(self, client: LoggedIn, transactional_id: str = "") -> dict[str, Any]:
        """The fields that name a producer."""
        named = transactional_id or self.id
        answer = client.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=named, transaction_timeout_ms=60_000)
        assert answer.error_code == 0
        return {"transactional_id": named, "producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    def add(self, client: LoggedIn, producer: dict[str, Any], *topics: str, version: int = 3) -> list[int]:
        fields = {f"v3_and_below_{name}": value for name, value in producer.items()}
        asked = [nested(name=topic, partitions=[0]) for topic in topics]
        answer = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_topics=asked, **fields)
        return list(values_at(answer, ADDED))

    def topics_of(self, client: LoggedIn, transactional_id: str = "") -> list[str]:
        (state,) = client.ask(
            ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id or self.id]
        ).transaction_states
        assert state.error_code == 0
        return sorted(each.topic for each in state.topics)


@pytest.fixture
def scene(guarded: Guarded) -> Scene:
    return Scene(guarded)


def test_a_producer_without_an_id_may_write_to_some_topic_or_be_idempotent(guarded: Guarded) -> None:
    with guarded.client() as client:

        def error() -> int:
            return int(client.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None).error_code)

        assert error() == NO_CLUSTER
        guarded.allow(Operation.WRITE, TOPIC, "some-", pattern=PatternType.PREFIXED)
        assert error() == 0
        guarded.allow(Operation.WRITE, TOPIC, "*", permission=Permission.DENY)
        assert error() == NO_CLUSTER
        guarded.allow_on_cluster(Operation.IDEMPOTENT_WRITE)
        assert error() == 0


def test_partitions_are_added_all_or_none(scene: Scene) -> None:
    scene.guarded.allow(Operation.WRITE, TOPIC, scene.known)
    with scene.guarded.client() as client:
        producer = scene.began(client)
        for version in range(4):
            assert scene.add(client, producer, scene.known, scene.secret, scene.missing, version=version) == [
                NOT_ATTEMPTED,
                NO_TOPIC,
                NO_TOPIC,
            ], "a name that is refused is not looked for"
        assert scene.topics_of(client) == []
        scene.guarded.allow(Operation.WRITE, TOPIC, scene.missing)
        assert scene.add(client, producer, scene.known, scene.secret, scene.missing) == [
            NOT_ATTEMPTED,
            NO_TOPIC,
            UNKNOWN,
        ]
        assert scene.topics_of(client) == []
        assert scene.add(client, producer, scene.known) == [0]
        assert scene.topics_of(client) == [scene.known]


def test_partitions_of_many_transactions_are_added_by_those_who_act_for_the_cluster(scene: Scene) -> None:
    scene.guarded.allow(Operation.WRITE, TOPIC, scene.known)
    with scene.guarded.client() as client:
        producer = scene.began(client)
        asked = [nested(**producer, topics=[nested(name=scene.known, partitions=[0])])]
        for version in (4, 5):
            answer = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=asked)
            assert (answer.error_code, list(answer.results_by_transaction)) == (NO_CLUSTER, [])
        assert scene.topics_of(client) == []
        scene.guarded.allow_on_cluster(Operation.CLUSTER_ACTION)
        answer = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 4, transactions=asked)
        path = "results_by_transaction[].topic_results[].results_by_partition[].partition_error_code"
        assert list(values_at(answer, path)) == [0]


def test_offsets_are_part_of_a_transaction_if_the_group_may_be_read(scene: Scene) -> None:
    with scene.guarded.client() as client:
        producer = scene.began(client)
        ask = {**producer, "group_id": scene.group}
        assert client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **ask).error_code == NO_GROUP
        scene.guarded.allow(Operation.READ, GROUP, scene.group)
        assert client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **ask).error_code == 0
        other = {**ask, "transactional_id": f"other-{scene.mark}"}
        assert client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **other).error_code == NO_ID
        assert client.ask(ApiKey.END_TXN, 3, **producer, committed=True).error_code == 0


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_are_committed_in_a_transaction_where_all_three_are_granted(scene: Scene, version: int) -> None:
    names = (scene.known, scene.secret, scene.missing)
    topics = [nested(name=name, partitions=[nested(partition_index=0, committed_offset=7)]) for name in names]
    scene.guarded.allow(Operation.READ, TOPIC, scene.known)
    with scene.guarded.client() as client:
        producer = scene.began(client)

        def commit(**other: str) -> list[int]:
            fields = {**producer, "group_id": scene.group, "topics": topics, **other}
            return list(values_at(client.ask(ApiKey.TXN_OFFSET_COMMIT, version, **fields), IN_PARTITIONS))

        assert commit() == [NO_GROUP] * 3
        scene.guarded.allow(Operation.READ, GROUP, scene.group)
        assert commit(transactional_id=f"other-{scene.mark}") == [NO_ID] * 3
        assert client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **producer, group_id=scene.group).error_code == 0
        assert commit() == [0, NO_TOPIC, NO_TOPIC]
        end = {**producer, "committed": True}
        assert client.ask(ApiKey.END_TXN, 3, **end).error_code == 0
        answer = scene.admin.ask(
            ApiKey.OFFSET_FETCH, 8, groups=[nested(group_id=scene.group, topics=None)], require_stable=True
        )
        assert [each.name for each in answer.groups[0].topics] == [scene.known]


def test_the_id_of_another_is_of_no_use(scene: Scene) -> None:
    """Whose transaction it is, the id says: the producer's number of another one does not help."""
    others = scene.began(scene.admin, f"other-{scene.mark}")
    assert scene.add(scene.admin, others, scene.secret) == [0]
    scene.guarded.allow(Operation.WRITE, TOPIC, scene.secret)
    with scene.guarded.client() as client:
        scene.began(client)
        stolen = {**others, "transactional_id": scene.id}
        (error,) = scene.add(client, stolen, scene.secret)
        assert error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert client.ask(ApiKey.END_TXN, 3, **stolen, committed=True).error_code == error
        assert client.ask(ApiKey.END_TXN, 3, **others, committed=True).error_code == NO_ID
    assert scene.topics_of(scene.admin, others["transactional_id"]) == [scene.secret], "it is still open"


def test_transactions_are_described_without_topics_that_are_hidden(scene: Scene) -> None:
    producer = scene.began(scene.admin)
    assert scene.add(scene.admin, producer, scene.known, scene.secret) == [0, 0]
    scene.guarded.allow(Operation.DESCRIBE, TOPIC, scene.known)
    other = f"other-{scene.mark}"
    scene.began(scene.admin, other)
    with scene.guarded.client() as client:
        shown, refused = client.ask(
            ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[scene.id, other]
        ).transaction_states
        assert [each.topic for each in shown.topics] == [scene.known]
        assert_hides(shown, scene.secret)
        assert (refused.error_code, refused.producer_id, list(refused.topics)) == (NO_ID, 0, [])
        listed = client.ask(ApiKey.LIST_TRANSACTIONS, 2).transaction_states
        assert [each.transactional_id for each in listed] == [scene.id]
    both = {each.transactional_id for each in scene.admin.ask(ApiKey.LIST_TRANSACTIONS, 2).transaction_states}
    assert {scene.id, other} <= both
