"""From a record to what decides about its delivery: the headers of delay and time to live, the key, the filter.

headwater.deliver-at   decimal epoch ms: not to be delivered before
headwater.delay        decimal ms after the record's timestamp, the same
headwater.ttl          decimal ms after the record's timestamp (after the time of delivery of a delayed one): expired
"""

from collections.abc import Callable, Iterable
from typing import Final

from headwater.queues.log_read import RecordFacts
from headwater.queues.settings import QueueSettings
from headwater.records.record import Record

DELIVER_AT: Final = "headwater.deliver-at"
DELAY: Final = "headwater.delay"
TTL: Final = "headwater.ttl"


def facts_reader(settings: QueueSettings) -> Callable[[Iterable[Record]], list[RecordFacts]]:
    """A function that reads the facts of the records of a batch, for `CandidateBatch.read_facts`. Make it once for
    each setting: it compiles the filter. A header that is no number is taken as absent."""
    raise NotImplementedError


def may_have_delivery_headers(payload: bytes) -> bool:
    """Whether the (decompressed) records of a batch could carry one of the headers: a search, without decoding."""
    raise NotImplementedError
