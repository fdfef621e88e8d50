"""What the controller decides to do.

Every action carries the value and the version that it was decided on, and is written only if that version is still the
current one. So two controllers at once, or one that slept, can do nothing that contradicts what happened meanwhile.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from headwater.model.cluster import Reassignment
from headwater.model.ids import LeaderEpoch, NodeId, PartitionId, StoreId
from headwater.model.segments import Head, SealedSegment


@dataclass(frozen=True, slots=True)
class MoveLeader:
    partition: PartitionId
    head: Head
    version: int
    to_node: NodeId
    reason: str

    @property
    def new_head(self) -> Head:
        return replace(self.head, leader=self.to_node, epoch=LeaderEpoch(self.head.epoch + 1))


@dataclass(frozen=True, slots=True)
class AnnounceCopy:
    """First the metadata names the target, so that the target's garbage collection spares what it gets."""

    partition: PartitionId
    sealed: SealedSegment
    version: int
    target: StoreId

    @property
    def new_sealed(self) -> SealedSegment:
        return replace(self.sealed, adding=(self.target,))


@dataclass(frozen=True, slots=True)
class Copy:
    """Have the target pull the segment. It counts for this version of the key only: once the key has changed, the
    target may have been taken off it in between, and its copy collected."""

    partition: PartitionId
    sealed: SealedSegment
    version: int
    target: StoreId
    donors: tuple[StoreId, ...]


@dataclass(frozen=True, slots=True)
class FinishCopy:
    """The target has the segment: it becomes a replica, and replicas that it replaces go."""

    partition: PartitionId
    sealed: SealedSegment
    version: int
    target: StoreId
    replicas: tuple[StoreId, ...]

    @property
    def new_sealed(self) -> SealedSegment:
        return replace(self.sealed, replicas=self.replicas, adding=())


@dataclass(frozen=True, slots=True)
class GiveUpCopy:
    partition: PartitionId
    sealed: SealedSegment
    version: int

    @property
    def new_sealed(self) -> SealedSegment:
        return replace(self.sealed, adding=())


@dataclass(frozen=True, slots=True)
class DropReplicas:
    """The segment has more replicas than it needs. Before it is carried out, `witnesses` are asked whether they hold
    the whole segment: being listed is no proof of it, for a disk may have been damaged since. One witness that does is
    enough."""

    partition: PartitionId
    sealed: SealedSegment
    version: int
    replicas: tuple[StoreId, ...]
    witnesses: tuple[StoreId, ...]

    @property
    def new_sealed(self) -> SealedSegment:
        return replace(self.sealed, replicas=self.replicas)


@dataclass(frozen=True, slots=True)
class FinishReassignment:
    partition: PartitionId
    reassignment: Reassignment
    version: int

    @property
    def new_reassignment(self) -> Reassignment:
        return replace(self.reassignment, is_complete=True)


SealedAction: TypeAlias = AnnounceCopy | FinishCopy | GiveUpCopy | DropReplicas
"""Actions that write a sealed segment's key."""
Action: TypeAlias = MoveLeader | SealedAction | Copy | FinishReassignment
