"""Who takes over a partition whose leader is gone, or does not get it going.

A new leader has some seconds to recover the partition and publish a segment. If it does not, the next candidate gets
its turn, and more time: each move doubles it, so that slow candidates do not duel, each undone by the next. Who had a
turn lately comes last.

A leader that takes over thousands of partitions gets to some of them late. As long as it gets others going it is busy
and not stuck, and time begins anew, within limits.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headwater.model.cluster import Node
from headwater.model.ids import LeaderEpoch, NodeId, PartitionId
from headwater.model.segments import Head
from headwater.replication.actions import MoveLeader
from headwater.replication.cluster_view import ClusterView, Versioned, is_recovering
from headwater.replication.placement import LeaderCandidate, choose_leader

REMEMBERED_CANDIDATES = 16
BUSY_S_PER_PARTITION = 0.1
"""What a leader that is busy gets at most, beside the longest time of a single recovery, for each that it has to do."""


@dataclass(frozen=True, slots=True)
class _Candidacy:
    """A leader that has not published yet."""

    epoch: LeaderEpoch
    leader: NodeId
    since: float
    earlier: tuple[NodeId, ...]
    """Who failed since the last segment was published, the latest last."""
    count: int


class Elections:
    def __init__(self, recovery_s: float, max_recovery_s: float) -> None:
        self._recovery_s = recovery_s
        self._max_recovery_s = max_recovery_s
        self._candidacies: dict[PartitionId, _Candidacy] = {}
        self._recovering: Counter[NodeId] = Counter()
        self._progressed: dict[NodeId, float] = {}
        """When each leader that has more to recover last got a partition going."""

    def observe(self, view: ClusterView, now: float) -> None:
        """Remember whose turn it is. To observe the same twice changes nothing."""
        candidacies = {}
        for partition, head in view.heads.items():
            if is_recovering(head.value):
                candidacies[partition] = _next_candidacy(self._candidacies.get(partition), head.value, now)
            elif (candidacy := self._candidacies.get(partition)) is not None and candidacy.epoch == head.value.epoch:
                self._progressed[candidacy.leader] = now
        self._candidacies = candidacies
        self._recovering = Counter(candidacy.leader for candidacy in candidacies.values())
        self._progressed = {node: at for node, at in self._progressed.items() if node in self._recovering}

    def began_within(self, seconds: float, now: float) -> bool:
        """Whether some partition changed hands so recently."""
        return any(now - candidacy.since < seconds for candidacy in self._candidacies.values())

    def needs_leader(self, view: ClusterView, partition: PartitionId, head: Head, now: float) -> str | None:
        """Why a partition must get another leader now."""
        if not view.can_lead(head.leader):
            return "leader gone"
        if view.nodes[head.leader].is_leaving:
            return "leader leaves"
        candidacy = self._candidacies.get(partition)
        if candidacy is None or candidacy.epoch != head.epoch:
            return None
        timeout_s = min(self._recovery_s * 2 ** (candidacy.count - 1), self._max_recovery_s)
        is_hopeless = head.open is not None and not any(
            (info := view.store_infos.get(store)) is not None and info.is_alive for store in head.open.replicas
        )
        # Without a single replica no other node could do better: the leader waits for one to come back.
        return "recovery overdue" if self._is_overdue(candidacy, timeout_s, now) and not is_hopeless else None

    def _is_overdue(self, candidacy: _Candidacy, timeout_s: float, now: float) -> bool:
        if now - candidacy.since < timeout_s:
            return False
        most_s = self._max_recovery_s + BUSY_S_PER_PARTITION * self._recovering[candidacy.leader]
        return (
            now - self._progressed.get(candidacy.leader, candidacy.since) >= timeout_s
            or now - candidacy.since >= most_s
        )

    def move(
        self,
        view: ClusterView,
        partition: PartitionId,
        head: Versioned[Head],
        led: Counter[NodeId],
        among: Sequence[Node],
        reason: str,
    ) -> MoveLeader | None:
        """To the best of `among`; None if there is no other node. `led` counts what each leads, and is kept current."""
        others = [node for node in among if node.node_id != head.value.leader]
        replicas = head.value.open.replicas if head.value.open is not None else ()
        candidates = [LeaderCandidate(it.node_id, led[it.node_id], _holds_open(it, replicas)) for it in others]
        chosen = choose_leader(candidates, self._recent(partition, len(others)), str(partition))
        if chosen is None:
            return None
        led[head.value.leader] -= 1
        led[chosen] += 1
        return MoveLeader(partition, head.value, head.version, chosen, reason)

    def _recent(self, partition: PartitionId, others: int) -> frozenset[NodeId]:
        """Nodes to leave out because they tried lately: at least one of the others must remain."""
        candidacy = self._candidacies.get(partition)
        return frozenset(candidacy.earlier[-(others - 1) :]) if candidacy is not None and others > 1 else frozenset()


def _next_candidacy(candidacy: _Candidacy | None, head: Head, now: float) -> _Candidacy:
    if candidacy is None:
        return _Candidacy(head.epoch, head.leader, now, (), 1)
    if candidacy.epoch == head.epoch:
        return candidacy
    earlier = (*(node for node in candidacy.earlier if node != candidacy.leader), candidacy.leader)[
        -REMEMBERED_CANDIDATES:
    ]
    return _Candidacy(head.epoch, head.leader, now, earlier, candidacy.count + 1)


def _holds_open(node: Node, replicas: Collection[str]) -> bool:
    return any(store.store_id in replicas and not store.in_doubt for store in node.stores)
