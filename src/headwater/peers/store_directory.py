"""From the id of a store to the store: this node's own, or another's by the address that it has at present."""

from collections.abc import Callable, Sequence

from headwater.model.ids import StoreId
from headwater.model.replica import SegmentDescription, Store, StoreUnreachable, WrongStore
from headwater.peers.channel import ChannelOptions
from headwater.peers.donors import DonorSource
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import NO_STORE, Donor, PeerAddress
from headwater.peers.pace import CopyPace
from headwater.peers.remote_store import RemoteStore


class StoreDirectory:
    def __init__(
        self,
        local: Store | None,
        address_of: Callable[[StoreId], PeerAddress | None],
        identity: PeerIdentity,
        *,
        options: ChannelOptions | None = None,
        on_lost: Callable[[StoreId], None] | None = None,
    ) -> None:
        """`address_of` answers from memory, None if no node serves the store now. `on_lost` is called for every
        connection for appends that is lost."""
        self._local = local
        self._address_of = address_of
        self._identity = identity
        self._options = options
        self._on_lost = on_lost
        self._remote: dict[StoreId, RemoteStore] = {}
        self._bare: dict[PeerAddress, RemoteStore] = {}
        """Connections to nodes that have no store."""

    def find(self, store_id: StoreId) -> Store:
        """The local or remote store. Raises StoreUnreachable if no address is known."""
        if self._local is not None and store_id == self._local.store_id:
            return self._local
        return self.remote(store_id)

    def remote(self, store_id: StoreId) -> RemoteStore:
        address = self._address_of(store_id)
        known = self._remote.get(store_id)
        if known is not None and known.address == address:
            return known
        self._drop(store_id)
        if address is None:
            raise StoreUnreachable(f"no node serves store {store_id}")
        self._remote[store_id] = RemoteStore(
            store_id, address, self._identity, options=self._options, on_lost=self._on_lost
        )
        return self._remote[store_id]

    async def ping(self, address: PeerAddress) -> None:
        """Return when the node there answers, which has no store. Raises StoreUnreachable."""
        bare = self._bare.get(address)
        if bare is None:
            bare = self._bare[address] = RemoteStore(NO_STORE, address, self._identity, options=self._options)
        try:
            await bare.ping()
        except WrongStore:
            pass  # as it should say
        except StoreUnreachable:
            bare.close()
            self._bare.pop(address, None)
            raise

    def source(self, description: SegmentDescription, donors: Sequence[Donor], pace: CopyPace) -> DonorSource:
        """The source from which this node's own store copies a segment, over dedicated connections."""
        return DonorSource(description, donors, self._identity, pace=pace)

    def refresh(self) -> None:
        """Addresses have changed: close connections to old addresses; calls that wait there fail."""
        for store_id, known in list(self._remote.items()):
            if self._address_of(store_id) != known.address:
                self._drop(store_id)

    def close(self) -> None:
        for store_id in list(self._remote):
            self._drop(store_id)
        for bare in self._bare.values():
            bare.close()
        self._bare.clear()

    def _drop(self, store_id: StoreId) -> None:
        known = self._remote.pop(store_id, None)
        if known is not None:
            known.close()
