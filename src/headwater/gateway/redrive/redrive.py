"""Sends dead letters back to where they came from, each of them once.

A run reads the dead-letter topic from where the last one was, up to the end that the topic has at the start: what
fails again meanwhile is for another run. Records are sent by an idempotent producer, in batches; the position moves
when a whole batch is acknowledged. `runs` tells what a run finds of those before it.

A letter goes to its original topic and partition, or to another topic by its key, with the headers it had.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import reduce
from operator import or_
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.client.librdkafka import POLL_S, REQUEST_TIMEOUT_S, poll_some
from headwater.gateway.redrive import cluster
from headwater.gateway.redrive.cluster import Settings
from headwater.gateway.redrive.dead_letter import (
    OFFSET,
    PARTITION,
    REDRIVE_OF,
    is_about_letters,
    is_bare,
    number_in,
    origin_of,
)
from headwater.gateway.redrive.failures import BadFilter, BadTarget, ClusterSilent, OriginUnknown, RedriveFailed
from headwater.gateway.redrive.originals import Originals
from headwater.gateway.redrive.runs import (
    CLEAN,
    ORIGIN,
    OtherRun,
    SentLetters,
    Unfinished,
    group_of,
    other_runs,
    sent_since,
)
from headwater.gateway.redrive.tally import RedriveOptions, Tally
from headwater.records.filter import Filter, FilterError, compile_filter

NOWHERE = -1001
"""librdkafka's word for no offset."""
BATCH_RECORDS = 500
MAX_DELIVERY_S = 60.0
SESSION_TIMEOUT_MS = 6_000
"""How long the next run waits for one that was killed: the shortest that brokers allow by default."""
MAX_SILENCE_S = 60.0
"""How long the dead-letter topic may give nothing before its end is reached."""


