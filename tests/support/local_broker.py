"""A broker on the test's own event loop, with files and time that the test controls, and a client that speaks bytes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from headwater.broker.server import Broker
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.model.replica import Buffer
from headwater.records.batch import split
from headwater.records.build import build_batch
from headwater.records.record import Record, records
from headwater.storage.options import StoreOptions
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from headwater.wire.typed.fetch import PartitionData
from headwater.wire.typed.produce import PartitionProduceResponse
from tests.support.messages import nested
from tests.support.wire import AsyncWireClient

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 19, 22
ROUND_TRIPS = 3
SMALL_STORE = StoreOptions(journal_file_bytes=4 * 1024 * 1024, reserve_bytes=0, low_water_bytes=0)


def start(directory: Path, files: MemoryFiles, clock: ManualClock | None = None, **config: Any) -> Any:
    loaded = BrokerConfig.load(None, **{"data_dir": directory, "listen": "127.0.0.1:0", "metrics": "off", **config})
    return Broker.start(loaded, clock=clock, files=files, store_options=SMALL_STORE)


@asynccontextmanager
async def running(
    directory: Path, files: MemoryFiles, clock: ManualClock | None = None, **config: Any
) -> "AsyncIterator[tuple[Broker, Client]]":
    broker = await start(directory, files, clock, **config)
    client = await Client.connect(broker)
    try:
        yield broker, client
    finally:
        client.close()
        await broker.stop()


class Client(AsyncWireClient):
    """What tests ask most, in few words."""

    @classmethod
    async def connect(cls, broker: Broker) -> Self:
        return await cls.open(broker.address)

    async def round_trips(self) -> None:
        """Ask other things: what the broker does at once because of earlier requests is done when it has answered."""
        for _ in range(ROUND_TRIPS):
            await self.ask(API_VERSIONS, 0)

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        named = [nested(name=name.replace("_", "."), value=value) for name, value in configs.items()]
        asked = nested(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=named)
        answer = await self.ask(CREATE, 7, topics=[asked], timeout_ms=1000, validate_only=False)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    async def produce(
        self, topic: str, batch: Buffer, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> PartitionProduceResponse:
        self.send_batch(topic, batch, partition=partition, acks=acks, version=version)
        answer = await self.answer(PRODUCE, version)
        result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return result

    def send_batch(
        self, topic: str, batch: Buffer, *, partition: int = 0, acks: int = -1, version: int = 9, timeout_ms: int = 5000
    ) -> None:
        data = nested(name=topic, partition_data=[nested(index=partition, records=bytes(batch))])
        self.send(PRODUCE, version, transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=[data])

    async def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> PartitionData:
        asked = nested(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        answer = await self.ask(
            FETCH, 11, max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, session_id=0, session_epoch=-1,
            topics=[nested(topic=topic, partitions=[asked])],
        )  # fmt: skip
        result: PartitionData = answer.responses[0].partitions[0]
        return result

    async def read_all(self, topic: str, *, partition: int = 0, start: int = 0) -> list[Record]:
        """Everything from `start` to the high watermark, as a consumer would come by it."""
        found: list[Record] = []
        offset = start
        while True:
            result = await self.fetch(topic, offset, partition=partition)
            assert result.error_code == 0, result.error_code
            for header, batch in split(result.records or b""):
                found += [record for record in records(batch, header) if record.offset >= offset]
                offset = header.last_offset + 1
            if offset >= result.high_watermark:
                return found

    async def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int:
        asked = nested(partition_index=partition, timestamp=timestamp)
        answer = await self.ask(LIST_OFFSETS, 7, topics=[nested(name=topic, partitions=[asked])])
        result = answer.topics[0].partitions[0]
        assert result.error_code == 0, result.error_code
        offset: int = result.offset
        return offset


def batch_of(values: Sequence[bytes], *, key: bytes | None = None, timestamp: int = 1_000, **more: Any) -> bytearray:
    return build_batch([Record(key, value, timestamp=timestamp) for value in values], **more)


def keyed(pairs: Sequence[tuple[str, str | None]], timestamp: int = 1_000) -> bytearray:
    encoded = [
        Record(key.encode(), value.encode() if value is not None else None, timestamp=timestamp) for key, value in pairs
    ]
    return build_batch(encoded)
