"""The controller's decisions: from what is known of the cluster to what should be done next.

`plan` may be called at any time and as often as one likes: the same view at the same moment gives the same actions, and
what was done already is not in the next view any more. It remembers only how long things have been as they are.
Nothing is lost when a controller is: the next one sees the same keys and learns the times anew.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.model.cluster import Node
from headwater.model.ids import NodeId, PartitionId
from headwater.replication import balance, reassignment
from headwater.replication.actions import Action, MoveLeader
from headwater.replication.cluster_view import ClusterView
from headwater.replication.copies import CopyLedger
from headwater.replication.elections import Elections
from headwater.replication.repair import Repair, RepairLimits


@dataclass(frozen=True, slots=True)
class ControllerRules:
    recovery_s: float = 5.0
    """How long the first candidate may take to publish; each further one gets twice as long."""
    max_recovery_s: float = 40.0
    stable_s: float = 3.0
    """Leaders leave nodes that are emptied, and go where a reassignment wants them, when no partition has changed hands
    and no broker has come or gone for so long."""
    calm_s: float = 60.0
    """Leaders are evened out when no broker has come or gone and no leader was missed for so long: in the middle of
    troubles each move is one more."""
    even_moves: int = 5
    """So many move at a time to be evened out; the next follow when these are led."""
    evens_out_leaders: bool = True
    """Otherwise they stay where failovers left them; draining a node and reassigning its partitions still work."""
    balance_share: int = 20
    """One in so many partitions moves in one round of emptying nodes and of reassigning."""
    max_moves: int = 1_000
    """In one plan."""
    dead_store_s: float = 600.0
    """A store that is away for so long is replaced. Shorter than this is a restart, and nothing is copied for it."""
    max_copies: int = 4
    copy_bytes_per_s: int = 50 * 1024 * 1024
    copy_retry_s: float = 30.0
    """A store that failed to copy a segment is not asked again for so long."""


class ControllerPlanner:
    def __init__(self, rules: ControllerRules) -> None:
        self.rules = rules
        self.copies = CopyLedger(rules.copy_bytes_per_s, rules.copy_retry_s)
        """The outcome of each Copy is reported to it."""
        self._elections = Elections(rules.recovery_s, rules.max_recovery_s)
        self._repair = Repair(_limits(rules), self.copies)
        self._brokers: tuple[NodeId, ...] = ()
        self._brokers_since = float("-inf")
        self._stirred_at = float("-inf")
        """When a broker last came or went, or a leader was missed."""

    def configure(self, rules: ControllerRules, now: float) -> None:
        """Other rules from now on."""
        self.rules = rules
        self.copies.limit(rules.copy_bytes_per_s, now)
        self._repair.limits = _limits(rules)

    def plan(self, view: ClusterView, now: float) -> list[Action]:
        """What to do now, the most urgent first."""
        self._observe(view, now)
        led = _led(view)
        moves = self._failovers(view, led, now)
        if moves:
            self._stirred_at = now
        elif self._is_stable(now):
            is_calm = now - self._stirred_at >= self.rules.calm_s
            even_moves = self.rules.even_moves if is_calm and self.rules.evens_out_leaders else 0
            moves = balance.moves(view, self._elections, led, self._moves_per_round(view), even_moves)
        if view.sealed is None:
            return [*moves]
        return [*moves, *self._repair.plan(view, now), *reassignment.finished(view)]

    def elect(self, view: ClusterView, partitions: Sequence[PartitionId], now: float) -> list[MoveLeader]:
        """Elections for these partitions, on request. Partitions whose leaders will do are left out."""
        self._observe(view, now)
        led = _led(view)
        moves = (self._elect(view, partition, led, now) for partition in partitions)
        return [move for move in moves if move is not None]

    def _elect(self, view: ClusterView, partition: PartitionId, led: Counter[NodeId], now: float) -> MoveLeader | None:
        head = view.heads.get(partition)
        if head is None or partition.topic_id not in view.topics:
            return None
        leader = head.value.leader
        reason = self._elections.needs_leader(view, partition, head.value, now)
        if reason is not None or view.is_emptying(leader):
            return self._elections.move(view, partition, head, led, _receivers(view), reason or "asked for")
        preferred = balance.preferred_leader(view, partition, leader)
        if not preferred and partition not in view.reassignments:
            preferred = [node for node in _receivers(view) if led[leader] - led[node.node_id] > 1]
        return self._elections.move(view, partition, head, led, preferred, "asked for")

    def _observe(self, view: ClusterView, now: float) -> None:
        self._elections.observe(view, now)
        self._repair.observe(view, now)
        brokers = tuple(node.node_id for node in view.brokers)
        if brokers != self._brokers:
            self._brokers, self._brokers_since, self._stirred_at = brokers, now, now

    def _is_stable(self, now: float) -> bool:
        is_calm = now - self._brokers_since >= self.rules.stable_s
        return is_calm and not self._elections.began_within(self.rules.stable_s, now)

    def _moves_per_round(self, view: ClusterView) -> int:
        return min(max(len(view.heads) // self.rules.balance_share, 1), self.rules.max_moves)

    def _failovers(self, view: ClusterView, led: Counter[NodeId], now: float) -> list[MoveLeader]:
        receivers = _receivers(view)
        failing = [
            (partition, reason)
            for partition, head in view.heads.items()
            if (reason := self._elections.needs_leader(view, partition, head.value, now)) is not None
            and partition.topic_id in view.topics
        ]
        moves: list[MoveLeader] = []
        for partition, reason in sorted(failing):
            move = self._elections.move(view, partition, view.heads[partition], led, receivers, reason)
            if move is not None:
                moves.append(move)
            if len(moves) == self.rules.max_moves:
                break
        return moves


def _limits(rules: ControllerRules) -> RepairLimits:
    return RepairLimits(rules.max_copies, rules.dead_store_s)


def _led(view: ClusterView) -> Counter[NodeId]:
    return Counter(head.value.leader for head in view.heads.values())


def _receivers(view: ClusterView) -> Sequence[Node]:
    """Brokers that are not being emptied, or, if there is no other, all brokers."""
    staying = [node for node in view.brokers if not view.is_emptying(node.node_id)]
    return staying or view.brokers
