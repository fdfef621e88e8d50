"""A cluster whose coordinators are killed, and the clients of `tests/clients` that must not mind.

Which node coordinates what is by a hash of its name, so names are drawn until the right node has them."""

import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.model.ids import NodeId
from headwater.testing.processes.cluster import ProcessCluster
from headwater.testing.processes.etcd_process import find_etcd
from tests.support.eventually import eventually
from tests.support.messages import nested
from tests.support.wire import ask

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
ALTER_PARTITION_REASSIGNMENTS = 45
PATIENCE_S = 60.0

T = TypeVar("T")


@contextmanager
def coordinated(directory: Path, **config: Any) -> Iterator[ProcessCluster]:
    """Three nodes with etcd, with few partitions of everything internal, so that each node has some."""
    if find_etcd() is None:
        pytest.skip("etcd is not installed (apt-get install etcd-server)")
    few = {
        "offsets_topic_partitions": 6,
        "transaction_state_topic_partitions": 6,
        "share_state_topic_partitions": 6,
        "group_initial_rebalance_delay_ms": 0,
    }
    with ProcessCluster(directory, **{**few, **config}) as cluster:
        yield cluster


def new_topic(cluster: ProcessCluster, partitions: int = 3, first: NodeId = 1, **config: str) -> str:
    """With a replica on each node; the nodes lead in turns."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    named = {key.replace("_", "."): value for key, value in config.items()}
    assignment = [[(first - 1 + index + place) % 3 + 1 for place in range(3)] for index in range(partitions)]
    admin.create_topics([NewTopic(name, partitions, replica_assignment=assignment, config=named)])[name].result(60)
    return name


def coordinator(cluster: ProcessCluster, topic: str, key: str) -> NodeId:
    """Who leads the partition of an internal topic to which a key belongs."""

    def found() -> NodeId | None:
        state = cluster.state()
        count = sum(1 for name, _ in state.heads if name == topic)
        head = state.heads.get((topic, zlib.crc32(key.encode()) % count)) if count else None
        return head.leader if head is not None and head.leader in state.alive else None

    return eventually(found, f"{key} has a coordinator")


def name_kept_by(cluster: ProcessCluster, topic: str, is_wanted: Callable[[NodeId], bool], prefix: str = "id") -> str:
    """A name whose coordinator is a node that is wanted."""

    def found() -> str | None:
        name = f"{prefix}-{uuid.uuid4().hex[:10]}"
        return name if is_wanted(coordinator(cluster, topic, name)) else None

    return eventually(found, f"a name in {topic} is kept by a node that is wanted")


def ask_node(cluster: ProcessCluster, node: NodeId, api_key: int, version: int, **fields: object) -> Any:
    host, _, port = cluster.address(node).partition(":")
    return ask((host, int(port)), api_key, version, **fields)


def place_in_turns(cluster: ProcessCluster, *topics: str) -> None:
    """The nodes shall lead in turns, as in `new_topic`."""
    heads, nodes = cluster.state().heads, cluster.nodes
    placed = []
    for topic in topics:
        indexes = sorted(index for name, index in heads if name == topic)
        turns = {index: [nodes[(index + place) % len(nodes)] for place in range(len(nodes))] for index in indexes}
        asked = [nested(partition_index=index, replicas=replicas) for index, replicas in turns.items()]
        placed.append(nested(name=topic, partitions=asked))
    controller = cluster.find("controller")
    answer = ask_node(cluster, controller, ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=30_000, topics=placed)
    codes = {each.error_code for topic in answer.responses for each in topic.partitions}
    assert answer.error_code == 0 and codes == {0}, (answer.error_message, codes)


def lead_in_turns(cluster: ProcessCluster, *topics: str) -> None:
    """Where they were placed so. With `leader_balance=False` leaders stay where the death of a node has put them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def is_so() -> bool:
        places = [place for place in cluster.state().heads if place[0] in topics]
        try:
            admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(*place) for place in places]).result(60)
        except KafkaException:
            return False
        heads, nodes = cluster.state().heads, cluster.nodes
        return all(heads[name, index].leader == nodes[index % len(nodes)] for name, index in places)

    eventually(is_so, f"the nodes lead {topics} in turns")


@contextmanager
def killed(cluster: ProcessCluster, node: NodeId) -> Iterator[None]:
    """A node is dead for a while, and has its share of all that is written when the block ends: the death of another
    is then again the death of one."""
    cluster.kill(node)
    try:
        yield
    finally:
        cluster.restart(node)
        eventually(lambda: _is_whole(cluster), f"node {node} comes back")


def _is_whole(cluster: ProcessCluster) -> bool:
    state = cluster.state()
    replicas = [state.replicas(*place) for place, head in state.heads.items() if head.open is not None]
    return state.alive >= set(cluster.nodes) and all(len(each) == len(cluster.nodes) for each in replicas)
