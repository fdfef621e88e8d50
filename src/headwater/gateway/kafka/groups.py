"""Groups of every kind, as the cluster knows them. Everything raises KafkaFailure."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from headwater.client.admin import groups
from headwater.client.admin.groups import GroupListing, GroupMember
from headwater.client.librdkafka import committed_positions
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.errors import group_not_found
from headwater.gateway.kafka.librdkafka_errors import PASSING
from headwater.model.ids import PartitionName


async def list_groups(admin: Admin) -> list[GroupListing]:
    found = groups.merged(await admin.answer_everywhere(groups.list_groups()))
    return [found[name] for name in sorted(found)]


async def find_group(admin: Admin, name: str) -> GroupListing:
    """Raises GroupNotFound."""
    for group in await list_groups(admin):
        if group.name == name:
            return group
    raise group_not_found(name)


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
        return {
            name: {(position.topic, position.partition): position.offset for position in positions}
            for name, positions in committed_positions(client, names, timeout_s).items()
        }

    return await admin.ask(ask)


async def share_members(admin: Admin, name: str) -> list[GroupMember]:
    return await admin.answer(groups.share_members(name))


async def share_positions(admin: Admin, name: str) -> dict[PartitionName, tuple[int, int | None]]:
    """The start offset and, if known, the lag of each partition that a share group has begun to read."""
    return await admin.answer(groups.share_offsets(name))


async def start_offsets(admin: Admin, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
    """Without partitions that do not exist or have no leader."""
    return await admin.offsets(partitions, OffsetSpec.earliest())


async def end_offsets(admin: Admin, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
    """Without partitions that do not exist or have no leader."""
    return await admin.offsets(partitions, OffsetSpec.latest())


def _member(member: Any) -> GroupMember:
    assigned = member.assignment.topic_partitions if member.assignment is not None else ()
    return GroupMember(
        member.member_id,
        member.client_id,
        member.host,
        tuple((partition.topic, partition.partition) for partition in assigned or ()),
    )
