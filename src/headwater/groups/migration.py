"""A live group from classic to consumer group, and back (KIP-848).

Both ways keep the members, what each has, and the number that members call generation or epoch, so that members that
do not know of it go on with their next heartbeat.
"""

from collections.abc import Iterator

from headwater.groups.assignment import Assignment, of_partitions
from headwater.groups.classic import ClassicGroup
from headwater.groups.consumer import ConsumerGroup
from headwater.groups.consumer_events import (
    ClassicPart,
    ConsumerEvent,
    ConsumerGroupStored,
    ConsumerMemberStored,
    CurrentStored,
    TargetEpochStored,
    TargetStored,
)
from headwater.groups.consumer_protocol import read_assignment, read_subscription, with_ids, write_assignment
from headwater.groups.events import GroupStored, StoredMember
from headwater.groups.members import ClassicMember
from headwater.groups.settings import GroupSettings
from headwater.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from headwater.groups.topics import TopicTable
from headwater.model.ids import TopicId
from headwater.model.moment import Moment


def can_upgrade(group: ClassicGroup, settings: GroupSettings) -> bool:
    """Whether the policy allows it, and the metadata of all members can be read: only consumers' can."""
    return (
        settings.migration_policy.allows_upgrade
        and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(group.members) < settings.consumer_max_members
        and all(read_subscription(member.protocols[0].metadata) is not None for member in group.members)
    )


def upgraded(group: ClassicGroup, topics: TopicTable) -> Iterator[ConsumerEvent]:
    """What to log for the consumer group, after the classic group was deleted."""
    group_id, epoch = group.group_id, group.generation
    taken: set[tuple[TopicId, int]] = set()
    for member in group.members:
        yield _consumer_member(group_id, member)
        assigned = _first_claims(with_ids(read_assignment(member.assignment), topics), taken)
        yield TargetStored(group_id, member.member_id, assigned)
        yield CurrentStored(
            group_id=group_id, member_id=member.member_id, epoch=epoch, previous_epoch=epoch, assigned=assigned
        )
    yield TargetEpochStored(group_id, epoch)
    yield ConsumerGroupStored(group_id, epoch, 0)


def downgraded(group: ConsumerGroup, topics: TopicTable, now: Moment) -> GroupStored:
    """What to log for the classic group, after the consumer group was deleted. All members are classic."""
    stored = group.stored
    protocol = _shared_protocol(group)
    members = []
    for member in stored.members.values():
        assert member.classic is not None, "a group goes back when all its members are classic"
        members.append(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                subscription=dict(member.classic.protocols).get(protocol, b""),
                assignment=write_assignment(stored.current(member.member_id).assigned, topics),
            )
        )
    return GroupStored(
        group_id=group.group_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=stored.epoch,
        protocol=protocol,
        leader=members[0].member_id,
        state_timestamp_ms=now.wall_ms,
        members=tuple(members),
    )


def emptied(group: ConsumerGroup, now: Moment) -> GroupStored:
    """What to log for a classic group that replaces an empty consumer group: its generations go on from the epoch."""
    return GroupStored(
        group_id=group.group_id,
        protocol_type="",
        generation=group.stored.epoch,
        protocol=None,
        leader=None,
        state_timestamp_ms=now.wall_ms,
        members=(),
    )


def protocols_of(group: ConsumerGroup) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """All protocols of each member: the record of a classic group has the metadata of the chosen one only."""
    return {
        member_id: member.classic.protocols
        for member_id, member in group.stored.members.items()
        if member.classic is not None
    }


def _consumer_member(group_id: str, member: ClassicMember) -> ConsumerMemberStored:
    subscription = read_subscription(member.protocols[0].metadata)
    assert subscription is not None, "a group is upgraded when all its members can be read"
    protocols = tuple((protocol.name, protocol.metadata) for protocol in member.protocols)
    return ConsumerMemberStored(
        group_id=group_id,
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topics,
        topic_regex=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicPart(member.session_timeout_ms, protocols),
    )


def _first_claims(assigned: Assignment, taken: set[tuple[TopicId, int]]) -> Assignment:
    """The partitions that no earlier member has: a leader may have assigned one twice, here it has one owner."""
    pairs = {(topic_id, index) for topic_id, indexes in assigned.items() for index in indexes} - taken
    taken |= pairs
    return of_partitions(pairs)


def _shared_protocol(group: ConsumerGroup) -> str:
    offers = list(protocols_of(group).values())
    shared = [name for name, _ in offers[0] if all(name in dict(each) for each in offers[1:])]
    return next(iter(shared), "")  # A join checks that there is one, but another program may have written these bytes.
