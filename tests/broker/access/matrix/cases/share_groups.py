"""Requests of members of share groups, and about such groups."""

from headwater.security.access_codes import ResourceType
from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, Fields
from tests.broker.access.matrix.scene import Scene
from tests.support.messages import nested

NEW_SESSION = 0
ACCEPT = 1


async def beaten(scene: Scene, version: int) -> Fields:
    (member,) = await scene.share_members()
    return {
        "group_id": member.group, "member_id": member.member_id, "member_epoch": member.epoch, "rack_id": None,
        "subscribed_topic_names": [each.name for each in await scene.topics()],
    }  # fmt: skip


async def described(scene: Scene, version: int) -> Fields:
    return {"group_ids": [each.group for each in await scene.share_members()], "include_authorized_operations": False}


async def fetched(scene: Scene, version: int) -> Fields:
    (member,) = await scene.share_members()
    partition = nested(partition_index=0, acknowledgement_batches=[])
    return {
        "group_id": member.group, "member_id": member.member_id, "share_session_epoch": NEW_SESSION, "max_wait_ms": 500,
        "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 10, "batch_size": 10, "forgotten_topics_data": [],
        "topics": [nested(topic_id=each.id, partitions=[partition]) for each in await scene.topics()],
    }  # fmt: skip


async def acknowledged(scene: Scene, version: int) -> Fields:
    member, epoch = await scene.acquired()
    batch = nested(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    partition = nested(partition_index=0, acknowledgement_batches=[batch])
    return {
        "group_id": member.group, "member_id": member.member_id, "share_session_epoch": epoch,
        "topics": [nested(topic_id=each.id, partitions=[partition]) for each in await scene.topics()],
    }  # fmt: skip


async def offsets_described(scene: Scene, version: int) -> Fields:
    groups = await scene.share_groups()
    topics = [nested(topic_name=each.name, partitions=[0]) for each in await scene.topics()]
    return {"groups": [nested(group_id=each, topics=topics) for each in groups]}


async def all_offsets_described(scene: Scene, version: int) -> Fields:
    return {"groups": [nested(group_id=each, topics=None) for each in await scene.share_groups()]}


async def offsets_altered(scene: Scene, version: int) -> Fields:
    (group,) = await scene.share_groups()
    partition = nested(partition_index=0, start_offset=1)
    return {
        "group_id": group,
        "topics": [nested(topic_name=each.name, partitions=[partition]) for each in await scene.topics()],
    }


async def offsets_deleted(scene: Scene, version: int) -> Fields:
    (group,) = await scene.share_groups()
    return {"group_id": group, "topics": [nested(topic_name=each.name) for each in await scene.topics()]}


CASES = (
    Case(api_key=ApiKey.SHARE_GROUP_HEARTBEAT, title="", build=beaten),
    Case(api_key=ApiKey.SHARE_GROUP_DESCRIBE, title="", build=described),
    Case(api_key=ApiKey.SHARE_FETCH, title="", build=fetched, spoils=True),
    Case(
        api_key=ApiKey.SHARE_ACKNOWLEDGE,
        title="",
        build=acknowledged,
        spoils=True,
        has_session=True,
    ),
    Case(api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, title="", build=offsets_described),
    Case(
        api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        title="of all topics",
        build=all_offsets_described,
        left_out=ResourceType.TOPIC,
    ),
    Case(api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, title="", build=offsets_altered, spoils=True),
    Case(api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, title="", build=offsets_deleted, spoils=True),
)
