"""How many partitions and replicas a new topic gets, and which nodes lead them.

Replicas are placed segment by segment, so of a manual assignment the first node of each partition counts, which leads
it, and the number of nodes, which is the replication factor.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class TopicPlan:
    partitions: int
    replication_factor: int
    leaders: Sequence[NodeId] | None = None
    """By partition; None if the broker chooses."""


def assigned_plan(assignment: Sequence[tuple[int, Sequence[NodeId]]], brokers: Collection[NodeId]) -> TopicPlan:
    """The plan for a manual assignment: (partition, its nodes). `brokers` are those that are alive. Raises
    RequestError."""
    nodes = dict(assignment)
    if sorted(nodes) != list(range(len(assignment))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "An assignment numbers its partitions from 0 without gaps."
        )
    sizes = {len(each) for each in nodes.values()}
    if len(sizes) != 1 or 0 in sizes or any(len(set(each)) != len(each) for each in nodes.values()):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "An assignment gives every partition the same number of nodes."
        )
    unknown = sorted({node for each in nodes.values() for node in each}.difference(brokers))
    if unknown:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"There is no broker {unknown[0]}; those that are alive are {', '.join(map(str, sorted(brokers)))}.",
        )
    return TopicPlan(len(nodes), sizes.pop(), [nodes[index][0] for index in range(len(nodes))])
