"""DescribeLogDirs (35): how much of the disk each partition takes. Versions 1 to 5: from 4 on with the disk's size
and room, in 5 whether the directory gets nothing new (KIP-1066), as a store that is being drained.

A node has one data directory, with the replicas of its store: also those of partitions that other nodes lead. A node
without a store has none. Topics and partitions of which nothing is here are left out, as Kafka does.
"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import LEFT_OUT, Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.broker.log.log_dir import log_dir, replica_sizes
from headwater.model.cluster import Role
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    name="DescribeLogDirs",
    access=Access.by_handler(
        on_cluster(Operation.DESCRIBE, refused_at=LEFT_OUT, versions=range(3)),
        on_cluster(Operation.DESCRIBE, versions=range(3, 100)),
    ),
    min_version=1,
    max_version=5,
)


WITH_ERROR = 3
"""The first version whose response has an error of its own."""


async def handle(broker: "Broker", request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    try:
        context.access.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    except RequestError as refusal:
        if context.api_version < WITH_ERROR:
            return DescribeLogDirsResponse(results=[])
        raise refusal
    if Role.STORE not in broker.config.roles:
        return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[])
    sizes = replica_sizes(broker.store)
    if request.topics is None:
        wanted = {topic.name: range(topic.partition_count) for topic in broker.catalog}
        topics = [_topic(broker, name, indexes, sizes) for name, indexes in wanted.items()]
    else:
        topics = [_topic(broker, asked.topic, asked.partitions, sizes) for asked in request.topics]
    usage = await asyncio.to_thread(shutil.disk_usage, broker.config.data_dir)
    leaving = broker.cluster_nodes.leaving()
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=log_dir(broker.config),
        topics=[topic for topic in topics if topic.partitions],
        total_bytes=usage.total,
        usable_bytes=usage.free,
        is_cordoned=any(store in leaving for store in broker.cluster_nodes.own.store_ids),
    )
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[result])


def _topic(broker: "Broker", name: str, indexes: Sequence[int], sizes: Mapping[str, int]) -> DescribeLogDirsTopic:
    topic = broker.catalog.find(name)
    found = {index: str(topic.partition_id(index)) for index in indexes if topic is not None and topic.has(index)}
    return DescribeLogDirsTopic(
        name=name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=index, partition_size=sizes[partition], offset_lag=0, is_future_key=False
            )
            for index, partition in found.items()
            if partition in sizes
        ],
    )
