"""What a broker keeps: a refused request must leave it as it was."""

from typing import Any

from headwater.broker.server import Broker
from headwater.metadata import keys
from headwater.model.cluster import AUDIT_TOPIC
from headwater.security.access_codes import ResourceType
from tests.broker.access.matrix.places import leaves
from tests.broker.access.matrix.scene import Scene
from tests.broker.access.matrix.world import OTHER

OFFSET_FETCH, DESCRIBE_GROUPS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS = 9, 15, 61, 65
CONSUMER_DESCRIBE, SHARE_DESCRIBE, DESCRIBE_SHARE_OFFSETS = 69, 77, 90
KEPT = (keys.TOPICS, keys.NAMES, keys.HEADS, keys.USERS, keys.QUOTAS, keys.REASSIGNMENTS, "ids/", "config/")
"""All but bindings, which the test changes itself, and what nodes do by themselves."""


async def state_of(broker: Broker, scene: Scene) -> dict[str, Any]:
    """The metadata, the ends of all logs, so of those that groups and transactions are kept in, too, and what an
    administrator is told of the groups and transactions of the scene. All but the audit, to which refusals are told."""
    audit = broker.catalog.find(AUDIT_TOPIC)
    of_audit = {AUDIT_TOPIC} if audit is None else {AUDIT_TOPIC, audit.topic_id.hex}
    metadata = {each.key: each.value for prefix in KEPT for each in await broker.metadata.list(prefix)}
    ends = {f"end of {each.id}": each.log_end for each in broker.catalog.partitions()}
    kept = {key: value for key, value in {**metadata, **ends}.items() if not any(each in key for each in of_audit)}
    bindings = await scene.world.described_bindings()
    of_others = {str(each) for each in bindings if each.principal == OTHER}
    return {**kept, "bindings of others": of_others, "cluster": broker.cluster_id, **await _told(scene)}


async def _told(scene: Scene) -> dict[str, list[Any]]:
    groups, topics, ids = (
        [each.name for each in scene.names(resource_type)]
        for resource_type in (ResourceType.GROUP, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID)
    )
    asked: dict[str, tuple[int, int, dict[str, Any]]] = {}
    if groups:
        named = {"group_ids": groups, "include_authorized_operations": False}
        asked["offsets"] = OFFSET_FETCH, 8, {"groups": [{"group_id": each, "topics": None} for each in groups]}
        asked["groups"] = DESCRIBE_GROUPS, 5, {"groups": groups, "include_authorized_operations": False}
        asked["consumer groups"] = CONSUMER_DESCRIBE, 1, named
        asked["share groups"] = SHARE_DESCRIBE, 1, named
        asked["share offsets"] = (
            DESCRIBE_SHARE_OFFSETS,
            0,
            {"groups": [{"group_id": each, "topics": None} for each in groups]},
        )
    if topics:
        asked["producers"] = (
            DESCRIBE_PRODUCERS,
            0,
            {"topics": [{"name": each, "partition_indexes": [0]} for each in topics]},
        )
    if ids:
        asked["transactions"] = DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ids}
    return {
        title: [leaf[:2] for leaf in leaves(await scene.world.admin.ask(api_key, version, **fields))]
        for title, (api_key, version, fields) in asked.items()
    }
