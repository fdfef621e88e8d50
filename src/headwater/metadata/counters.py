"""Numbers that are unique in the cluster for all time, taken in blocks from counters in the metadata."""

import asyncio

from headwater.metadata.keys import counter_key
from headwater.metadata.store import Is, MetaStore, Put, Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError

MAX_TRIES = 20
RETRY_S = 0.05


async def take_block(metadata: MetaStore, kind: str, size: int) -> int:
    """The first of `size` numbers that no other caller gets. A block whose fate is unknown is left alone."""
    key = counter_key(kind)
    for _ in range(MAX_TRIES):
        try:
            current = await metadata.get(key)
            first = int(current.value) if current is not None else 0
            version = current.version if current is not None else 0
            if (await metadata.txn([Is(key, version)], [Put(key, str(first + size).encode())])).ok:
                return first
        except (Unavailable, Unknown):
            await asyncio.sleep(RETRY_S)
    raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "No new ids can be had from the metadata store now.")
