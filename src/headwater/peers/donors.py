"""Where a store gets a sealed segment from: other stores that have it, one after the other."""

import logging
from collections.abc import Sequence
from typing import Final

from headwater.model.ids import Offset
from headwater.model.replica import Buffer, SegmentFacts, StoreError, StoreUnreachable
from headwater.peers.channel import ChannelOptions
from headwater.peers.messages import Donor
from headwater.peers.pace import AT_ONCE, LONGEST_TURN_S, Pace
from headwater.peers.remote_store import RemoteStore
from headwater.transport.facts import log_fact

READ_BYTES: Final = 4 * 1024 * 1024
CHANNELS: Final = ChannelOptions(call_timeout_s=LONGEST_TURN_S + 30.0)


class DonorSource:
    """A `Source`. A donor that fails is left for the next one, which goes on where it was: what they have is the same,
    and the checksum of the whole tells if it is not."""

    def __init__(
        self,
        facts: SegmentFacts,
        donors: Sequence[Donor],
        secret: bytes,
        options: ChannelOptions = CHANNELS,
        pace: Pace = AT_ONCE,
    ) -> None:
        self._facts = facts
        self._pace = pace
        self._left = list(donors)
        self._secret = secret
        self._options = options
        self._store: RemoteStore | None = None
        self._failures: list[str] = []

    async def __call__(self, offset: Offset) -> Buffer:
        facts = self._facts
        while True:
            store = self._store or self._next()
            most_bytes = await self._pace.turn(facts.partition, READ_BYTES)
            try:
                batches = await store.read_to_copy(facts.segment, offset, facts.end, most_bytes)
                self._pace.passed(facts.partition, len(batches))
                return batches
            except StoreError as error:
                log_fact("donor_failed", logging.WARNING, segment=facts.segment, store=store.store_id, error=str(error))
                self._failures.append(f"{store.store_id}: {error}")
                self.close()

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _next(self) -> RemoteStore:
        if not self._left:
            reasons = "; ".join(self._failures) or "none was named"
            raise StoreUnreachable(f"no store gave segment {self._facts.segment}: {reasons}")
        donor = self._left.pop(0)
        self._store = RemoteStore(donor.store_id, donor.address, self._secret, options=self._options)
        return self._store
