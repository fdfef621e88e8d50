"""Requests that make topics, alter, describe and delete them."""

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, Fields
from tests.broker.access.matrix.scene import LONG_MS, Scene
from tests.support.messages import nested

SINCE_IDS = range(12, 100)
"""Versions of Metadata that take an id without a name."""
OPERATIONS = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}


async def created(scene: Scene, version: int) -> Fields:
    topics = [
        nested(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in scene.new_topics()
    ]
    return {"topics": topics, "timeout_ms": LONG_MS, "validate_only": False}


async def deleted(scene: Scene, version: int) -> Fields:
    names = [each.name for each in await scene.topics()]
    return {"topic_names": names, "topics": [nested(name=each) for each in names], "timeout_ms": LONG_MS}


async def deleted_by_id(scene: Scene, version: int) -> Fields:
    return {"topics": [nested(name=None, topic_id=each.id) for each in await scene.topics()], "timeout_ms": LONG_MS}


async def grown(scene: Scene, version: int) -> Fields:
    topics = [nested(name=each.name, count=2, assignments=None) for each in await scene.topics()]
    return {"topics": topics, "timeout_ms": LONG_MS, "validate_only": False}


async def known(scene: Scene, version: int) -> Fields:
    topics = [nested(name=each.name) for each in await scene.topics()]
    return {"topics": topics, "allow_auto_topic_creation": False, **OPERATIONS}


async def known_by_id(scene: Scene, version: int) -> Fields:
    topics = [nested(name=None, topic_id=each.id) for each in await scene.topics()]
    return {"topics": topics, "allow_auto_topic_creation": False, **OPERATIONS}


async def known_all(scene: Scene, version: int) -> Fields:
    await scene.topics()
    return {"topics": None if version > 0 else [], "allow_auto_topic_creation": False, **OPERATIONS}


async def created_on_use(scene: Scene, version: int) -> Fields:
    topics = [nested(name=name) for name in scene.new_topics()]
    return {"topics": topics, "allow_auto_topic_creation": True, **OPERATIONS}


async def partitions_described(scene: Scene, version: int) -> Fields:
    return {
        "topics": [nested(name=each.name) for each in await scene.topics()],
        "response_partition_limit": 2_000,
        "cursor": None,
    }


async def all_partitions_described(scene: Scene, version: int) -> Fields:
    return {**await partitions_described(scene, version), "topics": []}


CASES = (
    Case(api_key=ApiKey.CREATE_TOPICS, title="", build=created, spoils=True),
    Case(api_key=ApiKey.DELETE_TOPICS, title="", build=deleted, spoils=True),
    Case(api_key=ApiKey.DELETE_TOPICS, title="by id", build=deleted_by_id, spoils=True, versions=range(6, 100)),
    Case(api_key=ApiKey.CREATE_PARTITIONS, title="", build=grown, spoils=True),
    Case(
        api_key=ApiKey.METADATA, title="", build=known, picks=lambda check: check.operation is Operation.DESCRIBE,
    ),
    Case(
        api_key=ApiKey.METADATA, title="by id", build=known_by_id, versions=SINCE_IDS,
        picks=lambda check: check.operation is Operation.DESCRIBE,
    ),
    Case(
        api_key=ApiKey.METADATA, title="of all topics", build=known_all, left_out=ResourceType.TOPIC,
        picks=lambda check: check.operation is Operation.DESCRIBE,
    ),
    Case(
        api_key=ApiKey.METADATA, title="of a new topic", build=created_on_use, spoils=True,
        also=frozenset((ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    ),
    Case(api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, title="", build=partitions_described),
    Case(
        api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, title="of all topics", build=all_partitions_described,
        left_out=ResourceType.TOPIC,
    ),
)  # fmt: skip
