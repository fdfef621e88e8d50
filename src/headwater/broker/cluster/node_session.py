"""This node's place in the cluster: its record, which lives as long as its session, and those of its stores.

A node id belongs to one process. A node that starts while another one with the same id and another address is alive
waits for it to be gone, and gives up if it stays. A record with the same address is this node's own past: two processes
cannot listen there.

A session that the engine ended is replaced by a new one, under a new epoch. While the engine cannot be reached nothing
is done: the node goes on serving.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.counters import take_block
from headwater.metadata.store import Del, Has, Is, MetaSession, MetaStore, Put, Unavailable, Unknown
from headwater.model.cluster import Node, NodeStore, StoreRecord
from headwater.model.errors import RequestError

RETRY_S: Final = 0.5
MAX_TRIES: Final = 20
NOTABLE_SHARE: Final = 0.01
"""Free space is told again when it has changed by that much of the disk."""


class NodeIdInUse(Exception):
    """Another process is registered under this node id."""


@dataclass(frozen=True, slots=True)
class NodeSessionOptions:
    ttl_s: float = 6.0
    refresh_s: float = 10.0
    """How often the free space of the stores is looked at."""


class NodeSession:
    def __init__(
        self,
        metadata: MetaStore,
        node: Node,
        look_at_stores: Callable[[], Sequence[NodeStore]],
        options: NodeSessionOptions | None = None,
    ) -> None:
        """`node` says who this is; its epoch and stores are filled in here."""
        self._metadata = metadata
        self._node = node
        self._look_at_stores = look_at_stores
        self._options = options or NodeSessionOptions()
        self._session: MetaSession | None = None
        self._told = node
        """What the record says."""
        self._changed = asyncio.Event()

    @property
    def node(self) -> Node:
        return self._node

    @property
    def session(self) -> MetaSession | None:
        """The present one; None while there is none."""
        return self._session if self._session is not None and not self._session.lost.is_set() else None

    @property
    def key(self) -> str:
        """A write that depends on this node being alive is made on condition that this key exists."""
        return keys.node_key(self._node.node_id, self._node.epoch)

    async def start(self) -> None:
        """Register. Raises NodeIdInUse, or Unavailable if the metadata store cannot be reached."""
        await self._wait_for_namesakes()
        await self._register()

    async def run(self) -> None:
        """Stay registered, until cancelled."""
        while True:
            session = self._session
            assert session is not None, "a node is started before it runs"
            if session.lost.is_set():
                await self._return()
                continue
            await _any_of(session.lost, self._changed, timeout_s=self._options.refresh_s)
            self._changed.clear()
            if not session.lost.is_set():
                await self._refresh(session)

    def leave(self) -> None:
        """Ask the others to take over what this node leads: it is about to stop."""
        self._node = replace(self._node, is_leaving=True)
        self._changed.set()

    def take_secrets(self, secret_ids: tuple[str, ...]) -> None:
        """Tell the others which secrets of the cluster this node has."""
        self._node = replace(self._node, secret_ids=secret_ids)
        self._changed.set()

    async def close(self) -> None:
        """The record is gone at once, if the metadata store can be reached."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(Unavailable, Unknown):
                await session.close()

    async def _wait_for_namesakes(self) -> None:
        patience_s = 2 * self._options.ttl_s
        others: list[tuple[str, int, Node]] = []
        hints = self._metadata.watch(keys.NODES)
        try:
            async with asyncio.timeout(patience_s):
                async for _ in hints:
                    others = await self._namesakes()
                    if not others:
                        return
                    for key, version, other in others:
                        if other.address == self._node.address:
                            await self._metadata.txn([Is(key, version)], [Del(key)])
        except TimeoutError as error:
            if not others:
                raise Unavailable("the metadata store does not say which nodes are alive") from error
            where = " and ".join(f"{other.host}:{other.port}" for _, _, other in others)
            raise NodeIdInUse(
                f"node id {self._node.node_id} is in use by a node at {where} that is still alive after "
                f"{patience_s:g} s; stop that one, or start this one with another --node-id"
            ) from error
        finally:
            if isinstance(hints, AsyncGenerator):
                await hints.aclose()
        raise Unavailable("the metadata store was closed")

    async def _namesakes(self) -> list[tuple[str, int, Node]]:
        found = [(kv.key, kv.version, _readable(kv.value)) for kv in await self._metadata.list(keys.NODES)]
        return [(key, version, node) for key, version, node in found if node and node.node_id == self._node.node_id]

    async def _register(self) -> None:
        stores = tuple(self._look_at_stores())
        for store in stores:
            await _register_store(self._metadata, store, self._node)
        epoch = await take_block(self._metadata, "node-epoch", 1)
        self._node = replace(self._node, epoch=epoch, stores=stores)
        session = await self._metadata.session(self._options.ttl_s)
        try:
            known = [Has(keys.store_key(store.store_id)) for store in stores]  # unless they were just forgotten
            txn = await self._metadata.txn([Is(self.key, 0), *known], [Put(self.key, keys.encode(self._node), session)])
            is_registered = txn.ok
        except Unknown:
            is_registered = await self._metadata.get(self.key) is not None
        except BaseException:
            await _abandon(session)
            raise
        if not is_registered:
            await _abandon(session)
            raise Unavailable("the session ended, or the node was unregistered, before it was registered")
        self._session, self._told = session, self._node
        log_event("node_registered", node=self._node.node_id, epoch=epoch)

    async def _return(self) -> None:
        """The engine ended the session: register again, under a new epoch."""
        log_event("node_session_lost", logging.WARNING, node=self._node.node_id, epoch=self._node.epoch)
        while True:
            try:
                return await self._register()
            except (Unavailable, Unknown, RequestError) as error:
                log_event("node_not_registered", logging.WARNING, node=self._node.node_id, error=error)
                await asyncio.sleep(RETRY_S)

    async def _refresh(self, session: MetaSession) -> None:
        node = replace(self._node, stores=tuple(self._look_at_stores()))
        is_other = (node.is_leaving, node.secret_ids) != (self._told.is_leaving, self._told.secret_ids)
        if not is_other and not _is_notable(self._told.stores, node.stores):
            return
        try:
            txn = await self._metadata.txn([Has(self.key)], [Put(self.key, keys.encode(node), session)])
        except (Unavailable, Unknown) as error:
            log_event("node_not_refreshed", logging.WARNING, node=node.node_id, error=error)
            return
        if txn.ok:
            self._told = node
            self._node = replace(self._node, stores=node.stores)


