"""Forgetting a node that is gone: what is left of it are the records of its stores.

A record is deleted when no segment names its store. A node that returns in that moment is registered only if the record
is there, or finds it put back. The store of one that returns later is registered as a new one. Its key is made again
then, which keys that are compared otherwise never are; but engines never use a version twice, so a writer that compares
finds another one.
"""

from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import KV, Del, Is, MetaStore, Put
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId

MAX_TRIES = 5


async def forget(metadata: MetaStore, node_id: NodeId) -> None:
    """Raises RequestError if it is alive, not known, or still needed; Unavailable, Unknown."""
    for _ in range(MAX_TRIES):
        if await _forget(metadata, node_id):
            log_event("node_forgotten", node=node_id)
            return
    raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"The records of broker {node_id} change all the time.")


async def _forget(metadata: MetaStore, node_id: NodeId) -> bool:
    """False if a record has changed meanwhile: the controller notes there when it missed the node."""
    await _check_gone(metadata, node_id)
    records = [kv for kv in await metadata.list(keys.STORES) if keys.decode_store(kv.value).node_id == node_id]
    if not records:
        raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {node_id} is not registered.")
    left = await count_segments(metadata, frozenset(keys.decode_store(kv.value).store_id for kv in records))
    if left:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {node_id} has replicas of {left} segments. Drain it before it is stopped, or declare it lost.",
        )
    for record in records:
        txn = await metadata.txn([Is(record.key, record.version)], [Del(record.key)])
        if not txn.ok:
            return False
        await _keep_if_back(metadata, node_id, record)
    return True


async def count_segments(metadata: MetaStore, stores: frozenset[str]) -> int:
    """How many segments name one of the stores. Heads are read first: what is sealed meanwhile is found there."""
    opened = [keys.decode_head(kv.value).open for kv in await metadata.list(keys.HEADS)]
    sealed = [keys.decode_sealed(kv.value) for kv in await metadata.list(keys.SEALED)]
    replicas = [segment.replicas for segment in opened if segment is not None]
    replicas += [segment.replicas for segment in sealed]
    return sum(not stores.isdisjoint(each) for each in replicas)


async def _keep_if_back(metadata: MetaStore, node_id: NodeId, record: KV) -> None:
    try:
        await _check_gone(metadata, node_id)
    except RequestError:
        await metadata.txn([Is(record.key, 0)], [Put(record.key, record.value)])
        raise


async def _check_gone(metadata: MetaStore, node_id: NodeId) -> None:
    nodes = [keys.decode_node(kv.value) for kv in await metadata.list(keys.NODES)]
    if any(node.node_id == node_id for node in nodes):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"Broker {node_id} is running. Stop it first.")
