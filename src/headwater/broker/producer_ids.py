"""Ids for idempotent producers, unique in the cluster for all time.

They are taken from a counter in the metadata store in blocks, so that most cost nothing. What is left of a
block when the broker stops is never used.
"""

import asyncio

from headwater.metadata.keys import counter_key
from headwater.metadata.store import Is, MetaStore, Put, Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError

BLOCK = 1_000
MAX_TRIES = 20


class ProducerIds:
    def __init__(self, metadata: MetaStore) -> None:
        self._metadata = metadata
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            if self._next == self._end:
                self._next = await take_block(self._metadata, "producer", BLOCK)
                self._end = self._next + BLOCK
            self._next += 1
            return self._next - 1


async def take_block(metadata: MetaStore, kind: str, size: int) -> int:
    """The first of `size` numbers that nobody else gets. A block whose fate is unknown is left alone."""
    key = counter_key(kind)
    for _ in range(MAX_TRIES):
        try:
            current = await metadata.get(key)
            first = int(current.value) if current is not None else 0
            version = current.version if current is not None else 0
            if (await metadata.txn([Is(key, version)], [Put(key, str(first + size).encode())])).ok:
                return first
        except (Unavailable, Unknown):
            await asyncio.sleep(0.05)
    raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "No new ids can be had from the metadata store now.")