class Redrive:
    """One run. `on_progress` is called after each batch; when `is_stopping` tells so, it ends with the next one.

    Raises RedriveFailed, also when it is made, KafkaException and ClientError."""

    def __init__(
        self,
        options: RedriveOptions,
        settings: Settings,
        on_progress: Callable[[Tally], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self.tally = Tally()
        self._options = options
        self._settings = settings
        self._on_progress = on_progress
        self._is_stopping = is_stopping
        self._group = group_of(options.topic, options.expression)
        self._selects: Filter | None = _compiled(options.expression)
        self._partitions: dict[str, set[int]] = {}
        """Of each topic."""
        self._others: list[OtherRun] = []
        self._ends: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        """Of the dead-letter partitions that are ours now."""
        self._unfinished: dict[int, Unfinished] = {}
        """Of those where a run did not end in order."""
        self._sent: dict[str, SentLetters] = {}
        """By target, what such a run has sent."""
        self._originals = Originals(settings)
        self._failure: RedriveFailed | None = None
        self._undelivered: Any = None
        """The first error of a record that was sent."""
        self._fresh: set[int] = set()
        self._has_joined = False

    def run(self) -> Tally:
        options = self._options
        client = AdminClient(dict(self._settings))
        self._partitions = cluster.partitions_by_topic(client)
        if options.topic not in self._partitions:
            raise BadTarget(f"Topic {options.topic} does not exist.")
        if options.to is not None:
            self._check_target(options.to)
        self._ends = cluster.end_offsets(client, options.topic, self._partitions[options.topic])
        with closing(cluster.open_cluster(self._settings)) as own_client:
            self._others = other_runs(client, own_client, options.topic, self._group)
            if options.expression and not options.is_dry_run:
                cluster.name_filter(own_client, self._group, options.expression)
        consumer = Consumer({**self._settings, **_consumer_config(self._group)})
        producer = Producer({**self._settings, **_PRODUCER_CONFIG})
        try:
            with self._originals:
                self._join(consumer)
                self._go(consumer, producer)
        finally:
            consumer.close()
        return self.tally

    # In order

    def _join(self, consumer: Consumer) -> None:
        """A run that changes something is a member of its group, so that two at once share the partitions."""

        def assigned(_: object, gained: list[TopicPartition]) -> None:
            self._fresh |= {each.partition for each in gained}
            self._has_joined = True

        def revoked(_: object, lost: list[TopicPartition]) -> None:
            self._has_joined = False
            for each in lost:
                self._fresh.discard(each.partition)
                self._positions.pop(each.partition, None)

        if self._options.is_dry_run:
            self._fresh = set(self._ends)
            self._has_joined = True
            self._prepare(consumer)
            consumer.assign([self._position(index, offset) for index, offset in self._positions.items()])
        else:
            consumer.subscribe([self._options.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def _go(self, consumer: Consumer, producer: Producer) -> None:
        began_s = heard_s = time.monotonic()
        while not self._is_stopping():
            letters, ends = self._poll(consumer)
            if self._fresh:
                self._prepare(consumer)
            if letters or ends:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > MAX_SILENCE_S:
                raise ClusterSilent(f"Topic {self._options.topic} gave nothing for {MAX_SILENCE_S:.0f} seconds.")
            if letters:
                self._handle(letters, consumer, producer)
                self._on_progress(self.tally)
                self._keep_rate(began_s)
            if self._has_enough() or self._failure is not None:
                break
            for index in ends & self._positions.keys():
                self._positions[index] = max(self._positions[index], self._ends.get(index, 0))
            if self._has_joined and not self._is_behind():
                break
        self._commit(consumer, CLEAN)
        if self._failure is not None:
            raise self._failure

    def _poll(self, consumer: Consumer) -> tuple[list[Message], set[int]]:
        """The next letters, and the partitions that have no more after them: the last offsets need not be letters."""
        letters, ends = [], set()
        for message in poll_some(consumer, self._batch_records()):
            error = message.error()
            if error is None:
                letters.append(message)
            elif cluster.is_end(error):
                ends.add(message.partition())
        return letters, ends

    def _prepare(self, consumer: Consumer) -> None:
        """Learn how far earlier runs came in partitions that are new to us, and mark that we are at work."""
        fresh, self._fresh = sorted(self._fresh), set()
        asked = [self._position(index) for index in fresh]
        for position in consumer.committed(asked, timeout=REQUEST_TIMEOUT_S):
            low, _ = consumer.get_watermark_offsets(position, timeout=REQUEST_TIMEOUT_S)
            self._positions[position.partition] = max(position.offset, low)
            known = [
                Unfinished.parse(position.metadata),
                *(run.unfinished.get(position.partition) for run in self._others),
            ]
            unfinished = [each for each in known if each is not None]
            if unfinished:
                self._unfinished[position.partition] = reduce(or_, unfinished)
                self._sent.clear()
        self.tally.total = self.tally.looked_at + sum(
            max(self._ends.get(index, 0) - offset, 0) for index, offset in self._positions.items()
        )
        if not self._options.is_dry_run:
            self._commit(consumer, None, fresh)

    def _handle(self, letters: Sequence[Message], consumer: Consumer, producer: Producer) -> None:
        for letter in letters:
            index, offset = letter.partition(), letter.offset()
            if not self._positions.get(index, offset + 1) <= offset < self._ends.get(index, 0):
                continue
            if self._has_enough():
                break
            try:
                if self._is_selected(letter):
                    self._send(letter, producer)
            except RedriveFailed as failure:
                self._failure = failure  # raised when the letters before it are on their way
                break
            self.tally.looked_at += 1
            self._positions[index] = offset + 1
        self._deliver(producer)
        if not self._options.is_dry_run:
            self._commit(consumer, None)

    def _is_selected(self, letter: Message) -> bool:
        if self._selects is not None and not self._selects(letter.key(), tuple(letter.headers() or ())):
            self.tally.filtered += 1
            return False
        was_sent = any(other.has_sent(letter) for other in self._others)
        unfinished = self._unfinished.get(letter.partition())
        if not was_sent and unfinished is not None:
            offset = (letter.partition(), letter.offset())
            targets = {origin_of(letter) if target == ORIGIN else target for target in unfinished.targets}
            was_sent = any(offset in self._sent_to(target).letters for target in targets)
        self.tally.sent_before += was_sent
        return not was_sent

    def _send(self, letter: Message, producer: Producer) -> None:
        target, partition = self._target(letter)
        record = self._original(letter) if is_bare(letter) else letter
        if record is None:
            self.tally.gone += 1
            return
        self.tally.targets[target] += 1
        if self._options.is_dry_run:
            return
        origin = f"{letter.topic()}/{letter.partition()}/{letter.offset()}"
        headers = [(name, value) for name, value in record.headers() or () if not is_about_letters(name)]
        pinned = {} if partition is None else {"partition": partition}
        producer.produce(
            target,
            key=record.key(),
            value=record.value(),
            headers=[*headers, (REDRIVE_OF, origin.encode())],
            on_delivery=self._delivered,
            **pinned,
        )

    def _deliver(self, producer: Producer) -> None:
        """Wait until everything that was sent has arrived. Polled, not flushed: that ends at the first exception."""
        until_s = time.monotonic() + MAX_DELIVERY_S
        while len(producer):
            if time.monotonic() > until_s:
                raise ClusterSilent(f"The cluster did not take records for {MAX_DELIVERY_S:.0f} seconds.")
            producer.poll(POLL_S)
        if self._undelivered is not None:
            raise KafkaException(self._undelivered)

    def _delivered(self, error: Any, _: object) -> None:
        self._undelivered = self._undelivered or error

    # Inside

    def _target(self, letter: Message) -> tuple[str, int | None]:
        if self._options.to is not None:
            return self._options.to, None
        topic = origin_of(letter)
        if not topic:
            name = f"{letter.topic()}/{letter.partition()}/{letter.offset()}"
            raise OriginUnknown(f"The record {name} does not say where it came from.")
        self._check_target(topic)
        index = number_in(letter, PARTITION)
        return topic, index if index in self._partitions[topic] else None

    def _original(self, letter: Message) -> Message | None:
        """The record that a letter without a copy tells of, if it is still there."""
        topic, index = origin_of(letter), number_in(letter, PARTITION)
        if index not in self._partitions.get(topic, ()):
            return None
        return self._originals.read(topic, index, number_in(letter, OFFSET))

    def _check_target(self, topic: str) -> None:
        if topic not in self._partitions:
            raise BadTarget(f"Topic {topic} does not exist.")
        if topic == self._options.topic:
            raise BadTarget(f"{topic} is the dead-letter topic itself.")

    def _sent_to(self, target: str) -> SentLetters:
        if target not in self._sent:
            since_ms = min(unfinished.since_ms for unfinished in self._unfinished.values())
            partitions = self._partitions.get(target, ())
            self._sent[target] = sent_since(self._settings, self._options.topic, target, partitions, since_ms)
            self.tally.may_repeat |= not self._sent[target].is_complete
        return self._sent[target]

    def _has_enough(self) -> bool:
        return self._options.limit is not None and self.tally.redriven >= self._options.limit

    def _is_behind(self) -> bool:
        return any(offset < self._ends.get(index, 0) for index, offset in self._positions.items())

    def _batch_records(self) -> int:
        rate = self._options.rate_per_s
        return BATCH_RECORDS if rate is None else max(1, min(BATCH_RECORDS, rate // 5))

    def _keep_rate(self, began_s: float) -> None:
        if self._options.rate_per_s is not None and not self._options.is_dry_run:
            due_s = began_s + self.tally.redriven / self._options.rate_per_s
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _commit(self, consumer: Consumer, state: str | None, indexes: Iterable[int] | None = None) -> None:
        """With no state given, we are at work, and what is sent from now on is not committed yet."""
        if self._options.is_dry_run:
            return
        ours = Unfinished(time.time_ns() // 1_000_000, frozenset((self._options.to or ORIGIN,)))
        positions = [
            self._position(index, self._positions[index], state or str(self._unfinished.get(index, ours) | ours))
            for index in (self._positions if indexes is None else indexes)
            if index in self._positions
        ]
        if positions:
            for position in consumer.commit(offsets=positions, asynchronous=False):
                if position.error is not None:
                    raise KafkaException(position.error)

    def _position(self, index: int, offset: int = NOWHERE, metadata: str | None = None) -> TopicPartition:
        if metadata is None:
            return TopicPartition(self._options.topic, index, offset)
        return TopicPartition(self._options.topic, index, offset, metadata)


_PRODUCER_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,
    "linger.ms": 1,
    "message.max.bytes": 128 * 1024 * 1024,  # what the dead-letter topic took, the other may take
    "partitioner": "murmur2_random",
    "allow.auto.create.topics": False,
}


def _consumer_config(group: str) -> dict[str, Any]:
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
    }


def _compiled(expression: str | None) -> Filter | None:
    if expression is None:
        return None
    try:
        return compile_filter(expression)
    except FilterError as error:
        raise BadFilter(f"{expression!r}: {error}.") from error
