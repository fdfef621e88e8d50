"""Reading a segment wherever it lies: from the store of this node if it has a replica, else from another.

A replica that cannot be reached, is gone or is damaged costs a try; only when none is left does the read fail.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias, TypeVar

from headwater.broker.log.node_ports import NodePorts
from headwater.model.ids import Offset
from headwater.model.replica import Buffer, Store, StoreError, StoreFailed, UnknownSegment
from headwater.model.segments import OpenSegment, SealedSegment

Segment: TypeAlias = OpenSegment | SealedSegment
T = TypeVar("T")


class SegmentReader:
    def __init__(self, ports: NodePorts) -> None:
        self._ports = ports

    async def read(self, segment: Segment, offset: Offset, limit: Offset, max_bytes: int) -> Buffer:
        """As `Store.read`. Raises what the last replica said."""
        return await self._try_each(segment, lambda store: store.read(segment.id, offset, limit, max_bytes))

    async def find_timestamp(self, segment: Segment, timestamp: int) -> Offset | None:
        return await self._try_each(segment, lambda store: store.find_timestamp(segment.id, timestamp))

    async def header(self, segment: Segment) -> bytes:
        """The snapshot that the segment begins with."""
        return (await self._try_each(segment, lambda store: store.state(segment.id))).header

    async def _try_each(self, segment: Segment, ask: Callable[[Store], Awaitable[T]]) -> T:
        last: StoreError = UnknownSegment(f"segment {segment.id} has no replicas")
        for store in self._stores(segment):
            try:
                return await ask(store)
            except StoreFailed as error:
                if store is self._ports.store:
                    raise
                last = error
            except StoreError as error:
                last = error
        raise last

    def _stores(self, segment: Segment) -> Iterator[Store]:
        """The own one first. The others begin with a different one for each segment, which spreads the load."""
        ports = self._ports
        own = ports.own_store_id
        others = [store_id for store_id in segment.replicas if store_id != own]
        if len(others) < len(segment.replicas) and ports.store is not None:
            yield ports.store
        turn = int(segment.id[-4:], 16) if segment.id else 0
        for index in range(len(others)):
            try:
                yield ports.stores.find(others[(turn + index) % len(others)])
            except StoreError:
                continue
