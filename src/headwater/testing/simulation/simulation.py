"""One run: build a cluster from a seed, let everything go wrong for a while, heal it, and look at what is left."""

from collections import Counter
from dataclasses import dataclass

from headwater.model.ids import FIRST_OFFSET, LeaderEpoch, NodeId
from headwater.model.segments import Head
from headwater.testing.simulation.broker import SimulatedBroker
from headwater.testing.simulation.clients import SimulatedProducer, SimulatedReader
from headwater.testing.simulation.collector import Collector
from headwater.testing.simulation.controllers import Mover, SimulatedController
from headwater.testing.simulation.housekeeping import Housekeeping
from headwater.testing.simulation.invariants import Invariants, InvariantViolated
from headwater.testing.simulation.membership import SimulatedMembership
from headwater.testing.simulation.metadata import HEAD, SimulatedMetadata
from headwater.testing.simulation.nemesis import SimulatedNemesis
from headwater.testing.simulation.network import SimulatedNetwork
from headwater.testing.simulation.store import SimulatedStore
from headwater.testing.simulation.swarm import draw
from headwater.testing.simulation.world import Runaway, World

HEALING_S = 5.0
"""L1: how long after the last fault writes may stand still. All times of a simulation are shorter than real ones."""
PROGRESS = 6
"""Batches to be acknowledged after healing."""
QUIET_S = 0.3
"""From the end of production to the audit."""


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    seed: int
    counts: Counter[str]
    virtual_s: float


class Simulation:
    def __init__(self, seed: int, theme: str | None = None) -> None:
        self.seed = seed
        self.world = world = World(seed)
        self.swarm = swarm = draw(world.random, theme)
        self.network = network = SimulatedNetwork(world, swarm.conditions)
        self.invariants = invariants = Invariants(swarm.rules.min_insync)
        self.metadata = metadata = SimulatedMetadata(world, network, invariants.metadata_changed, swarm)
        self.stores = [
            SimulatedStore(world, network, invariants, NodeId(node), swarm.sync_s) for node in range(swarm.stores)
        ]
        self.membership = membership = SimulatedMembership(network, metadata, self.stores)
        for store in self.stores:
            store.stores = membership.by_id
        invariants.attach(metadata, membership.by_id)
        self.brokers = [
            SimulatedBroker(
                world=world,
                network=network,
                metadata=metadata,
                membership=membership,
                invariants=invariants,
                swarm=swarm,
                node=NodeId(node),
            )
            for node in range(swarm.brokers)
        ]
        membership.brokers.extend(self.brokers)
        self.housekeeping = [Housekeeping(world, broker) for broker in self.brokers]
        self.mover = Mover(world, network, metadata, swarm.brokers)
        self.controllers = [
            SimulatedController(world, network, metadata, membership, swarm, number) for number in range(2)
        ]
        self.producers = [
            SimulatedProducer(world, network, self.brokers, invariants, swarm, number)
            for number in range(swarm.producers)
        ]
        self.reader = SimulatedReader(
            world=world,
            network=network,
            metadata=metadata,
            membership=membership,
            brokers=self.brokers,
            invariants=invariants,
            swarm=swarm,
        )
        self.nemesis = SimulatedNemesis(
            world=world,
            network=network,
            metadata=metadata,
            membership=membership,
            brokers=self.brokers,
            mover=self.mover,
            invariants=invariants,
            swarm=swarm,
        )
        self.collectors = [Collector(world, network, metadata, invariants, store, swarm) for store in self.stores]

    def run(self) -> SimulationOutcome:
        """Raises InvariantViolated if an invariant does not hold."""
        try:
            self._start()
            self.world.run_until(self.swarm.faulty_s)
            self._heal()
            self._stop_clients()
            self.world.counts["replicated batches audited"] += self.invariants.audit()
        except Runaway as runaway:
            raise InvariantViolated("L1", str(runaway)) from runaway
        return SimulationOutcome(self.seed, self.world.counts, self.world.now)

    def _start(self) -> None:
        self.metadata.apply([(HEAD, 0)], [(HEAD, Head(NodeId(0), LeaderEpoch(1), FIRST_OFFSET, None))])
        self.mover.start(self.swarm.move_every_s)
        for broker in self.brokers:
            broker.start()
        for housekeeping in self.housekeeping:
            housekeeping.start()
        for controller in self.controllers:
            controller.start()
        for collector in self.collectors:
            collector.start()
        for producer in self.producers:
            producer.start()
        self.reader.start()
        self.nemesis.start()

    def _heal(self) -> None:
        self.world.note("simulation", "heals")
        self.nemesis.stop()
        self.mover.is_stopped = True
        enough = self.world.counts["acknowledged"] + PROGRESS
        healed_at = self.world.now
        self.world.run_until(self.world.now + HEALING_S, lambda: self.world.counts["acknowledged"] >= enough)
        if self.world.counts["acknowledged"] < enough:
            if self._has_sound_replica():
                raise InvariantViolated(
                    "L1", f"no progress {HEALING_S} s after the last fault: {self.metadata.value(HEAD)}"
                )
            self.world.counts["blocked without a sound replica"] += 1
        self.world.counts["ms to recover after the last fault"] += round(1000 * (self.world.now - healed_at))

    def _has_sound_replica(self) -> bool:
        segment = self.invariants.chain()[-1]
        for store_id in segment.replicas:
            store = self.membership.by_id[store_id]
            replica = store.replicas.get(segment.id)
            if store.store_id == store_id and replica is not None and not replica.in_doubt:
                return True
        return False

    def _stop_clients(self) -> None:
        for producer in self.producers:
            producer.is_stopped = True
        self.reader.is_stopped = True
        self.world.run_until(self.world.now + QUIET_S)
