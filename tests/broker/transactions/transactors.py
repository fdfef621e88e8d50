"""Transactions without a coordinator: batches and markers go straight to a partition; a consumer reads them."""

from dataclasses import dataclass
from typing import Any

from headwater.broker.log.partition import Appended, Partition
from headwater.broker.server import Broker
from headwater.records.batch import TRANSACTIONAL, parse_header, split
from headwater.records.build import build_batch
from headwater.records.control import read_marker
from headwater.records.record import Record, records
from tests.support.eventually import until
from tests.support.local_broker import FETCH, LIST_OFFSETS, Client
from tests.support.messages import nested

READ_COMMITTED = 1
TIME_MS = 1_000


def partition_of(broker: Broker, topic: str = "t") -> Partition:
    return broker.catalog.topic(topic).partition(0)


async def roll(partition: Partition) -> None:
    """A new segment, if the open one holds anything."""
    if partition.open_bytes:
        chain = partition.register.chain
        before = chain.open.id
        partition.ask_roll()
        await until(lambda: chain.open.id != before)


@dataclass
class Transactor:
    """A producer whose coordinator has let it begin. After a restart it goes on with the new `partition`."""

    partition: Partition
    producer_id: int = 7
    epoch: int = 0
    sequence: int = 0
    coordinator_epoch: int = 0

    def send(
        self, *values: bytes, key: bytes | None = None, timestamp: int = TIME_MS, is_transactional: bool = True
    ) -> Appended:
        batch = build_batch(
            [Record(key, value, timestamp=timestamp) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL if is_transactional else 0,
        )
        appended = self.partition.append(batch, parse_header(batch))
        self.sequence += len(values)
        return appended

    async def write(self, *values: bytes, **more: Any) -> int:
        """Returns when the batch is committed: its base offset."""
        appended = self.send(*values, **more)
        if appended.committed is not None:
            await appended.committed
        return appended.base_offset

    def mark(self, is_commit: bool) -> Appended | None:
        return self.partition.append_marker(self.producer_id, self.epoch, is_commit, self.coordinator_epoch)

    async def commit(self) -> int:
        return await self._end(True)

    async def abort(self) -> int:
        return await self._end(False)

    def next_epoch(self) -> None:
        """As of the newer protocol: the marker carries it already."""
        self.epoch, self.sequence = self.epoch + 1, 0

    async def _end(self, is_commit: bool) -> int:
        appended = self.mark(is_commit)
        assert appended is not None
        if appended.committed is not None:
            await appended.committed
        return appended.base_offset


async def fetch_committed(
    client: Client, offset: int, *, topic: str = "t", wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20
) -> Any:
    asked = nested(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    answer = await client.ask(
        FETCH, 11, max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=READ_COMMITTED,
        session_id=0, session_epoch=-1, topics=[nested(topic=topic, partitions=[asked])],
    )  # fmt: skip
    result: Any = answer.responses[0].partitions[0]
    return result


def committed_records(result: Any, offset: int) -> list[Record]:
    """What a consumer makes of an answer: who aborted is told by the list, and that it is over by the marker."""
    pending = sorted((entry.first_offset, entry.producer_id) for entry in result.aborted_transactions)
    aborted: set[int] = set()
    found: list[Record] = []
    for header, batch in split(result.records or b""):
        while pending and pending[0][0] <= header.last_offset:
            aborted.add(pending.pop(0)[1])
        if header.is_control:
            if not read_marker(batch, header).is_commit:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [record for record in records(batch, header) if record.offset >= offset]
    return found


async def read_committed(client: Client, *, topic: str = "t", start: int = 0, max_bytes: int = 1 << 20) -> list[Record]:
    """Everything from `start` to the last stable offset."""
    found: list[Record] = []
    offset = start
    while True:
        result = await fetch_committed(client, offset, topic=topic, max_bytes=max_bytes)
        assert result.error_code == 0, result.error_code
        found += committed_records(result, offset)
        batches = split(result.records or b"")
        assert all(header.last_offset < result.last_stable_offset for header, _ in batches)
        offset = batches[-1][0].last_offset + 1 if batches else offset
        if not batches or offset >= result.last_stable_offset:
            return found


async def committed_values(client: Client, **more: Any) -> list[bytes | None]:
    return [record.value for record in await read_committed(client, **more)]


async def stable_offset(client: Client, timestamp: int = -1) -> int:
    """What ListOffsets says to a reader of committed records."""
    asked = nested(partition_index=0, timestamp=timestamp)
    answer = await client.ask(
        LIST_OFFSETS, 7, isolation_level=READ_COMMITTED, topics=[nested(name="t", partitions=[asked])]
    )
    result = answer.topics[0].partitions[0]
    assert result.error_code == 0, result.error_code
    offset: int = result.offset
    return offset
