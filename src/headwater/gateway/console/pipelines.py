"""Pipelines as their runs report themselves, to the compacted topic headwater.pipelines: one status each.

The topic is read on from where the last request left it, so that looking often costs little. What is in it is checked
for its shape: anybody may write to a topic.
"""

import asyncio
import time
from typing import Any

import msgspec
from msgspec import Struct

from headwater.gateway.kafka.errors import TopicNotFound
from headwater.gateway.kafka.known_topics import KnownTopics
from headwater.gateway.kafka.reading import ReadRequest, RecordReader
from headwater.model.position import Anchor, Position

TOPIC = "headwater.pipelines"
STOP_PREFIX = b"stop:"
STALE_MS = 20_000
"""A run that has not reported for so long has died."""
MAX_STATUS_BYTES = 1024 * 1024
MAX_PIPELINES = 1_000
READ_AT_ONCE = 1_000
READ_BYTES = 4 * 1024 * 1024
MAX_READS = 200
"""For one request; the next one goes on."""
FRESH_S = 1.0


class Query(Struct):
    """What is not known is null."""

    query: str
    batch: int | None = None
    rows: int = 0
    rows_per_s: float | None = None
    processed_per_s: float | None = None
    batch_ms: int | None = None
    lag: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str | None = None
    restarts: int = 0


class Status(Struct):
    pipeline: str
    run: str
    state: str
    """running, finished, stopped, failed, or lost: it was running and tells nothing any more."""
    host: str
    pid: int
    file: str
    started_ms: int
    updated_ms: int
    queries: list[Query] = []
    error: str = ""


class Pipelines(Struct):
    pipelines: list[Status]


class PipelineStatuses:
    def __init__(self, topics: KnownTopics, reader: RecordReader) -> None:
        self._topics = topics
        self._reader = reader
        self._one_at_a_time = asyncio.Lock()
        self._statuses: dict[bytes, Status] = {}
        self._next: int | None = None
        self._read_s = float("-inf")

    async def read(self) -> Pipelines:
        """Raises KafkaFailure."""
        async with self._one_at_a_time:
            if time.monotonic() - self._read_s >= FRESH_S:
                await self._read_on()
                self._read_s = time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        statuses = [_at(status, now_ms) for status in self._statuses.values()]
        return Pipelines(sorted(statuses, key=lambda status: status.pipeline))

    async def _read_on(self) -> None:
        try:
            await self._topics.partitions_of(TOPIC)
        except TopicNotFound:
            self._forget()
            return
        for _ in range(MAX_READS):
            begin = Position(Anchor.BEGINNING) if self._next is None else Position(Anchor.OFFSET, self._next)
            found = await self._reader.read(ReadRequest(TOPIC, (0,), begin, READ_AT_ONCE, READ_BYTES))
            end = found.ends.get(0, 0)
            if self._next is not None and end < self._next:
                self._forget()  # another topic of that name: begin again
                continue
            for message in found.records:
                self._take(message.key(), message.value())
            self._next = found.next.get(0, end)
            if self._next >= end:
                return

    def _forget(self) -> None:
        self._statuses.clear()
        self._next = None

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or key.startswith(STOP_PREFIX):
            return
        status = status_of(value) if value is not None else None
        if status is not None and status.pipeline.encode() == key:
            if key in self._statuses or len(self._statuses) < MAX_PIPELINES:
                self._statuses[key] = status
        elif value is None:
            self._statuses.pop(key, None)


def status_of(content: bytes) -> Status | None:
    """None if it is none. Fields of a later version are passed over."""
    if len(content) > MAX_STATUS_BYTES:
        return None
    try:
        found: Any = msgspec.json.decode(content, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, Status) else None


def _at(status: Status, now_ms: int) -> Status:
    is_stale = status.state == "running" and now_ms - status.updated_ms > STALE_MS
    return msgspec.structs.replace(status, state="lost") if is_stale else status
