"""Who moves leaders: chance, and two controllers that run the production planner and know nothing of each other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headwater.model.cluster import TopicRecord
from headwater.model.ids import LeaderEpoch, NodeId
from headwater.model.segments import Head
from headwater.replication.actions import Action, Copy, DropReplicas, MoveLeader, SealedAction
from headwater.replication.cluster_view import ClusterView, Versioned
from headwater.replication.controller import ControllerPlanner, ControllerRules
from headwater.testing.simulation.membership import SimulatedMembership
from headwater.testing.simulation.metadata import HEAD, PARTITION, SEALED, TOPIC, Item, SimulatedMetadata
from headwater.testing.simulation.network import Lost, Process, SimulatedNetwork
from headwater.testing.simulation.swarm import Swarm
from headwater.testing.simulation.world import World

TIMEOUT_S = 0.2
COPY_TIMEOUT_S = 0.5


class Mover(Process):
    """Moves the lead to any broker, dead or alive, for no reason: a wrong guess must cost an election, nothing else."""

    def __init__(self, world: World, network: SimulatedNetwork, metadata: SimulatedMetadata, brokers: int) -> None:
        super().__init__("mover")
        self._world = world
        self._network = network
        self._metadata = metadata
        self._brokers = brokers
        self.is_stopped = False

    def start(self, every_s: float) -> None:
        if self.is_stopped:
            return
        if self._world.now:
            self.move()
        self._world.after(every_s * (0.5 + self._world.random.random()), self.start, every_s)

    def move(self) -> None:
        self._call(self._metadata.get, (HEAD,), self._read)

    def _read(self, item: Item | Lost) -> None:
        if isinstance(item, Lost):
            return
        head: Head = item.value
        moved = replace(
            head, leader=NodeId(self._world.random.randrange(self._brokers)), epoch=LeaderEpoch(head.epoch + 1)
        )
        self._call(self._metadata.txn, ([(HEAD, item.version)], [(HEAD, moved)]), _ignore)

    def _call(self, handler: Callable[..., None], arguments: tuple[Any, ...], answer: Callable[[Any], None]) -> None:
        self._network.call(self, self._metadata, handler, arguments, answer, TIMEOUT_S)


class SimulatedController(Process):
    """Runs the planner on what it can read, and carries out what it decides. Nothing keeps two of them apart but the
    versions in their actions."""

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        metadata: SimulatedMetadata,
        membership: SimulatedMembership,
        swarm: Swarm,
        number: int,
    ) -> None:
        super().__init__(f"controller{number}")
        self._world = world
        self._network = network
        self._metadata = metadata
        self._membership = membership
        self._swarm = swarm
        self._topics = {TOPIC: TopicRecord(TOPIC, "t", 1, swarm.rules.replication_factor)}
        rules = ControllerRules(
            recovery_s=0.2,
            max_recovery_s=1.0,
            stable_s=0.5,
            calm_s=0.5,
            dead_store_s=swarm.dead_store_s,
            max_copies=2,
            copy_retry_s=0.1,
        )
        self._planner = ControllerPlanner(rules)

    def start(self) -> None:
        self._world.after(self._swarm.plan_every_s * (0.5 + self._world.random.random()), self._plan)

    def _plan(self) -> None:
        self.start()
        self._membership.refresh(self)
        self._ask(self._metadata.get, (HEAD,), self._read_head)

    def _read_head(self, item: Any) -> None:
        if isinstance(item, Item) and item.value is not None:
            self._ask(self._metadata.list_below, (SEALED,), lambda sealed: self._read_sealed(item, sealed))

    def _read_sealed(self, head: Item, items: Any) -> None:
        if isinstance(items, Lost):
            return
        nodes = self._membership.view(self).nodes
        suspected = [node for node in sorted(nodes) if self._world.chance(self._swarm.buggify / 5)]
        view = ClusterView(
            nodes=nodes,
            stores=self._membership.records,
            topics=self._topics,
            heads={PARTITION: Versioned(head.value, head.version)},
            sealed={(PARTITION, item.value.id): Versioned(item.value, item.version) for item in items.values()},
            suspected=frozenset(suspected),
        )
        for action in self._planner.plan(view, self._world.now):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case MoveLeader():
                self._world.counts["leaders moved"] += 1
                self._world.note(self.name, "moves leader", action.to_node, action.reason)
                self._write(HEAD, action.version, action.new_head)
            case Copy():
                self._copy(action)
            case DropReplicas():
                self._drop(action, action.witnesses)
            case _ if not isinstance(action, SealedAction):
                raise AssertionError(f"{action} is not carried out here")
            case _:
                self._write_sealed(action)

    def _write_sealed(self, action: SealedAction) -> None:
        kind = type(action).__name__
        self._world.counts[kind] += 1
        self._world.note(self.name, kind, action.sealed.id, action.new_sealed.replicas, action.new_sealed.adding)
        self._write(SEALED + action.sealed.id, action.version, action.new_sealed)

    def _copy(self, copy: Copy) -> None:
        self._planner.copies.started(copy, self._world.now)

        def copied(answer: Any) -> None:
            if answer is None:
                self._world.counts["copies"] += 1
                self._planner.copies.finished(copy)
            else:
                self._planner.copies.failed(copy, self._world.now)

        target = self._membership.by_id[copy.target]
        arguments = (copy.target, copy.sealed, copy.donors, TIMEOUT_S)
        self._network.call(self, target, target.copy, arguments, copied, COPY_TIMEOUT_S)

    def _drop(self, drop: DropReplicas, witnesses: tuple[Any, ...]) -> None:
        if not witnesses:
            return
        witness, sealed = self._membership.by_id[witnesses[0]], drop.sealed

        def testified(answer: Any) -> None:
            if isinstance(answer, tuple):
                self._write_sealed(drop)
            else:
                self._drop(drop, witnesses[1:])

        arguments = (witnesses[0], sealed.id, sealed.base, sealed.end)
        self._network.call(self, witness, witness.read, arguments, testified, TIMEOUT_S)

    def _write(self, key: str, version: int, value: Any) -> None:
        self._ask(self._metadata.txn, ([(key, version)], [(key, value)]), _ignore)

    def _ask(self, handler: Callable[..., None], arguments: tuple[Any, ...], answer: Callable[[Any], None]) -> None:
        self._network.call(self, self._metadata, handler, arguments, answer, TIMEOUT_S)


def _ignore(answer: Any) -> None:
    """The next read tells."""
