"""Reading without a group: consumers that are lent out for one request each, in threads, as many as are configured.

A consumer keeps its connections and its memory of the cluster between requests; it is made when it is needed first.
"""

import asyncio
import heapq
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headwater.gateway.config import GatewayConfig
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.errors import ClientBusy, ClusterNotReady
from headwater.gateway.kafka.librdkafka_errors import failure_of
from headwater.gateway.kafka.settings import client_settings
from headwater.gateway.kafka.until_ready import retry_until_ready
from headwater.model.ids import PartitionName
from headwater.model.position import Anchor, Position, offset_in

SLICE_S = 0.1
"""A thread that waits for records looks this often whether the gateway stops."""
MAX_SCAN_RECORDS = 200_000
MAX_SCAN_S = 5.0
"""How far one request searches for a key; the next one goes on from there."""
FETCH_BATCH = 500
RECORD_OVERHEAD_BYTES = 100
"""Counted for each record beside its bytes: empty ones take memory, too."""

Message: TypeAlias = Any
"""A confluent_kafka.Message."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    topic: str
    partitions: tuple[int, ...]
    position: Position
    limit: int
    max_bytes: int
    wait_ms: int = 0
    """How long to wait for the first record, if there is none yet."""
    key: bytes | None = None
    """Only records with this key."""


@dataclass(slots=True)
class ReadResult:
    records: list[Message] = field(default_factory=list)
    next: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


class RecordReader:
    def __init__(self, config: GatewayConfig, admin: Admin) -> None:
        self._config = config
        self._admin = admin
        self._pool = ThreadPoolExecutor(config.readers, thread_name_prefix="gateway-reader")
        self._idle: list[Consumer] = []
        self._busy = 0
        self._stopping = threading.Event()

    async def read(self, request: ReadRequest) -> ReadResult:
        """Committed records, in the order of their time, each partition's in the order of their offsets."""
        if self._busy >= self._config.readers:
            raise ClientBusy(f"{self._busy} requests read at this moment. Try it again in a moment.")
        self._busy += 1
        try:
            names = [(request.topic, partition) for partition in request.partitions]
            held = await retry_until_ready(lambda: self._held(names))
            at_time = {}
            if request.position.anchor is Anchor.TIME:
                spec = OffsetSpec.for_timestamp(request.position.value)
                at_time = await self._admin.offsets(list(held), spec)
            starts = {
                name[1]: offset_in(request.position, start, end, at_time.get(name))
                for name, (start, end) in held.items()
            }
            result = ReadResult(next=starts, ends={name[1]: end for name, (_, end) in held.items()})
            if request.wait_ms or any(starts[partition] < end for partition, end in result.ends.items()):
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._pool, self._read, request, result)
            return result
        except KafkaException as error:
            raise failure_of(error, topic=request.topic) from None
        finally:
            self._busy -= 1

    async def _held(self, names: Sequence[PartitionName]) -> dict[PartitionName, tuple[int, int]]:
        """From where to where the records are. A topic that was just made has no leaders yet."""
        held = await self._admin.offset_range(names, committed=True)
        if not held:
            await (
                self._admin.metadata()
            )  # librdkafka goes on believing that there is no leader until it gets new metadata
            raise ClusterNotReady(f"No node leads the partitions of {names[0][0]} now.")
        return held

    async def close(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
        for consumer in self._idle:
            await asyncio.to_thread(consumer.close)

    def _read(self, request: ReadRequest, result: ReadResult) -> None:
        consumer = self._idle.pop() if self._idle else Consumer(self._settings())
        try:
            found, reached = self._collect(consumer, request, dict(result.next), result.ends)
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        self._idle.append(consumer)
        _merge(request, found, reached, result)

    def _collect(
        self, consumer: Consumer, request: ReadRequest, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> tuple[dict[int, list[Message]], dict[int, int]]:
        """Records by partition, no more of each than could be wanted, and how far each partition was read."""
        # Waiting for new records concerns all partitions, otherwise only partitions that have some.
        chosen = [p for p in starts if starts[p] < ends[p]] or list(starts)
        consumer.assign([TopicPartition(request.topic, p, starts[p]) for p in chosen])
        found: dict[int, list[Message]] = {p: [] for p in chosen}
        reached = dict(starts)
        unread = {p for p in chosen if starts[p] < ends[p]}
        now_s = time.monotonic()
        until_s = now_s + (MAX_SCAN_S if unread else request.wait_ms / 1000)
        size_bytes = scanned = 0
        while not self._stopping.is_set():
            for message in _some(consumer, min(SLICE_S, max(0.0, until_s - time.monotonic()))):
                partition = message.partition()
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    unread.discard(partition)
                    reached[partition] = max(reached[partition], message.offset())
                    continue
                if len(found[partition]) >= request.limit or size_bytes >= request.max_bytes:
                    continue  # fetched ahead, and read again by the next request
                scanned += 1
                reached[partition] = message.offset() + 1
                if request.key is None or message.key() == request.key:
                    found[partition].append(message)
                    size_bytes += len(message) + len(message.key() or b"") + RECORD_OVERHEAD_BYTES
                if reached[partition] >= ends[partition] or len(found[partition]) >= request.limit:
                    unread.discard(partition)
            has_found = any(found.values())
            is_done = not unread and (has_found or not request.wait_ms)
            if is_done or size_bytes >= request.max_bytes or scanned >= MAX_SCAN_RECORDS:
                break
            if not unread and not has_found:
                until_s = min(until_s, now_s + request.wait_ms / 1000)
            if time.monotonic() >= until_s:
                break
        return found, reached

    def _settings(self) -> dict[str, Any]:
        return client_settings(
            self._config,
            group_id="headwater-gateway",  # confluent-kafka wants one; nothing is joined or committed
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="earliest",
            enable_partition_eof=True,
            isolation_level="read_committed",
            fetch_wait_max_ms=25,  # the next request waits for the last fetch of this one
            fetch_error_backoff_ms=50,
            queued_max_messages_kbytes=16 * 1024,
            queued_min_messages=2 * FETCH_BATCH,
        )


def _some(consumer: Consumer, timeout_s: float) -> list[Message]:
    """What is there, as soon as something is: `consume` alone waits until it has all that it was asked for."""
    first = consumer.poll(timeout_s)
    return [] if first is None else [first, *consumer.consume(FETCH_BATCH, 0)]


def _merge(
    request: ReadRequest, found: Mapping[int, list[Message]], reached: Mapping[int, int], result: ReadResult
) -> None:
    """By time between partitions, by offset within each. What does not fit is left for the next request."""
    merged = list(heapq.merge(*found.values(), key=lambda message: message.timestamp()[1]))
    if request.position.anchor is Anchor.LAST:
        result.records = merged[-min(request.limit, max(request.position.value, 1)) :]
        result.next |= reached
        return
    result.records = merged[: request.limit]
    taken: dict[int, int] = {}
    for message in result.records:
        taken[message.partition()] = message.offset() + 1
    for partition, messages in found.items():
        has_left_some = bool(messages) and taken.get(partition, -1) <= messages[-1].offset()
        if not has_left_some:
            result.next[partition] = reached[partition]
        elif partition in taken:
            result.next[partition] = taken[partition]
