"""What administrators see of groups: plain values, cut loose from the state machines."""

from dataclasses import dataclass

from headwater.groups.classic import ClassicGroup
from headwater.groups.departures import Departure
from headwater.groups.rebalance import GroupState

CLASSIC = "classic"
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


def describe(group: ClassicGroup) -> DescribedGroup:
    """Metadata and assignments are shown of a stable group only: before that they belong to no generation."""
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
