"""Elections, reassignments and log directories of a cluster, as admin clients ask for them."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.cluster.small_cluster import SEGMENT_BYTES, SmallCluster, filling
from tests.support.messages import nested
from tests.support.wire import ask

CONFIGS, LOG_DIRS, ELECT, REASSIGN, REASSIGNMENTS = 32, 35, 43, 45, 46
BROKER_RESOURCE = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    with SmallCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.add_all(1, 2, 3)


@pytest.fixture
def admin(cluster: SmallCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield client
    client.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The test's own."""
    return str(request.node.name)[:80].replace("[", "-").replace("]", "")


def controller(cluster: SmallCluster) -> Broker:
    cluster.wait_until("there is a controller", lambda: cluster.facts().controller in cluster.nodes)
    return cluster.nodes[cluster.facts().controller]


def holders(cluster: SmallCluster, topic: str) -> set[frozenset[int]]:
    """The nodes of every segment, each set of them once."""
    owners = {store.store: store.node for store in cluster.facts().stores or ()}
    replicas = [segment.replicas for segment in cluster.segments(topic)] + [cluster.open_replicas(topic)]
    return {frozenset(owners[store] for store in each) for each in replicas}


def alter(node: Broker, topic: str, replicas: list[int] | None, version: int = 1, **fields: object) -> Any:
    partition = nested(partition_index=0, replicas=replicas)
    topics = [nested(name=topic, partitions=[partition])]
    more = {"allow_replication_factor_change": True, **fields} if version else fields
    return ask(node, REASSIGN, version, timeout_ms=10_000, topics=topics, **more)


def code(answer: Any) -> int:
    return int(answer.responses[0].partitions[0].error_code)


def test_a_partition_moves_to_other_nodes_with_all_it_has(
    cluster: SmallCluster, admin: KafkaAdminClient, topic: str
) -> None:
    cluster.assign(topic, [[1]], segment_bytes=str(SEGMENT_BYTES))
    values = filling(3)
    cluster.produce(topic, values)
    partition = TopicPartition(topic, 0)
    assert holders(cluster, topic) == {frozenset({1})}
    assert admin.alter_partition_reassignments({partition: [2]}) == {partition: None}
    moving = admin.list_partition_reassignments().get(partition)
    assert moving is None or moving["replicas"][0] == 2  # small as it is, it may be there already
    cluster.wait_until("it has arrived", lambda: partition not in admin.list_partition_reassignments())
    assert holders(cluster, topic) == {frozenset({2})}
    cluster.wait_until("node 2 leads", lambda: bool(cluster.partition(topic).leader == 2))
    assert cluster.read(topic, len(values)) == values
    # The place stays: what comes now goes there, too.
    cluster.produce(topic, filling(2))
    assert holders(cluster, topic) == {frozenset({2})}


def test_a_partition_gets_more_replicas_by_a_reassignment(
    cluster: SmallCluster, admin: KafkaAdminClient, topic: str
) -> None:
    cluster.assign(topic, [[3]], segment_bytes=str(SEGMENT_BYTES))
    values = filling(2)
    cluster.produce(topic, values)
    partition = TopicPartition(topic, 0)
    admin.alter_partition_reassignments({partition: [3, 1, 2]})
    cluster.wait_until("it has arrived", lambda: partition not in admin.list_partition_reassignments([partition]))
    assert holders(cluster, topic) == {frozenset({1, 2, 3})}
    cluster.wait_until("node 3 leads", lambda: cluster.partition(topic).isrs[0] == 3)
    assert cluster.read(topic, len(values)) == values


def test_a_partition_needs_no_more_replicas_than_it_was_given(
    cluster: SmallCluster, admin: KafkaAdminClient, topic: str
) -> None:
    """Kafka's rule: min.insync.replicas counts as the number of replicas where that is smaller."""
    cluster.assign(topic, [[1]], min_insync_replicas="2")
    cluster.produce(topic, [b"on one node"])
    assert cluster.read(topic, 1) == [b"on one node"]
    shrinking = f"{topic}-shrinking"
    cluster.assign(shrinking, [[2, 3]], min_insync_replicas="2")
    cluster.produce(shrinking, [b"on two nodes"])
    partition = TopicPartition(shrinking, 0)
    assert admin.alter_partition_reassignments({partition: [2]}) == {partition: None}
    cluster.wait_until("it has arrived", lambda: partition not in admin.list_partition_reassignments())
    cluster.produce(shrinking, [b"on one of them"])
    assert cluster.read(shrinking, 2) == [b"on two nodes", b"on one of them"]


