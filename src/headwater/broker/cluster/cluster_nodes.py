"""The nodes and stores of the cluster, as this node sees them now: for clients that ask, and for whatever is new.

A table that exists before the node is registered, so that the parts which look at it can be built in order. The
membership fills it from the metadata; on a standalone node it has that node alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.model.cluster import NO_CONTROLLER, Node, Role, StoreRecord, StoreState
from headwater.model.ids import NodeId, SegmentId, StoreId
from headwater.model.segments import Head
from headwater.peers.messages import PeerAddress
from headwater.replication.placement import StoreInfo, choose


@dataclass(slots=True)
class ClusterNodes:
    own: Node
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    """Those that are alive, by what the metadata says. This one counts as alive in any case."""
    stores: Mapping[StoreId, StoreRecord] = field(default_factory=dict)
    controller_id: NodeId = NO_CONTROLLER
    controller_epoch: int = 0
    """How many elections there were until it was elected; 0 for a node that is alone."""
    own_space: Callable[[], tuple[int, int]] = lambda: (1, 1)
    """Free and total bytes of this node's store, right now."""

    def register(self, own: Node) -> None:
        """This node's record is another one from now on."""
        self.own = own

    def see(self, own: Node, nodes: Mapping[NodeId, Node], stores: Mapping[StoreId, StoreRecord]) -> None:
        """Nodes or stores have changed."""
        self.own, self.nodes, self.stores = own, nodes, stores

    def elect(self, controller_id: NodeId, controller_epoch: int) -> None:
        """A controller was elected."""
        self.controller_id, self.controller_epoch = controller_id, controller_epoch

    def alive(self) -> list[Node]:
        return [node for _, node in sorted({**self.nodes, self.own.node_id: self.own}.items())]

    def brokers(self) -> list[Node]:
        return [node for node in self.alive() if Role.BROKER in node.roles]

    def node_ids(self) -> list[NodeId]:
        """The other brokers (`nodes.node_client.Peers`, and so are the next two)."""
        return [node.node_id for node in self.brokers() if node.node_id != self.own.node_id]

    def address(self, node_id: NodeId) -> PeerAddress | None:
        node = self.nodes.get(node_id)
        return PeerAddress(node.peer_host, node.peer_port) if node is not None else None

    @property
    def state_format(self) -> int:
        """The newest format of internal topics that every node reads. What one that is away reads is not known."""
        alive = self.alive()
        stores = (record for record in self.stores.values() if record.state is not StoreState.LOST)
        away = {record.node_id for record in stores}.difference(node.node_id for node in alive)
        return 0 if away else min(node.state_format for node in alive)

    def find(self, node_id: NodeId) -> Node | None:
        return self.own if node_id == self.own.node_id else self.nodes.get(node_id)

    def node_of(self, store: StoreId) -> NodeId | None:
        if store in self.own.store_ids:
            return self.own.node_id
        record = self.stores.get(store)
        return record.node_id if record is not None else None

    def listed(self, listener: str) -> list[tuple[Node, str, int]]:
        """The nodes that clients of this listener are given, with host and port: the brokers, and the controller, which
        clients ask for what only it decides. A node without the listener cannot be reached by them."""
        brokers = [node for node in self.alive() if Role.BROKER in node.roles or node.node_id == self.controller_id]
        return [(node, *address) for node in brokers if (address := node.address_on(listener)) is not None]

    def away(self) -> list[StoreRecord]:
        """The nodes that are gone and should not be, each by a record of a store that it has: those that were to be
        emptied may go."""
        here = {node.node_id for node in self.alive()}
        gone = {
            record.node_id: record
            for record in self.stores.values()
            if record.state is StoreState.ACTIVE and record.node_id not in here
        }
        return [record for _, record in sorted(gone.items())]

    def in_sync_nodes(self, head: Head) -> list[NodeId]:
        """The nodes whose stores hold the open segment; the leader comes first, whether it is one of them or not."""
        stores = head.open.replicas if head.open is not None else ()
        found = dict.fromkeys(node for store in stores if (node := self.node_of(store)) is not None)
        return list(dict.fromkeys([head.leader, *found]))

    def missing_nodes(self, head: Head, wanted: int, preferred: Sequence[NodeId] = ()) -> list[NodeId]:
        """Nodes that ought to hold the open segment, too, and do not, so that there are as many as wanted. Which they
        are is not written anywhere, as any store may become a replica: the preferred nodes, then nodes that are
        away, because a replica that dropped out was probably on one."""
        held = {self.node_of(store) for store in (head.open.replicas if head.open is not None else ())}
        others = {record.node_id for record in self.stores.values() if record.state is StoreState.ACTIVE}.difference(
            held
        )
        ranked = sorted(others, key=lambda node: (node not in preferred, self.find(node) is not None, node))
        return ranked[: max(wanted - len(held), 0)]

    def choose(
        self, count: int, avoid: frozenset[StoreId], salt: SegmentId, preferred: frozenset[NodeId] = frozenset()
    ) -> tuple[StoreId, ...]:
        """Stores for a new segment: this node's own first."""
        own = self.own.store_ids[0] if self.own.stores else None
        return choose(self._infos(), count, own, avoid, salt, preferred=preferred)

    def storing(self) -> frozenset[NodeId]:
        """Nodes with a store that may get something new."""
        return frozenset(info.node_id for info in self._infos() if info.state is StoreState.ACTIVE)

    @property
    def store_count(self) -> int:
        """Stores that may get something new."""
        return sum(info.state is StoreState.ACTIVE for info in self._infos())

    def is_lost(self, store: StoreId) -> bool:
        record = self.stores.get(store)
        return record is not None and record.state is StoreState.LOST

    def leaving(self) -> frozenset[StoreId]:
        """Stores that are to be emptied."""
        return frozenset(store for store, record in self.stores.items() if record.state is not StoreState.ACTIVE)

    def spread(self, count: int, led: Iterable[NodeId] = ()) -> Sequence[NodeId]:
        """Leaders for so many new partitions, those with the fewest first. `led` names the leader of each that is."""
        burdens = {node.node_id: 0 for node in self.brokers() if not node.is_leaving} or {self.own.node_id: 0}
        for leader in led:
            if leader in burdens:
                burdens[leader] += 1
        chosen = []
        for _ in range(count):
            leader = min(burdens, key=lambda node: (burdens[node], node))
            burdens[leader] += 1
            chosen.append(leader)
        return chosen

    def _infos(self) -> list[StoreInfo]:
        infos = []
        for node in self.alive():
            for store in node.stores:
                record = self.stores.get(store.store_id)
                state = record.state if record is not None else StoreState.ACTIVE
                free, total = store.free_bytes, store.total_bytes
                if node is self.own:
                    free, total = self.own_space()
                infos.append(
                    StoreInfo(
                        store_id=store.store_id,
                        node_id=node.node_id,
                        rack=node.rack,
                        free_bytes=free,
                        total_bytes=total,
                        state=state,
                        is_alive=True,
                        in_doubt=store.in_doubt,
                    )
                )
        return infos
