"""Metadata (3): where the partitions are. Versions 0 to 13: null topics mean all (in version 0, none do); from 10 on
topics may be asked for by id, and since 12 without a name.

An unknown topic is created here when the broker and the request allow it, as clients expect of their first message.
"""

from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.neighbours import Neighbours
from headwater.broker.topic import Topic
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId
from headwater.wire.messages import Message
from headwater.wire.schema import NULL_UUID

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=3, name="Metadata", min_version=0, max_version=13)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        topics = [describe(broker, topic) for topic in broker.catalog]
    else:
        may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics
        topics = [await _find(broker, topic, may_create) for topic in asked]
    brokers = [
        Message(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.neighbours.listed()
    ]
    controller_id = broker.neighbours.controller_id
    return Message(brokers=brokers, cluster_id=broker.cluster_id, controller_id=controller_id, topics=topics)


async def _find(broker: "Broker", asked: Message, may_create: bool) -> Message:
    # Who asks by id leaves the name out: null from most clients, empty from Java's.
    name: str | None = asked.name if asked.topic_id == NULL_UUID else None
    try:
        if name is None:
            return describe(broker, broker.catalog.topic_by_id(asked.topic_id))
        topic = broker.catalog.find(name)
        if topic is None:
            if not may_create:
                broker.catalog.topic(name)
            topic = await broker.create_on_use(name)
        return describe(broker, topic)
    except RequestError as error:
        topic_id = asked.topic_id if name is None else NULL_UUID
        return Message(error_code=error.code, name=name, topic_id=topic_id, is_internal=False, partitions=())


def describe(broker: "Broker", topic: Topic, first: int = 0, end: int | None = None) -> Message:
    """The topic with its partitions from `first` to `end`, for every API that tells where partitions are: each
    takes the fields that it has."""
    indexes = range(topic.partition_count)[first:end]
    return Message(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_describe_partition(broker.neighbours, topic, index) for index in indexes],
        topic_authorized_operations=-(2**31),
    )


def _describe_partition(neighbours: Neighbours, topic: Topic, index: int) -> Message:
    """A partition whose leader is not there, or has not taken it up yet, has none: clients ask again in a while. In
    sync are the nodes that hold its open segment; if they are fewer than wanted, there are replicas besides."""
    head = topic.head(index)
    in_sync: list[NodeId] = []
    missing: list[NodeId] = []
    if head is not None:
        in_sync = neighbours.in_sync_nodes(head)
        placed = topic.placed.get(index)
        wanted = topic.rules(index).replication_factor
        missing = neighbours.missing_nodes(head, wanted, placed.nodes if placed is not None else ())
    replicas = list(dict.fromkeys([*in_sync, *missing]))
    is_led = head is not None and head.open is not None and neighbours.find(head.leader) is not None
    return Message(
        error_code=ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=head.leader if is_led and head is not None else -1,
        leader_epoch=head.epoch if head is not None else -1,
        replica_nodes=replicas,
        isr_nodes=in_sync,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=[node for node in replicas if neighbours.find(node) is None],
    )
