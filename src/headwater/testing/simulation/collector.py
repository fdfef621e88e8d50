"""A store's garbage collection: the production rule over three reads, in the order that makes it right."""

from typing import Any, ClassVar

from headwater.model.ids import SegmentId, StoreId
from headwater.model.replica import ReplicaState
from headwater.replication import garbage
from headwater.testing.simulation.invariants import Invariants
from headwater.testing.simulation.metadata import HEAD, PARTITION, SEALED, STAGED, TOPIC, SimulatedMetadata
from headwater.testing.simulation.network import SimulatedNetwork
from headwater.testing.simulation.store import SimulatedStore
from headwater.testing.simulation.swarm import Swarm
from headwater.testing.simulation.world import World

TIMEOUT_S = 0.2


class Collector:
    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        metadata: SimulatedMetadata,
        invariants: Invariants,
        store: SimulatedStore,
        swarm: Swarm,
    ) -> None:
        self._world = world
        self._network = network
        self._metadata = metadata
        self._invariants = invariants
        self._store = store
        self._every_s = swarm.collect_every_s
        self._buggify = swarm.buggify

    def start(self) -> None:
        self._world.after(self._every_s * (0.5 + self._world.random.random()), self._collect)

    def _collect(self) -> None:
        self.start()
        if self._store.is_up and self._store.replicas:
            Round(self).take_inventory()

    def ask(self, handler: Any, key: str, answer: Any) -> None:
        def answered(value: Any) -> None:
            if isinstance(value, (tuple, dict)):
                answer(value)

        self._network.call(self._store, self._metadata, handler, (key,), answered, TIMEOUT_S)

    @property
    def store(self) -> SimulatedStore:
        return self._store

    @property
    def metadata(self) -> SimulatedMetadata:
        return self._metadata

    def delete_soon(self, store_id: StoreId, garbage_found: list[tuple[SegmentId, int]]) -> None:
        """At once or, now and then, so late that much has changed."""
        if self._world.chance(self._buggify):
            self._world.after(0.3 * self._world.random.random(), self._delete, store_id, garbage_found)
        else:
            self._delete(store_id, garbage_found)

    def _delete(self, store_id: StoreId, garbage_found: list[tuple[SegmentId, int]]) -> None:
        if not self._store.is_up or self._store.store_id != store_id:
            return
        for segment, instance in garbage_found:
            if self._store.delete(segment, instance):
                self._world.counts["collected replicas"] += 1
                self._world.note(self._store.name, "collects", segment, instance)
                self._invariants.deleted(self._store, segment)


class Round:
    """The inventory first; then what the metadata says, in this order; then the decision."""

    ORDER: ClassVar[tuple[str, ...]] = (HEAD, STAGED, SEALED)

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._store_id = collector.store.store_id
        self._inventory: list[ReplicaState] = []
        self._answers: dict[str, Any] = {}

    def take_inventory(self) -> None:
        self._inventory = self._collector.store.inventory()
        self._read_next()

    def _read_next(self) -> None:
        metadata = self._collector.metadata
        if len(self._answers) == len(self.ORDER):
            return self._decide()
        key = self.ORDER[len(self._answers)]
        self._collector.ask(metadata.get if key == HEAD else metadata.list_below, key, self._read)

    def _read(self, answer: Any) -> None:
        self._answers[self.ORDER[len(self._answers)]] = answer
        self._read_next()

    def _decide(self) -> None:
        head = self._answers[HEAD].value
        heads = {str(PARTITION): head} if head is not None else {}
        staged = [item.value.id for item in self._answers[STAGED].values()]
        sealed = {item.value.id: item.value for item in self._answers[SEALED].values()}
        found = garbage.collect(self._inventory, self._store_id, heads, staged, sealed, [TOPIC])
        self._collector.delete_soon(self._store_id, found)
