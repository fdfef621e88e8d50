"""Metadata (3): where the partitions are. Versions 0 to 13: null topics mean all (in version 0, none do); from 12 on
topics may be asked for by id, without a name; versions 10 and 11 have the fields and refuse it, as Kafka does. From 8
on clients may ask what they are allowed to do with topics, and until 10 with the cluster.

An unknown topic is created here when the broker and the request allow it, as clients expect of their first message.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.broker.authorized_operations import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from headwater.broker.cluster.cluster_nodes import Neighbours
from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.topics.topic import Topic
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId
from headwater.model.segments import Head
from headwater.wire.messages import Message
from headwater.wire.schema import NULL_UUID

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=3, name="Metadata", min_version=0, max_version=13)

BY_ID = 12
"""The first version in which topics have ids instead of names."""
OF_CLUSTER = range(8, 11)
"""Versions that say what the client may do with the cluster; later it asks DescribeCluster."""


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    asked = request.topics
    operations = ON_TOPIC if request.include_topic_authorized_operations else NOT_ASKED
    if asked is None or (context.api_version == 0 and not asked):
        topics = [describe(broker, topic, operations) for topic in broker.catalog]
    elif context.api_version < BY_ID and any(topic.name is None or topic.topic_id != NULL_UUID for topic in asked):
        return Message(controller_id=-1, topics=[_invalid(topic) for topic in asked])
    else:
        may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics
        topics = [await _find(broker, topic, may_create, operations) for topic in asked]
    brokers = [
        Message(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.neighbours.listed()
    ]
    asks_of_cluster = context.api_version in OF_CLUSTER and request.include_cluster_authorized_operations
    return Message(
        brokers=brokers,
        cluster_id=broker.cluster_id,
        controller_id=broker.neighbours.controller_id,
        topics=topics,
        cluster_authorized_operations=ON_CLUSTER if asks_of_cluster else NOT_ASKED,
    )


def _invalid(asked: Message) -> Message:
    code = ErrorCode.INVALID_REQUEST
    return Message(error_code=code, name=asked.name or "", topic_id=asked.topic_id, is_internal=False, partitions=())


async def _find(broker: "Broker", asked: Message, may_create: bool, operations: int) -> Message:
    # Who asks by id leaves the name out: null from most clients, empty from Java's.
    name: str | None = asked.name if asked.topic_id == NULL_UUID else None
    try:
        if name is None:
            return describe(broker, broker.catalog.topic_by_id(asked.topic_id), operations)
        topic = broker.catalog.find(name)
        if topic is None:
            if not may_create:
                broker.catalog.topic(name)
            topic = await broker.create_on_use(name)
        return describe(broker, topic, operations)
    except RequestError as error:
        return Message(
            error_code=error.code,
            name=name,
            topic_id=asked.topic_id if name is None else NULL_UUID,
            is_internal=False,
            partitions=(),
            topic_authorized_operations=operations if name is not None else NOT_ASKED,
        )


def describe(
    broker: "Broker", topic: Topic, authorized_operations: int, first: int = 0, end: int | None = None
) -> Message:
    """The topic with its partitions from `first` to `end`, for every API that tells where partitions are: each
    takes the fields that it has."""
    indexes = range(topic.partition_count)[first:end]
    nodes = _Nodes(broker.neighbours)
    return Message(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_describe_partition(nodes, topic, index) for index in indexes],
        topic_authorized_operations=authorized_operations,
    )


def _describe_partition(nodes: "_Nodes", topic: Topic, index: int) -> Message:
    """A partition whose leader is not there, or has not taken it up yet, has none: clients ask again in a while. In
    sync are the nodes that hold its open segment; if they are fewer than wanted, there are replicas besides."""
    head = topic.head(index)
    if head is None:
        holding = NOBODY
    else:
        placed = topic.placed.get(index)
        holding = nodes.holding(head, topic.replication_factor, placed.nodes if placed is not None else None)
    return Message(
        error_code=ErrorCode.NONE if holding.is_led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=head.leader if holding.is_led and head is not None else -1,
        leader_epoch=head.epoch if head is not None else -1,
        replica_nodes=holding.replicas,
        isr_nodes=holding.in_sync,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=holding.offline,
    )


class _Holding(NamedTuple):
    """The nodes of a partition."""

    in_sync: Sequence[NodeId]
    replicas: Sequence[NodeId]
    offline: Sequence[NodeId]
    is_led: bool


NOBODY = _Holding((), (), (), is_led=False)


class _Nodes:
    """Which nodes have what, worked out once for all partitions of which the same is known: there may be thousands."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._known: dict[object, _Holding] = {}

    def holding(self, head: Head, wanted: int, placed: Sequence[NodeId] | None) -> _Holding:
        key = (head.leader, head.open.replicas if head.open is not None else None, placed)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._work_out(head, wanted if placed is None else len(placed), placed or ())
        return found

    def _work_out(self, head: Head, wanted: int, preferred: Sequence[NodeId]) -> _Holding:
        neighbours = self._neighbours
        in_sync = neighbours.in_sync_nodes(head)
        replicas = list(dict.fromkeys([*in_sync, *neighbours.missing_nodes(head, wanted, preferred)]))
        offline = [node for node in replicas if neighbours.find(node) is None]
        return _Holding(in_sync, replicas, offline, head.open is not None and neighbours.find(head.leader) is not None)
