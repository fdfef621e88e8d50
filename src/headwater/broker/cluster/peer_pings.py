"""Asks other nodes whether they are there, again and again, and keeps the impression that their answers make."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headwater.model.clock import Clock
from headwater.model.cluster import Node
from headwater.model.ids import NodeId
from headwater.model.replica import StoreError
from headwater.peers.messages import PeerAddress
from headwater.peers.store_directory import StoreDirectory
from headwater.replication.suspicion import Suspicion

Ping: TypeAlias = Callable[[Node], Awaitable[None]]
"""Returns when the node answers; raises OSError or StoreError if it refuses. It is cancelled if it takes too long."""


@dataclass(frozen=True, slots=True)
class PingOptions:
    interval_s: float = 0.1
    timeout_s: float = 0.3
    refusals: int = 3
    silence_s: float = 3.0


class PeerPings:
    def __init__(
        self,
        ping: Ping,
        whom: Callable[[], Mapping[NodeId, Node]],
        changed: Callable[[], None],
        clock: Clock,
        options: PingOptions,
    ) -> None:
        """`whom` says who is of interest now; `changed` is called when others are suspected than before."""
        self._ping = ping
        self._whom = whom
        self._changed = changed
        self._clock = clock
        self._options = options
        self._suspicion = Suspicion(options.refusals, options.silence_s)
        self._under_way: dict[NodeId, asyncio.Task[None]] = {}
        self._suspected: frozenset[NodeId] = frozenset()

    @property
    def suspected(self) -> frozenset[NodeId]:
        return self._suspected

    async def run(self) -> None:
        """Until cancelled. A node is asked again only when it has answered or its time is over."""
        async with asyncio.TaskGroup() as group:
            while True:
                nodes = self._whom()
                self._suspicion.attend(nodes)
                for node_id, node in nodes.items():
                    asking = self._under_way.get(node_id)
                    if asking is None or asking.done():
                        self._under_way[node_id] = group.create_task(self._ask(node))
                for gone in self._under_way.keys() - nodes.keys():
                    self._under_way.pop(gone).cancel()
                self._look()
                await asyncio.sleep(self._options.interval_s)

    async def _ask(self, node: Node) -> None:
        asked_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                await self._ping(node)
        except TimeoutError:
            self._suspicion.silent(node, asked_at)
        except (OSError, StoreError):
            self._suspicion.refused(node)
        else:
            self._suspicion.answered(node)
        self._look()

    def _look(self) -> None:
        suspected = self._suspicion.suspected(self._clock.monotonic())
        if suspected != self._suspected:
            self._suspected = suspected
            self._changed()


def peer_ping(directory: StoreDirectory) -> Ping:
    """Asks a store of the node; of a node that has none, the listener for other nodes."""

    async def ping(node: Node) -> None:
        if node.stores:
            await directory.remote(node.store_ids[0]).ping()
        else:
            await directory.ping(PeerAddress(node.peer_host, node.peer_port))

    return ping
