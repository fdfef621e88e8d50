"""One batch of rows in one transaction: all of it is written, together with its marker, or none of it.

    look       have we been replaced? is the batch there already?
    begin      a new epoch for the transactional id: its last holder can write no more, and what it left open
               is aborted
    look       again: no other producer can have committed since
    write      the batches, then the marker as offsets of the group
    commit     one decision of the coordinator

It all happens in one call, in the driver, with batches that tasks have packed. So it can also happen again: when
another producer began a transaction meanwhile, the markers tell whether that was a newer run, which wins, or an older
one that was replaced and does not know it. A batch without a number has no marker that could tell whether it was
committed in spite of that, so it is tried once.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.cluster_client import ClusterClient, backoff
from headwater.pipelines.errors import SourceError
from headwater.pipelines.sink.batches import PackedBatch
from headwater.pipelines.sink.coordinator import TransactionCoordinators
from headwater.pipelines.sink.errors import ProducerFenced, Superseded
from headwater.pipelines.sink.markers import BatchMarker, BatchMarkers, read_markers
from headwater.pipelines.sink.producer import REQUEST_BYTES, IdempotentProducer, SinkProducerIdentity
from headwater.pipelines.sink.producer_requests import (
    add_group,
    add_partitions,
    commit_offsets,
    end_transaction,
    fetch_stable_offsets,
    init_producer,
)

MAX_ATTEMPTS: Final = 10
"""Each ends because another producer began a transaction, or because it took longer than its timeout."""


@dataclass(frozen=True, slots=True)
class BatchName:
    """Which batch it is, of whom."""

    transactional_id: str
    query_id: str = ""
    run_id: str = ""
    """Empty: there are no runs that could replace each other."""
    batch_id: int | None = None
    """None: it is written once, whatever happened before."""


def write_in_transaction(
    cluster: ClusterClient, name: BatchName, batches: Sequence[PackedBatch], transaction_timeout_ms: int
) -> bool:
    """Write the batch unless it is there; say whether that was needed. Raises Superseded if a newer run writes
    under the same transactional id, and SourceError for all else that prevents it."""
    assert batches, "a batch without rows needs no transaction"
    with TransactionCoordinators(cluster) as coordinators:
        attempt = _Attempt(cluster, coordinators, name, transaction_timeout_ms)
        pauses = backoff(cluster.config.retry_timeout_ms)
        for _ in range(MAX_ATTEMPTS - 1 if name.batch_id is not None else 0):
            try:
                return attempt.write(batches)
            except ProducerFenced:
                attempt.check_replaced()
                if not pauses.pause():
                    raise
        return attempt.write(batches)


class _Attempt:
    def __init__(
        self, cluster: ClusterClient, coordinators: TransactionCoordinators, name: BatchName, timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._name = name
        self._timeout_ms = timeout_ms
        self._group_id = name.transactional_id

    def check_replaced(self) -> BatchMarkers:
        """The markers as they are now. Raises Superseded."""
        markers = self._markers()
        if self._name.run_id and markers.have_replaced(self._name.run_id):
            raise Superseded(
                f"Another run writes as {self._name.transactional_id} by now, so this one stops: two queries have the "
                "same transactionalId or checkpoint, or this one was started again elsewhere. Let one of them run."
            )
        return markers

    def write(self, batches: Sequence[PackedBatch]) -> bool:
        if self._is_written(self.check_replaced()):
            return False
        identity = self._coordinators.answer(init_producer(self._name.transactional_id, self._timeout_ms))
        markers = self.check_replaced()
        if self._is_written(markers):
            return False
        try:
            self._write(identity, batches, markers)
        except SourceError:
            with contextlib.suppress(SourceError):
                self._end(identity, is_commit=False, retry_timeout_ms=0)
            raise
        self._end(identity, is_commit=True)
        return True

    def _is_written(self, markers: BatchMarkers) -> bool:
        batch_id = self._name.batch_id
        return batch_id is not None and markers.has_batch(self._name.query_id, batch_id)

    def _write(self, identity: SinkProducerIdentity, batches: Sequence[PackedBatch], markers: BatchMarkers) -> None:
        partitions = sorted({batch.to for batch in batches})
        self._coordinators.answer(add_partitions(identity, partitions))
        producer = IdempotentProducer(self._cluster, identity)
        try:
            for portion in _portions(batches):
                producer.send(portion)
            producer.flush()
        finally:
            producer.close()
        if self._name.batch_id is not None:
            marker = markers.after(self._name.query_id, self._name.run_id, self._name.batch_id)
            # What ends the transaction is a record, too.
            ends = {to: producer.ends[to] + 1 if to in producer.ends else 0 for to in partitions}
            self._commit_marker(identity, marker, ends)

    def _markers(self) -> BatchMarkers:
        if self._name.batch_id is None:
            return BatchMarkers()
        offsets = self._coordinators.answer(fetch_stable_offsets(self._group_id))
        return read_markers(self._group_id, offsets)

    def _commit_marker(
        self, identity: SinkProducerIdentity, marker: BatchMarker, ends: Mapping[TopicPartition, int]
    ) -> None:
        self._coordinators.answer(add_group(identity, self._group_id))
        offsets = {to: (end, marker.text(is_short=number > 0)) for number, (to, end) in enumerate(ends.items())}
        self._coordinators.answer(commit_offsets(identity, self._group_id, offsets))

    def _end(self, identity: SinkProducerIdentity, *, is_commit: bool, retry_timeout_ms: int | None = None) -> None:
        self._coordinators.answer(end_transaction(identity, is_commit=is_commit), retry_timeout_ms)


def _portions(batches: Sequence[PackedBatch]) -> Iterator[list[PackedBatch]]:
    """Copies, because sending stamps them, and another attempt begins with what tasks have packed."""
    portion: list[PackedBatch] = []
    size_bytes = 0
    for to, data in batches:
        portion.append(PackedBatch(to, bytearray(data)))
        size_bytes += len(data)
        if size_bytes >= REQUEST_BYTES:
            yield portion
            portion, size_bytes = [], 0
    yield portion
