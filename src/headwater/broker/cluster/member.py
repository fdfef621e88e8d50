"""This node as a member of a cluster, once it has a catalog: the catalog follows the metadata, the node stands for
controller, and before a stop it hands over what it leads.

A standalone node has none of this: it has one store, leads everything, and calls no other node.
"""

import asyncio
import contextlib

from headwater.broker.cluster.catalog_feed import CatalogFeed
from headwater.broker.cluster.controller import Controller
from headwater.broker.cluster.copier import Copier
from headwater.broker.cluster.membership import JoiningNode, Membership
from headwater.broker.cluster.open_replicas import OpenReplicas
from headwater.broker.cluster.peer_pings import peer_ping
from headwater.broker.lifetime import Lifetime
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.topics.catalog import Catalog
from headwater.model.cluster import Role
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.model.replica import Durability

HANDOVER_S = 5.0
"""How long a stop waits for others to take over what this node leads."""
LOOK_EVERY_S = 0.05


class ClusterMember:
    def __init__(self, base: JoiningNode, membership: Membership, catalog: Catalog) -> None:
        self.membership = membership
        self._catalog = catalog
        self._open_replicas = OpenReplicas(catalog, base.cluster_nodes)
        self._feed = CatalogFeed(membership.watch, base.cluster_nodes, catalog, self._open_replicas)
        self.controller = _controller(base, membership) if Role.CONTROLLER in base.config().roles else None

    async def start(self, lifetime: Lifetime) -> None:
        """Raises Unavailable, Unknown."""
        lifetime.spawn(self._open_replicas.run())
        await self._feed.start()
        if self.controller is not None:
            lifetime.spawn(self.controller.run())

    def configure(self, config: BrokerConfig) -> None:
        if self.controller is not None:
            self.controller.configure(config.controller_rules)

    def controlling(self) -> Controller:
        """What only the controller may do. Raises RequestError if another node is it; clients then ask that one."""
        if self.controller is None or not self.controller.is_leading:
            controller_id = self.membership.cluster_nodes.controller_id
            raise RequestError(ErrorCode.NOT_CONTROLLER, f"Node {controller_id} is the controller, not this one.")
        return self.controller

    async def leave(self) -> None:
        """Before a stop: have others take over what this node leads, as far as that goes in a short while."""
        if len(self.membership.cluster_nodes.brokers()) < 2:
            return
        self.membership.session.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANDOVER_S):
                while any(True for _ in self._catalog.partitions()):  # noqa: ASYNC110 - many events, and a short while
                    await asyncio.sleep(LOOK_EVERY_S)


def _controller(base: JoiningNode, membership: Membership) -> Controller:
    watch, throttle = membership.watch, membership.throttle

    def durability_of(partition: PartitionId) -> Durability:
        topic_config = base.topics.config_of(partition)
        return topic_config.durability if topic_config is not None else base.config().durability

    copier = Copier(
        membership.directory, base.store, watch.store_address, durability_of, throttle.getting, throttle.is_throttled
    )
    return Controller(
        base.metadata, watch, membership.session, copier, peer_ping(membership.directory), base.clock,
        rules=base.config().controller_rules,
    )  # fmt: skip
