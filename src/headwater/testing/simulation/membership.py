"""Which processes are alive, by their sessions in the metadata store: late, and wrong about one that is cut from it.

Each process keeps the view that it last got. Equal views are one object, so that they are compared by identity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.model.cluster import Node, NodeStore, Role, StoreRecord, StoreState
from headwater.model.ids import NodeId, SegmentId, StoreId
from headwater.replication.placement import StoreInfo, choose
from headwater.testing.simulation.metadata import SimulatedMetadata
from headwater.testing.simulation.network import Process, SimulatedNetwork
from headwater.testing.simulation.store import SimulatedStore

DISK_BYTES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class MembershipView:
    nodes: dict[NodeId, Node]
    stores: tuple[StoreInfo, ...]


class SimulatedMembership:
    def __init__(
        self, network: SimulatedNetwork, metadata: SimulatedMetadata, stores: Sequence[SimulatedStore]
    ) -> None:
        self.stores = stores
        self.by_id: dict[StoreId, SimulatedStore] = {store.store_id: store for store in stores}
        self.brokers: list[Process] = []
        self.records: dict[StoreId, StoreRecord] = {}
        """What is registered: every store that ever was, and what people decided about it."""
        self._network = network
        self._metadata = metadata
        self._views: dict[str, MembershipView] = {}
        self._known: dict[Any, MembershipView] = {}
        for store in stores:
            self.formatted(store)

    def formatted(self, store: SimulatedStore) -> None:
        """A store has a new identity."""
        self.by_id[store.store_id] = store
        self.mark(store.store_id, StoreState.ACTIVE)

    def mark(self, store_id: StoreId, state: StoreState) -> None:
        """What people decide about a store."""
        self.records = {**self.records, store_id: StoreRecord(store_id, self.by_id[store_id].node, state)}

    def leaving(self) -> frozenset[StoreId]:
        return frozenset(id_ for id_, record in self.records.items() if record.state is not StoreState.ACTIVE)

    def is_alive(self, process: Process) -> bool:
        return process.is_up and not self._network.is_cut(process, self._metadata)

    def refresh(self, who: Process) -> bool:
        """Look again, if the metadata store can be reached; say whether something has changed."""
        if not self._metadata.is_up or self._network.is_cut(who, self._metadata):
            return False
        view = self._look()
        changed = self._views.get(who.name) is not view
        self._views[who.name] = view
        return changed

    def view(self, who: Process) -> MembershipView:
        if who.name not in self._views:
            self._views[who.name] = self._look()
        return self._views[who.name]

    def choose(self, who: Process, count: int, avoid: frozenset[StoreId], salt: SegmentId) -> tuple[StoreId, ...]:
        stores = self.view(who).stores
        own = next((store.store_id for store in stores if store.node_id == who.node), None)
        return choose(stores, count, own, avoid, salt)

    def _look(self) -> MembershipView:
        living = tuple(
            (store.store_id, self.is_alive(store), store.is_full, self.records[store.store_id].state)
            for store in self.stores
        )
        leading = tuple(broker.node for broker in self.brokers if self.is_alive(broker))
        view = self._known.get((living, leading))
        if view is None:
            view = self._known[living, leading] = self._build(leading)
        return view

    def _build(self, leading: tuple[NodeId, ...]) -> MembershipView:
        nodes: dict[NodeId, Node] = {}
        stores = []
        for store in self.stores:
            alive, free = self.is_alive(store), 0 if store.is_full else DISK_BYTES
            state = self.records[store.store_id].state
            stores.append(
                StoreInfo(
                    store_id=store.store_id,
                    node_id=store.node,
                    rack=None,
                    free_bytes=free,
                    total_bytes=DISK_BYTES,
                    state=state,
                    is_alive=alive,
                )
            )
            roles = ((Role.BROKER,) if store.node in leading else ()) + ((Role.STORE,) if alive else ())
            if roles:
                disks = (NodeStore(store.store_id, free, DISK_BYTES),) if alive else ()
                nodes[store.node] = Node(
                    node_id=store.node,
                    epoch=1,
                    host="",
                    port=0,
                    peer_host="",
                    peer_port=0,
                    rack=None,
                    roles=roles,
                    stores=disks,
                )
        return MembershipView(nodes, tuple(stores))
