"""One share partition at work: reads the log for members that ask, logs what they decide, wakes those who wait.

`queues/share_partition` decides; here are its surroundings. Everything that it changes is given to the share log at
once and in order; an acknowledgement is answered when the log has it. Leases are not logged.

Waiting fetches are woken one at a time, the longest waiting first: a fetch that leaves records wakes the next. A member
that just took something and asks again stands behind the others, and none takes more than its part while others want
some (`queues/fair_lending`). `version` grows when there may be something to take,
and no fetch is woken twice for the same version, so that two that both want more than there is do not wake each
other for ever.

A group with isolation read_committed is given nothing past the last stable offset, and nothing that an aborted
transaction has written. Markers are lent to no member.
"""

import asyncio
from collections.abc import Container, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.broker.log.partition import Partition, Watcher
from headwater.broker.nodes.node_messages import ShareKey
from headwater.broker.queues.batch_terms import BatchTerms
from headwater.broker.queues.state_writer import StateWriter
from headwater.model.ids import NO_OFFSET, Offset
from headwater.model.replica import Buffer
from headwater.queues.fair_lending import FairLending
from headwater.queues.log_read import CandidateBatch, LogRead
from headwater.queues.outcomes import (
    AcknowledgedBatch,
    AcknowledgeOutcome,
    AcknowledgeType,
    AcquiredRange,
    AcquireMode,
    Changes,
    DeadLetter,
)
from headwater.queues.settings import IsolationLevel, QueueSettings
from headwater.queues.share_partition import SharePartition
from headwater.records.batch import BatchHeader, parse_header, split
from headwater.transactions.aborted_transactions import Aborted, aborted_batches

SPAN_BYTES = 256 * 1024
"""What is read in one step: more than most fetches take, little enough to throw the rest away."""

MAX_RECORDS = 2**31 - 1


class Waiter(Protocol):
    """A fetch that waits for something to take."""

    @property
    def member_id(self) -> str: ...

    def has_seen(self, queue: "ShareQueue") -> bool:
        """Whether it has looked at the queue since its last change."""

    def wake(self) -> None: ...

    def rights_changed(self) -> None:
        """Look again if there is something that the member may no longer read."""


class Surroundings(Protocol):
    """What a queue needs of the broker."""

    def now_ms(self) -> int:
        """The time of day, never running backwards."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]": ...

    def arm(self, queue: "ShareQueue") -> None:
        """The queue's next deadline may have changed."""

    def post(self, queue: "ShareQueue", letters: Sequence[DeadLetter], logged: "asyncio.Future[None]") -> None:
        """Write dead letters when the events that came with them are logged."""


@dataclass(frozen=True, slots=True)
class Span:
    """Batches that were read from `first_offset` on; nothing else lies below `end_offset`."""

    first_offset: Offset
    end_offset: Offset
    batches: Sequence[tuple[BatchHeader, Buffer]]
    aborted: Sequence[Aborted] = ()
    """Transactions of which nothing may be taken."""

    @property
    def size_bytes(self) -> int:
        return sum(len(batch) for _, batch in self.batches)


@dataclass(frozen=True, slots=True)
class Taken:
    ranges: Sequence[AcquiredRange]
    batches: Sequence[tuple[BatchHeader, Buffer]]
    """Whole, as they are stored: those with at least one record of the ranges."""

    @property
    def record_count(self) -> int:
        return sum(each.last - each.first + 1 for each in self.ranges)


