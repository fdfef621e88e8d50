"""Carries out what the leader of one partition decides: appends and creates at its stores, changes of the head.

The machine (`replication.leader`) says what is to be done; here it is done, and the machine gets the outcome.
An append that a store can take at once is over when the call returns.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition_metadata import LostLeadership, PartitionMetadata
from headwater.logs.events import log_event
from headwater.metadata.store import Unavailable
from headwater.model.ids import Offset, PartitionId, StoreId
from headwater.model.replica import (
    Durability,
    Fenced,
    NoSpace,
    Store,
    StoreError,
    StoreFailed,
    StoreUnreachable,
    Underway,
)
from headwater.model.segments import OpenSegment, SealedSegment
from headwater.replication.effects import Append, Create, Effect, Entry, Publish, Refusal, StepDown
from headwater.replication.leader import Leader

LATE_S = 0.1
MOST_LATE_S = 1.0


class Replicated(Protocol):
    """The log that is replicated."""

    id: PartitionId

    @property
    def durability(self) -> Durability: ...

    def snapshot(self, at: Offset) -> bytes:
        """What a segment that begins at `at` begins with."""

    def committed(self) -> None:
        """The high watermark has moved."""

    def stored(self) -> None:
        """A replica has more than any had before."""

    def dropped(self, entries: Sequence[Entry], error: StoreError) -> None:
        """The last entries are certainly on no disk: they are forgotten, and their offsets free again."""

    def rolled(self, sealed: SealedSegment | None) -> None:
        """A new segment is open."""

    def stepped_down(self, reason: str) -> None:
        """The leader was fenced, or another node leads."""


class Replicator:
    def __init__(self, ports: NodePorts, log: Replicated, register: PartitionMetadata, leader: Leader) -> None:
        self._ports = ports
        self._log = log
        self._register = register
        self.leader = leader
        self._high_watermark = leader.high_watermark
        self._effects: deque[Effect] = deque()
        self._is_running = False
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None
        self._was_late = False
        self._idle: asyncio.Future[None] | None = None
        self.is_over = False
        self._arm()

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._is_running

    def append(self, entry: Entry) -> None:
        if not self._takes_at_once(entry):
            self._run(self.leader.append(entry, self._now()))

    def _takes_at_once(self, entry: Entry) -> bool:
        """The way of most batches where there is one replica, and the shortest. Whatever stands in it goes the other
        way, which also tells why."""
        store, leader = self._ports.store, self.leader
        if store is None or self._is_running or leader.lone_replica != store.store_id:
            return False
        try:
            acked = store.append_now(leader.segment.id, entry.base, entry.end, entry.base, (entry.batch,))
        except StoreError:
            return False
        if acked is None:
            return False
        leader.took(entry)
        self._high_watermark = entry.end
        self._log.committed()
        return True

    def ask_roll(self) -> None:
        if not self.is_over:
            self._run(self.leader.ask_roll(self._now()))

    def reconsider(self, leaving: frozenset[StoreId]) -> None:
        """Stores came or went."""
        if not self.is_over:
            self._run(self.leader.reconsider(self._now(), leaving))

    def store_lost(self, store: StoreId) -> None:
        if not self.is_over:
            self._run(self.leader.store_lost(store, self._now()))

    def stop(self) -> None:
        """Do nothing more; what is under way comes to nothing."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def idle(self) -> None:
        """Return when nothing is under way."""
        while self._in_flight:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    # The effects

    def _run(self, effects: Sequence[Effect]) -> None:
        """What is done at once may have effects of its own: they queue up behind the ones that are there."""
        self._effects.extend(effects)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._effects and not self.is_over:
                self._carry_out(self._effects.popleft())
        finally:
            self._is_running = False
        if self.is_over:
            return
        if self.leader.high_watermark > self._high_watermark:
            self._high_watermark = self.leader.high_watermark
            self._log.committed()
        if self.leader.stored > self._high_watermark:
            self._log.stored()
        if self._timer is None:
            self._arm()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Append():
                self._append(effect)
            case Create():
                self._start(self._create(effect))
            case Publish():
                self._start(self._publish(effect))
            case StepDown():
                self.stop()
                self._log.stepped_down(effect.reason)
            case _:
                raise AssertionError(f"a leader has no use for {effect}")

    def _append(self, effect: Append) -> None:
        try:
            store = self._ports.stores.find(effect.store)
            begun = store.append_soon(effect.segment, effect.first, effect.end, effect.lac, effect.batches)
        except StoreError as error:
            self._refused(effect, error)
            return
        if begun is None:
            self._start(self._append_later(store, effect))
        elif isinstance(begun, int):
            self._effects.extend(self.leader.acknowledged(effect.store, effect.segment, begun, self._now()))
        else:
            self._in_flight += 1
            begun.when_done(partial(self._appended, effect, begun))

    def _appended(self, effect: Append, done: Underway, _: object) -> None:
        """Without a task, which would cost as much as all the rest of an append."""
        try:
            self._hear(effect, done)
        except Exception as error:  # a mistake of ours: the broker's end, as in a task of its own
            self._ports.spawn(_raise(error))
        finally:
            self._ended()

    def _hear(self, effect: Append, done: Underway) -> None:
        try:
            acked = done.outcome()
        except StoreError as error:
            if not self.is_over:
                self._refused(effect, error)
                self._run(())
        else:
            if not self.is_over:
                self._run(self.leader.acknowledged(effect.store, effect.segment, acked, self._now()))

    async def _append_later(self, store: Store, effect: Append) -> None:
        try:
            acked = await store.append(effect.segment, effect.first, effect.end, effect.lac, effect.batches)
        except StoreError as error:
            if not self.is_over:
                self._refused(effect, error)
                self._run(())
        else:
            if not self.is_over:
                self._run(self.leader.acknowledged(effect.store, effect.segment, acked, self._now()))

    def _refused(self, effect: Append, error: StoreError) -> None:
        self._log_failure("append_failed", effect.store, error)
        self._effects.extend(self.leader.refused(effect.store, effect.segment, refusal(error), self._now()))
        if self.leader.is_starving and (dropped := self.leader.drop_unstored()):
            self._log.dropped(dropped, error)

    async def _create(self, effect: Create) -> None:
        segment = effect.segment
        try:
            store = self._ports.stores.find(effect.store)
            if not await self._create_in_turn(store, segment):
                return
        except StoreError as error:
            self._log_failure("create_failed", effect.store, error)
            effects = self.leader.create_failed(effect.store, segment.id, refusal(error), self._now())
        else:
            effects = self.leader.created(effect.store, segment.id, self._now())
        if not self.is_over:
            self._run(effects)

    async def _create_in_turn(self, store: Store, segment: OpenSegment) -> bool:
        """False if it is not wanted any more when its turn comes. A store that does not answer has its turn for as long
        as it may be silent, and no longer."""
        permits = self._ports.creates
        if permits.locked():
            self.leader.create_waits(segment.id)
        async with permits:
            if self.is_over or not self.leader.create_begins(segment.id, self._now()):
                return False
            if self._timer is None:
                self._arm()
            header = self._log.snapshot(segment.base)
            created = asyncio.ensure_future(
                store.create(segment.id, str(self._log.id), segment.base, segment.epoch, header, self._log.durability)
            )
            try:
                await asyncio.wait((created,), timeout=self.leader.rules.replica_timeout_s)
            except asyncio.CancelledError:
                created.cancel()
                raise
        await created
        return True

    async def _publish(self, effect: Publish) -> None:
        segment = effect.open
        try:
            await self._register.roll(effect.sealed, segment)
        except Unavailable as error:
            log_event("roll_failed", logging.WARNING, partition=self._log.id, error=f"{type(error).__name__}: {error}")
            effects = self.leader.publish_failed(segment.id, self._now())
        except LostLeadership:
            effects = self.leader.publish_lost(self._now())
        else:
            effects = self.leader.published(segment.id, self._now())
            if not self.is_over:
                self._log.rolled(effect.sealed)
        if not self.is_over:
            self._run(effects)

    def _log_failure(self, event: str, store: StoreId, error: StoreError) -> None:
        log_event(event, logging.WARNING, partition=self._log.id, store=store, error=f"{type(error).__name__}: {error}")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._in_flight += 1
        task = self._ports.spawn(work)
        task.add_done_callback(self._ended)

    def _ended(self, _: object = None) -> None:
        self._in_flight -= 1
        if not self._in_flight and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    # Time

    def _now(self) -> float:
        return self._ports.clock.monotonic()

    def _arm(self) -> None:
        """One timer that is left alone once it runs: it may come too early, and then there is nothing to do yet, or a
        little late for what was begun meanwhile."""
        deadline = self.leader.deadline
        if deadline is not None:
            now = self._now()
            delay = max(deadline - now, 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick, now + delay)

    def _tick(self, due: float) -> None:
        """A timer that comes late says that this node was busy, not that a store was silent: answers may have come and
        not been read. They get as long again, once."""
        self._timer = None
        if self.is_over:
            return
        late_s = self._now() - due
        if late_s > LATE_S and not self._was_late:
            self._was_late = True
            self._timer = asyncio.get_running_loop().call_later(min(late_s, MOST_LATE_S), self._tick, due)
            return
        self._was_late = False
        self._run(self.leader.tick(self._now()))


def refusal(error: StoreError) -> Refusal:
    match error:
        case Fenced():
            return Refusal.FENCED
        case StoreUnreachable() | StoreFailed():
            return Refusal.UNREACHABLE
        case NoSpace():
            return Refusal.NO_SPACE
        case _:
            return Refusal.BROKEN


async def _raise(error: Exception) -> None:
    raise error
