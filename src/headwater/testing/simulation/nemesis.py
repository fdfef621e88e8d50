"""What goes wrong, one thing after another, each undone after a while.

What destroys data (a lost disk, damage) happens only where another sound replica remains: no protocol keeps what no
replica has. Everything else happens without mercy.
"""

from collections.abc import Callable
from functools import partial

from headwater.model.cluster import StoreState
from headwater.model.ids import StoreId
from headwater.model.segments import Head, SealedSegment
from headwater.testing.simulation.broker import SimulatedBroker
from headwater.testing.simulation.controllers import Mover
from headwater.testing.simulation.invariants import Invariants
from headwater.testing.simulation.membership import SimulatedMembership
from headwater.testing.simulation.metadata import HEAD, SimulatedMetadata
from headwater.testing.simulation.network import Process, SimulatedNetwork
from headwater.testing.simulation.spares import Spares
from headwater.testing.simulation.store import SimulatedStore
from headwater.testing.simulation.swarm import Swarm
from headwater.testing.simulation.world import World

MAX_CUTS = 12


class SimulatedNemesis:
    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        metadata: SimulatedMetadata,
        membership: SimulatedMembership,
        brokers: list[SimulatedBroker],
        mover: Mover,
        invariants: Invariants,
        swarm: Swarm,
    ) -> None:
        self._world = world
        self._network = network
        self._metadata = metadata
        self._membership = membership
        self._stores = list(membership.stores)
        self._brokers = brokers
        self._mover = mover
        self._invariants = invariants
        self._swarm = swarm
        self._spares = Spares(metadata, membership, invariants, swarm.rules.min_insync)
        self._is_stopped = False
        self._faults: dict[str, Callable[[], bool]] = {
            "store killed": partial(self._stop_store, SimulatedStore.kill),
            "store power cut": partial(self._stop_store, SimulatedStore.cut_power),
            "all stores power cut": self._cut_power_of_stores,
            "broker killed": self._kill_broker,
            "node power cut": self._cut_power_of_node,
            "blackout": self._black_out,
            "one-way cut": self._cut,
            "mute store": self._mute,
            "isolated node": self._isolate,
            "zombie leader": self._make_zombie,
            "metadata outage": self._stop_metadata,
            "disk lost": self._lose_disk,
            "tail damaged": self._damage_tail,
            "sealed replica damaged": self._damage_sealed,
            "disk full": self._fill_disk,
            "all disks full": self._fill_disks,
            "store drained": self._drain,
            "leader moved": self._move_leader,
        }

    def start(self) -> None:
        self._world.after(self._pause(), self._strike)

    def stop(self) -> None:
        """No more faults; what is broken is mended, what is lost stays lost."""
        self._is_stopped = True
        self._network.heal()
        conditions = self._network.conditions
        conditions.loss = conditions.duplication = conditions.spike = 0.0
        self._metadata.is_up = True
        for store in self._stores:
            store.is_full = False
            self._start(store)
        for broker in self._brokers:
            self._start(broker)
        for store_id in list(self._membership.records):
            self._activate(store_id)

    def _pause(self) -> float:
        return self._world.random.expovariate(1 / self._swarm.fault_every_s)

    def _strike(self) -> None:
        if self._is_stopped:
            return
        fault = self._world.random.choice(self._swarm.faults)
        if self._faults[fault]():
            self._world.counts[fault] += 1
            self._world.note("nemesis", fault)
        if self._network.cuts and (self._network.cuts > MAX_CUTS or self._world.chance(0.3)):
            self._network.heal()
        self._world.after(self._pause(), self._strike)

    def _start(self, process: SimulatedStore | SimulatedBroker) -> None:
        if not process.is_up:
            process.start()

    def _restart_later(self, process: SimulatedStore | SimulatedBroker, within_s: float = 0.6) -> None:
        self._network.crashed(process)
        self._world.after(within_s * self._world.random.random(), self._start, process)

    # Processes

    def _stop_store(self, stop: Callable[[SimulatedStore], None]) -> bool:
        store = self._world.random.choice(self._stores)
        if not store.is_up:
            return False
        stop(store)
        self._restart_later(store)
        return True

    def _cut_power_of_stores(self) -> bool:
        for store in self._stores:
            if store.is_up:
                store.cut_power()
                self._restart_later(store, 0.2)
        return True

    def _kill_broker(self) -> bool:
        broker = self._world.random.choice(self._brokers)
        if not broker.is_up:
            return False
        broker.kill()
        self._restart_later(broker, 0.4)
        return True

    def _cut_power_of_node(self) -> bool:
        broker = self._world.random.choice(self._brokers)
        store = next(store for store in self._stores if store.node == broker.node)
        for process, stop in ((broker, broker.kill), (store, store.cut_power)):
            if process.is_up:
                stop()
                self._restart_later(process)
        return True

    def _black_out(self) -> bool:
        self._cut_power_of_stores()
        for broker in self._brokers:
            if broker.is_up:
                broker.kill()
                self._restart_later(broker)
        return True

    def _stop_metadata(self) -> bool:
        if not self._metadata.is_up:
            return False
        self._metadata.crash()
        self._network.crashed(self._metadata)
        self._world.after(0.3 * self._world.random.random(), self._start_metadata)
        return True

    def _start_metadata(self) -> None:
        self._metadata.is_up = True

    # The network

    def _everyone(self) -> list[Process]:
        return [*self._stores, *self._brokers, self._metadata]

    def _cut(self) -> bool:
        one, other = self._world.random.sample(self._everyone(), 2)
        self._network.cut(one, other)
        if self._world.chance(0.5):
            self._network.cut(other, one)
        return True

    def _mute(self) -> bool:
        """It gets and carries out every call, and only the metadata store gets its answers."""
        store = self._world.random.choice(self._stores)
        for other in [*self._stores, *self._brokers]:
            if other.node != store.node:
                self._network.cut(store, other)
        return True

    def _isolate(self) -> bool:
        node = self._world.random.randrange(len(self._stores))
        inside = [process for process in self._everyone() if process.node == node]
        outside = [process for process in self._everyone() if process.node != node]
        for one in inside:
            for other in outside:
                self._network.cut(one, other)
                self._network.cut(other, one)
        return True

    def _make_zombie(self) -> bool:
        """The leader no longer hears of metadata, but still reaches its stores."""
        leaders = [broker for broker in self._brokers if broker.leader is not None]
        if not leaders:
            return False
        leader = self._world.random.choice(leaders)
        self._network.cut(leader, self._metadata)
        self._network.cut(self._metadata, leader)
        self._mover.move()
        return True

    def _move_leader(self) -> bool:
        self._mover.move()
        return True

    # Disks

    def _fill_disk(self) -> bool:
        store = self._world.random.choice(self._stores)
        store.is_full = True
        self._world.after(0.4 * self._world.random.random(), self._empty_disk, store)
        return True

    def _fill_disks(self) -> bool:
        until_s = 0.3 * self._world.random.random()
        for store in self._stores:
            store.is_full = True
            self._world.after(until_s, self._empty_disk, store)
        return True

    def _empty_disk(self, store: SimulatedStore) -> None:
        store.is_full = False

    def _drain(self) -> bool:
        store_id = self._world.random.choice(self._stores).store_id
        self._membership.mark(store_id, StoreState.DRAINING)
        self._world.after(0.8 * self._world.random.random(), self._activate, store_id)
        return True

    def _activate(self, store_id: StoreId) -> None:
        if self._membership.records[store_id].state is StoreState.DRAINING:
            self._membership.mark(store_id, StoreState.ACTIVE)

    def _lose_disk(self) -> bool:
        store = self._world.random.choice(self._stores)
        if not store.is_up or not all(self._spares.is_spare(store, segment) for segment in list(store.replicas)):
            return False
        lost = store.store_id
        store.lose_disk()
        self._membership.formatted(store)
        if self._world.chance(0.5):
            self._membership.mark(lost, StoreState.LOST)
        self._restart_later(store)
        return True

    def _damage_tail(self) -> bool:
        """Of the open segment; found by the scan at the next start, or by the next read."""
        head: Head | None = self._metadata.value(HEAD)
        store = self._world.random.choice(self._stores)
        if head is None or head.open is None or not store.is_up or not self._spares.is_spare(store, head.open.id):
            return False
        if self._world.chance(0.3):
            replica = store.replicas.get(head.open.id)
            if replica is None or not replica.entries:
                return False
            replica.is_damaged = True
            return True
        if not store.damage_tail(head.open.id):
            return False
        store.cut_power()
        self._restart_later(store)
        return True

    def _damage_sealed(self) -> bool:
        """Found by the checksum of the next read."""
        store = self._world.random.choice(self._stores)
        sealed = [it for it in self._invariants.chain() if isinstance(it, SealedSegment) and it.id in store.replicas]
        if not sealed:
            return False
        segment = self._world.random.choice(sealed).id
        if not self._spares.is_spare(store, segment):
            return False
        store.replicas[segment].is_damaged = True
        return True
