"""Writing under an idempotency key: the records and a memo of the answer in one transaction.

Keys are spread over the partitions of an internal topic, its slots. Whoever wants to write in a slot is the owner of
the slot's transactional id: taking it over ends what the owner before had begun, and makes its later commits fail. So
an owner that has read the slot to its end knows every memo in it, for as long as its commits succeed, and no key is
used twice, even when several gateways get the same request.

Everything here blocks; each slot is used by one thread at a time.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import Problem, unavailable
from headwater.gateway.kafka.errors import UNREACHABLE, problem_of
from headwater.gateway.kafka.producer import Delivered, Outcome, OutgoingRecord
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
class Asked:
    key: str
    fingerprint: str
    topic: str
    records: Sequence[OutgoingRecord]


@dataclass(frozen=True, slots=True)
class Written:
    outcomes: list[Delivered]
    is_replay: bool


Settled: TypeAlias = Written | Problem


class _Refused(Exception):
    """Some records were not taken, so nothing was written."""

    def __init__(self, error: Any, topic: str) -> None:
        self.error = error
        self.topic = topic


class MemoSlot:
    def __init__(self, config: GatewayConfig, index: int) -> None:
        self._config = config
        self._index = index
        self._timeout_s = config.request_timeout_ms / 1000
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._offsets: dict[bytes, tuple[int, int]] = {}
        """Where the memo of a key is, and when it was written. The oldest is the first."""
        self._next_offset = 0

    def settle(self, group: Sequence[Asked]) -> list[Settled]:
        """Write what was not written before, in one transaction, and answer all. Keys are different in a group."""
        for _ in range(TRIES):
            try:
                self._own()
                return self._settle(group)
            except _Refused as refused:
                if len(group) > 1:
                    return [settled for asked in group for settled in self.settle([asked])]
                return [problem_of(refused.error, topic=refused.topic)]
            except KafkaException as error:
                # Another gateway took the slot over, or the cluster did not say how it ended. The next owner,
                # likely we, finds out by reading.
                self._disown()
                last = problem_of(error)
        return [last if last.status == 503 else unavailable(last.detail)] * len(group)

    def close(self) -> None:
        self._disown()
        if self._consumer is not None:
            self._consumer.close()

    def _settle(self, group: Sequence[Asked]) -> list[Settled]:
        settled: dict[str, Settled] = {}
        fresh = []
        for asked in group:
            memo = self._remembered(asked.key)
            if memo is None:
                fresh.append(asked)
            elif memo.fingerprint != asked.fingerprint:
                settled[asked.key] = Problem(
                    422,
                    "Idempotency key reused",
                    "This Idempotency-Key came before, with another request. Use a key for one request only.",
                )
            else:
                settled[asked.key] = Written(memo.answer, is_replay=True)
        if fresh:
            for asked, outcomes in zip(fresh, self._write(fresh), strict=True):
                settled[asked.key] = Written(outcomes, is_replay=False)
        return [settled[asked.key] for asked in group]

    def _write(self, fresh: Sequence[Asked]) -> list[list[Delivered]]:
        assert self._producer is not None, "owned"
        self._producer.begin_transaction()
        answers = []
        outcomes = self._send([(asked.topic, record) for asked in fresh for record in asked.records])
        for asked in fresh:
            mine, outcomes = outcomes[: len(asked.records)], outcomes[len(asked.records) :]
            delivered = [each for each in mine if isinstance(each, Delivered)]
            for each in mine:
                if not isinstance(each, Delivered):
                    self._producer.abort_transaction(self._timeout_s)
                    if each.code() in UNREACHABLE:
                        raise KafkaException(each)
                    self._disown()  # librdkafka may throw away what the same producer sends next
                    raise _Refused(each, asked.topic)
            answers.append(delivered)
        memos = [
            (
                MEMO_TOPIC,
                OutgoingRecord(
                    msgspec.json.encode(Memo(asked.fingerprint, answer)), asked.key.encode(), partition=self._index
                ),
            )
            for asked, answer in zip(fresh, answers, strict=True)
        ]
        places = self._send(memos)
        for place in places:
            if not isinstance(place, Delivered):
                raise KafkaException(place)
        self._producer.commit_transaction(self._timeout_s)
        for asked, place in zip(fresh, places, strict=True):
            assert isinstance(place, Delivered), "looked at above"
            self._remember(asked.key.encode(), place.offset, place.timestamp)
        return answers

    def _send(self, records: Sequence[tuple[str, OutgoingRecord]]) -> list[Outcome]:
        """Wait until it is known of each what became of it. Raises KafkaException.

        Polled, not flushed: a producer that is fenced raises from the first call that hears of it. `poll` ends there;
        `flush`, and the end of a transaction with records on their way, would go on to call back for the others with
        that exception already set, which Python does not forgive."""
        assert self._producer is not None, "owned"
        outcomes: list[Any] = [None] * len(records)
        missing = len(records)

        def report_to(index: int) -> Any:
            def reported(error: Any, message: Any) -> None:
                nonlocal missing
                missing -= 1
                outcomes[index] = error or Delivered(message.partition(), message.offset(), message.timestamp()[1])

            return reported

        until_s = time.monotonic() + self._timeout_s + 1
        for index, (topic, record) in enumerate(records):
            try:
                while not self._takes(topic, record, report_to(index)):
                    self._poll(until_s)
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                missing -= 1
                outcomes[index] = error.args[0]
        while missing:
            self._poll(until_s)
        return outcomes

    def _takes(self, topic: str, record: OutgoingRecord, reported: Any) -> bool:
        """Whether the producer has room for it."""
        assert self._producer is not None, "owned"
        try:
            self._producer.produce(
                topic, record.value, record.key, record.partition, reported,
                timestamp=record.timestamp_ms, headers=record.headers,
            )  # fmt: skip
        except BufferError:
            return False
        return True

    def _poll(self, until_s: float) -> None:
        assert self._producer is not None, "owned"
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._producer.poll(left_s)

    def _own(self) -> None:
        if self._producer is not None:
            return
        settings = producer_settings(
            self._config,
            transactional_id=f"headwater-http-{self._index}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        producer = Producer(settings)
        producer.init_transactions(self._timeout_s)
        self._catch_up()
        self._producer = producer

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

    def _read_from(self, offset: int, limit: int | None = None) -> list[Any]:
        """Committed memos from there to the end. Raises KafkaException when that takes too long."""
        if self._consumer is None:
            self._consumer = Consumer(_consumer_settings(self._config))
        self._consumer.assign([TopicPartition(MEMO_TOPIC, self._index, offset)])
        until_s = time.monotonic() + self._timeout_s
        found: list[Any] = []
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
