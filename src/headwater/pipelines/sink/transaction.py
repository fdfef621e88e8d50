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
from typing import Any, Final

from headwater.model.errors import ErrorCode
from headwater.pipelines.client.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from headwater.pipelines.client.cluster import ClusterClient
from headwater.pipelines.client.offsets import TopicPartition
from headwater.pipelines.client.retry import RetryBackoff
from headwater.pipelines.errors import SourceError
from headwater.pipelines.sink.batches import PackedBatch
from headwater.pipelines.sink.coordinator import GROUP, TRANSACTION, Coordinated, TransactionCoordinators
from headwater.pipelines.sink.errors import ProducerFenced, Superseded
from headwater.pipelines.sink.markers import BatchMarker, BatchMarkers, read_markers
from headwater.pipelines.sink.producer import REQUEST_BYTES, IdempotentProducer, SinkProducerIdentity
from headwater.wire.message import Message

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
        backoff = RetryBackoff(cluster.config.retry_timeout_ms)
        for _ in range(MAX_ATTEMPTS - 1 if name.batch_id is not None else 0):
            try:
                return attempt.write(batches)
            except ProducerFenced:
                attempt.check_replaced()
                if not backoff.pause():
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
        self._transaction = Coordinated(TRANSACTION, name.transactional_id)
        self._group = Coordinated(GROUP, name.transactional_id)

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
        identity = self._begin()
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

    def _begin(self) -> SinkProducerIdentity:
        answer = self._coordinators.ask(
            self._transaction,
            INIT_PRODUCER_ID,
            transactional_id=self._name.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
        )
        return SinkProducerIdentity(answer.producer_id, answer.producer_epoch, self._name.transactional_id)

    def _write(self, identity: SinkProducerIdentity, batches: Sequence[PackedBatch], markers: BatchMarkers) -> None:
        partitions = sorted({batch.to for batch in batches})
        self._add_partitions(identity, partitions)
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
        answer = self._coordinators.ask(
            self._group, OFFSET_FETCH, _offset_errors, group_id=self._group.name, topics=None, require_stable=True
        )
        offsets = [
            (partition.committed_offset, partition.metadata)
            for topic in answer.topics or ()
            for partition in topic.partitions or ()
        ]
        return read_markers(self._group.name, offsets)

    def _add_partitions(self, identity: SinkProducerIdentity, partitions: Sequence[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        self._coordinators.ask(
            self._transaction,
            ADD_PARTITIONS_TO_TXN,
            _added_errors,
            v3_and_below_transactional_id=identity.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[Message(name=name, partitions=indexes) for name, indexes in topics.items()],
        )

    def _commit_marker(
        self, identity: SinkProducerIdentity, marker: BatchMarker, ends: Mapping[TopicPartition, int]
    ) -> None:
        producer: dict[str, Any] = {
            "transactional_id": identity.transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
            "group_id": self._group.name,
        }
        self._coordinators.ask(self._transaction, ADD_OFFSETS_TO_TXN, **producer)
        offsets: dict[str, list[Message]] = {}
        for number, (to, end) in enumerate(ends.items()):
            text = marker.text(is_short=number > 0)
            offset = Message(partition_index=to.partition, committed_offset=end, committed_metadata=text)
            offsets.setdefault(to.topic, []).append(offset)
        topics = [Message(name=name, partitions=partitions) for name, partitions in offsets.items()]
        self._coordinators.ask(self._group, TXN_OFFSET_COMMIT, _offset_errors, **producer, topics=topics)

    def _end(self, identity: SinkProducerIdentity, *, is_commit: bool, retry_timeout_ms: int | None = None) -> None:
        self._coordinators.ask(
            self._transaction,
            END_TXN,
            retry_timeout_ms=retry_timeout_ms,
            transactional_id=identity.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=is_commit,
        )


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


def _offset_errors(answer: Message) -> list[int]:
    codes = [partition.error_code for topic in answer.topics or () for partition in topic.partitions or ()]
    return [*codes, getattr(answer, "error_code", ErrorCode.NONE)]


def _added_errors(answer: Message) -> list[int]:
    """One that cannot be added spoils the others, which say so."""
    codes = [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below or ()
        for partition in topic.results_by_partition or ()
    ]
    return [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
