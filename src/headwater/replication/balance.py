"""Leaders that could be better placed, though nothing is broken: off a node that is being emptied, to where a
reassignment wants them, and evenly over the brokers.

Each move interrupts a partition for a moment, so only a share of them moves in one round, and brokers that differ by
one are even. Partitions that an administrator placed stay where they were placed. Internal topics come last: their
leaders are coordinators, and whole groups and transactions wait while one moves.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from headwater.model.cluster import INTERNAL_TOPICS, Node
from headwater.model.ids import NodeId, PartitionId
from headwater.model.segments import Head
from headwater.replication.actions import MoveLeader
from headwater.replication.cluster_view import ClusterView, Versioned, is_recovering
from headwater.replication.elections import Elections

LOOK_AHEAD = 64
"""Among how many partitions of a crowded broker one is looked for whose data the receiver has."""


def moves(
    view: ClusterView, elections: Elections, led: Counter[NodeId], limit: int, even_limit: int
) -> list[MoveLeader]:
    """At most `limit`, each for a partition that has a working leader, and at most `even_limit` for no other reason
    than to even leaders out. `led` is kept up to date."""
    steady = {
        partition: head
        for partition, head in view.heads.items()
        if partition.topic_id in view.topics and view.can_lead(head.value.leader) and not is_recovering(head.value)
    }
    receivers = [node for node in view.brokers if not view.is_emptying(node.node_id)]
    if not receivers:
        return []
    found = _off_emptying_nodes(view, elections, led, steady, receivers, limit)
    found += _to_preferred_nodes(view, elections, led, steady, limit - len(found))
    return found or _evened_out(view, elections, led, steady, receivers, even_limit)


def preferred_leader(view: ClusterView, partition: PartitionId, leader: NodeId) -> list[Node]:
    """The broker that a reassignment wants as leader: the first of its nodes that can lead; empty if `leader` will
    do."""
    reassignment = view.reassignments.get(partition)
    if reassignment is None:
        return []
    able = [node for node in reassignment.value.nodes if view.can_lead(node) and not view.is_emptying(node)]
    return [view.nodes[able[0]]] if able and able[0] != leader else []


def _off_emptying_nodes(
    view: ClusterView,
    elections: Elections,
    led: Counter[NodeId],
    steady: dict[PartitionId, Versioned[Head]],
    receivers: Sequence[Node],
    limit: int,
) -> list[MoveLeader]:
    emptying = {node.node_id for node in view.brokers if view.is_emptying(node.node_id)}
    leaving = [(partition, head) for partition, head in steady.items() if head.value.leader in emptying]
    moved = (elections.move(view, *item, led, receivers, "node is emptied") for item in sorted(leaving)[:limit])
    return [move for move in moved if move is not None]


def _to_preferred_nodes(
    view: ClusterView,
    elections: Elections,
    led: Counter[NodeId],
    steady: dict[PartitionId, Versioned[Head]],
    limit: int,
) -> list[MoveLeader]:
    found: list[MoveLeader] = []
    for partition, reassignment in sorted(view.reassignments.items(), key=lambda item: item[0]):
        head = steady.get(partition)
        if len(found) >= limit:
            break
        if head is None or (reassignment.value.is_complete and head.value.leader in reassignment.value.nodes):
            continue
        preferred = preferred_leader(view, partition, head.value.leader)
        move = elections.move(view, partition, head, led, preferred, "reassigned")
        if move is not None:
            found.append(move)
    return found


def _evened_out(
    view: ClusterView,
    elections: Elections,
    led: Counter[NodeId],
    steady: dict[PartitionId, Versioned[Head]],
    receivers: Sequence[Node],
    limit: int,
) -> list[MoveLeader]:
    by_id = {node.node_id: node for node in receivers}
    queues: dict[NodeId, tuple[list[PartitionId], list[PartitionId]]] = {}
    found: list[MoveLeader] = []
    while len(found) < limit:
        most = min(by_id, key=lambda node: (-led[node], node))
        least = min(by_id, key=lambda node: (led[node], node))
        if led[most] - led[least] <= 1:
            break
        if most not in queues:
            queues[most] = _crowded_first(view, steady, most)
        ordinary, internal = queues[most]
        partition = _take(ordinary, steady, by_id[least]) or _take(internal, steady, by_id[least])
        if partition is None:
            break
        move = elections.move(view, partition, steady[partition], led, [by_id[least]], "leaders evened out")
        assert move is not None, "the receiver is another node than the leader"
        found.append(move)
    return found


def _crowded_first(
    view: ClusterView, steady: dict[PartitionId, Versioned[Head]], node: NodeId
) -> tuple[list[PartitionId], list[PartitionId]]:
    """The partitions that a node leads, of ordinary and of internal topics; those of the topics it leads most of first:
    topics spread, too."""
    by_topic = defaultdict(list)
    for partition, head in sorted(steady.items(), key=lambda item: item[0]):
        if head.value.leader == node and partition not in view.reassignments:
            by_topic[partition.topic_id].append(partition)
    ranked = [
        (-(len(partitions) - taken), partition)
        for partitions in by_topic.values()
        for taken, partition in enumerate(partitions)
    ]
    in_order = [partition for _, partition in sorted(ranked)]
    internal = {topic_id for topic_id in by_topic if view.topics[topic_id].name in INTERNAL_TOPICS}
    ordinary = [partition for partition in in_order if partition.topic_id not in internal]
    return ordinary, [partition for partition in in_order if partition.topic_id in internal]


def _take(queue: list[PartitionId], steady: dict[PartitionId, Versioned[Head]], receiver: Node) -> PartitionId | None:
    stores = set(receiver.store_ids)
    for index, partition in enumerate(queue[:LOOK_AHEAD]):
        segment = steady[partition].value.open
        if segment is not None and not stores.isdisjoint(segment.replicas):
            return queue.pop(index)
    return queue.pop(0) if queue else None
