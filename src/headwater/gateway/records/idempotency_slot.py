"""Writing under an idempotency key: the records and a memo of the answer in one transaction.

Keys are spread over the partitions of an internal topic, its slots. A gateway that writes in a slot owns the slot's
transactional id: taking it over aborts what the owner before had begun, and makes its later commits fail. So an owner
that has read the slot to its end knows every memo in it, for as long as its commits succeed, and no key is
used twice, even when several gateways get the same request.

Everything here blocks; each slot is used by one thread at a time.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.errors import ClusterNotReady, ClusterUnavailable, KafkaFailure
from headwater.gateway.kafka.librdkafka_errors import UNREACHABLE, failure_of
from headwater.gateway.kafka.producer import Delivered, DeliveryOutcome, OutgoingRecord
from headwater.gateway.kafka.settings import client_settings, producer_settings

MEMO_TOPIC = "__http_requests"
SLOTS = 8
REMEMBERED_MS = 24 * 3_600_000
MAX_REMEMBERED = 50_000
"""Keys in one slot. The oldest are forgotten when there are more."""
TRANSACTION_TIMEOUT_MS = 30_000
TRIES = 4


class Memo(msgspec.Struct):
    fingerprint: str
    """Of the request: the same key with another one is a mistake."""
    answer: list[Delivered]


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request to write records under an idempotency key."""

    key: str
    fingerprint: str
    topic: str
    records: Sequence[OutgoingRecord]


@dataclass(frozen=True, slots=True)
class Written:
    outcomes: list[Delivered]
    is_replay: bool


KeyedAnswer: TypeAlias = Written | Problem | KafkaFailure


class _RecordRefused(Exception):
    """The cluster did not take a record, so nothing was written."""

    def __init__(self, error: KafkaError, topic: str) -> None:
        self.error = error
        self.topic = topic