def test_a_reassignment_is_taken_back(cluster: SmallCluster, topic: str) -> None:
    cluster.assign(topic, [[1]])
    node = controller(cluster)
    assert code(alter(node, topic, None)) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert code(alter(node, topic, [2])) == ErrorCode.NONE
    cluster.wait_until("it has moved", lambda: holders(cluster, topic) == {frozenset({2})})
    cluster.wait_until("it can be taken back", lambda: code(alter(node, topic, None)) == ErrorCode.NONE)
    cluster.wait_until(
        "nobody has placed it any more", lambda: code(alter(node, topic, None)) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    )


@pytest.mark.parametrize("nodes", [[], [1, 1], [9], [1, -1]])
def test_replicas_belong_on_nodes_that_have_a_store(cluster: SmallCluster, topic: str, nodes: list[int]) -> None:
    cluster.create(topic, replicas=1)
    assert code(alter(controller(cluster), topic, nodes)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code(alter(controller(cluster), topic, nodes, version=0)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_what_does_not_exist_is_not_reassigned(cluster: SmallCluster, topic: str) -> None:
    assert code(alter(controller(cluster), topic, [1])) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = [nested(name=topic, partition_indexes=[0, 7])]
    assert ask(controller(cluster), REASSIGNMENTS, 0, timeout_ms=1000, topics=asked).topics == []


def test_a_change_of_the_number_of_replicas_can_be_forbidden(cluster: SmallCluster, topic: str) -> None:
    cluster.create(topic, replicas=2)
    node = controller(cluster)
    refused = alter(node, topic, [1, 2, 3], allow_replication_factor_change=False)
    assert code(refused) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert code(alter(node, topic, [1, 2], allow_replication_factor_change=False)) == ErrorCode.NONE


def test_a_node_that_does_not_control_sends_clients_to_the_one_that_does(cluster: SmallCluster, topic: str) -> None:
    cluster.create(topic)
    in_charge = controller(cluster)
    for node in cluster.nodes.values():
        expected = ErrorCode.NONE if node is in_charge else ErrorCode.NOT_CONTROLLER
        assert ask(node, ELECT, 2, election_type=0, topic_partitions=[], timeout_ms=1000).error_code == expected
        assert ask(node, REASSIGN, 1, timeout_ms=1000, topics=[]).error_code == expected
        assert ask(node, REASSIGNMENTS, 0, timeout_ms=1000, topics=None).error_code == expected
        found = ask(node, 3, 12, topics=[], allow_auto_topic_creation=False)
        assert found.controller_id == cluster.facts().controller


def test_the_preferred_leader_is_elected_at_once(cluster: SmallCluster, topic: str) -> None:
    cluster.assign(topic, [[1, 2, 3]])
    librdkafka = cluster.admin
    asked = [ConfluentPartition(topic, 0), ConfluentPartition(topic, 8)]

    def elect() -> dict[int, int | None]:
        outcome = librdkafka.elect_leaders(ElectionType.PREFERRED, asked).result(60)
        return {found.partition: error.code() if error is not None else None for found, error in outcome.items()}

    assert code(alter(controller(cluster), topic, [3, 1, 2])) == ErrorCode.NONE
    first = elect()
    assert first[8] == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert first[0] in (None, KafkaError.ELECTION_NOT_NEEDED)  # the controller may have been faster
    cluster.wait_until("node 3 leads", lambda: bool(cluster.partition(topic).leader == 3))
    assert elect()[0] == KafkaError.ELECTION_NOT_NEEDED


def test_each_node_tells_what_its_own_disk_holds(cluster: SmallCluster, admin: KafkaAdminClient, topic: str) -> None:
    cluster.assign(topic, [[2, 1]])
    cluster.produce(topic, [b"." * 5000] * 10)
    cluster.wait_until("two are in sync", lambda: len(cluster.partition(topic).isrs) == 2)
    members = set(cluster.partition(topic).isrs)
    for number, node in cluster.nodes.items():
        (result,) = ask(node, LOG_DIRS, 4, topics=[nested(topic=topic, partitions=[0, 5])]).results
        assert result.log_dir == str(node.data_dir.resolve())
        sizes = [partition.partition_size for found in result.topics for partition in found.partitions]
        assert bool(sizes and sizes[0] > 50_000) is (number in members), f"node {number}"


def test_a_broker_does_not_describe_the_settings_of_another(cluster: SmallCluster) -> None:
    for asked, expected in (("1", ErrorCode.NONE), ("2", ErrorCode.INVALID_REQUEST), ("no", ErrorCode.INVALID_REQUEST)):
        resource = nested(resource_type=BROKER_RESOURCE, resource_name=asked, configuration_keys=None)
        answer = ask(
            cluster.nodes[1], CONFIGS, 4, resources=[resource], include_synonyms=False, include_documentation=False
        )
        assert answer.results[0].error_code == expected
