"""Groups with their members and how far each is in what it reads: one way for every page and route that tells a lag."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.client.admin.groups import GroupListing, GroupMember
from headwater.gateway.groups.setting_keys import OFFSET_RESET, TOPIC
from headwater.gateway.kafka import groups
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.errors import GroupNotFound, KafkaFailure
from headwater.model.group_lag import PartitionLag, TotalLag, partition_lag, partitions_read, total
from headwater.model.ids import PartitionName

KEYS = (TOPIC, OFFSET_RESET)
"""The settings of a group that say what it reads where it has no position."""
FROM_END = "latest"


@dataclass(frozen=True, slots=True)
class GroupReader:
    group: GroupListing
    members: list[GroupMember]
    standings: list[PartitionLag]

    @property
    def lag(self) -> TotalLag:
        return total(self.standings)


@dataclass(frozen=True, slots=True)
class _Read:
    members: list[GroupMember]
    positions: dict[PartitionName, int]
    lags: dict[PartitionName, int]
    """Of a queue, as the broker counts: records that are resolved above its position are no lag."""

    @property
    def assigned(self) -> set[PartitionName]:
        return {partition for member in self.members for partition in member.partitions}


async def group_readers(
    admin: Admin,
    listed: Sequence[GroupListing],
    settings: Mapping[str, Mapping[str, str]],
    *,
    skips_silent: bool = False,
) -> dict[str, GroupReader]:
    """By name, without groups that are gone. `settings` are those of each group, the KEYS at least. With `skips_silent`
    also without queues whose coordinator does not answer. Raises KafkaFailure."""
    read = await _read_streams(admin, [group.name for group in listed if not group.is_share])
    for group in listed:
        if group.is_share:
            try:
                read[group.name] = await _read_queue(admin, group)
            except KafkaFailure as failure:
                if not skips_silent and not isinstance(failure, GroupNotFound):
                    raise
    counts = {name: len(topic.partitions) for name, topic in (await admin.metadata()).topics.items()}
    partitions = {
        group.name: partitions_read(
            read[group.name].positions,
            read[group.name].assigned,
            counts,
            is_simple=group.is_simple,
            subscribed=settings[group.name].get(TOPIC, ""),
        )
        for group in listed
        if group.name in read
    }
    ends = await groups.end_offsets(admin, {partition for found in partitions.values() for partition in found})
    starts = await groups.start_offsets(
        admin,
        {
            partition
            for name, found in partitions.items()
            for partition in found
            if partition not in read[name].positions
        },
    )
    found = {}
    for group in listed:
        if group.name in read:
            begins_at_end = group.is_share and settings[group.name].get(OFFSET_RESET, FROM_END) == FROM_END
            of_group = read[group.name]
            standings = [
                _standing(of_group, partition, starts, ends, begins_at_end) for partition in partitions[group.name]
            ]
            found[group.name] = GroupReader(group, of_group.members, standings)
    return found


async def _read_streams(admin: Admin, names: list[str]) -> dict[str, _Read]:
    members = await groups.consumer_members(admin, names)
    committed = await groups.committed(admin, names) if names else {}
    return {name: _Read(members[name], committed.get(name, {}), {}) for name in names if name in members}


async def _read_queue(admin: Admin, group: GroupListing) -> _Read:
    members = await groups.share_members(admin, group.name)
    positions = await groups.share_positions(admin, group.name)
    return _Read(
        members,
        {partition: start for partition, (start, _) in positions.items()},
        {partition: lag for partition, (_, lag) in positions.items() if lag is not None},
    )


def _standing(
    read: _Read,
    partition: PartitionName,
    starts: Mapping[PartitionName, int],
    ends: Mapping[PartitionName, int],
    begins_at_end: bool,
) -> PartitionLag:
    position, end = read.positions.get(partition), ends.get(partition)
    if partition in read.lags:
        return PartitionLag(*partition, position, end, read.lags[partition])
    return partition_lag(partition, position, starts.get(partition), end, begins_at_end=begins_at_end)
