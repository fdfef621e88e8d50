"""How far a reassignment is: which nodes still have to get something, and which still have to give it up."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.model.ids import NodeId, PartitionId
from headwater.model.segments import SealedSegment
from headwater.replication.actions import FinishReassignment
from headwater.replication.cluster_view import ClusterView, is_recovering


@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    replicas: tuple[NodeId, ...]
    """Every node that holds something of the partition or is to hold it: the nodes that the reassignment names
    first."""
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


def progress(view: ClusterView, partition: PartitionId, sealed: Sequence[SealedSegment]) -> ReassignmentProgress | None:
    """None if none is under way. `sealed` are all sealed segments of the partition."""
    reassignment, head = view.reassignments.get(partition), view.heads.get(partition)
    if reassignment is None or reassignment.value.is_complete or head is None:
        return None
    targets = reassignment.value.nodes
    holders = [frozenset(view.nodes_of(segment.replicas)) for segment in sealed]
    if head.value.open is not None:
        holders.append(frozenset(view.nodes_of(head.value.open.replicas)))
    removing = tuple(sorted(frozenset().union(*holders).difference(targets)))
    adding = tuple(node for node in targets if not all(node in nodes for nodes in holders))
    return ReassignmentProgress((*targets, *removing), adding, removing)


def finished(view: ClusterView) -> Iterator[FinishReassignment]:
    """The reassignments that are carried out. Segments that were not read yet do no harm: the next round copies them
    as repair does, to the nodes that are preferred."""
    assert view.sealed is not None, "reassignments end when the sealed segments are known"
    pending = [partition for partition, item in view.reassignments.items() if not item.value.is_complete]
    if not pending:
        return
    segments = defaultdict(list)
    for (partition, _), item in view.sealed.items():
        segments[partition].append(item.value)
    for partition in sorted(pending):
        state = progress(view, partition, segments[partition])
        is_busy = any(segment.adding for segment in segments[partition])
        if state is None or is_busy or is_recovering(view.heads[partition].value):
            continue
        if not state.adding and not state.removing:
            done = view.reassignments[partition]
            yield FinishReassignment(partition, done.value, done.version)
