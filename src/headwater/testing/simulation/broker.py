"""A broker around the production machines: it carries out the effects of `Leader` and `Takeover` as messages, keeps the
table of producers, and answers produce and fetch.

What belongs to one lead (or to the takeover before it) is void when the next one begins; `_term` counts them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headwater.model.ids import FIRST_OFFSET, LeaderEpoch, NodeId, Offset, SegmentId, StoreId, segment_id
from headwater.model.replica import Buffer
from headwater.model.segments import Head
from headwater.replication.effects import (
    Effect,
    Entry,
    Publish,
    StepDown,
)
from headwater.replication.leader import Leader
from headwater.replication.takeover import Led, Takeover
from headwater.testing.simulation.batches import BATCH_BYTES, Producers, SimulatedBatch, span
from headwater.testing.simulation.errands import Errands
from headwater.testing.simulation.invariants import Invariants
from headwater.testing.simulation.membership import SimulatedMembership
from headwater.testing.simulation.metadata import HEAD, Item, SimulatedMetadata
from headwater.testing.simulation.network import Lost, Process, Reply, SimulatedNetwork
from headwater.testing.simulation.publishing import publish
from headwater.testing.simulation.store import SimulatedStore
from headwater.testing.simulation.swarm import Swarm
from headwater.testing.simulation.world import World

MAX_UNCOMMITTED = 100
"""Batches; what comes beyond is refused, as a broker does when its window is full."""
KEPT_BATCHES = 60
"""In memory, for fetches."""


class NotLeader(Exception):
    pass


class Retriable(Exception):
    pass


class SimulatedBroker(Process):
    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        metadata: SimulatedMetadata,
        membership: SimulatedMembership,
        invariants: Invariants,
        swarm: Swarm,
        node: NodeId,
    ) -> None:
        super().__init__(f"broker{node}", node)
        self.world = world
        self.network = network
        self.metadata = metadata
        self.membership = membership
        self.stores: dict[StoreId, SimulatedStore] = membership.by_id
        self.head: Head | None = None
        self.version = 0
        self.leader: Leader | None = None
        self.takeover: Takeover | None = None
        self.is_writing_head = False
        self._invariants = invariants
        self._swarm = swarm
        self._epoch = LeaderEpoch(0)
        self._term = 0
        self._armed: float | None = None
        self._errands = Errands(self)
        self._reset()
        metadata.watch(self, self._hinted)

    def kill(self) -> None:
        self.crash()
        self._reset()

    def start(self) -> None:
        self.is_up = True
        self.world.after(0.01 * self.world.random.random(), self._watch, self.life)

    @property
    def timeout_s(self) -> float:
        """Of a call. The leader has its own patience, which is shorter."""
        return 2 * self._swarm.rules.replica_timeout_s

    @property
    def swarm(self) -> Swarm:
        return self._swarm

    # What clients ask

    def produce(self, reply: Reply, producer: int, sequence: int, records: int) -> None:
        leader = self.leader
        if leader is None:
            return reply(NotLeader())
        known = self.producers.find(producer, sequence)
        if known is not None:
            base, end = known
            if end <= self._exposed:
                return reply(base)
            self._waiting.append((end, base, reply))
            return
        if sequence != self.producers.last_sequence(producer) + 1:
            return reply(Retriable())
        if leader.is_starving or leader.uncommitted >= MAX_UNCOMMITTED:
            return reply(Retriable())
        if self._takes_at_once(leader, producer, sequence, records):
            return reply(self._exposed - records)
        base = leader.log_end
        batch = SimulatedBatch(base, records, leader.segment.epoch, producer, sequence)
        self.producers.wrote(producer, sequence, base, batch.end)
        self._uncommitted.append(batch.encode())
        self._waiting.append((batch.end, base, reply))
        self.run(leader.append(Entry(base, batch.end, self._uncommitted[-1], 0), self.world.now))

    def _takes_at_once(self, leader: Leader, producer: int, sequence: int, records: int) -> bool:
        """The short way, where the only replica is this node's own."""
        lone = leader.lone_replica
        if lone is None or self.stores[lone].node != self.node or self.world.chance(0.5):
            return False
        base = leader.log_end
        batch = SimulatedBatch(base, records, leader.segment.epoch, producer, sequence)
        entry = Entry(base, batch.end, batch.encode(), 0)
        if not self.stores[lone].append_now(lone, leader.segment.id, base, base, (entry.batch,)):
            return False
        self.world.counts["taken at once"] += 1
        self.producers.wrote(producer, sequence, base, batch.end)
        self._uncommitted.append(entry.batch)
        leader.took(entry)
        self._advance()
        return True

    def fetch(self, reply: Reply, offset: Offset) -> None:
        if self.leader is None:
            return reply(NotLeader())
        reply([batch for batch in self._committed if span(batch)[0] >= offset])

    def ping(self, reply: Reply) -> None:
        reply(self.node)

    # The head

    def _watch(self, life: int) -> None:
        if self.life != life:
            return
        self._look()
        self._reconsider()
        self.world.after(self._swarm.watch_every_s * (0.5 + self.world.random.random()), self._watch, life)

    def _hinted(self) -> None:
        if not self.world.chance(self._swarm.deaf):
            self._look()

    def _look(self) -> None:
        self.network.call(self, self.metadata, self.metadata.get, (HEAD,), self._looked, self.timeout_s)

    def _looked(self, item: Item | Lost) -> None:
        if isinstance(item, Lost) or item.value is None:
            return
        head: Head = item.value
        is_idle = self.leader is None and self.takeover is None
        if not is_idle and head.epoch <= self._epoch:
            return
        if head.leader == self.node:
            self._take_over(head, item.version)
        elif not is_idle:
            self._end("another leads")

    def _take_over(self, head: Head, version: int) -> None:
        self._end("takes over")
        self.head, self.version = head, version
        self.takeover = Takeover(head, self._swarm.rules, self._choose, self.new_segment_id)
        self._epoch = self.takeover.epoch
        self.world.note(self.name, "takes over", self._epoch)
        self.run(self.takeover.start(self.world.now))

    def _reset(self) -> None:
        self._term += 1
        self._epoch = LeaderEpoch(0)
        self.leader = None
        self.takeover = None
        self._armed = None
        self.is_writing_head = False
        self._publications: deque[Publish] = deque()
        self.producers = Producers()
        self._waiting: list[tuple[Offset, Offset, Reply]] = []
        self._uncommitted: deque[Buffer] = deque()
        self._committed: deque[Buffer] = deque(maxlen=KEPT_BATCHES)
        self.tail: list[Buffer] = []
        self._exposed = FIRST_OFFSET
        self._rolled_from: SegmentId | None = None
        """The last segment that was full."""

    def _end(self, why: str) -> None:
        if self.leader is not None or self.takeover is not None:
            self.world.note(self.name, "steps down", why)
            self.world.counts["step downs"] += 1
        for _, _, reply in self._waiting:
            reply(NotLeader())
        epoch = self._epoch
        self._reset()
        self._epoch = epoch

    def _choose(self, count: int, avoid: frozenset[StoreId], salt: SegmentId) -> tuple[StoreId, ...]:
        return self.membership.choose(self, count, avoid, salt)

    def new_segment_id(self) -> SegmentId:
        return segment_id(int(self.world.now * 1000), self.world.random.getrandbits(80))

    # Effects

    def run(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StepDown):
                return self.give_up(effect.reason)
            if isinstance(effect, Publish):
                self._publications.append(effect)
                self._publish_next()
            else:
                self._errands.carry_out(effect)
        self._advance()
        self._arm()

    # Publishing

    def head_written(self) -> None:
        """Housekeeping is done with the head: what waits to be published is next."""
        self.is_writing_head = False
        self._publish_next()

    def give_up(self, why: str) -> None:
        """Lead no more, and begin again from what the head says."""
        self._end(why)
        self._look()

    def _publish_next(self) -> None:
        """One write of the head at a time: they all compare the same version."""
        if self.is_writing_head or not self._publications:
            return
        assert self.head is not None, "who publishes has read the head"
        effect = self._publications.popleft()
        head = Head(self.node, effect.open.epoch, self.head.start, effect.open)
        self.is_writing_head = True
        publish(self, head, self.version, effect.sealed, self.of_this_term(partial(self._published, effect, head)))

    def of_this_term(self, action: Callable[..., None]) -> Callable[..., None]:
        term = self._term

        def run(*arguments: Any) -> None:
            if self._term == term:
                action(*arguments)

        return run

    def _published(self, effect: Publish, head: Head, outcome: int | None) -> None:
        """`outcome`: the head's version, 0 if another broker wrote it, None if certainly nothing was written."""
        machine = self.leader or self.takeover
        assert machine is not None, "a publication belongs to a term"
        self.is_writing_head = False
        now = self.world.now
        if outcome is None:
            return self.run(machine.publish_failed(effect.open.id, now))
        if outcome == 0:
            return self.run(machine.publish_lost(now))
        self.head, self.version = head, outcome
        self.world.note(self.name, "published", effect.open.id, effect.open.base, effect.open.replicas)
        self.run(machine.published(effect.open.id, now))
        if self.takeover is not None and self.takeover.result is not None:
            self._lead(self.takeover.result)
        else:
            self.world.counts["rolls"] += 1
        if effect.sealed is not None and self.world.chance(0.5):
            for store_id in effect.sealed.replicas:
                store = self.stores[store_id]
                arguments = (store_id, effect.sealed.id, effect.sealed.end)
                self.network.call(self, store, store.seal, arguments, _ignore, self.timeout_s)

    def _lead(self, led: Led) -> None:
        self.takeover = None
        self._armed = None
        size, rules = BATCH_BYTES * len(self.tail), self._swarm.rules
        self.leader = Leader(
            segment=led.open,
            end=led.end,
            open_bytes=size,
            rules=rules,
            choose=self._choose,
            new_segment_id=self.new_segment_id,
            now=self.world.now,
        )
        self._committed.extend(self.tail)
        self._exposed = led.end
        self._invariants.exposed(self.name, self._epoch, led.open.replicas, self.tail)
        self.tail = []
        self.world.counts["elections"] += 1
        self._arm()

    # Time, and what follows from progress

    def _advance(self) -> None:
        leader = self.leader
        if leader is None:
            return
        if leader.high_watermark > self._exposed:
            self._exposed = leader.high_watermark
            fresh = []
            while self._uncommitted and span(self._uncommitted[0])[1] <= self._exposed:
                fresh.append(self._uncommitted.popleft())
            self._committed.extend(fresh)
            self._invariants.exposed(self.name, self._epoch, leader.segment.replicas, fresh)
            done = [entry for entry in self._waiting if entry[0] <= self._exposed]
            self._waiting = [entry for entry in self._waiting if entry[0] > self._exposed]
            for _, base, reply in done:
                reply(base)
        size = leader.committed_bytes
        if size >= self._swarm.segment_batches * BATCH_BYTES and self._rolled_from != leader.segment.id:
            self._rolled_from = leader.segment.id
            self.run(leader.ask_roll(self.world.now))

    def _reconsider(self) -> None:
        changed = self.membership.refresh(self)
        if self.leader is not None and changed:
            self.run(self.leader.reconsider(self.world.now, self.membership.leaving()))
        if self.leader is not None and self.leader.is_starving and self.world.chance(0.3):
            self.drop_unstored()

    def drop_unstored(self) -> None:
        leader = self.leader
        if leader is None or not leader.drop_unstored():
            return
        self.world.counts["dropped unstored"] += 1
        self.world.note(self.name, "drops unstored from", leader.log_end)
        self.producers.forget_from(leader.log_end)
        while self._uncommitted and span(self._uncommitted[-1])[0] >= leader.log_end:
            self._uncommitted.pop()
        for end, _, reply in self._waiting:
            if end > leader.log_end:
                reply(Retriable())
        self._waiting = [entry for entry in self._waiting if entry[0] <= leader.log_end]
        self._arm()

    def _arm(self) -> None:
        machine = self.leader or self.takeover
        deadline = machine.deadline if machine is not None else None
        if deadline is None or (self._armed is not None and self._armed <= deadline):
            return
        self._armed = deadline
        self.world.after(max(0.0, deadline - self.world.now), self._tick, self._term, deadline)

    def _tick(self, term: int, deadline: float) -> None:
        if self._term != term or self._armed != deadline:
            return
        self._armed = None
        machine = self.leader or self.takeover
        if machine is not None:
            self.run(machine.tick(self.world.now))


def _ignore(answer: Any) -> None:
    """The answer is not needed."""
