"""AlterReplicaLogDirs (34), versions 1 and 2: which directory of this node a replica shall lie in.

A node has one directory, the one that DescribeLogDirs names. A replica that is to lie there does already; there is no
other. A partition that is named for several directories has the last one, as in Kafka.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import refused
from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.broker.log.log_dir import log_dir, replica_sizes
from headwater.model.cluster import Role
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.ALTER_REPLICA_LOG_DIRS,
    name="AlterReplicaLogDirs",
    access=Access.by_handler(on_cluster(Operation.ALTER, refused_at="results[].partitions[].error_code")),
    min_version=1,
    max_version=2,
)


def handle(
    broker: "Broker", request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    refusal = refused(context.access, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    own = log_dir(broker.config) if Role.STORE in broker.config.roles and refusal is None else None
    held = replica_sizes(broker.store).keys() if own is not None else frozenset[str]()

    def check(name: str, index: int, path: str) -> ErrorCode:
        if refusal is not None:
            return refusal.code
        if path != own:
            return ErrorCode.LOG_DIR_NOT_FOUND
        topic = broker.catalog.find(name)
        if topic is None or not topic.has(index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_here = str(topic.partition_id(index)) in held
        return ErrorCode.NONE if is_here else ErrorCode.REPLICA_NOT_AVAILABLE

    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=check(name, index, paths[index]))
                for index in paths
            ],
        )
        for name, paths in wanted.items()
    ]
    return AlterReplicaLogDirsResponse(results=results)
