"""What one partition remembers of its idempotent and transactional producers (KIP-98, KIP-360, KIP-890).

A producer numbers its records per partition. The next batch must go on where the last one ended; one of the last
five, sent again, is a duplicate and is answered with the offsets it got the first time. A new epoch starts at
sequence 0 and fences the old one. A producer that is not known, because it is new or was forgotten, may start
anywhere: refusing it would stop a client that did nothing wrong.

A transaction begins with its producer's first transactional batch and ends with a marker. Whether it may begin is the
coordinator's to say, and the caller's to ask.

`check` and `check_marker` decide and change nothing; `append` and `end` apply what was stored, live and at recovery
alike; `truncate` takes back what could not be stored, exactly: until `commit` says that an offset is committed, what
was before it is kept beside it. Of a producer whose very first batch is taken back one thing stays known: where it
began. Batches of it that are still on their way would otherwise be taken for the first.

Memory is bounded by the number of producers: past it the one not heard of for longest is forgotten. One with an open
transaction never is, which is why no more than half of them may have one.
"""

import enum
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_OFFSET, Offset
from headwater.records.batch import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from headwater.records.control import EndMarker
from headwater.transactions.producer import (
    NO_EPOCH,
    ProducerState,
    follows,
    last_sequence_of,
)

MAX_PRODUCERS: Final = 5_000


class Accept(enum.Enum):
    ACCEPT = enum.auto()