class IdempotencySlot:
    def __init__(self, config: GatewayConfig, index: int) -> None:
        self._config = config
        self._index = index
        self._timeout_s = config.request_timeout_ms / 1000
        self._producer: Producer | None = None
        """None while this gateway does not own the slot."""
        self._consumer: Consumer | None = None
        self._offsets: dict[bytes, tuple[int, int]] = {}
        """Where the memo of a key is, and when it was written. The oldest is the first."""
        self._next_offset = 0

    def write_once(self, requests: Sequence[KeyedRequest]) -> list[KeyedAnswer]:
        """Write what was not written before, in one transaction, and answer all. No two requests may have one key."""
        for _ in range(TRIES):
            try:
                producer = self._own()
                return self._answer(producer, requests)
            except _RecordRefused as refused:
                if len(requests) > 1:
                    return [answer for request in requests for answer in self.write_once([request])]
                return [failure_of(refused.error, topic=refused.topic)]
            except KafkaException as error:
                # Another gateway took the slot over, or the cluster did not say how it ended. The next owner,
                # likely we, finds out by reading.
                self._disown()
                last = failure_of(error)
        is_passing = isinstance(last, ClusterNotReady | ClusterUnavailable)
        return [last if is_passing else ClusterUnavailable(str(last))] * len(requests)

    def close(self) -> None:
        self._disown()
        if self._consumer is not None:
            self._consumer.close()

    def _answer(self, producer: Producer, requests: Sequence[KeyedRequest]) -> list[KeyedAnswer]:
        answers: dict[str, KeyedAnswer] = {}
        new = []
        for request in requests:
            memo = self._remembered(request.key)
            if memo is None:
                new.append(request)
            elif memo.fingerprint != request.fingerprint:
                answers[request.key] = Problem(
                    422,
                    "Idempotency key reused",
                    "This Idempotency-Key came before, with another request. Use a key for one request only.",
                )
            else:
                answers[request.key] = Written(memo.answer, is_replay=True)
        if new:
            for request, outcomes in zip(new, self._write(producer, new), strict=True):
                answers[request.key] = Written(outcomes, is_replay=False)
        return [answers[request.key] for request in requests]

    def _write(self, producer: Producer, requests: Sequence[KeyedRequest]) -> list[list[Delivered]]:
        """The outcomes of each request, which are on disk with their memos. Raises KafkaException, _RecordRefused."""
        producer.begin_transaction()
        outcomes = self._send(producer, [(request.topic, record) for request in requests for record in request.records])
        answers = []
        for request in requests:
            own, outcomes = outcomes[: len(request.records)], outcomes[len(request.records) :]
            answers.append([self._delivered(producer, outcome, request.topic) for outcome in own])
        memos = self._send(
            producer,
            [
                (MEMO_TOPIC, self._memo_record(request, answer))
                for request, answer in zip(requests, answers, strict=True)
            ],
        )
        for memo in memos:
            if not isinstance(memo, Delivered):
                raise KafkaException(memo)
        producer.commit_transaction(self._timeout_s)
        for request, memo in zip(requests, memos, strict=True):
            self._remember(request.key.encode(), memo.offset, memo.timestamp)
        return answers

    def _delivered(self, producer: Producer, outcome: DeliveryOutcome, topic: str) -> Delivered:
        """Raises KafkaException, _RecordRefused: the transaction is aborted then."""
        if isinstance(outcome, Delivered):
            return outcome
        producer.abort_transaction(self._timeout_s)
        if outcome.code() in UNREACHABLE:
            raise KafkaException(outcome)
        self._disown()  # librdkafka may throw away what the same producer sends next
        raise _RecordRefused(outcome, topic)

    def _memo_record(self, request: KeyedRequest, answer: list[Delivered]) -> OutgoingRecord:
        memo = msgspec.json.encode(Memo(request.fingerprint, answer))
        return OutgoingRecord(memo, request.key.encode(), partition=self._index)

    def _send(self, producer: Producer, records: Sequence[tuple[str, OutgoingRecord]]) -> list[DeliveryOutcome]:
        """Send records, with their topics, and wait for the outcome of each. Raises KafkaException.

        Polled, not flushed: a producer that is fenced raises from the first call that hears of it. `poll` ends there;
        `flush`, and the end of a transaction with records on their way, would go on to call back for the others with
        that exception already set, which Python does not forgive."""
        outcomes: list[Any] = [None] * len(records)
        missing = len(records)

        def report_to(index: int) -> Callable[[KafkaError | None, Message], None]:
            def reported(error: KafkaError | None, message: Message) -> None:
                nonlocal missing
                missing -= 1
                outcomes[index] = error or Delivered(message.partition(), message.offset(), message.timestamp()[1])

            return reported

        until_s = time.monotonic() + self._timeout_s + 1
        for index, (topic, record) in enumerate(records):
            try:
                while not _takes(producer, topic, record, report_to(index)):
                    _poll(producer, until_s)
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                missing -= 1
                outcomes[index] = error.args[0]
        while missing:
            _poll(producer, until_s)
        return outcomes

    def _own(self) -> Producer:
        """The producer that owns the slot, which has read every memo in it. Raises KafkaException."""
        if self._producer is not None:
            return self._producer
        settings = producer_settings(
            self._config,
            transactional_id=f"headwater-http-{self._index}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        producer = Producer(settings)
        producer.init_transactions(self._timeout_s)
        self._catch_up()
        self._producer = producer
        return producer

    def _disown(self) -> None:
        """Forget the producer. What it had begun, its successor ends."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _catch_up(self) -> None:
        for message in self._read_from(self._next_offset):
            self._remember(message.key() or b"", message.offset(), message.timestamp()[1])

    def _remembered(self, key: str) -> Memo | None:
        offset, at_ms = self._offsets.get(_digest(key.encode()), (-1, 0))
        if offset < 0 or at_ms + REMEMBERED_MS < time.time_ns() // 1_000_000:
            return None
        for message in self._read_from(offset, 1):
            if message.offset() == offset:
                return msgspec.json.decode(message.value(), type=Memo)
        return None  # deleted by retention a moment ago

    def _remember(self, key: bytes, offset: int, at_ms: int) -> None:
        digest = _digest(key)
        self._offsets.pop(digest, None)
        self._offsets[digest] = (offset, at_ms)
        self._next_offset = max(self._next_offset, offset + 1)
        if len(self._offsets) > MAX_REMEMBERED:
            self._offsets.pop(next(iter(self._offsets)))

    def _read_from(self, offset: int, limit: int | None = None) -> list[Message]:
        """Committed memos from there to the end. Raises KafkaException when that takes too long."""
        if self._consumer is None:
            self._consumer = Consumer(_consumer_settings(self._config))
        self._consumer.assign([TopicPartition(MEMO_TOPIC, self._index, offset)])
        until_s = time.monotonic() + self._timeout_s
        found: list[Message] = []
        while limit is None or len(found) < limit:
            message = self._consumer.poll(0.1)
            if message is None:
                if time.monotonic() > until_s:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                continue
            error = message.error()
            if error is None:
                found.append(message)
                until_s = time.monotonic() + self._timeout_s
            elif error.code() == KafkaError._PARTITION_EOF:
                break
            else:
                raise KafkaException(error)
        self._consumer.unassign()
        return found


def _takes(producer: Producer, topic: str, record: OutgoingRecord, reported: Callable[..., None]) -> bool:
    """Whether the producer had room for the record."""
    try:
        producer.produce(
            topic, record.value, record.key, record.partition, reported,
            timestamp=record.timestamp_ms, headers=record.headers,
        )  # fmt: skip
    except BufferError:
        return False
    return True


def _poll(producer: Producer, until_s: float) -> None:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    producer.poll(left_s)


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()


def _consumer_settings(config: GatewayConfig) -> dict[str, Any]:
    return client_settings(
        config,
        group_id="headwater-gateway",
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        auto_offset_reset="earliest",
        enable_partition_eof=True,
        isolation_level="read_committed",
        fetch_wait_max_ms=50,
    )
