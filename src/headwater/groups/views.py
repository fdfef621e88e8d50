"""Descriptions of groups for administrators: plain values, independent of the state machines."""

from dataclasses import dataclass

from headwater.groups.assignment import Assignment
from headwater.groups.classic import ClassicGroup
from headwater.groups.consumer import ConsumerGroup
from headwater.groups.departures import MemberDeparture
from headwater.groups.rebalance import GroupState
from headwater.groups.topics import TopicTable
from headwater.model.ids import TopicId

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: GroupState
    kind: str = CLASSIC


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    group_id: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""
    generation: int = 0
    leader: str = ""
    members: tuple[DescribedMember, ...] = ()
    departures: tuple[MemberDeparture, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedPartitions:
    topic_id: TopicId
    topic: str
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumer:
    """A member of a consumer group."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    is_classic: bool
    assigned: tuple[DescribedPartitions, ...]
    target: tuple[DescribedPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    group_id: str
    state: GroupState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


def describe(group: ClassicGroup) -> DescribedGroup:
    """Metadata and assignments are shown for a stable group only: before that they belong to no generation."""
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=(group.protocol or "") if is_stable else "",
        generation=group.generation,
        leader=group.members.leader or "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members
        ),
        departures=tuple(group.departures),
    )


def describe_consumer(group: ConsumerGroup, topics: TopicTable) -> DescribedConsumerGroup:
    stored = group.stored
    return DescribedConsumerGroup(
        group_id=group.group_id,
        state=group.state,
        epoch=stored.epoch,
        target_epoch=stored.target_epoch,
        assignor=group.membership.assignor(),
        members=tuple(
            DescribedConsumer(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                epoch=stored.current(member.member_id).epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                topic_names=member.topic_names,
                topic_regex=member.topic_regex,
                is_classic=member.classic is not None,
                assigned=_partitions(stored.current(member.member_id).assigned, topics),
                target=_partitions(stored.target(member.member_id), topics),
            )
            for member in stored.members.values()
        ),
    )


def _partitions(assignment: Assignment, topics: TopicTable) -> tuple[DescribedPartitions, ...]:
    """Deleted topics have no name to show, and are left out."""
    known = [topic for topic in map(topics.find_id, assignment) if topic is not None]
    return tuple(
        DescribedPartitions(topic.topic_id, topic.name, tuple(sorted(assignment[topic.topic_id]))) for topic in known
    )