class ShareQueue:
    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        share: SharePartition,
        log: StateWriter,
        surroundings: Surroundings,
    ) -> None:
        self.key = key
        self.partition = partition
        self.share = share
        self.version = 0
        self.is_closed = False
        self.log = log
        self._surroundings = surroundings
        self._facts = BatchTerms(share.settings)
        self._lending = FairLending()
        self._lending.begin(share.settings.filter != "")
        self._waiters: dict[Waiter, None] = {}

    @property
    def settings(self) -> QueueSettings:
        return self.share.settings

    @property
    def limit(self) -> Offset:
        """Records from here on are not for the group yet."""
        return self.partition.last_stable_offset if self._is_committed_only else self.partition.high_watermark

    @property
    def lag(self) -> int:
        return self.share.lag(self.partition.high_watermark)

    @property
    def waiting_count(self) -> int:
        """Fetches that wait here."""
        return len(self._waiters)

    def can_take(self) -> bool:
        offset = self.share.next_fetch_offset(self._surroundings.now_ms())
        return offset is not None and offset < self.limit and self._is_open

    # What members do

    async def read(
        self, max_bytes: int, max_records: int = MAX_RECORDS, *, must_fit: bool = False, sent: Container[Offset] = ()
    ) -> Span | None:
        """What there may be to take: batches of at most `max_bytes`, not many more than `max_records` records if all of
        them are new; None if there is nothing. The first batch may be larger, unless all of them must fit. Those of
        the base offsets `sent` are with the member already, and take no room."""
        self._follow_log_start()
        offset = self.share.next_fetch_offset(self._surroundings.now_ms())
        limit = self.limit
        if offset is None or offset >= limit or not self._is_open:
            return None
        if offset < self.share.end_offset:
            max_records = MAX_RECORDS  # those to be delivered again may be few among many
        found, aborted = await self._read(offset, max_bytes)
        batches: list[tuple[BatchHeader, Buffer]] = []
        for header, batch in found:
            if header.last_offset >= limit or max_records <= 0:
                break
            size = 0 if header.base_offset in sent else len(batch)
            if size > max_bytes and (batches or must_fit):
                if not batches:
                    return None
                break
            batches.append((header, batch))
            max_records -= header.record_count
            max_bytes -= size
        end_offset = batches[-1][0].last_offset + 1 if batches else limit
        return Span(offset, end_offset, batches, aborted)

    async def _read(
        self, offset: Offset, max_bytes: int
    ) -> tuple[Iterable[tuple[BatchHeader, Buffer]], Sequence[Aborted]]:
        """Batches, from memory if they are there; and what to leave out if the group reads committed records only."""
        aborted: Sequence[Aborted] = ()
        if self._is_committed_only:
            stable = self.partition.read_stable_tail(offset, max_bytes)
            if stable is None:
                data, aborted = await self.partition.read_stable(offset, max_bytes)
                return split(data), aborted
            tail, aborted = stable
        else:
            uncommitted = self.partition.read_tail(offset, max_bytes)
            if uncommitted is None:
                return split(await self.partition.read(offset, max_bytes)), aborted
            tail = uncommitted
        return ((parse_header(batch), batch) for batch in tail), aborted

    def part(self, member_id: str, max_records: int) -> int | None:
        """How many records a member may take at most, wherever a batch ends. None: as it likes."""
        if not self.settings.is_fair:
            return None
        lease_ms, now_ms = self.settings.record_lock_duration_ms, self._surroundings.now_ms()
        return self._lending.part(member_id, self.share.supply(self.limit), max_records, lease_ms, now_ms)

    def take(self, member_id: str, span: Span, max_records: int, mode: AcquireMode) -> Taken:
        read = LogRead(span.first_offset, span.end_offset, self._candidates(span, max_records))
        now_ms, looked_at = self._surroundings.now_ms(), self.share.end_offset
        acquisition = self.share.acquire(member_id, read, max_records, now_ms, mode)
        taken = Taken(acquisition.ranges, _overlapping(span.batches, acquisition.ranges))
        self._lending.took(member_id, taken.record_count, self.share.end_offset - looked_at, now_ms)
        if acquisition.changes.events:
            self._took(acquisition.changes)
        self._surroundings.arm(self)
        return taken

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgedBatch]
    ) -> tuple[AcknowledgeOutcome, "asyncio.Future[None]"]:
        """Decide at once; the answer may be given when the second value is done."""
        now_ms = self._surroundings.now_ms()
        result = self.share.acknowledge(member_id, batches, now_ms)
        self._lending.resolved(member_id, _resolved_count(batches, result), now_ms)
        logged = self._took(result.changes)
        self.changed()
        return result, logged

    def release_member(self, member_id: str) -> None:
        self._lending.gone(member_id)
        self._took(self.share.release_member(member_id, self._surroundings.now_ms()))
        self.changed()

    def give_back(self, member_id: str, ranges: Sequence[AcquiredRange]) -> None:
        """What the member took, if anything, is not sent, and it wants no more. The next may look: a wake-up may have
        been of no use."""
        self._lending.gone(member_id)
        self._took(self.share.give_back(member_id, ranges))
        self.changed()

    # What time and the broker do

    def expire(self) -> None:
        self._took(self.share.expire(self._surroundings.now_ms()))
        self.changed()

    def dead_letters_written(self, letters: Iterable[DeadLetter]) -> "asyncio.Future[None]":
        logged = self._took(self.share.dead_letters_written((letter.first, letter.last) for letter in letters))
        self.changed()
        return logged

    def reset(self, start_offset: Offset) -> "asyncio.Future[None]":
        logged = self._took(self.share.reset(start_offset))
        self.changed()
        return logged

    def reconfigure(self, settings: QueueSettings) -> None:
        self._watchers.discard(self)
        if settings.filter != self.settings.filter:
            self._lending.begin(settings.filter != "")
        self.share.reconfigure(settings)
        self._facts = BatchTerms(settings)
        if self._waiters:
            self._watchers.add(self)
        self.changed()

    async def forget(self) -> None:
        """The group is gone. Raises RequestError."""
        self.close()
        await self.log.forget()

    def close(self) -> None:
        """The queue ends: fetches that wait look again, and find another queue or none."""
        self.is_closed = True
        self.log.close()
        self._watchers.discard(self)
        self.version += 1
        while self._waiters:
            self._wake_next()

    # Waiting

    def wait(self, waiter: Waiter) -> None:
        self._lending.waits(waiter.member_id, self._surroundings.now_ms())
        self._waiters[waiter] = None
        self._watchers.add(self)

    def leave(self, waiter: Waiter) -> None:
        self._lending.went(waiter.member_id, self._surroundings.now_ms())
        self._waiters.pop(waiter, None)
        if not self._waiters:
            self._watchers.discard(self)

    def grew(self, size_bytes: int) -> None:
        """The log has more."""
        self.changed()

    def rights_changed(self) -> None:
        """Of clients."""
        for waiter in self._waiters:
            waiter.rights_changed()

    def changed(self) -> None:
        """There may be something to take that was not there before."""
        self._surroundings.arm(self)
        if self.can_take():
            self.version += 1
            self._wake_next()

    def ended(self, member_id: str, *, is_served: bool) -> None:
        """A fetch of the member is over: if there is more than it took, the next may look."""
        if is_served:
            self._lending.served(member_id)
        self.pass_on()

    def pass_on(self) -> None:
        """Who looked leaves something: the next may look."""
        if self._waiters and self.can_take():
            self._wake_next()

    def _wake_next(self) -> None:
        for waiter in self._waiters:
            if not waiter.has_seen(self):
                del self._waiters[waiter]
                waiter.wake()
                return

    # Inside

    @property
    def _is_open(self) -> bool:
        return not self.is_closed and not self.settings.is_paused

    @property
    def _is_committed_only(self) -> bool:
        return self.settings.isolation is IsolationLevel.READ_COMMITTED

    @property
    def _watchers(self) -> set[Watcher]:
        return self.partition.stable_watchers if self._is_committed_only else self.partition.watchers

    def _candidates(self, span: Span, max_records: int) -> list[CandidateBatch]:
        """The batches to choose from. Neighbours without anything special are one, as far as they would be taken
        together anyway: small batches then cost no more than large ones."""
        candidates: list[CandidateBatch] = []
        plain_first = plain_next = NO_OFFSET
        is_aborted = aborted_batches(span.aborted)
        for header, batch in span.batches:
            if header.is_control or (span.aborted and is_aborted(header)):
                continue
            first, last = header.base_offset, header.last_offset
            facts = self._facts.reader(header, batch)
            if facts is not None:
                candidates.append(CandidateBatch(first, last, facts))
            elif first == plain_next and last - plain_first < max_records:
                candidates[-1] = CandidateBatch(plain_first, last)
                plain_next = last + 1
            else:
                candidates.append(CandidateBatch(first, last))
                plain_first, plain_next = first, last + 1
        return candidates

    def _follow_log_start(self) -> None:
        if self.share.start_offset < self.partition.log_start:
            self._took(self.share.log_start_moved(self.partition.log_start))

    def _took(self, changes: Changes) -> "asyncio.Future[None]":
        logged = self.log.write(changes.events)
        if changes.dead_letters:
            self._surroundings.post(self, changes.dead_letters, logged)
        return logged


def _resolved_count(batches: Sequence[AcknowledgedBatch], result: AcknowledgeOutcome) -> int:
    """Records that the member is through with."""
    return sum(
        batch.last - batch.first + 1
        for batch, error in zip(batches, result.errors, strict=True)
        if not error and AcknowledgeType.RENEW not in batch.types
    )


def _overlapping(
    batches: Iterable[tuple[BatchHeader, Buffer]], ranges: Sequence[AcquiredRange]
) -> list[tuple[BatchHeader, Buffer]]:
    """Both rise by offset."""
    found: list[tuple[BatchHeader, Buffer]] = []
    position = 0
    for header, batch in batches:
        while position < len(ranges) and ranges[position].last < header.base_offset:
            position += 1
        if position == len(ranges):
            break
        if ranges[position].first <= header.last_offset:
            found.append((header, batch))
    return found
