"""Where a store gets a sealed segment from: other stores that have it, one after the other."""

import logging
from collections.abc import Sequence
from typing import Final

from headwater.logs.events import log_event
from headwater.model.ids import Offset
from headwater.model.replica import Buffer, SegmentDescription, StoreError, StoreUnreachable
from headwater.peers.channel import ChannelOptions
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import Donor
from headwater.peers.pace import AT_ONCE, LONGEST_WAIT_S, CopyPace
from headwater.peers.remote_store import RemoteStore

READ_BYTES: Final = 4 * 1024 * 1024
CHANNELS: Final = ChannelOptions(call_timeout_s=LONGEST_WAIT_S + 30.0)


class DonorSource:
    """A `Source`. When a donor fails, the next one goes on at the same offset: all donors have the same bytes, and the
    checksum of the whole segment tells if they do not."""

    def __init__(
        self,
        description: SegmentDescription,
        donors: Sequence[Donor],
        identity: PeerIdentity,
        options: ChannelOptions = CHANNELS,
        pace: CopyPace = AT_ONCE,
    ) -> None:
        self._description = description
        self._pace = pace
        self._left = list(donors)
        self._identity = identity
        self._options = options
        self._store: RemoteStore | None = None
        self._failures: list[str] = []

    async def __call__(self, offset: Offset) -> Buffer:
        description = self._description
        while True:
            store = self._store or self._next()
            most_bytes = await self._pace.admit(description.partition, READ_BYTES)
            try:
                batches = await store.read_to_copy(description.segment, offset, description.end, most_bytes)
                self._pace.passed(description.partition, len(batches))
                return batches
            except StoreError as error:
                log_event(
                    "donor_failed", logging.WARNING, segment=description.segment, store=store.store_id, error=str(error)
                )
                self._failures.append(f"{store.store_id}: {error}")
                self.close()

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _next(self) -> RemoteStore:
        if not self._left:
            reasons = "; ".join(self._failures) or "none was named"
            raise StoreUnreachable(f"no store gave segment {self._description.segment}: {reasons}")
        donor = self._left.pop(0)
        self._store = RemoteStore(donor.store_id, donor.address, self._identity, options=self._options)
        return self._store
