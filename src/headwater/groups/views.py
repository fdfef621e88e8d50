"""Descriptions of groups for administrators: plain values, independent of the state machines."""

from dataclasses import dataclass

from headwater.groups.assignment import Assignment
from headwater.groups.classic import ClassicGroup
from headwater.groups.consumer import ConsumerGroup
from headwater.groups.departures import Departure
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


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group_id: str
    state: GroupState
    protocol_type: str = ""
    protocol: str = ""
    generation: int = 0
    leader: str = ""
    members: tuple[DescribedMember, ...] = ()
    departures: tuple[Departure, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedPartitions:
    topic_id: TopicId
    topic: str
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
        group.group_id,
        group.state,
        group.protocol_type,
        (group.protocol or "") if is_stable else "",
        group.generation,
        group.members.leader or "",
        tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if is_stable else b"",
                member.assignment if is_stable else b"",
            )
            for member in group.members
        ),
        tuple(group.departures),
    )


def describe_consumer(group: ConsumerGroup, topics: TopicTable) -> DescribedConsumerGroup:
    stored = group.stored
    return DescribedConsumerGroup(
        group.group_id,
        group.state,
        stored.epoch,
        stored.target_epoch,
        group.membership.assignor(),
        tuple(
            DescribedConsumer(
                member.member_id,
                member.instance_id,
                member.rack_id,
                stored.current(member.member_id).epoch,
                member.client_id,
                member.client_host,
                member.topic_names,
                member.topic_regex,
                member.classic is not None,
                _partitions(stored.current(member.member_id).assigned, topics),
                _partitions(stored.target(member.member_id), topics),
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