ACCEPT: Final = Accept.ACCEPT


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is here already, at these offsets. It may not be acknowledged before it is committed."""

    base_offset: Offset
    last_offset: Offset
    timestamp: int


@dataclass(frozen=True, slots=True)
class EndedBefore:
    """There is no transaction that the marker could end, and no producer that it would fence."""

    marker_offset: Offset
    """Where the last marker is; NO_OFFSET if that was long ago."""


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int = NO_EPOCH
    current_txn_start_offset: Offset = NO_OFFSET


class _Before(NamedTuple):
    """What a batch or marker replaced: the producer before it, or None."""

    last_offset: Offset
    producer_id: int
    producer: ProducerState | None


_LAST_OFFSET = attrgetter("last_offset")


class ProducerStates:
    """The producers of one partition."""

    __slots__ = ("_befores", "_committed", "_max_producers", "_open_count", "_producers")

    def __init__(
        self, max_producers: int = MAX_PRODUCERS, producers: Mapping[int, ProducerState] | None = None
    ) -> None:
        """`producers` are committed, those heard of for longest first; of too many the latest are kept."""
        assert max_producers > 0, "at least the producer that is writing is remembered"
        self._max_producers = max_producers
        self._producers = dict(producers or {})
        self._open_count = sum(producer.is_open for producer in self._producers.values())
        self._befores: list[_Before] = []
        self._committed = 0
        for _ in range(len(self._producers) - max_producers):
            self._forget_oldest()

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def get(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    # Deciding

    def check(self, header: BatchHeader) -> Accept | Duplicate:
        """Whether a producer's batch goes on where its last one ended, or RequestError."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if header.is_transactional:
                self._check_begin()
            return ACCEPT
        epoch = header.producer_epoch
        first = header.base_sequence
        if epoch < producer.epoch:
            raise _old_epoch(header.producer_id, producer.epoch, epoch, "batch")
        if epoch > producer.epoch:
            if first != 0:
                raise _out_of_order(header, f"a new epoch starts with 0, after {producer.epoch}")
        elif not follows(first, producer.last_sequence):
            last = last_sequence_of(header)
            for batch in producer.batches:
                if batch.base_sequence == first and batch.last_sequence == last:
                    return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
            raise _out_of_order(header, f"the last one was {producer.last_sequence}")
        if header.is_transactional:
            if not producer.is_open:
                self._check_begin()
        elif producer.is_open:
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has an open transaction here, and the batch is not part of one.",
            )
        return ACCEPT

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> Accept | EndedBefore:
        """Whether a marker has anything to say here, or RequestError. To a producer that is not known it does: it
        fences."""
        if producer_id < 0 or producer_epoch < 0:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"There is no producer {producer_id} with epoch {producer_epoch}."
            )
        producer = self._producers.get(producer_id)
        if producer is None:
            return ACCEPT
        if producer_epoch < producer.epoch:
            raise _old_epoch(producer_id, producer.epoch, producer_epoch, "marker")
        if coordinator_epoch < producer.coordinator_epoch:
            raise RequestError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Producer {producer_id} had a marker of coordinator epoch {producer.coordinator_epoch} already; "
                f"this one has {coordinator_epoch}.",
            )
        if producer.is_open or producer_epoch > producer.epoch:
            return ACCEPT
        return EndedBefore(producer.marker_offset)

    # Applying

    def append(self, header: BatchHeader, now_ms: int = NO_TIMESTAMP) -> bool:
        """Remember a batch of records that is in the log; say whether a transaction begins with it. Nothing is
        checked: a compacted log has gaps in its sequences.

        `now_ms` counts for expiry; without it the batch's own time stands in."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return False
        # Taken out and put back at the end, which keeps the dict in the order of last use.
        before = self._producers.pop(producer_id, None)
        if before is None:
            self._make_room(header.last_offset)
            before = ProducerState(header.producer_epoch, header.base_sequence - 1)
        after = self._producers[producer_id] = before.appended(header, now_ms)
        self._befores.append(_Before(header.last_offset, producer_id, before))
        begins = after.transaction_start != before.transaction_start
        self._open_count += begins
        return begins

    def end(self, header: BatchHeader, marker: EndMarker, now_ms: int = NO_TIMESTAMP) -> Offset:
        """Remember a marker that is in the log; say where the transaction began that it ended, or NO_OFFSET."""
        before = self._producers.get(header.producer_id)
        if before is None:
            self._make_room(header.last_offset)
        self._befores.append(_Before(header.last_offset, header.producer_id, before))
        self._put(header.producer_id, (before or ProducerState(header.producer_epoch)).ended(header, marker, now_ms))
        return before.transaction_start if before is not None else NO_OFFSET

    def commit(self, offset: Offset) -> None:
        """Everything below `offset` is committed and will not be taken back."""
        befores = self._befores
        if befores:
            if befores[-1].last_offset < offset:
                befores.clear()
            else:
                del befores[: bisect_left(befores, offset, key=_LAST_OFFSET)]
        if offset > self._committed:
            self._committed = offset

    def truncate(self, offset: Offset) -> None:
        """Forget what was appended at or past `offset`: it could not be stored, and will be sent again."""
        assert offset >= self._committed, f"what is committed, up to {self._committed}, is not taken back"
        befores = self._befores
        while befores and befores[-1].last_offset >= offset:
            _, producer_id, producer = befores.pop()
            self._put(producer_id, producer)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers not heard of for that long, unless a transaction is open; say how many."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now_ms - producer.seen_at_ms >= expiration_ms and not producer.is_open
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    # Telling

    def at(self, offset: Offset) -> Mapping[int, ProducerState]:
        """All producers as if only the batches below `offset` had been appended, those heard of for longest first."""
        assert offset >= self._committed, f"what was before {self._committed} is not remembered"
        if not self._befores or self._befores[-1].last_offset < offset:
            return self._producers
        producers = dict(self._producers)
        for last_offset, producer_id, producer in reversed(self._befores):
            if last_offset < offset:
                break
            producers.pop(producer_id, None)
            if producer is not None:
                producers[producer_id] = producer
        return producers

    def open_starts(self) -> list[Offset]:
        """Where the open transactions begin, in no order."""
        return [producer.transaction_start for producer in self._producers.values() if producer.is_open]

    def last_offsets(self) -> dict[int, Offset]:
        """The last offset of each producer's last batch: compaction keeps that batch, so that recovery from a
        compacted log still knows the sequence."""
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in self._producers.items()
            if producer.batches
        }

    def describe(self) -> list[ProducerDescription]:
        return [
            ProducerDescription(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
            for producer_id, producer in self._producers.items()
        ]

    # Inside

    def _check_begin(self) -> None:
        if self._open_count >= max(self._max_producers // 2, 1):
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._open_count} transactions are open in this partition, as many as there may be. "
                "Abort this one, and try again when others have ended.",
            )

    def _make_room(self, last_offset: Offset) -> None:
        """For a producer that comes with the batch that ends there."""
        if len(self._producers) >= self._max_producers:
            forgotten = self._forget_oldest()
            if forgotten is not None:
                self._befores.append(_Before(last_offset, *forgotten))

    def _put(self, producer_id: int, producer: ProducerState | None) -> None:
        old = self._producers.pop(producer_id, None)
        if old is not None and old.is_open:
            self._open_count -= 1
        if producer is not None:
            self._producers[producer_id] = producer
            self._open_count += producer.is_open

    def _forget_oldest(self) -> tuple[int, ProducerState] | None:
        """A producer with an open transaction is kept, and moved to the end of the order."""
        for _ in range(len(self._producers)):
            producer_id = next(iter(self._producers))
            producer = self._producers.pop(producer_id)
            if not producer.is_open:
                return producer_id, producer
            self._producers[producer_id] = producer
        return None


def _old_epoch(producer_id: int, known: int, epoch: int, what: str) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"Producer {producer_id} has epoch {known} by now; the {what} has {epoch}."
    )


def _out_of_order(header: BatchHeader, why: str) -> RequestError:
    return RequestError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id}, epoch {header.producer_epoch}: sequence {header.base_sequence}, but {why}.",
    )
