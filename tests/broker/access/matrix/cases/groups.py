"""Requests of consumers, and about groups."""

import base64
import re

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, Fields
from tests.broker.access.matrix.scene import COMMITTED_OFFSET, LONG_MS, SESSION_MS, Scene
from tests.support.messages import nested

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2
SINCE_LISTS, SINCE_GROUPS = range(4, 100), range(8, 100)
"""Versions of FindCoordinator and OffsetFetch that ask for several."""


async def offsets_committed(scene: Scene, version: int) -> Fields:
    partition = nested(
        partition_index=0, committed_offset=COMMITTED_OFFSET, committed_metadata="", committed_leader_epoch=-1
    )
    (group,) = await scene.committed()
    return {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [nested(name=each.name, topic_id=each.id, partitions=[partition]) for each in await scene.topics()],
    }  # fmt: skip


async def offsets_fetched(scene: Scene, version: int) -> Fields:
    groups, topics = await scene.committed(), await scene.topics()
    of_group = [nested(name=each.name, topic_id=each.id, partition_indexes=[0]) for each in topics]
    return {
        "group_id": groups[0],
        "topics": [nested(name=each.name, partition_indexes=[0]) for each in topics],
        "groups": [nested(group_id=each, topics=of_group, member_id=None, member_epoch=-1) for each in groups],
        "require_stable": False,
    }


async def all_offsets_fetched(scene: Scene, version: int) -> Fields:
    fields = await offsets_fetched(scene, version)
    groups = [{**each, "topics": None} for each in fields["groups"]]
    return {**fields, "topics": None, "groups": groups}


async def group_found(scene: Scene, version: int) -> Fields:
    groups = await scene.committed()
    return {"key": groups[0], "key_type": GROUP_KEY, "coordinator_keys": groups}


async def transaction_found(scene: Scene, version: int) -> Fields:
    transactional_ids = [each.transactional_id for each in await scene.transactions()]
    return {"key": transactional_ids[0], "key_type": TRANSACTION_KEY, "coordinator_keys": transactional_ids}


async def share_partition_found(scene: Scene, version: int) -> Fields:
    (member,), (topic,) = await scene.share_members(), await scene.topics()
    topic_id = base64.urlsafe_b64encode(topic.id.bytes).rstrip(b"=").decode()
    return {"key_type": SHARE_KEY, "coordinator_keys": [f"{member.group}:{topic_id}:0"]}


async def joined(scene: Scene, version: int) -> Fields:
    (group,) = await scene.committed()
    return {
        "group_id": group, "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS, "member_id": "",
        "group_instance_id": None, "protocol_type": "consumer", "protocols": [nested(name="range", metadata=b"")],
        "reason": None,
    }  # fmt: skip


async def beaten(scene: Scene, version: int) -> Fields:
    (member,) = await scene.classic_members()
    return {
        "group_id": member.group, "generation_id": member.epoch, "member_id": member.member_id,
        "group_instance_id": None,
    }  # fmt: skip


async def left(scene: Scene, version: int) -> Fields:
    (member,) = await scene.classic_members()
    members = [nested(member_id=member.member_id, group_instance_id=None, reason=None)]
    return {"group_id": member.group, "member_id": member.member_id, "members": members}


async def synced(scene: Scene, version: int) -> Fields:
    return {**await beaten(scene, version), "assignments": [], "protocol_type": "consumer", "protocol_name": "range"}


async def described(scene: Scene, version: int) -> Fields:
    return {"groups": [each.group for each in await scene.classic_members()], "include_authorized_operations": False}


async def listed(scene: Scene, version: int) -> Fields:
    await scene.classic_members()
    return {"states_filter": [], "types_filter": []}


async def deleted(scene: Scene, version: int) -> Fields:
    return {"groups_names": await scene.committed()}


async def offsets_deleted(scene: Scene, version: int) -> Fields:
    (group,) = await scene.committed()
    topics = [nested(name=each.name, partitions=[nested(partition_index=0)]) for each in await scene.topics()]
    return {"group_id": group, "topics": topics}


async def consumer_beaten(scene: Scene, version: int) -> Fields:
    (member,) = await scene.consumers()
    return {
        "group_id": member.group, "member_id": "of-a-stranger", "member_epoch": 0, "instance_id": None, "rack_id": None,
        "rebalance_timeout_ms": LONG_MS, "subscribed_topic_names": [each.name for each in await scene.topics()],
        "server_assignor": None, "topic_partitions": [], "subscribed_topic_regex": None,
    }  # fmt: skip


async def consumer_beaten_by_pattern(scene: Scene, version: int) -> Fields:
    """A topic that the pattern fits and the client may not describe is none of the group's."""
    pattern = f"{re.escape((await scene.topics())[0].name)}.*"
    return {
        **await consumer_beaten(scene, version), "member_id": "of-a-pattern", "subscribed_topic_names": None,
        "subscribed_topic_regex": pattern,
    }  # fmt: skip


async def consumers_described(scene: Scene, version: int) -> Fields:
    groups = [each.group for each in await scene.consumers()]
    return {"group_ids": groups, "include_authorized_operations": False}


CASES = (
    Case(api_key=ApiKey.OFFSET_COMMIT, title="", build=offsets_committed),
    Case(api_key=ApiKey.OFFSET_FETCH, title="", build=offsets_fetched),
    Case(api_key=ApiKey.OFFSET_FETCH, title="of all topics", build=all_offsets_fetched, versions=range(2, 100),
        left_out=ResourceType.TOPIC,
    ),
    Case(
        api_key=ApiKey.FIND_COORDINATOR, title="of a group", build=group_found,
        picks=lambda check: check.resource_type is ResourceType.GROUP,
    ),
    Case(
        api_key=ApiKey.FIND_COORDINATOR, title="of a transactional id", build=transaction_found,
        picks=lambda check: check.resource_type is ResourceType.TRANSACTIONAL_ID, versions=range(1, 100),
    ),
    Case(
        api_key=ApiKey.FIND_COORDINATOR, title="of a share partition", build=share_partition_found,
        picks=lambda check: check.resource_type is ResourceType.CLUSTER, versions=range(6, 100),
    ),
    Case(
        api_key=ApiKey.JOIN_GROUP, title="", build=joined, spoils=True,
        also=frozenset((ErrorCode.MEMBER_ID_REQUIRED,)),
    ),
    Case(api_key=ApiKey.HEARTBEAT, title="", build=beaten),
    Case(api_key=ApiKey.LEAVE_GROUP, title="", build=left, spoils=True),
    Case(api_key=ApiKey.SYNC_GROUP, title="", build=synced),
    Case(api_key=ApiKey.DESCRIBE_GROUPS, title="", build=described, shows_all=True),
    Case(api_key=ApiKey.LIST_GROUPS, title="", build=listed),
    Case(api_key=ApiKey.DELETE_GROUPS, title="", build=deleted, spoils=True),
    Case(api_key=ApiKey.OFFSET_DELETE, title="", build=offsets_deleted, spoils=True),
    Case(api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, title="", build=consumer_beaten),
    Case(
        api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, title="with a pattern", build=consumer_beaten_by_pattern,
        picks=lambda check: check.resource_type is ResourceType.GROUP, versions=range(1, 100),
    ),
    Case(api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, title="", build=consumers_described),
)  # fmt: skip
