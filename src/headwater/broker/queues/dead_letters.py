"""Dead letters: records that a share group gave up on, copied to the group's dead-letter topic (KIP-1191).

Each letter says where it came from and why, in headers:

    headwater.dlq.topic  .topic-id  .partition  .offset  .timestamp    the original
    headwater.dlq.group  .reason  .delivery-count                      who gave it up, why (rejected, delivery-limit,
                                                                       expired), after how many deliveries

The decision to give a record up is logged before its letter is written, and that it was written is logged after. A
crash in between, or a leader on another node that did not answer, leaves the question open; it is answered by looking
for the letter in the newest SCAN_RECORDS records of the dead-letter topic, so that a letter lands once. What cannot be
written (no such topic, full disk) is tried again as long as the queue lives: nothing is given up silently. A record
that retention took first has no letter.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from operator import attrgetter

from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.nodes.partition_client import PartitionClient
from headwater.broker.queues.share_queue import ShareQueue
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.logs.events import log_event
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import FIRST_OFFSET, Offset, PartitionId
from headwater.model.replica import StoreError, StoreFailed
from headwater.queues.events import DeadLetterReason
from headwater.queues.outcomes import DeadLetter
from headwater.records.batch import BatchHeader, CorruptBatch, split
from headwater.records.build import build_batch, chunked
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import Headers, Record, records

PREFIX = "headwater.dlq."
GROUP_ENABLE = "errors.deadletterqueue.group.enable"
SCAN_RECORDS = 200_000
"""Letters that can have been under way at one time, of all queues that share a dead-letter topic."""
READ_BYTES = 256 * 1024
MAX_BATCH_BYTES = 1024 * 1024
"""Letters that are written together; a single larger one goes alone."""
FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 30.0


class DeadLetters:
    def __init__(self, catalog: Catalog, config: BrokerConfig, clock: Clock, nodes: NodeClient) -> None:
        self._catalog = catalog
        self._partitions = PartitionClient(catalog, nodes)
        self.config = config
        self._clock = clock

    async def write(self, queue: ShareQueue, letters: Sequence[DeadLetter], logged: "asyncio.Future[None]") -> None:
        """Write letters once the decision for them is logged."""
        try:
            await logged
        except RequestError:
            return  # the queue is read again from its log
        await self._write_all(queue, letters, frozenset())

    async def resume(self, queue: ShareQueue, letters: Sequence[DeadLetter]) -> None:
        """Write letters that were decided before a restart, except those that are there."""
        await self._write_all(queue, letters, None)

    # Inside

    async def _write_all(
        self, queue: ShareQueue, letters: Sequence[DeadLetter], written: AbstractSet[Offset] | None
    ) -> None:
        """`written` says what is there already; None: look."""
        retry_s = FIRST_RETRY_S
        rest = sorted(letters, key=attrgetter("first"))
        while rest and not queue.is_closed:
            try:
                if written is None:
                    written = await self._find_written(queue)
                rest = await self._write_some(queue, rest, written)
                await asyncio.sleep(0)
            except StoreFailed:
                raise
            except (RequestError, StoreError, Unavailable, Unknown) as error:
                written = None  # what was tried last may be there
                retry_s = await _pause(queue, retry_s, error)

    async def _write_some(
        self, queue: ShareQueue, letters: list[DeadLetter], written: AbstractSet[Offset]
    ) -> list[DeadLetter]:
        """Write the first of the letters, which rise by offset: those that one read of the log reaches. Report them,
        and say what is left."""
        settings = queue.settings
        now: Sequence[DeadLetter] = letters
        rest: list[DeadLetter] = []
        if settings.has_dead_letters:
            topic = await self._topic(settings.dead_letter_topic, queue.partition.rules.replication_factor)
            target = topic.partition_id(queue.partition.id.index % topic.partition_count)
            found = split(await queue.partition.read(letters[0].first, READ_BYTES))
            if found:
                now, rest = _divided(letters, found[-1][0].last_offset + 1)
            for header, batch in found:
                copies = [
                    _letter(queue, letter, record, settings.copies_dead_letters)
                    for letter, record in _given_up(now, header, batch)
                    if record.offset not in written
                ]
                await self._append(target, copies, header.compression)
        await queue.dead_letters_written(now)
        return rest

    async def _append(self, target: PartitionId, copies: Sequence[Record], compression: int) -> None:
        for chunk in chunked(copies, MAX_BATCH_BYTES):
            batch = build_batch(chunk, timestamp=self._clock.now_ms(), compression=compression)
            await self._partitions.append(target, batch)

    async def _topic(self, name: str, replication_factor: int) -> Topic:
        topic = self._catalog.find(name)
        if topic is None:
            if not self.config.dead_letter_auto_create:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Dead-letter topic {name} does not exist.")
            try:
                topic = await self._catalog.changes.create(
                    name, self.config.default_partitions, {GROUP_ENABLE: "true"}, replication_factor=replication_factor
                )
            except RequestError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                topic = self._catalog.topic(name)
            assert topic is not None, "a topic that was not only validated"
        if not topic.config.errors_deadletterqueue_group_enable:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"Topic {name} does not allow dead letters ({GROUP_ENABLE}).")
        return topic

    async def _find_written(self, queue: ShareQueue) -> set[Offset]:
        """Which of the queue's records have a letter already."""
        topic = self._catalog.find(queue.settings.dead_letter_topic) if queue.settings.has_dead_letters else None
        wanted = _origin(queue)
        found: set[Offset] = set()
        for index in range(topic.partition_count if topic is not None else 0):
            assert topic is not None, "no topic has no partitions"
            partition = topic.partition_id(index)
            _, end, _ = await self._partitions.read(partition, FIRST_OFFSET, 1)
            offset = max(end - SCAN_RECORDS, FIRST_OFFSET)
            while offset < end:
                batches = split((await self._partitions.read(partition, offset, READ_BYTES)).batches)
                if not batches:
                    break
                for header, batch in batches:
                    found |= _offsets_from(wanted, _readable(header, batch))
                offset = batches[-1][0].last_offset + 1
                await asyncio.sleep(0)
        return found


