"""Ids for idempotent producers, unique in the cluster for all time.

They are taken from a counter in the metadata store in blocks, so that most cost nothing. What is left of a
block when the broker stops is never used.
"""

import asyncio

from headwater.metadata.counters import take_block
from headwater.metadata.store import MetaStore

BLOCK = 1_000


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
