"""The groups of one shard and their views: the shard decides, this table keeps the state.

A group is of one kind at a time. An event of another kind replaces it by a group of that kind, so that a log in which
a group changed its kind ends with the last.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from headwater.groups.classic import ClassicGroup
from headwater.groups.consumer import ConsumerGroup
from headwater.groups.consumer_events import ConsumerEvent, ConsumerGroupDeleted, ConsumerStored
from headwater.groups.departures import MemberDeparture
from headwater.groups.events import (
    CommittedOffset,
    Event,
    GroupDeleted,
    GroupStored,
    OffsetCommitted,
    OffsetDeleted,
    PendingOffsetDeleted,
    PendingOffsetStored,
    ShareGroupDeleted,
    ShareGroupStored,
    ShareMemberDeleted,
    ShareMemberStored,
)
from headwater.groups.offset_table import OffsetTable
from headwater.groups.rebalance import GroupState
from headwater.groups.settings import GroupSettings
from headwater.groups.share_groups import ShareGroupTable
from headwater.groups.topics import TopicTable
from headwater.groups.views import (
    CLASSIC,
    CONSUMER,
    SHARE,
    DescribedConsumerGroup,
    DescribedGroup,
    ListedGroup,
    describe,
    describe_consumer,
)
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionName

Group: TypeAlias = ClassicGroup | ConsumerGroup
DurableState: TypeAlias = tuple[
    dict[str, Any],
    dict[str, dict[PartitionName, CommittedOffset]],
    dict[tuple[str, PartitionName], tuple[PendingOffsetStored, ...]],
]


class GroupTable:
    def __init__(self, settings: GroupSettings, topics: TopicTable) -> None:
        self._settings = settings
        self._topics = topics
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetTable(settings)
        """Kept apart from the groups: offsets outlive a group's kind, and a consumer that assigns itself has no
        group."""
        self.share = ShareGroupTable()

    def apply(self, event: Event) -> None:
        match event:
            case OffsetCommitted() | OffsetDeleted() | PendingOffsetStored() | PendingOffsetDeleted():
                self.offsets.apply(event)
            case GroupStored():
                self.classic_group(event.group_id).apply(event)
            case GroupDeleted():
                if isinstance(self.groups.get(event.group_id), ClassicGroup):
                    del self.groups[event.group_id]
            case ShareGroupStored() | ShareGroupDeleted() | ShareMemberStored() | ShareMemberDeleted():
                self.share.apply(event)
            case _:
                self._apply_consumer(event)

    def _apply_consumer(self, event: ConsumerEvent) -> None:
        if isinstance(event, ConsumerStored):
            self.consumer_group(event.group_id).apply(event)
            return
        group = self.groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            group.apply(event)
            if isinstance(event, ConsumerGroupDeleted):
                del self.groups[event.group_id]

    def classic_group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings)
        return group

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self.groups[group_id] = ConsumerGroup(group_id, self._settings, self._topics)
        return group

    def durable_state(self) -> DurableState:
        """What a replay of the log would bring back: groups, committed offsets, pending offsets."""
        stored: dict[str, Any] = {}
        for group_id, group in self.groups.items():
            if isinstance(group, ConsumerGroup):
                stored[group_id] = group.stored.durable()
            elif group.stored is not None:
                stored[group_id] = group.stored
        committed = {
            group_id: {(topic, partition): each for topic, partition, each in self.offsets.committed(group_id)}
            for group_id in self.offsets
        }
        pending = {
            (group_id, partition): tuple(self.offsets.pending.at(group_id, *partition))
            for group_id in self.offsets.pending.group_ids()
            for partition in self.offsets.pending.partitions(group_id)
        }
        return stored, committed, pending

    def group_ids(self) -> list[str]:
        return [*self.groups, *(group_id for group_id in self.offsets if group_id not in self.groups)]

    def listed(self) -> Iterator[ListedGroup]:
        for group_id in self.group_ids():
            group = self.groups.get(group_id)
            if group is None:
                yield ListedGroup(group_id, "", GroupState.EMPTY)
            else:
                kind = CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC
                yield ListedGroup(group_id, group.protocol_type, group.state, kind)
        for share in self.share:
            yield ListedGroup(share.group_id, SHARE, share.state, SHARE)

    def described(self, group_id: str) -> DescribedGroup:
        """A classic group; one that is unknown, or of another kind, is described as dead."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return describe(group)
        is_simple = group is None and group_id in self.offsets
        return DescribedGroup(group_id=group_id, state=GroupState.EMPTY if is_simple else GroupState.DEAD)

    def described_consumer(self, group_id: str) -> DescribedConsumerGroup:
        """A consumer group. Raises RequestError if it is none."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return describe_consumer(group, self._topics)
        is_known = group is not None or group_id in self.offsets or group_id in self.share
        reason = "is not a consumer group" if is_known else "not found"
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")

    def departures(self) -> Iterator[MemberDeparture]:
        """The departures of all groups, group by group, the oldest first."""
        for group in self.groups.values():
            yield from group.departures
        for share_group in self.share:
            yield from share_group.departures