async def _register_store(metadata: MetaStore, store: NodeStore, node: Node) -> None:
    """A store that is new becomes active; a disk that moved has another node now. What was decided about it stays."""
    key = keys.store_key(store.store_id)
    for _ in range(MAX_TRIES):
        found = await metadata.get(key)
        known = keys.decode_store(found.value) if found is not None else None
        record = replace(
            known or StoreRecord(store.store_id, node.node_id), node_id=node.node_id, host=node.host, port=node.port,
            rack=node.rack, away_since_ms=None,
        )  # fmt: skip
        if record == known:
            return
        with contextlib.suppress(Unknown):
            await metadata.txn([Is(key, found.version if found is not None else 0)], [Put(key, keys.encode(record))])
    raise Unavailable(f"store {store.store_id} could not be registered")


def _readable(value: bytes) -> Node | None:
    try:
        return keys.decode_node(value)
    except (ValueError, TypeError, KeyError):
        return None


def _is_notable(told: Sequence[NodeStore], now: Sequence[NodeStore]) -> bool:
    if [(it.store_id, it.total_bytes, it.in_doubt) for it in told] != [
        (it.store_id, it.total_bytes, it.in_doubt) for it in now
    ]:
        return True
    pairs = zip(told, now, strict=True)
    return any(abs(a.free_bytes - b.free_bytes) > a.total_bytes * NOTABLE_SHARE for a, b in pairs)


async def _abandon(session: MetaSession) -> None:
    with contextlib.suppress(Unavailable, Unknown):
        await session.close()


async def _any_of(*events: asyncio.Event, timeout_s: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