async def _pause(queue: ShareQueue, seconds: float, error: Exception) -> float:
    partition = f"{queue.partition.topic_name}-{queue.partition.id.index}"
    log_event("dead_letter_failed", logging.WARNING, group=queue.key.group_id, partition=partition, error=error)
    await asyncio.sleep(seconds)
    return min(seconds * 2, LONGEST_RETRY_S)


def _readable(header: BatchHeader, batch: memoryview) -> Iterator[Record]:
    """The records of a batch; a batch that cannot be decoded has no dead letter."""
    if header.is_control:
        return
    try:
        yield from records(batch, header)
    except (CorruptBatch, DecompressedTooLarge) as error:
        log_event("dead_letter_unreadable", logging.WARNING, offset=header.base_offset, error=error)


def _divided(letters: Sequence[DeadLetter], end: Offset) -> tuple[list[DeadLetter], list[DeadLetter]]:
    """What lies below `end`, and the rest."""
    below = [replace(each, last=min(each.last, end - 1)) for each in letters if each.first < end]
    return below, [replace(each, first=max(each.first, end)) for each in letters if each.last >= end]


def _given_up(
    letters: Sequence[DeadLetter], header: BatchHeader, batch: memoryview
) -> Iterator[tuple[DeadLetter, Record]]:
    """The records of a batch that are letters, which rise by offset. A batch is read once for all of them, and not at
    all for none."""
    index = bisect_left(letters, header.base_offset, key=attrgetter("last"))
    if index == len(letters) or letters[index].first > header.last_offset:
        return
    for record in _readable(header, batch):
        while letters[index].last < record.offset:
            index += 1
            if index == len(letters):
                return
        if letters[index].first <= record.offset:
            yield letters[index], record


def _origin(queue: ShareQueue) -> dict[str, bytes]:
    """The headers that all letters of a queue have in common."""
    return {
        PREFIX + "topic": queue.partition.topic_name.encode(),
        PREFIX + "topic-id": queue.partition.id.topic_id.hex.encode(),
        PREFIX + "partition": b"%d" % queue.partition.id.index,
        PREFIX + "group": queue.key.group_id.encode(),
    }


def _letter(queue: ShareQueue, letter: DeadLetter, record: Record, copies: bool) -> Record:
    own: Headers = (
        *_origin(queue).items(),
        (PREFIX + "offset", b"%d" % record.offset),
        (PREFIX + "timestamp", b"%d" % record.timestamp),
        (PREFIX + "reason", _reason(letter.reason).encode()),
        (PREFIX + "delivery-count", b"%d" % letter.delivery_count),
    )
    if not copies:
        return Record(None, None, own)
    # A letter that was sent back and failed again tells of its last failure alone.
    kept = tuple(header for header in record.headers if not header[0].startswith(PREFIX))
    return Record(record.key, record.value, kept + own)


def _reason(reason: DeadLetterReason) -> str:
    return reason.name.lower().replace("_", "-")


def _offsets_from(origin: dict[str, bytes], letters: Iterator[Record]) -> set[Offset]:
    found: set[Offset] = set()
    for record in letters:
        headers = dict(record.headers)
        offset = headers.get(PREFIX + "offset") or b""
        if offset.isdigit() and all(headers.get(name) == value for name, value in origin.items()):
            found.add(Offset(int(offset)))
    return found
