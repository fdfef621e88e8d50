"""The audit topic, written by every node: what is pending goes to the leader of its one partition, here or elsewhere.

The topic is created when the first event is written. While it cannot be written, events wait where their number is
bounded (`pending_events`), and what does not fit there is dropped and counted: neither requests nor the broker ever
wait for the audit. An append whose outcome is not known is repeated, so an event may be in the topic twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from headwater.broker.audit.audit_event import AuditKind, AuditRecord
from headwater.broker.audit.auditor import Auditor
from headwater.broker.nodes.partition_client import PartitionClient
from headwater.broker.topics.catalog import Catalog
from headwater.logs.events import log_event
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.cluster import AUDIT_TOPIC
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.model.moment import moment
from headwater.model.replica import StoreError
from headwater.records.batch import Codec
from headwater.records.build import build_batch, chunked
from headwater.records.record import Record

PARTITION: Final = 0
DAY_MS: Final = 86_400_000
MIB: Final = 1024 * 1024
CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY_MS),
    "retention.bytes": str(4096 * MIB),
    "segment.ms": str(DAY_MS),
    "segment.bytes": str(64 * MIB),
}
"""Seven days; fewer, if clients cause so many events that they would fill a disk."""
MAX_RECORDS: Final = 500
"""Written together."""
MAX_BATCH_BYTES: Final = 512 * 1024
COMPRESSED_FROM_BYTES: Final = 4096
COLLECT_S: Final = 0.2
"""How long the first event waits for others, to be written with them."""
LOOK_EVERY_S: Final = 1.0
"""At windows that end, while there are any."""
FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 10.0
STOP_WAIT_S: Final = 2.0
"""How long a stop waits for the last events to be written."""


class AuditWriter:
    def __init__(self, auditor: Auditor, catalog: Catalog, partitions: PartitionClient) -> None:
        self._auditor = auditor
        self.pending: Final = auditor.pending
        self._catalog = catalog
        self._partitions = partitions
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()
        self.written = 0
        """Records."""
        self.failures = 0

    async def run(self) -> None:
        """Until `stop`, or until cancelled. It never raises what would be the end of the broker."""
        while True:
            is_last = self._stopping.is_set()
            self._auditor.wake.clear()
            self._auditor.tell_uses(is_last=is_last)
            records = self.pending.take(moment(self._auditor.clock), MAX_RECORDS, is_last=is_last)
            if records:
                await self._write(records)
            elif is_last:
                self._drained.set()
                return
            else:
                await self._due()

    async def stop(self) -> None:
        """What is pending is written, unless that takes too long."""
        self._stopping.set()
        self._auditor.wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_WAIT_S):
                await self._drained.wait()

    async def _due(self) -> None:
        has_window = self.pending.next_due_ms() is not None or self._auditor.has_uses
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S if has_window else None):
                await self._auditor.wake.wait()
        if self._auditor.wake.is_set():
            await self._pause(COLLECT_S)

    async def _write(self, records: Sequence[AuditRecord]) -> None:
        for record in records:
            if record.event.kind is AuditKind.OVERFLOW:
                log_event("audit_overflow", logging.WARNING, dropped=record.count)
        encoded = [Record(None, record.to_json(), timestamp=record.time_ms) for record in records]
        for chunk in chunked(encoded, MAX_BATCH_BYTES):
            await self._append_until_done(chunk)

    async def _append_until_done(self, chunk: Sequence[Record]) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            try:
                await self._append(chunk)
                break
            except (RequestError, StoreError, Unavailable, Unknown) as error:
                self.failures += 1
                log_event("audit_not_written", logging.WARNING, error=error, again_in_s=retry_s)
            except Exception as error:  # ours: the events are lost, and the broker goes on
                self.failures += 1
                log_event("audit_failed", logging.ERROR, error, records=len(chunk))
                return
            await self._pause(retry_s)
            retry_s = min(retry_s * 2, LONGEST_RETRY_S)
        self.written += len(chunk)

    async def _append(self, chunk: Sequence[Record]) -> None:
        size_bytes = sum(len(record.value or b"") for record in chunk)
        codec = Codec.ZSTD if size_bytes >= COMPRESSED_FROM_BYTES else Codec.NONE
        batch = build_batch(chunk, timestamp=self._auditor.clock.now_ms(), compression=codec)
        await self._partitions.append(await self._partition(), batch)

    async def _partition(self) -> PartitionId:
        if self._catalog.find(AUDIT_TOPIC) is None:
            try:
                await self._catalog.changes.create_internal(AUDIT_TOPIC, PARTITION + 1, CONFIG)
            except RequestError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        return self._catalog.topic(AUDIT_TOPIC).partition_id(PARTITION)

    async def _pause(self, seconds: float) -> None:
        """Shorter if the broker stops."""
        if self._stopping.is_set():
            seconds = min(seconds, COLLECT_S)
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
