"""Has stores copy sealed segments from each other, and asks them what they hold.

The target pulls, so the bytes go straight from store to store. What metadata does not know of the segment is asked of
the first donor that answers: the header, and the checksum if it was not measured yet.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from headwater.model.ids import PartitionId, StoreId
from headwater.model.replica import Durability, LocalStore, SegmentDescription, StoreError, StoreUnreachable
from headwater.model.segments import SealedSegment
from headwater.peers.messages import MAX_DONORS, Donor, PeerAddress
from headwater.peers.pace import AT_ONCE, CopyPace
from headwater.peers.store_directory import StoreDirectory
from headwater.replication.actions import Copy

ANSWER_S: Final = 5.0
"""For a question about one replica."""
SHORTEST_COPY_S: Final = 60.0
SLOWEST_BYTES_PER_S: Final = 1024 * 1024
SLOWEST_THROTTLED_BYTES_PER_S: Final = 512
"""A copy that is slower is given up."""


class Copier:
    def __init__(
        self,
        directory: StoreDirectory,
        local: LocalStore | None,
        address_of: Callable[[StoreId], PeerAddress | None],
        durability_of: Callable[[PartitionId], Durability],
        getting: CopyPace = AT_ONCE,
        is_throttled: Callable[[PartitionId], bool] = lambda _: False,
    ) -> None:
        """`getting` is the pace at which this node's own store gets copies."""
        self._directory = directory
        self._local = local
        self._address_of = address_of
        self._durability_of = durability_of
        self._getting = getting
        self._is_throttled = is_throttled

    async def copy(self, action: Copy) -> None:
        """Returns when the target has the whole segment on its disk. Raises StoreError."""
        try:
            async with asyncio.timeout(SHORTEST_COPY_S + action.sealed.size_bytes / self._slowest(action.partition)):
                await self._copy(action)
        except TimeoutError as error:
            raise StoreUnreachable(f"the copy of {action.sealed.id} to {action.target} took too long") from error

    async def is_complete(self, store: StoreId, sealed: SealedSegment) -> bool:
        """Whether a store says that it has all of a segment. No answer is a no."""
        try:
            async with asyncio.timeout(ANSWER_S):
                state = await self._directory.find(store).state(sealed.id)
        except (StoreError, TimeoutError):
            return False
        # Compaction may have removed the last offsets: such a segment's replicas end before it does.
        is_whole = state.end >= sealed.end or (state.is_sealed and state.size_bytes == sealed.size_bytes)
        return is_whole and not state.in_doubt

    def _slowest(self, partition: PartitionId) -> int:
        return SLOWEST_THROTTLED_BYTES_PER_S if self._is_throttled(partition) else SLOWEST_BYTES_PER_S

    async def _copy(self, action: Copy) -> None:
        description = await self._description(action)
        addresses = [(store, self._address_of(store)) for store in action.donors]
        donors = [Donor(store, address) for store, address in addresses if address is not None][:MAX_DONORS]
        if self._local is None or action.target != self._local.store_id:
            await self._directory.remote(action.target).copy(description, donors)
            return
        source = self._directory.source(description, donors, self._getting)
        try:
            await self._local.copy(description, source)
        finally:
            source.close()

    async def _description(self, action: Copy) -> SegmentDescription:
        sealed = action.sealed
        failures: list[str] = []
        for donor in action.donors:
            try:
                async with asyncio.timeout(ANSWER_S):
                    header = (await self._directory.find(donor).state(sealed.id)).header
                crc32c, size_bytes = sealed.crc32c, sealed.size_bytes
                if crc32c is None:
                    measured = await self._directory.find(donor).seal(sealed.id, sealed.end)
                    crc32c, size_bytes = measured.crc32c, measured.size_bytes
            except (StoreError, TimeoutError) as error:
                failures.append(f"{donor}: {str(error) or type(error).__name__}")
                continue
            return SegmentDescription(
                segment=sealed.id,
                partition=str(action.partition),
                base=sealed.base,
                end=sealed.end,
                epoch=sealed.epoch,
                header=header,
                durability=self._durability_of(action.partition),
                crc32c=crc32c,
                size_bytes=size_bytes,
            )
        raise StoreUnreachable(f"no store gives segment {sealed.id}: {'; '.join(failures)}")
