"""What the broker knows of the schema registry: which ids there are, and to which subjects they belong.

The registry's topic `_schemas` is read when a record has an id that is not known, wherever the topic is led, and now
and then while topics are validated, to learn what was deleted. Where no topic is validated nothing is read. Of a schema
nothing but its id is kept.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.nodes.partition_client import PartitionClient
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import FIRST_OFFSET, Offset, TopicId
from headwater.model.replica import StoreError, StoreFailed
from headwater.records.batch import BatchHeader, CorruptBatch, split
from headwater.records.compression import DecompressedTooLarge
from headwater.records.control import read_marker
from headwater.records.record import records
from headwater.schemas.event_records import TOPIC, UnknownRecord, from_record
from headwater.schemas.events import Event, SchemaPut
from headwater.schemas.registry import Registry
from headwater.schemas.schema import Schema

READ_BYTES = 1024 * 1024
CATCH_UP_S = 5.0
FRESH_S = 5.0
"""How long ids that were deleted may still be taken."""
LEARN_S = 0.02
"""Between looks for a topic that another node has just made."""
MAX_OPEN_EVENTS = 100_000
"""In transactions that have not ended."""


class SchemaFollower:
    def __init__(
        self, catalog: Catalog, nodes: NodeClient, clock: Clock, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._catalog = catalog
        self._partitions = PartitionClient(catalog, nodes)
        self._clock = clock
        self._spawn = spawn
        self.registry = Registry()
        self._topic_id: TopicId | None = None
        self._offset = FIRST_OFFSET
        self._open: dict[int, list[Event]] = {}
        """By producer: what its transaction wrote."""
        self._reading = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._next_refresh = 0.0

    def refresh(self) -> None:
        """Look for news soon, if that was not done lately."""
        now = self._clock.monotonic()
        if now >= self._next_refresh:
            self._next_refresh = now + FRESH_S
            self._spawn(self._refresh())

    async def catch_up(self) -> None:
        """Everything that was registered before this was called is known when it returns. Calls that come while others
        are being answered are answered together. Raises RequestError."""
        self._asked += 1
        ticket = self._asked
        try:
            async with asyncio.timeout(CATCH_UP_S), self._reading:
                if self._answered < ticket:
                    covered = self._asked
                    await self._read_to_end()
                    self._answered = covered
        except (TimeoutError, StoreError, CorruptBatch, DecompressedTooLarge) as error:
            if isinstance(error, StoreFailed):
                raise
            reason = f"The schema registry's topic could not be read: {type(error).__name__} {error}."
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, reason) from error

    async def _refresh(self) -> None:
        try:
            await self.catch_up()
        except RequestError as error:
            log_event("schemas_not_read", logging.WARNING, error=error.message)

    async def _read_to_end(self) -> None:
        topic = await self._topic()
        if (topic.topic_id if topic is not None else None) != self._topic_id:
            self.registry, self._offset, self._open = Registry(), FIRST_OFFSET, {}
            self._topic_id = topic.topic_id if topic is not None else None
        if topic is None:
            return
        partition_id = topic.partition_id(0)
        end: Offset | None = None
        while end is None or self._offset < end:
            read = await self._partitions.read(partition_id, self._offset, READ_BYTES)
            end = read.high_watermark if end is None else end
            batches = split(read.batches)
            for header, batch in batches:
                if header.last_offset >= self._offset:
                    self._take(header, batch)
                    self._offset = header.last_offset + 1
            if not batches:  # compaction left nothing up to here
                self._offset = max(self._offset, end)

    async def _topic(self) -> Topic | None:
        """The registry's topic, if there is one anywhere: the first schema may have been registered before this node
        heard of it."""
        while (topic := self._catalog.find(TOPIC)) is None:
            try:
                if await self._catalog.is_name_free(TOPIC):
                    return None
            except RequestError as error:  # one that producers try again upon
                raise RequestError(ErrorCode.REQUEST_TIMED_OUT, error.message) from error
            await asyncio.sleep(LEARN_S)
        return topic

    def _take(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            events = self._open.pop(header.producer_id, [])
            if read_marker(batch, header).is_commit:
                for event in events:
                    self.registry.apply(event)
            return
        decoded = (_event(record.key, record.value) for record in records(batch, header))
        events = [event for event in decoded if event is not None]
        if not header.is_transactional:
            for event in events:
                self.registry.apply(event)
        elif sum(len(each) for each in self._open.values()) < MAX_OPEN_EVENTS:
            self._open.setdefault(header.producer_id, []).extend(events)


def _event(key: bytes | None, value: bytes | None) -> Event | None:
    try:
        event = from_record(key, value)
    except UnknownRecord:
        return None
    return replace(event, schema=Schema(event.schema.type, "")) if isinstance(event, SchemaPut) else event
