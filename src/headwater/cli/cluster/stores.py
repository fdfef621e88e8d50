"""The decisions of operators about stores: to drain one, or to declare it lost. They are written to the metadata, where
every node sees them at once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headwater.cli.output import CommandFailed

if TYPE_CHECKING:
    from headwater.metadata.store import MetaStore
    from headwater.model.cluster import StoreRecord, StoreState

MIN_PREFIX: Final = 4
MAX_NODE_DIGITS: Final = 10
LOOK_EVERY_S: Final = 0.5
MAX_TRIES: Final = 5


@asynccontextmanager
async def opened(url: str) -> AsyncIterator["MetaStore"]:
    """The metadata store of a cluster. Raises CommandFailed if it cannot be used."""
    from headwater.metadata.connect import BadMetadataUrl, open_metadata
    from headwater.metadata.store import Unavailable, Unknown
    from headwater.metadata.url_text import without_login

    try:
        metadata = await open_metadata(url)
        try:
            yield metadata
        finally:
            await metadata.close()
    except BadMetadataUrl as error:
        raise CommandFailed(f"--metadata is wrong: {error}.", exit_code=2) from error
    except (Unavailable, Unknown, OSError) as error:
        raise CommandFailed(
            f"The metadata at {without_login(url)} cannot be used: {error}.",
            "Does that store run, and is the URL right?",
        ) from error


async def find_stores(metadata: "MetaStore", target: str) -> "list[tuple[StoreRecord, int]]":
    """All stores of a node, by its number, or one store by the beginning of its id, which may look like a number; each
    with the version of its record. Raises CommandFailed."""
    from headwater.metadata import keys

    found = [(keys.decode_store(kv.value), kv.version) for kv in await metadata.list(keys.STORES)]
    is_number = target.isdigit() and len(target) <= MAX_NODE_DIGITS
    if is_number and (of_node := [item for item in found if item[0].node_id == int(target)]):
        return of_node
    chosen = [item for item in found if item[0].store_id.startswith(target)] if len(target) >= MIN_PREFIX else []
    if not chosen and is_number:
        raise CommandFailed(f"No store belongs to node {target}.", "`headwater cluster status` shows the stores.")
    if not chosen:
        raise CommandFailed(
            f"There is no store {target}.", "`headwater cluster status --metadata URL` shows the stores."
        )
    if len(chosen) > 1:
        raise CommandFailed(f"{len(chosen)} stores begin with {target}.", "Write more of its id.")
    return chosen


async def living_stores(metadata: "MetaStore") -> dict[str, int]:
    """The stores of living nodes, each with its node."""
    from headwater.metadata import keys

    nodes = [keys.decode_node(kv.value) for kv in await metadata.list(keys.NODES)]
    return {store: node.node_id for node in nodes for store in node.store_ids}


async def decide(metadata: "MetaStore", record: "StoreRecord", version: int, state: "StoreState") -> None:
    """Change a store's state. Raises CommandFailed if another command changed it at the same moment. Nodes and the
    controller write to the same record, its address and when it went away: then the change is tried again."""
    from headwater.metadata import keys
    from headwater.metadata.store import Is, Put

    key, before = keys.store_key(record.store_id), record.state
    for _ in range(MAX_TRIES):
        txn = await metadata.txn([Is(key, version)], [Put(key, keys.encode(replace(record, state=state)))])
        if txn.ok:
            return
        found = await metadata.get(key)
        if found is None:
            break
        record, version = keys.decode_store(found.value), found.version
        if record.state is not before or (state == "lost" and record.away_since_ms is None):
            break
    raise CommandFailed(
        f"Store {record.store_id} changed at the same moment.", "Look at `headwater cluster status`, and try again."
    )


async def until_empty(metadata: "MetaStore", stores: frozenset[str]) -> AsyncIterator[int]:
    """How many segments name one of the stores, again and again until none does."""
    from headwater.broker.cluster.node_removal import count_segments

    while True:
        left = await count_segments(metadata, stores)
        yield left
        if not left:
            return
        await asyncio.sleep(LOOK_EVERY_S)
