"""A store with the contract of `model/replica.py`, whose disk can be looked at: what is written, and what is durable.

Every mutating call is answered after its own flush. A flush makes durable what was there when it began. A power cut
keeps what is durable and, of each replica, any prefix of the rest; what is torn leaves the replica in doubt.
"""

from collections.abc import Sequence
from typing import Any

from headwater.model.ids import FIRST_OFFSET, NO_LEADER_EPOCH, LeaderEpoch, NodeId, Offset, SegmentId, StoreId
from headwater.model.replica import (
    Buffer,
    CorruptReplica,
    Fenced,
    NoSpace,
    OutOfSequence,
    ReplicaState,
    StoreError,
    UnknownSegment,
    WrongStore,
)
from headwater.model.segments import SealedSegment
from headwater.testing.simulation.batches import span
from headwater.testing.simulation.invariants import Invariants
from headwater.testing.simulation.metadata import PARTITION
from headwater.testing.simulation.network import Process, Reply, SimulatedNetwork
from headwater.testing.simulation.replica import SimulatedReplica
from headwater.testing.simulation.world import World

_PARTITION = str(PARTITION)


class SimulatedStore(Process):
    def __init__(
        self, world: World, network: SimulatedNetwork, invariants: Invariants, node: NodeId, sync_s: float
    ) -> None:
        super().__init__(f"store{node}", node)
        self.generation = 0
        self.replicas: dict[SegmentId, SimulatedReplica] = {}
        self.is_full = False
        self.stores: dict[StoreId, SimulatedStore] = {}
        """All of the cluster, by every identity they ever had."""
        self._world = world
        self._network = network
        self._invariants = invariants
        self._sync_s = sync_s
        self._instances = 0
        self._draw_identity()

    # The calls of the port

    def create(
        self, reply: Reply, store_id: StoreId, segment: SegmentId, base: Offset, epoch: LeaderEpoch, header: bytes
    ) -> None:
        if store_id != self.store_id:
            return reply(WrongStore())
        replica = self.replicas.get(segment)
        if replica is None:
            if self.is_full:
                return reply(NoSpace())
            replica = self._new_replica(segment, base, epoch, header)
        elif replica.is_fenced:
            return reply(Fenced())
        self._flush(replica, reply, None)

    def append(
        self,
        reply: Reply,
        store_id: StoreId,
        segment: SegmentId,
        first: Offset,
        end: Offset,
        lac: Offset,
        batches: Sequence[Buffer],
    ) -> None:
        written = self._write(store_id, segment, first, lac, batches)
        if isinstance(written, SimulatedReplica):
            self._flush(written, reply, written.end)
        else:
            reply(written)

    def append_now(
        self, store_id: StoreId, segment: SegmentId, first: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> bool:
        """For the broker of the same node: an append that is done when the call returns. False, and nothing has
        happened, if that is not possible."""
        if not self.is_up:
            return False
        written = self._write(store_id, segment, first, lac, batches)
        if not isinstance(written, SimulatedReplica):
            return False
        self._flushed(
            self.life, written, len(written.entries), written.lac, is_fenced=False, reply=_ignore, value=written.end
        )
        return True

    def _write(
        self, store_id: StoreId, segment: SegmentId, first: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> SimulatedReplica | StoreError:
        if store_id != self.store_id:
            return WrongStore()
        replica = self.replicas.get(segment)
        if replica is None:
            return UnknownSegment()
        if replica.is_fenced:
            return Fenced()
        if first > replica.end:
            return OutOfSequence()
        if self.is_full and any(span(batch)[1] > replica.end for batch in batches):
            return NoSpace()  # what it has already takes no room, and is acknowledged again
        for batch in batches:
            base, batch_end = span(batch)
            self._invariants.written(segment, base, batch, self.name)
            if base >= replica.end:
                replica.entries.append(batch)
                replica.end = batch_end
        replica.lac = max(replica.lac, lac)
        return replica

    def fence(self, reply: Reply, store_id: StoreId, segment: SegmentId) -> None:
        if store_id != self.store_id:
            return reply(WrongStore())
        replica = self.replicas.get(segment)
        if replica is None:
            replica = self._new_replica(segment, FIRST_OFFSET, NO_LEADER_EPOCH, b"", partition="")
            replica.in_doubt = True
        replica.is_fenced = True
        self._flush(replica, reply, replica)

    def read(self, reply: Reply, store_id: StoreId, segment: SegmentId, first: Offset, end: Offset) -> None:
        """The header, and all batches of [first, end)."""
        if store_id != self.store_id:
            return reply(WrongStore())
        replica = self.replicas.get(segment)
        if replica is None:
            return reply(UnknownSegment())
        if replica.is_damaged:
            replica.in_doubt = True
            return reply(CorruptReplica())
        if first < replica.base or end > replica.end:
            return reply(OutOfSequence())
        reply((replica.header, [batch for batch in replica.entries if first <= span(batch)[0] < end]))

    def seal(self, reply: Reply, store_id: StoreId, segment: SegmentId, end: Offset) -> None:
        if store_id != self.store_id:
            return reply(WrongStore())
        replica = self.replicas.get(segment)
        if replica is None or replica.end < end:
            return reply(UnknownSegment())
        replica.is_sealed = replica.is_fenced = True
        replica.cut(sum(1 for batch in replica.entries if span(batch)[0] < end))
        replica.promised_end = end
        self._flush(replica, reply, None)

    def copy(
        self, reply: Reply, store_id: StoreId, sealed: SealedSegment, donors: Sequence[StoreId], timeout_s: float
    ) -> None:
        """Pull a sealed segment from the first donor that has it, unless it is complete here."""
        if store_id != self.store_id:
            return reply(WrongStore())
        if self.is_full:
            return reply(NoSpace())
        if self._is_complete(sealed):
            return self._adopt(reply, sealed)
        if not donors:
            return reply(UnknownSegment())
        donor, rest = donors[0], donors[1:]

        def pulled(answer: Any) -> None:
            if store_id != self.store_id:
                return reply(WrongStore())
            if isinstance(answer, tuple):
                return self._received(reply, sealed, *answer)
            self.copy(reply, store_id, sealed, rest, timeout_s)

        target = self.stores[donor]
        self._network.call(self, target, target.read, (donor, sealed.id, sealed.base, sealed.end), pulled, timeout_s)

    def receive(
        self, reply: Reply, store_id: StoreId, sealed: SealedSegment, header: bytes, batches: list[Buffer]
    ) -> None:
        """A sealed segment that was made elsewhere, by compaction."""
        if store_id != self.store_id:
            return reply(WrongStore())
        if self.is_full:
            return reply(NoSpace())
        self._received(reply, sealed, header, batches)

    def ping(self, reply: Reply) -> None:
        reply(self.store_id)

    # Of this node only

    def inventory(self) -> list[ReplicaState]:
        return [replica.state() for replica in self.replicas.values()]

    def delete(self, segment: SegmentId, instance: int) -> bool:
        replica = self.replicas.get(segment)
        if replica is None or replica.instance != instance:
            return False
        del self.replicas[segment]
        return True

    # What happens to it

    def kill(self) -> None:
        """The process ends, the machine goes on: what was written is flushed before the next one serves it."""
        self._stop(torn=0.0)

    def cut_power(self) -> None:
        self._stop(torn=0.5)

    def _stop(self, torn: float) -> None:
        self.crash()
        before = list(self.replicas.values())
        for replica in before:
            self._fall_back(replica, torn)
        self._invariants.survived(self, before)

    def _fall_back(self, replica: SimulatedReplica, torn: float) -> None:
        """To what is durable, and any prefix of what is not."""
        if not replica.is_durable and (replica.is_sealed or self._world.chance(0.5)):
            del self.replicas[replica.segment]
            if replica.replaced is not None:
                self.replicas[replica.segment] = replica.replaced
                self._fall_back(replica.replaced, torn)
            return
        written = len(replica.entries)
        kept = self._world.random.randint(replica.durable_entries, written)
        replica.lac = replica.lac if kept == written and self._world.chance(0.5) else replica.durable_lac
        if kept < written:
            replica.cut(kept)
            replica.in_doubt = replica.in_doubt or self._world.chance(torn)
        if replica.is_fenced and not replica.is_fence_durable and self._world.chance(0.7):
            replica.is_fenced = False
        replica.is_durable = True  # the next process flushes what it finds before it answers
        replica.durable_entries = len(replica.entries)
        replica.durable_lac = replica.lac
        replica.is_fence_durable = replica.is_fenced

    def damage_tail(self, segment: SegmentId) -> bool:
        """Acknowledged bytes rot; the scan at the next start sees it."""
        replica = self.replicas.get(segment)
        if replica is None or not replica.entries:
            return False
        replica.cut(len(replica.entries) - self._world.random.randint(1, min(3, len(replica.entries))))
        replica.in_doubt = True
        replica.promised_end = replica.base
        return True

    def lose_disk(self) -> None:
        self.crash()
        self.replicas = {}
        self._draw_identity()

    def start(self) -> None:
        self.is_up = True
        self.is_full = False

    def _draw_identity(self) -> None:
        self.store_id = StoreId(f"{self.name}.{self.generation}")
        self.generation += 1

    def _new_replica(
        self, segment: SegmentId, base: Offset, epoch: LeaderEpoch, header: bytes, partition: str = _PARTITION
    ) -> SimulatedReplica:
        self._instances += 1
        replica = SimulatedReplica(
            segment, partition, base, epoch, header, self._instances, end=base, lac=base, durable_lac=base
        )
        self.replicas[segment] = replica
        return replica

    def _is_complete(self, sealed: SealedSegment) -> bool:
        replica = self.replicas.get(sealed.id)
        return (
            replica is not None
            and not replica.in_doubt
            and not replica.is_damaged
            and replica.base == sealed.base
            and replica.end >= sealed.end
        )

    def _adopt(self, reply: Reply, sealed: SealedSegment) -> None:
        """A new instance, so that what garbage collection decided about the old one before does not meet it."""
        old = self.replicas[sealed.id]
        self._received(reply, sealed, old.header, [batch for batch in old.entries if span(batch)[0] < sealed.end])

    def _received(self, reply: Reply, sealed: SealedSegment, header: bytes, batches: list[Buffer]) -> None:
        if not batches or span(batches[-1])[1] != sealed.end:
            return reply(CorruptReplica())
        before = self.replicas.get(sealed.id)
        replica = self._new_replica(sealed.id, sealed.base, sealed.epoch, header)
        replica.entries = list(batches)
        replica.end = replica.lac = sealed.end
        replica.is_fenced = replica.is_sealed = True
        if before is not None:
            replica.replaced = before if before.is_durable else before.replaced
        self._flush(replica, reply, None)

    def _flush(self, replica: SimulatedReplica, reply: Reply, value: Any) -> None:
        random = self._world.random.random
        delay = self._sync_s * (0.5 + random())
        if random() < 0.003:
            delay += 0.2 * random()
        self._world.after(
            delay, self._flushed, self.life, replica, len(replica.entries), replica.lac, replica.is_fenced, reply, value
        )

    def _flushed(
        self, life: int, replica: SimulatedReplica, count: int, lac: Offset, is_fenced: bool, reply: Reply, value: Any
    ) -> None:
        if self.life != life:
            return
        replica.is_durable = True
        replica.replaced = None
        replica.durable_entries = max(replica.durable_entries, min(count, len(replica.entries)))
        replica.durable_lac = max(replica.durable_lac, lac)
        replica.is_fence_durable = replica.is_fence_durable or is_fenced
        if self.replicas.get(replica.segment) is not replica:
            return reply(UnknownSegment())
        if value is replica:  # a fence: what is durable, and nothing can be added any more
            value = replica.state()
        self._invariants.acknowledged(replica, value)
        reply(value)


def _ignore(answer: Any) -> None:
    """The answer is not needed."""
