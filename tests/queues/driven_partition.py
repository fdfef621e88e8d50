"""One share partition driven by hand: what is fetched and acknowledged comes back as plain tuples, and everything that
was decided can be replayed."""

from collections.abc import Sequence
from typing import Any

from headwater.model.errors import ErrorCode
from headwater.queues.events import ShareEvent
from headwater.queues.log_read import CandidateBatch, DeliveryTerms, LogRead
from headwater.queues.outcomes import AcknowledgedBatch, AcquireMode, Changes, DeadLetter
from headwater.queues.settings import QueueSettings
from headwater.queues.share_partition import SharePartition

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
START_MS = 1_000_000


class DrivenPartition:
    """A log of batches of ten records: offsets 0 to 9, 10 to 19, and so on up to `log_end`."""

    def __init__(self, log_end: int = 100, terms: Sequence[DeliveryTerms] | None = None, **settings: Any) -> None:
        self.settings = QueueSettings(**settings)
        self.queue = SharePartition(self.settings)
        self.events: list[ShareEvent] = [self.queue.snapshot()]
        self.dead_letters: list[DeadLetter] = []
        self.now_ms = START_MS
        self.log_end = log_end
        self.terms = terms
        self.facts_read = 0

    def fetch(
        self, member: str, count: int = 10, mode: AcquireMode = AcquireMode.RECORD_LIMIT
    ) -> list[tuple[int, ...]]:
        """Ranges (first, last, delivery count)."""
        first = self.queue.next_fetch_offset(self.now_ms)
        if first is None:
            return []
        batches = [self._batch(base) for base in range(first // 10 * 10, self.log_end, 10)]
        read = LogRead(first, self.log_end, batches)
        acquisition = self.queue.acquire(member, read, count, self.now_ms, mode)
        self.take(acquisition.changes)
        return [(each.first, each.last, each.delivery_count) for each in acquisition.ranges]

    def ack(self, member: str, first: int, last: int, *types: int) -> ErrorCode:
        result = self.queue.acknowledge(member, [AcknowledgedBatch(first, last, types)], self.now_ms)
        self.take(result.changes)
        return result.error

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.take(self.queue.expire(self.now_ms))

    def take(self, changes: Changes) -> None:
        self.events += changes.events
        self.dead_letters += changes.dead_letters

    def restart(self) -> None:
        self.queue = SharePartition(self.settings)
        for event in self.events:
            self.queue.apply(event)

    def _batch(self, base: int) -> CandidateBatch:
        last = min(base + 9, self.log_end - 1)
        if self.terms is None:
            return CandidateBatch(base, last)
        return CandidateBatch(base, last, lambda: self._read_facts(base, last))

    def _read_facts(self, first: int, last: int) -> list[DeliveryTerms]:
        assert self.terms is not None
        self.facts_read += 1
        return [each for each in self.terms if first <= each.offset <= last]
