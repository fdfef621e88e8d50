"""What a failed delivery leads to: another one after a rest, or the end."""

from headwater.model.ids import Offset
from headwater.queues.events import DeadLetterReason, RangeState, StateRange
from headwater.queues.settings import QueueSettings, RedeliveryBackoff


def backoff_ms(backoff: RedeliveryBackoff, failures: int) -> int:
    """How long a record rests after its n-th failure, counted from 1."""
    assert failures >= 1, "a record rests because it failed"
    if backoff.steps_ms:
        return backoff.steps_ms[min(failures, len(backoff.steps_ms)) - 1]
    return min(backoff.min_ms * failures, backoff.max_ms)


def after_failure(
    settings: QueueSettings, first: Offset, last: Offset, delivery_count: int, backoff_from_ms: int | None
) -> StateRange:
    """The state of records whose n-th delivery ended without success. They rest if it was a consumer's word; a lease
    that ran out and a member that left are not, and the records should reach another consumer soon."""
    if delivery_count >= settings.delivery_count_limit:
        return given_up(settings, first, last, delivery_count, DeadLetterReason.DELIVERY_LIMIT)
    delay_ms = 0 if backoff_from_ms is None else backoff_ms(settings.backoff, delivery_count)
    available_at_ms = backoff_from_ms + delay_ms if backoff_from_ms is not None and delay_ms > 0 else 0
    return StateRange(first, last, RangeState.AVAILABLE, delivery_count, available_at_ms)


def given_up(
    settings: QueueSettings, first: Offset, last: Offset, delivery_count: int, reason: DeadLetterReason
) -> StateRange:
    """The state of records that are not delivered any more."""
    if settings.has_dead_letters:
        return StateRange(first, last, RangeState.ARCHIVING, delivery_count, reason=reason)
    return StateRange(first, last, RangeState.ARCHIVED)
