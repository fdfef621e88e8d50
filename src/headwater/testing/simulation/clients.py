"""Producers that send a batch until it is acknowledged, and a reader that asks any replica and any broker."""

from typing import Any

from headwater.model.ids import Offset
from headwater.model.segments import SealedSegment
from headwater.testing.simulation.broker import SimulatedBroker
from headwater.testing.simulation.invariants import Invariants
from headwater.testing.simulation.membership import SimulatedMembership
from headwater.testing.simulation.metadata import SEALED, SimulatedMetadata
from headwater.testing.simulation.network import Process, SimulatedNetwork
from headwater.testing.simulation.swarm import Swarm
from headwater.testing.simulation.world import World

TIMEOUT_S = 0.4


class SimulatedProducer(Process):
    """Idempotent: each batch has a sequence number, and is sent until it is acknowledged."""

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        brokers: list[SimulatedBroker],
        invariants: Invariants,
        swarm: Swarm,
        number: int,
    ) -> None:
        super().__init__(f"producer{number}")
        self._world = world
        self._network = network
        self._brokers = brokers
        self._invariants = invariants
        self._swarm = swarm
        self._number = number
        self._next = 0
        self._in_flight = 0
        self._leader = brokers[0]
        self.is_stopped = False

    def start(self) -> None:
        self._world.after(self._swarm.produce_every_s * self._world.random.random(), self._send_next)

    def _send_next(self) -> None:
        if self.is_stopped:
            return
        if self._in_flight < self._swarm.in_flight:
            self._in_flight += 1
            self._next += 1
            self._send(self._next - 1, 1 if self._world.chance(0.7) else self._world.random.randint(2, 5))
        self._world.after(self._swarm.produce_every_s * (0.5 + self._world.random.random()), self._send_next)

    def _send(self, sequence: int, records: int) -> None:
        leader = self._leader

        def answered(answer: Any) -> None:
            if isinstance(answer, int):
                self._invariants.acked(self._number, sequence, Offset(answer))
                self._world.counts["acknowledged"] += 1
                self._in_flight -= 1
                return
            if self.is_stopped:
                return
            if leader is self._leader and self._world.chance(0.7):
                self._leader = self._world.random.choice(self._brokers)
            self._world.after(0.01 + 0.03 * self._world.random.random(), self._send, sequence, records)

        arguments = (self._number, sequence, records)
        self._network.call(self, leader, leader.produce, arguments, answered, TIMEOUT_S)


class SimulatedReader(Process):
    """Reads sealed segments from any replica that is listed, and the tail from any broker that says it leads."""

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        metadata: SimulatedMetadata,
        membership: SimulatedMembership,
        brokers: list[SimulatedBroker],
        invariants: Invariants,
        swarm: Swarm,
    ) -> None:
        super().__init__("reader")
        self._world = world
        self._network = network
        self._metadata = metadata
        self._membership = membership
        self._brokers = brokers
        self._invariants = invariants
        self._swarm = swarm
        self.is_stopped = False

    def start(self) -> None:
        self._world.after(0.05, self._read_some)

    def _read_some(self) -> None:
        if self.is_stopped:
            return
        self._network.call(self, self._metadata, self._metadata.list_below, (SEALED,), self._listed, TIMEOUT_S)
        broker = self._world.random.choice(self._brokers)
        offset = max(0, self._invariants.exposed_end - self._world.random.randint(0, 20))
        self._network.call(self, broker, broker.fetch, (offset,), self._fetched, TIMEOUT_S)
        self._world.after(self._swarm.read_every_s * (0.5 + self._world.random.random()), self._read_some)

    def _listed(self, answer: Any) -> None:
        if not isinstance(answer, dict) or not answer:
            return
        segment: SealedSegment = answer[self._world.random.choice(sorted(answer))].value
        if not segment.replicas:
            return
        store_id = self._world.random.choice(segment.replicas)
        store = self._membership.by_id[store_id]
        arguments = (store_id, segment.id, segment.base, segment.end)
        self._network.call(self, store, store.read, arguments, self._read, TIMEOUT_S)

    def _read(self, answer: Any) -> None:
        if isinstance(answer, tuple):
            self._invariants.read("a sealed segment", answer[1])
            self._world.counts["sealed segments read"] += 1

    def _fetched(self, answer: Any) -> None:
        if isinstance(answer, list):
            self._invariants.read("a leader", answer)
            self._world.counts["fetches"] += 1
