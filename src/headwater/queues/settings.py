"""How one group treats the records it shares: one frozen value, made by `queue_keys.parse_queue_settings`."""

import enum
from dataclasses import dataclass
from typing import Final

MAX_WAITING_RECORDS: Final = 100_000
"""Records of one partition that are read but not due, or behind another of their key. They take no locks; when there
are this many, nothing further is read."""


class ShareOrder(enum.Enum):
    NONE = "none"
    KEY = "key"


class IsolationLevel(enum.Enum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class ResetTo(enum.Enum):
    """Where a group begins on a partition that it never read."""

    EARLIEST = "earliest"
    LATEST = "latest"
    DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    to: ResetTo = ResetTo.LATEST
    duration_ms: int = 0
    """With DURATION: records of this age and younger are read."""


@dataclass(frozen=True, slots=True)
class RedeliveryBackoff:
    """How long a released record rests before it is delivered again; `redelivery.backoff_ms` has the arithmetic.

    With steps, the n-th failure rests the n-th of them, and the last for all that follow; otherwise min times failures,
    at most max."""

    min_ms: int = 0
    max_ms: int = 0
    steps_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSettings:
    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    """Records of one partition that may be held, released and not taken yet, or on their way to the dead letters."""
    max_waiting_records: int = MAX_WAITING_RECORDS
    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    offset_reset: OffsetReset = OffsetReset()
    order: ShareOrder = ShareOrder.NONE
    is_fair: bool = True
    """Whether a member leaves their part to others that want some: see `fair_lending`."""
    backoff: RedeliveryBackoff = RedeliveryBackoff()
    dead_letter_topic: str = ""
    """Empty: what is rejected, fails too often or expires is archived and gone."""
    copies_dead_letters: bool = True
    """Whether key, value and headers of a dead letter are copied, or only where it came from."""
    filter: str = ""
    """A `filter.compile_filter` expression; empty takes every record."""
    record_ttl_ms: int | None = None
    """How old a record may become, from its timestamp on, unless one of its headers says otherwise."""
    is_paused: bool = False
    """Nothing is delivered for now. What is held may be finished, and comes back when its lease ends."""

    @property
    def has_dead_letters(self) -> bool:
        return self.dead_letter_topic != ""

    @property
    def reads_every_record(self) -> bool:
        """Whether every batch must come with the facts of its records, not only those with delivery headers."""
        return self.order is ShareOrder.KEY or self.filter != "" or self.record_ttl_ms is not None
