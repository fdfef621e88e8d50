"""How a node becomes the controller, and how it learns that it is no more.

`ctl/leader` says who it is and vanishes with its session. `ctl/epoch` counts the elections: every write of a controller
is made on condition that this key is still as its own election left it. So a controller that was replaced can
write nothing, whatever it believes.

A controller that does not answer need not be waited for until its session ends: a node that notices raises the epoch
and removes it, and a new one is elected.
"""

from dataclasses import dataclass

from headwater.broker.cluster.node_session import NodeSession
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import KV, Del, Has, Is, MetaSession, MetaStore, Put
from headwater.model.cluster import ControllerRecord
from headwater.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class Mandate:
    """Having been elected."""

    epoch: int
    version: int
    """Of `ctl/epoch`."""
    session: MetaSession

    @property
    def condition(self) -> Is:
        return Is(keys.CONTROLLER_EPOCH, self.version)

    @property
    def may_hold(self) -> bool:
        """False when it is over for sure; only the metadata store knows whether it holds."""
        return not self.session.lost.is_set()


class ControllerElection:
    def __init__(self, metadata: MetaStore, node: NodeSession) -> None:
        self._metadata = metadata
        self._node = node
        self._tried: tuple[int, MetaSession] | None = None

    async def stand(self, suspected: frozenset[NodeId]) -> Mandate | None:
        """Try to become the controller; None if another one is, or the attempt failed. Raises Unavailable or Unknown;
        the next attempt finds out what came of it."""
        session, me = self._node.session, self._node.node.node_id
        if session is None:
            return None
        leader = await self._metadata.get(keys.CONTROLLER_LEADER)
        last = await self._metadata.get(keys.CONTROLLER_EPOCH)
        epoch = keys.decode_controller(last.value).epoch if last is not None else 0
        if leader is not None:
            holder = keys.decode_controller(leader.value)
            if holder.node == me and self._tried == (holder.epoch, session) and holder.epoch == epoch and last:
                return Mandate(epoch, last.version, session)  # the answer to that attempt was lost
            # A record of this node that is not of this session was left by an earlier process.
            if holder.node != me and holder.node not in suspected:
                return None
            last = await self._depose(leader, last, epoch + 1)
            epoch += 1
            if last is None:
                return None
        self._tried = (epoch + 1, session)
        value = keys.encode(ControllerRecord(epoch + 1, me))
        txn = await self._metadata.txn(
            [
                Is(keys.CONTROLLER_LEADER, 0),
                Is(keys.CONTROLLER_EPOCH, last.version if last is not None else 0),
                Has(self._node.key),
            ],
            [Put(keys.CONTROLLER_LEADER, value, session), Put(keys.CONTROLLER_EPOCH, value)],
        )
        if not txn.ok:
            return None
        log_event("controller_elected", node=me, epoch=epoch + 1)
        return Mandate(epoch + 1, txn.versions[keys.CONTROLLER_EPOCH], session)

    async def holds(self, mandate: Mandate) -> bool:
        found = await self._metadata.get(keys.CONTROLLER_EPOCH)
        return mandate.may_hold and found is not None and found.version == mandate.version

    async def resign(self, mandate: Mandate) -> None:
        """Let another one be elected at once."""
        leader = await self._metadata.get(keys.CONTROLLER_LEADER)
        if leader is not None:
            await self._metadata.txn(
                [mandate.condition, Is(keys.CONTROLLER_LEADER, leader.version)], [Del(keys.CONTROLLER_LEADER)]
            )

    async def _depose(self, leader: KV, last: KV | None, epoch: int) -> KV | None:
        """Two steps, because a key of one session cannot become another's in one. The first ends its power; it is what
        `ctl/epoch` says then, or None if another node was faster."""
        me = self._node.node.node_id
        value = keys.encode(ControllerRecord(epoch, me))
        txn = await self._metadata.txn(
            [
                Is(keys.CONTROLLER_LEADER, leader.version),
                Is(keys.CONTROLLER_EPOCH, last.version if last is not None else 0),
            ],
            [Del(keys.CONTROLLER_LEADER), Put(keys.CONTROLLER_EPOCH, value)],
        )
        if not txn.ok:
            return None
        log_event("controller_deposed", deposed=keys.decode_controller(leader.value).node, by=me)
        return KV(keys.CONTROLLER_EPOCH, value, txn.versions[keys.CONTROLLER_EPOCH])
