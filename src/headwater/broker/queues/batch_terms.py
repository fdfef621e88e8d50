"""Which batches a queue must look into, and what it finds there.

Most batches are never opened: no filter, no order by key, and no record with one of the headers that delay or expire
it. Whether such a header can be there is found by a search for its bytes; the answer is remembered, because a batch is
read again whenever one of its records is delivered again.
"""

from collections.abc import Sequence

from headwater.model.ids import Offsets
from headwater.model.replica import Buffer
from headwater.queues.delivery_terms import may_have_delivery_headers, terms_reader
from headwater.queues.log_read import DeliveryTerms, TermsReader
from headwater.queues.settings import QueueSettings
from headwater.records.batch import BatchHeader, CorruptBatch
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import payload, records

MAX_REMEMBERED = 4_096
"""Batches of one queue of which is known whether they must be opened."""


class BatchTerms:
    def __init__(self, settings: QueueSettings) -> None:
        self._reads_every_record = settings.reads_every_record
        self._read = terms_reader(settings)
        self._opens: dict[int, bool] = {}

    def reader(self, header: BatchHeader, batch: Buffer) -> TermsReader | None:
        if not self._reads_every_record and not self._must_open(header, batch):
            return None
        return lambda: self._facts(header, batch)

    def _must_open(self, header: BatchHeader, batch: Buffer) -> bool:
        known = self._opens.get(header.base_offset)
        if known is None:
            try:
                known = may_have_delivery_headers(payload(batch, header))
            except (CorruptBatch, DecompressedTooLarge):
                known = False
            if len(self._opens) >= MAX_REMEMBERED:
                self._opens.clear()
            self._opens[header.base_offset] = known
        return known

    def _facts(self, header: BatchHeader, batch: Buffer) -> Sequence[DeliveryTerms]:
        """A batch that cannot be decoded is delivered as it is: its reader finds out, and may reject it."""
        try:
            return self._read(records(batch, header))
        except (CorruptBatch, DecompressedTooLarge):
            return [DeliveryTerms(offset) for offset in Offsets(header.base_offset, header.last_offset + 1)]
