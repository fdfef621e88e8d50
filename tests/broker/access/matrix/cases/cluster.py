"""Requests of administrators: of nodes, bindings, users and quotas; and those that every client may send."""

from typing import Any

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, Fields
from tests.broker.access.matrix.scene import LONG_MS, Scene
from tests.broker.access.matrix.world import OTHER
from tests.support.first_users import PASSWORD
from tests.support.messages import nested

SCRAM_SHA_256, ITERATIONS = 1, 4096
UNKNOWN_NODE = 99


async def log_dirs_described(scene: Scene, version: int) -> Fields:
    await scene.topics()
    return {"topics": None}


async def log_dirs_altered(scene: Scene, version: int) -> Fields:
    topics = [nested(name=each.name, partitions=[0]) for each in await scene.topics()]
    return {"dirs": [nested(path="/of/no/broker", topics=topics)]}


async def leaders_elected(scene: Scene, version: int) -> Fields:
    topics = [nested(topic=each.name, partitions=[0]) for each in await scene.topics()]
    return {"topic_partitions": topics, "timeout_ms": LONG_MS, "election_type": 0}


async def reassigned(scene: Scene, version: int) -> Fields:
    partition = nested(partition_index=0, replicas=[scene.world.node_id])
    topics = [nested(name=each.name, partitions=[partition]) for each in await scene.topics()]
    return {"timeout_ms": LONG_MS, "topics": topics, "allow_replication_factor_change": True}


async def reassignments_listed(scene: Scene, version: int) -> Fields:
    topics = [nested(name=each.name, partition_indexes=[0]) for each in await scene.topics()]
    return {"timeout_ms": LONG_MS, "topics": topics}


async def quorum_described(scene: Scene, version: int) -> Fields:
    return {"topics": [nested(topic_name="__cluster_metadata", partitions=[nested(partition_index=0)])]}


async def node_unregistered(scene: Scene, version: int) -> Fields:
    return {"broker_id": UNKNOWN_NODE}


def _filter(principal: str | None) -> dict[str, Any]:
    return {
        "resource_type_filter": ResourceType.ANY, "resource_name_filter": None, "pattern_type_filter": PatternType.ANY,
        "principal_filter": principal, "host_filter": None, "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }  # fmt: skip


async def bindings_described(scene: Scene, version: int) -> Fields:
    return _filter(None)


async def bindings_created(scene: Scene, version: int) -> Fields:
    (topic,) = await scene.topics()
    creation = nested(
        resource_type=ResourceType.TOPIC, resource_name=topic.name, resource_pattern_type=PatternType.LITERAL,
        principal=OTHER, host="*", operation=Operation.READ, permission_type=Permission.ALLOW,
    )  # fmt: skip
    return {"creations": [creation]}


async def bindings_deleted(scene: Scene, version: int) -> Fields:
    await scene.world.admin.ask(ApiKey.CREATE_ACLS, 3, **await bindings_created(scene, 3))
    return {"filters": [_filter(OTHER)]}


async def users_described(scene: Scene, version: int) -> Fields:
    """All, of whom there is one at least. Kafka leaves the other way to say it, null, without an answer if it is
    refused."""
    await scene.world.admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **await users_altered(scene, 0))
    return {"users": []}


async def users_altered(scene: Scene, version: int) -> Fields:
    upsertion = nested(
        name="of-the-matrix", mechanism=SCRAM_SHA_256, iterations=ITERATIONS, salt=b"salt", salted_password=bytes(32)
    )
    return {"deletions": [], "upsertions": [upsertion]}


async def cluster_described(scene: Scene, version: int) -> Fields:
    return {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}


async def versions_asked(scene: Scene, version: int) -> Fields:
    return {"client_software_name": "matrix", "client_software_version": "1"}


async def login_begun(scene: Scene, version: int) -> Fields:
    return {"mechanism": "PLAIN"}


async def logged_in(scene: Scene, version: int) -> Fields:
    return {"auth_bytes": f"\0admin\0{PASSWORD}".encode()}


CASES = (
    Case(api_key=ApiKey.DESCRIBE_LOG_DIRS, title="", build=log_dirs_described),
    Case(
        api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, title="", build=log_dirs_altered,
        also=frozenset((ErrorCode.LOG_DIR_NOT_FOUND,)),
    ),
    Case(
        api_key=ApiKey.ELECT_LEADERS, title="", build=leaders_elected,
        also=frozenset((ErrorCode.ELECTION_NOT_NEEDED,)),
    ),
    Case(api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, title="", build=reassigned),
    Case(api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, title="", build=reassignments_listed),
    Case(api_key=ApiKey.DESCRIBE_QUORUM, title="", build=quorum_described),
    Case(
        api_key=ApiKey.UNREGISTER_BROKER, title="", build=node_unregistered,
        also=frozenset((ErrorCode.BROKER_ID_NOT_REGISTERED,)),
    ),
    Case(api_key=ApiKey.DESCRIBE_ACLS, title="", build=bindings_described),
    Case(api_key=ApiKey.CREATE_ACLS, title="", build=bindings_created),
    Case(api_key=ApiKey.DELETE_ACLS, title="", build=bindings_deleted),
    Case(api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, title="", build=users_described),
    Case(api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, title="", build=users_altered),
    Case(api_key=ApiKey.DESCRIBE_CLUSTER, title="", build=cluster_described),
    Case(api_key=ApiKey.API_VERSIONS, title="", build=versions_asked),
    Case(
        api_key=ApiKey.SASL_HANDSHAKE, title="", build=login_begun, also=frozenset((ErrorCode.ILLEGAL_SASL_STATE,)),
    ),
    Case(
        api_key=ApiKey.SASL_AUTHENTICATE, title="", build=logged_in, also=frozenset((ErrorCode.ILLEGAL_SASL_STATE,)),
    ),
)  # fmt: skip
