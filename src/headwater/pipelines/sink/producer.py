"""Batches to the leaders of their partitions, each exactly once and in order: an idempotent producer.

A batch carries the producer's id, its epoch, and its sequence number in its partition. One that is sent again, because
a leader moved or an answer was lost, is recognised by that. There is one request under way for each leader, with one
batch of each partition; while brokers write, the caller packs what comes next.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headwater.client.address import BrokerAddress
from headwater.client.blocking_backoff import BlockingBackoff
from headwater.client.blocking_connection import BlockingConnection
from headwater.client.errors import BrokerRefused, ConnectionLost
from headwater.client.exchange import Sent
from headwater.client.topic_partition import TopicPartition
from headwater.model.errors import ErrorCode, error_name
from headwater.pipelines.client.cluster_client import ClusterClient, backoff
from headwater.pipelines.client.refusals import is_passing
from headwater.pipelines.errors import RequestRefused, RetriableError, SourceError
from headwater.pipelines.sink.batches import PackedBatch, record_count, stamp_producer
from headwater.pipelines.sink.errors import ProducerFenced, RecordTooLarge
from headwater.wire.typed.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

REQUEST_BYTES: Final = 16 * 1024 * 1024
"""Of batches in one request, but at least one batch."""
ALL_REPLICAS: Final = -1
_SEQUENCES: Final = 2**31

FENCES: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class SinkProducerIdentity:
    producer_id: int
    epoch: int
    transactional_id: str | None = None

    @property
    def transaction(self) -> str:
        assert self.transactional_id is not None, "a producer in a transaction has an id for it"
        return self.transactional_id


@dataclass(slots=True)
class _Underway:
    """One request to one leader."""

    connection: BlockingConnection
    batches: dict[TopicPartition, bytearray] = field(default_factory=dict)
    sent: Sent[ProduceResponse] | None = None


class IdempotentProducer:
    def __init__(self, cluster: ClusterClient, identity: SinkProducerIdentity) -> None:
        self._cluster = cluster
        self._identity = identity
        self._sequences: dict[TopicPartition, int] = {}
        self._queues: dict[TopicPartition, deque[bytearray]] = {}
        self._under_way: dict[BrokerAddress, _Underway] = {}
        self._backoff: BlockingBackoff | None = None
        self.ends: dict[TopicPartition, int] = {}
        """The offset after the last record of each partition that was written, where the broker said it."""

    def send(self, batches: Iterable[PackedBatch]) -> None:
        """Return when the last request with them is on its way. Raises SourceError if one cannot be written."""
        for to, data in batches:
            sequence = self._sequences.get(to, 0)
            count = stamp_producer(
                data,
                self._identity.producer_id,
                self._identity.epoch,
                sequence,
                is_transactional=self._identity.transactional_id is not None,
            )
            self._sequences[to] = (sequence + count) % _SEQUENCES
            self._queues.setdefault(to, deque()).append(data)
        while self._queues:
            self._receive()
            self._send_round()

    def flush(self) -> None:
        """Return when everything is written."""
        self._receive()
        while self._queues:
            self._send_round()
            self._receive()

    def close(self) -> None:
        """Give up what is under way."""
        for underway in self._under_way.values():
            underway.connection.close()
        self._under_way.clear()
        self._queues.clear()

    def _send_round(self) -> None:
        """The first batch of every partition that has some, as far as a request to its leader has room."""
        sizes: dict[BrokerAddress, int] = {}
        try:
            for to in list(self._queues):
                address = self._cluster.leader_address(to)
                data = self._queues[to][0]
                size = sizes.get(address, 0)
                if size and size + len(data) > REQUEST_BYTES:
                    continue
                sizes[address] = size + len(data)
                if address not in self._under_way:
                    self._under_way[address] = _Underway(self._cluster.leader(to))
                self._under_way[address].batches[to] = self._pop(to)
            for underway in self._under_way.values():
                underway.sent = underway.connection.send(self._request(underway.batches))
        except ConnectionLost as error:
            self._try_again(self._cluster.unreachable(error), self._take_back())
        except RetriableError as error:
            self._try_again(error, self._take_back())

    def _request(self, batches: dict[TopicPartition, bytearray]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for to, data in batches.items():
            topics.setdefault(to.topic, []).append(PartitionProduceData(index=to.partition, records=data))
        return ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=partitions) for name, partitions in topics.items()],
        )

    def _receive(self) -> None:
        """The answers to all requests under way. What passes is queued again, first."""
        failed: dict[TopicPartition, SourceError] = {}
        while self._under_way:
            address, underway = self._under_way.popitem()
            assert underway.sent is not None, "a round ends with all its requests sent, or taken back"
            try:
                response = underway.connection.receive(underway.sent)
            except ConnectionLost as error:
                self._put_back(underway.batches)
                failed |= dict.fromkeys(underway.batches, self._cluster.unreachable(error))
                continue
            results = {
                TopicPartition(topic.name, result.index): result
                for topic in response.responses
                for result in topic.partition_responses
            }
            for to, data in underway.batches.items():
                failure = _failure(to, results.get(to), address)
                if failure is not None:
                    self._put_back({to: data})
                    failed[to] = failure
                elif results[to].base_offset >= 0:
                    self.ends[to] = results[to].base_offset + record_count(data)
        if failed:
            self._try_again(next(iter(failed.values())), failed)
        else:
            self._backoff = None

    def _try_again(self, error: SourceError, partitions: Iterable[TopicPartition]) -> None:
        """Pause, unless it has gone on for too long."""
        for to in partitions:
            self._cluster.forget(to.topic)
        self._backoff = self._backoff or backoff(self._cluster.config.retry_timeout_ms)
        if not self._backoff.pause():
            raise error

    def _take_back(self) -> list[TopicPartition]:
        """The outcome of the requests of this round is unknown: they go out again."""
        taken: list[TopicPartition] = []
        for underway in self._under_way.values():
            if not underway.connection.is_idle:
                underway.connection.close()
            self._put_back(underway.batches)
            taken.extend(underway.batches)
        self._under_way.clear()
        return [*taken, *self._queues]

    def _pop(self, to: TopicPartition) -> bytearray:
        queue = self._queues[to]
        data = queue.popleft()
        if not queue:
            del self._queues[to]
        return data

    def _put_back(self, batches: dict[TopicPartition, bytearray]) -> None:
        for to, data in batches.items():
            self._queues.setdefault(to, deque()).appendleft(data)


def _failure(to: TopicPartition, result: PartitionProduceResponse | None, address: BrokerAddress) -> SourceError | None:
    """Why a batch is not written yet. Raises what does not pass."""
    if result is None:
        return RequestRefused(f"Broker {address} left {to} out of its answer.")
    code = result.error_code
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return None
    if code in FENCES:
        raise ProducerFenced(
            f"Another producer writes under the same transactional id by now: {to} does not take our batch."
        )
    if code in TOO_LARGE:
        raise RecordTooLarge(
            f"Topic {to.topic} does not take a batch of this size. Make batchBytes smaller; if one record is too "
            "large by itself, make the topic's max.message.bytes larger."
        )
    words = f": {result.error_message}" if result.error_message else ""
    failure = RequestRefused(f"Broker {address} does not take records for {to} ({error_name(code)}){words}")
    if is_passing(BrokerRefused(code, result.error_message, str(to))):
        return failure
    raise failure
