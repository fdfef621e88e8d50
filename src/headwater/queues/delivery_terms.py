"""From a record to what decides about its delivery: the headers of delay and time to live, the key, the filter.

    headwater.deliver-at   decimal epoch ms: not to be delivered before
    headwater.delay        decimal ms after the record's timestamp, the same; deliver-at wins over it
    headwater.ttl          decimal ms: expired so long after the record's timestamp, or after its time of delivery if
                           it is delayed; wins over the group's own

A header that is no whole number, negative, or absurdly large is taken as absent: what a producer writes must not keep a
record from everyone.
"""

from collections.abc import Callable, Iterable
from typing import Final

from headwater.queues.log_read import DeliveryTerms
from headwater.queues.settings import QueueSettings, ShareOrder
from headwater.records.filter import Filter, compile_filter
from headwater.records.record import Headers, Record

DELIVER_AT: Final = "headwater.deliver-at"
DELAY: Final = "headwater.delay"
TTL: Final = "headwater.ttl"

MAX_TIME_MS: Final = 2**53
"""Times and spans beyond are not meant: this is the year 287396."""

_NAMES: Final = (DELIVER_AT, DELAY, TTL)
_COMMON_PREFIX: Final = b"headwater."


def terms_reader(settings: QueueSettings) -> Callable[[Iterable[Record]], list[DeliveryTerms]]:
    """A function that reads the facts of the records of a batch, for `CandidateBatch.read_terms`. Make it once for
    each setting: it compiles the filter. Raises FilterError if that is none."""
    matches: Filter | None = compile_filter(settings.filter) if settings.filter else None
    is_ordered = settings.order is ShareOrder.KEY
    group_ttl_ms = settings.record_ttl_ms

    def read(records: Iterable[Record]) -> list[DeliveryTerms]:
        terms = []
        for key, _, headers, timestamp, offset in records:
            deliver_at_ms, ttl_ms = _times(headers, timestamp) if headers else (None, None)
            if ttl_ms is None:
                ttl_ms = group_ttl_ms
            expires_at_ms = None if ttl_ms is None else max(timestamp, deliver_at_ms or 0) + ttl_ms
            if ttl_ms is not None and timestamp < 0 and deliver_at_ms is None:
                expires_at_ms = None  # Without a timestamp a record has no age.
            passes = matches is None or matches(key, headers)
            terms.append(DeliveryTerms(offset, key if is_ordered else None, deliver_at_ms, expires_at_ms, passes))
        return terms

    return read


def may_have_delivery_headers(payload: bytes) -> bool:
    """Whether the (decompressed) records of a batch could carry one of the headers: a search, without decoding."""
    return _COMMON_PREFIX in payload


def _times(headers: Headers, timestamp: int) -> tuple[int | None, int | None]:
    """When to deliver, and how long to live."""
    found = {name: _whole_number(value) for name, value in headers if name in _NAMES}
    deliver_at_ms = found.get(DELIVER_AT)
    delay_ms = found.get(DELAY)
    if deliver_at_ms is None and delay_ms is not None and timestamp >= 0:
        deliver_at_ms = timestamp + delay_ms
    return deliver_at_ms, found.get(TTL)


def _whole_number(value: bytes | None) -> int | None:
    if value is None or len(value) > len(str(MAX_TIME_MS)) or not value.isdigit():
        return None
    number = int(value)
    return number if number <= MAX_TIME_MS else None
