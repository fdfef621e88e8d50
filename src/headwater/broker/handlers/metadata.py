"""Metadata (3): where the partitions are. Versions 0 to 13: null topics mean all (in version 0, none do); from 12 on
topics may be asked for by id, without a name; versions 10 and 11 have the fields and refuse it, as Kafka does. From 8
on clients may ask what they are allowed to do with topics, and until 10 with the cluster.

An unknown topic is created here when the broker, the request and the client's rights allow it, as clients expect of
their first message. Of all topics a client is shown those that it may describe; of one that it may not, it learns
nothing.
"""

import asyncio
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_cluster, on_topic
from headwater.broker.access.topic_access import creation_refusal, topic_refusal
from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import NOT_ASKED, operations_on_cluster, operations_on_topic
from headwater.broker.cluster.topic_description import UNREACHABLE, describe_partitions
from headwater.broker.quotas.mutation_quota import MutationQuota
from headwater.broker.topics.topic import Topic
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_NODE
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import NULL_UUID
from headwater.wire.typed.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.METADATA,
    name="Metadata",
    access=Access.by_handler(
        on_topic(
            Operation.DESCRIBE,
            "topics[].name",
            refused_at="topics[].error_code",
            condition="left out if all topics are asked for",
        ),
        on_cluster(
            Operation.CREATE,
            refused_at="topics[].error_code",
            or_else=on_topic(Operation.CREATE, "topics[].name", refused_at="topics[].error_code"),
            condition="to create the topic on its first use",
        ),
    ),
    min_version=0,
    max_version=13,
)

BY_ID = 12
"""The first version in which topics have ids instead of names."""
WITH_UNREACHABLE = 6
"""The first version whose clients know LISTENER_NOT_FOUND; for others the leader is not available."""
OF_CLUSTER = range(8, 11)
"""Versions that say what the client may do with the cluster; later it asks DescribeCluster."""
ASKED_AT_ONCE = 500
"""Topics that are checked before other requests are served."""


async def handle(broker: "Broker", request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    asked, access = request.topics, context.access
    with_operations = request.include_topic_authorized_operations
    if asked is None or (context.api_version == 0 and not asked):
        shown = await _shown(list(broker.catalog), access)
        topics = [_describe(broker, topic, with_operations, context) for topic in shown]
    elif context.api_version < BY_ID and any(topic.name is None or topic.topic_id != NULL_UUID for topic in asked):
        return MetadataResponse(controller_id=NO_NODE, topics=[_invalid(topic) for topic in asked])
    else:
        may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics
        topics = [await _find(broker, topic, may_create, with_operations, context) for topic in asked]
    brokers = [
        MetadataResponseBroker(node_id=node.node_id, host=host, port=port, rack=node.rack)
        for node, host, port in broker.cluster_nodes.listed(context.listener)
    ]
    asks_of_cluster = context.api_version in OF_CLUSTER and request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=brokers,
        cluster_id=broker.cluster_id,
        controller_id=broker.cluster_nodes.controller_id,
        topics=topics,
        cluster_authorized_operations=operations_on_cluster(access) if asks_of_cluster else NOT_ASKED,
    )


async def _shown(topics: list[Topic], access: ClientAccess) -> list[Topic]:
    """Those that the client may describe."""
    if not access.is_restricted:
        return topics
    shown = []
    for count, topic in enumerate(topics, 1):
        if access.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            shown.append(topic)
        if count % ASKED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return shown


def _invalid(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    code = ErrorCode.INVALID_REQUEST
    return MetadataResponseTopic(
        error_code=code, name=asked.name or "", topic_id=asked.topic_id, is_internal=False, partitions=()
    )


async def _find(
    broker: "Broker", asked: MetadataRequestTopic, may_create: bool, with_operations: bool, context: RequestContext
) -> MetadataResponseTopic:
    # Who asks by id leaves the name out: null from most clients, empty from Java's.
    name = asked.name if asked.topic_id == NULL_UUID else None
    access = context.access
    operations = NOT_ASKED
    try:
        if name is None:
            topic = broker.catalog.topic_by_id(asked.topic_id)
            _check(topic_refusal(access, Operation.DESCRIBE, topic.name))
            return _describe(broker, topic, with_operations, context)
        _check(topic_refusal(access, Operation.DESCRIBE, name))
        found = broker.catalog.find(name)
        if found is None:
            if may_create:
                _check(creation_refusal(access, name))
            if with_operations:
                operations = operations_on_topic(access, name)
            if not may_create:
                broker.catalog.topic(name)
            with MutationQuota.of(context.usage, is_strict=False).admitted(broker.config.default_partitions):
                found = await broker.create_on_use(name, context)
        return _describe(broker, found, with_operations, context)
    except RequestError as error:
        return MetadataResponseTopic(
            error_code=error.code,
            name=name,
            topic_id=asked.topic_id if name is None else NULL_UUID,
            is_internal=False,
            partitions=(),
            topic_authorized_operations=operations,
        )


def _check(refusal: RequestError | None) -> None:
    if refusal is not None:
        raise refusal


def _describe(broker: "Broker", topic: Topic, with_operations: bool, context: RequestContext) -> MetadataResponseTopic:
    unreachable = UNREACHABLE if context.api_version >= WITH_UNREACHABLE else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=partition.error_code if partition.error_code is not UNREACHABLE else unreachable,
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.nodes.replicas,
                isr_nodes=partition.nodes.in_sync,
                offline_replicas=partition.nodes.offline,
            )
            for partition in describe_partitions(broker.cluster_nodes, topic, context.listener)
        ],
        topic_authorized_operations=operations_on_topic(context.access, topic.name) if with_operations else NOT_ASKED,
    )
