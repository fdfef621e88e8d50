"""Batches to the leaders of their partitions, each exactly once and in order: an idempotent producer.

A batch carries the producer's id, its epoch, and its sequence number in its partition. One that is sent again, because
a leader moved or an answer was lost, is recognised by that. There is one request under way for each leader, with one
batch of each partition; while brokers write, the caller packs what comes next.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headwater.model.errors import ErrorCode
from headwater.pipelines.client.apis import PRODUCE
from headwater.pipelines.client.cluster import RETRIABLE, ClusterClient, RetriableError, error_name
from headwater.pipelines.client.config import BrokerAddress
from headwater.pipelines.client.connection import BrokerConnection, ConnectionLost
from headwater.pipelines.client.offsets import TopicPartition
from headwater.pipelines.client.retry import RetryBackoff
from headwater.pipelines.errors import RequestRefused, SourceError
from headwater.pipelines.sink.batches import PackedBatch, record_count, stamp_producer
from headwater.pipelines.sink.errors import ProducerFenced, RecordTooLarge
from headwater.wire.message import Message

REQUEST_BYTES: Final = 16 * 1024 * 1024
"""Of batches in one request, but at least one batch."""
ALL_REPLICAS: Final = -1
_SEQUENCES: Final = 2**31

FENCES: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
PRODUCE_RETRIABLE: Final = RETRIABLE | {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


@dataclass(frozen=True, slots=True)
class SinkProducerIdentity:
    producer_id: int
    epoch: int
    transactional_id: str | None = None


class IdempotentProducer:
    def __init__(self, cluster: ClusterClient, identity: SinkProducerIdentity) -> None:
        self._cluster = cluster
        self._identity = identity
        self._sequences: dict[TopicPartition, int] = {}
        self._queues: dict[TopicPartition, deque[bytearray]] = {}
        self._under_way: dict[BrokerAddress, tuple[BrokerConnection, dict[TopicPartition, bytearray]]] = {}
        self._backoff: RetryBackoff | None = None
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
        for connection, _ in self._under_way.values():
            connection.close()
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
                    self._under_way[address] = (self._cluster.leader(to), {})
                self._under_way[address][1][to] = self._pop(to)
            for connection, batches in self._under_way.values():
                self._send_request(connection, batches)
        except ConnectionLost as error:
            self._try_again(self._cluster.unreachable(error), self._take_back())
        except RetriableError as error:
            self._try_again(error, self._take_back())

    def _send_request(self, connection: BrokerConnection, batches: dict[TopicPartition, bytearray]) -> None:
        topics: dict[str, list[Message]] = {}
        for to, data in batches.items():
            topics.setdefault(to.topic, []).append(Message(index=to.partition, records=data))
        request = Message(
            transactional_id=self._identity.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_data=[Message(name=name, partition_data=partitions) for name, partitions in topics.items()],
        )
        connection.send(PRODUCE, connection.version(PRODUCE), request)

    def _receive(self) -> None:
        """The answers to all requests under way. What passes is queued again, first."""
        failed: dict[TopicPartition, SourceError] = {}
        while self._under_way:
            address, (connection, batches) = self._under_way.popitem()
            try:
                answer = connection.receive()
            except ConnectionLost as error:
                self._put_back(batches)
                failed |= dict.fromkeys(batches, self._cluster.unreachable(error))
                continue
            codes = {
                TopicPartition(topic.name, result.index): result
                for topic in answer.responses or ()
                for result in topic.partition_responses or ()
            }
            for to, data in batches.items():
                failure = _failure(to, codes.get(to), address)
                if failure is not None:
                    self._put_back({to: data})
                    failed[to] = failure
                elif codes[to].base_offset >= 0:
                    self.ends[to] = codes[to].base_offset + record_count(data)
        if failed:
            self._try_again(next(iter(failed.values())), failed)
        else:
            self._backoff = None

    def _try_again(self, error: SourceError, partitions: Iterable[TopicPartition]) -> None:
        """Pause, unless it has gone on for too long."""
        for to in partitions:
            self._cluster.forget(to.topic)
        self._backoff = self._backoff or RetryBackoff(self._cluster.config.retry_timeout_ms)
        if not self._backoff.pause():
            raise error

    def _take_back(self) -> list[TopicPartition]:
        """The outcome of the requests of this round is unknown: they go out again."""
        taken: list[TopicPartition] = []
        for connection, batches in self._under_way.values():
            if not connection.is_idle:
                connection.close()
            self._put_back(batches)
            taken.extend(batches)
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


def _failure(to: TopicPartition, result: Message | None, address: BrokerAddress) -> SourceError | None:
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
    words = f": {result.error_message}" if getattr(result, "error_message", None) else ""
    refused = RequestRefused(f"Broker {address} does not take records for {to} ({error_name(code)}){words}")
    if code in PRODUCE_RETRIABLE:
        return refused
    raise refused
