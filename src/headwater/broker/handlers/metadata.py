"""Metadata (3): where the partitions are. Versions 0 to 13: null topics mean all (in version 0, none do); from 12 on
topics may be asked for by id, without a name; versions 10 and 11 have the fields and refuse it, as Kafka does. From 8
on clients may ask what they are allowed to do with topics, and until 10 with the cluster.

An unknown topic is created here when the broker and the request allow it, as clients expect of their first message.
"""

from typing import TYPE_CHECKING

from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from headwater.broker.cluster.topic_description import describe_topic
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.message import Message
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
        topics = [describe_topic(broker.cluster_nodes, topic, operations) for topic in broker.catalog]
    elif context.api_version < BY_ID and any(topic.name is None or topic.topic_id != NULL_UUID for topic in asked):
        return Message(controller_id=-1, topics=[_invalid(topic) for topic in asked])
    else:
        may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics
        topics = [await _find(broker, topic, may_create, operations) for topic in asked]
    brokers = [
        Message(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.cluster_nodes.listed()
    ]
    asks_of_cluster = context.api_version in OF_CLUSTER and request.include_cluster_authorized_operations
    return Message(
        brokers=brokers,
        cluster_id=broker.cluster_id,
        controller_id=broker.cluster_nodes.controller_id,
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
            return describe_topic(broker.cluster_nodes, broker.catalog.topic_by_id(asked.topic_id), operations)
        topic = broker.catalog.find(name)
        if topic is None:
            if not may_create:
                broker.catalog.topic(name)
            topic = await broker.create_on_use(name)
        return describe_topic(broker.cluster_nodes, topic, operations)
    except RequestError as error:
        return Message(
            error_code=error.code,
            name=name,
            topic_id=asked.topic_id if name is None else NULL_UUID,
            is_internal=False,
            partitions=(),
            topic_authorized_operations=operations if name is not None else NOT_ASKED,
        )
