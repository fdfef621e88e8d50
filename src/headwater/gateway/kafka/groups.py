"""Groups of every kind, as the cluster knows them. Everything raises KafkaFailure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from headwater.gateway.kafka import raw
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.errors import group_not_found
from headwater.gateway.kafka.librdkafka_errors import PASSING
from headwater.model.ids import PartitionName
from headwater.wire.message import Message

LIST_GROUPS, SHARE_GROUP_DESCRIBE, DESCRIBE_SHARE_GROUP_OFFSETS = 16, 77, 90
SHARE = "share"


@dataclass(frozen=True, slots=True)
class ClusterGroup:
    name: str
    kind: str
    """classic, consumer or share."""
    state: str
    is_simple: bool = False
    """It keeps offsets, and has never shared out partitions."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    partitions: list[PartitionName] = field(default_factory=list)


async def list_groups(admin: Admin) -> list[ClusterGroup]:
    found: dict[str, ClusterGroup] = {}
    for broker in await admin.brokers():
        answer = await raw.ask(broker, LIST_GROUPS, 5, states_filter=[], types_filter=[])
        raw.check(answer.error_code, None, "The list of groups")
        for group in answer.groups:
            kind, is_simple = group.group_type.lower(), group.protocol_type == ""
            found[group.group_id] = ClusterGroup(group.group_id, kind, _words(group.group_state), is_simple)
    return [found[name] for name in sorted(found)]


async def find_group(admin: Admin, name: str) -> ClusterGroup:
    """Raises GroupNotFound."""
    for group in await list_groups(admin):
        if group.name == name:
            return group
    raise group_not_found(name)


async def members(admin: Admin, group: ClusterGroup) -> list[GroupMember]:
    if group.kind == SHARE:
        return await _share_members(admin, group.name)
    return (await consumer_members(admin, [group.name])).get(group.name, [])


async def consumer_members(admin: Admin, names: list[str]) -> dict[str, list[GroupMember]]:
    """Of classic and consumer groups; groups that do not exist are left out. Raises ClusterNotReady."""

    def ask(client: AdminClient, timeout_s: float) -> dict[str, list[GroupMember]]:
        found = {}
        for name, future in client.describe_consumer_groups(names, request_timeout=timeout_s).items():
            try:
                described = future.result()
            except KafkaException as error:
                if error.args[0].code() in PASSING:
                    raise
                continue
            if described.state != ConsumerGroupState.DEAD:
                found[name] = [_member(member) for member in described.members]
        return found

    return await admin.ask(ask) if names else {}


async def committed(admin: Admin, names: Iterable[str]) -> dict[str, dict[PartitionName, int]]:
    """The offsets that classic and consumer groups have committed."""

    def ask(client: AdminClient, timeout_s: float) -> dict[str, dict[PartitionName, int]]:
        futures = {}
        for name in names:  # one group a call is what librdkafka takes; all of them are asked before any is awaited
            request = [ConsumerGroupTopicPartitions(name)]
            (futures[name],) = client.list_consumer_group_offsets(request, request_timeout=timeout_s).values()
        return {
            name: {
                (position.topic, position.partition): position.offset
                for position in future.result().topic_partitions or ()
                if position.error is None and position.offset >= 0
            }
            for name, future in futures.items()
        }

    return await admin.ask(ask)


async def share_positions(admin: Admin, name: str) -> dict[PartitionName, tuple[int, int | None]]:
    """The start offset and, if known, the lag of each partition that a share group has begun to read."""
    broker, *_ = await admin.brokers()
    address = await raw.coordinator(broker, name)
    answer = await raw.ask(address, DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[Message(group_id=name, topics=None)])
    (described,) = answer.groups
    raw.check(described.error_code, described.error_message, f"Group {name}")
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag if each.lag >= 0 else None)
        for topic in described.topics
        for each in topic.partitions
        if each.error_code == 0 and each.start_offset >= 0
    }


async def start_offsets(admin: Admin, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
    """Without partitions that do not exist or have no leader."""
    return await admin.offsets(partitions, OffsetSpec.earliest())


async def end_offsets(admin: Admin, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
    """Without partitions that do not exist or have no leader."""
    return await admin.offsets(partitions, OffsetSpec.latest())


async def _share_members(admin: Admin, name: str) -> list[GroupMember]:
    broker, *_ = await admin.brokers()
    address = await raw.coordinator(broker, name)
    answer = await raw.ask(address, SHARE_GROUP_DESCRIBE, 1, group_ids=[name])
    (described,) = answer.groups
    raw.check(described.error_code, described.error_message, f"Group {name}")
    return [
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            [(t.topic_name, index) for t in member.assignment.topic_partitions for index in t.partitions],
        )
        for member in described.members
    ]


def _member(member: Any) -> GroupMember:
    assigned = member.assignment.topic_partitions if member.assignment is not None else ()
    return GroupMember(
        member.member_id,
        member.client_id,
        member.host,
        [(partition.topic, partition.partition) for partition in assigned or ()],
    )


def _words(state: str) -> str:
    """`PreparingRebalance` as people read it."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in state).strip()
