"""One partition as one share group sees it: which records are available, who holds which, which are settled.

Decide → log → apply: every method that decides has changed the state in memory when it returns, and returns the events
that the log must take before anyone is told. A new `SharePartition` to which all events of the log were applied is in
the same state, except that nobody holds anything.

`now_ms` is the time of day, and must not run backwards.
"""

from collections.abc import Sequence

from headwater.queues.events import ShareEvent, ShareSnapshot
from headwater.queues.log_read import LogRead
from headwater.queues.outcomes import AcknowledgedBatch, AckResult, AcquireMode, Acquisition, Changes, DeadLetter
from headwater.queues.settings import QueueSettings


class SharePartition:
    def __init__(self, settings: QueueSettings, start_offset: int = 0) -> None:
        """Of a partition that was never read, log `snapshot()` first; else `apply` what the log has."""
        raise NotImplementedError

    # What is there

    @property
    def start_offset(self) -> int:
        """All records below are settled (SPSO)."""
        raise NotImplementedError

    @property
    def end_offset(self) -> int:
        """No record from here on was looked at yet (SPEO + 1)."""
        raise NotImplementedError

    @property
    def acquired_count(self) -> int:
        """Records held by members."""
        raise NotImplementedError

    @property
    def waiting_count(self) -> int:
        """Records that are delayed, rest after a failure, or wait for another record of their key."""
        raise NotImplementedError

    @property
    def has_ready(self) -> bool:
        """Whether a record below the end offset can be taken now: a reason to wake a fetch that waits."""
        raise NotImplementedError

    def lag(self, log_end_offset: int) -> int:
        """Records that are not settled (KIP-1226)."""
        raise NotImplementedError

    def next_fetch_offset(self, now_ms: int) -> int | None:
        """Where to read for the next acquire: the lowest available offset that is due, else the end offset. None when
        nothing can be taken before something is settled or due: do not read, wait."""
        raise NotImplementedError

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next."""
        raise NotImplementedError

    def pending_dead_letters(self) -> tuple[DeadLetter, ...]:
        """All that are not reported as written: after a restart, write them (again)."""
        raise NotImplementedError

    # What members do

    def acquire(
        self,
        member_id: str,
        read: LogRead,
        max_records: int,
        now_ms: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> Acquisition:
        """Lend available records of the span to the member. The state may have changed since `next_fetch_offset`."""
        raise NotImplementedError

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgedBatch], now_ms: int) -> AckResult:
        """Each batch as a whole or not at all. INVALID_REQUEST for all when batches overlap or are out of order, when
        types are unknown or their number is wrong; INVALID_REQUEST for one behind the end offset; INVALID_RECORD_STATE
        for one of which the member does not hold every record. Offsets below the start are left out of a batch that
        reaches above it."""
        raise NotImplementedError

    def release_member(self, member_id: str, now_ms: int) -> Changes:
        """The member is gone: what it holds is available again at once. The delivery counts, but brings no rest."""
        raise NotImplementedError

    # What time and the shell do

    def expire(self, now_ms: int) -> Changes:
        """Take back what is held for too long, wake what is due, and drop what is past its time to live."""
        raise NotImplementedError

    def dead_letters_written(self, first: int, last: int) -> Changes:
        """Archive what is ARCHIVING in the range; other offsets are left as they are."""
        raise NotImplementedError

    def log_start_moved(self, log_start_offset: int) -> Changes:
        """The log was trimmed: nothing below can be delivered any more."""
        raise NotImplementedError

    def reset(self, start_offset: int) -> Changes:
        """Begin anew at an offset, in either direction. Whoever holds records holds them no more."""
        raise NotImplementedError

    def reconfigure(self, settings: QueueSettings) -> None:
        """Leases that exist keep their end. Another order takes all leases back, uncounted, as a restart does."""
        raise NotImplementedError

    # What the log remembers

    def apply(self, event: ShareEvent) -> None:
        """Take over an event of the log. The only way in which durable state changes."""
        raise NotImplementedError

    def snapshot(self) -> ShareSnapshot:
        """One event instead of all so far."""
        raise NotImplementedError
